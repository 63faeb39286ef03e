/* Guards, closed blocks, random order, and cleared memory. See spans.h. */
#include "harden/spans.h"

#include <errno.h>
#include <string.h>

#include "arena/limit.h"
#include "arena/mapping.h"
#include "arena/runs.h"
#include "base/assert.h"
#include "base/bits.h"
#include "diag/options.h"
#include "diag/report.h"
#include "os/os.h"
#include "span/shield.h"

/* EXTENT, EXTENT_BLOCKS: the bytes by which a frontier moves, and the least number of blocks. MAPPINGS_PER_SPLIT: the share of the
 * allowed mappings that guards may split off. */
enum { EXTENT = 16 << 10, EXTENT_BLOCKS = 8, MAPPINGS_PER_SPLIT = 8, PAGES_ASKED = 512, PAGES_CLEARED = 16, GATE_TRIES = 100 };

static _Atomic uint32_t splits; /* guards made by protection */
static _Atomic bool no_kernel_guards;

/* --- guards ------------------------------------------------------------------------------------------------------------- */

static char *guard_of(const struct hak_span *span)
{
    return hak__span_start(span) + ((size_t)span->slabs << HAK_SLAB_SHIFT) - hak__page_size();
}

/* A kernel guard discards the content of its pages. False: the kernel refuses, or has no guards. */
static bool guard_pages(char *start, size_t bytes)
{
    if (hak_load(&no_kernel_guards, HAK_RELAXED))
        return false;
    int code = hak__arena_advise(start, bytes, HAK_OS_GUARD);
    if (code == 0)
        return true;
    hak__arena_advise(start, bytes, HAK_OS_UNGUARD); /* some pages may already be guarded */
    if (code == EINVAL)
        hak_store(&no_kernel_guards, true, HAK_RELAXED);
    return false;
}

/* Protection keeps the content. False: the kernel refuses, or has guards, or there are enough splits. */
static bool forbid_pages(char *start, size_t bytes)
{
    if (!hak_load(&no_kernel_guards, HAK_RELAXED))
        return false;
    if (hak_fetch_add(&splits, 1, HAK_RELAXED) < hak__limit_mappings() / MAPPINGS_PER_SPLIT
        && hak__arena_advise(start, bytes, HAK_OS_FORBID) == 0)
        return true;
    hak_fetch_sub(&splits, 1, HAK_RELAXED);
    return false;
}

/* Undoes both, because the kernel may have refused further guards after some had been made (as for locked memory). */
static bool reopen_pages(char *start, size_t bytes)
{
    bool split = hak_load(&no_kernel_guards, HAK_RELAXED), done = hak__arena_advise(start, bytes, HAK_OS_UNGUARD) == 0;
    if (!split)
        return done;
    if (hak__arena_advise(start, bytes, HAK_OS_ALLOW) != 0)
        return false;
    hak_fetch_sub(&splits, hak_load(&splits, HAK_RELAXED) != 0, HAK_RELAXED);
    return true;
}

/* If the page cannot be guarded, it is merely unused: nothing else is lost. */
static void guard_block(const struct hak_span *span)
{
    if (!guard_pages(guard_of(span), hak__page_size()))
        forbid_pages(guard_of(span), hak__page_size());
}

static void harden_again(struct hak_span *span)
{
    span->random = hak__os->random();
    hak_store(&span->closed, 0, HAK_RELAXED);
    hak_store(&span->gate, 0, HAK_RELAXED);
    if (hak__hardened.guards)
        guard_block(span);
}

void hak__span_harden(struct hak_span *span, uint32_t owner)
{
    hak_assert(hak__hardened.on && hak__span_allocated(span) == 0, "a span without blocks in use, in hardened mode");
    span->keys = HAK_SPAN_HARDENED;
    span->single = false;
    span->blocks = hak__hardened.blocks[span->class];
    hak__span_change_owner(span, owner);
    hak__span_map_places(span);
    harden_again(span);
}

/* --- spans without memory ---------------------------------------------------------------------------------------------- */

bool hak__span_sleep(struct hak_span *span)
{
    hak_assert(span->keys == HAK_SPAN_HARDENED && hak__span_allocated(span) == 0, "an empty hardened span");
    size_t bytes = hak_min(span->reach, (size_t)span->slabs << HAK_SLAB_SHIFT);
    bool bare = hak__super_is_bare(hak__span_slab(span) / HAK_SUPER_SLABS);
    char *start = hak__span_start(span);
    hak__span_unguard(span);
    if (!(bare ? hak__piece_unmap(start, bytes) : hak__arena_purge_range(start, bytes, HAK_UNUSED_PAGES))) {
        harden_again(span);
        return false;
    }
    memset(span->free, 0, span->words * sizeof *span->free);
    span->summary = 0;
    span->frontier = span->free_count = 0;
    span->fresh = span->purged = true;
    span->reach = 0;
    return true;
}

bool hak__span_wake(struct hak_span *span)
{
    bool bare = hak__super_is_bare(hak__span_slab(span) / HAK_SUPER_SLABS);
    hak_assert(hak__span_sleeps(span), "a span that sleeps");
    if (!bare)
        span->reach = HAK_REACH_ALL;
    else if (!hak__span_reach(span, (size_t)span->slabs << HAK_SLAB_SHIFT))
        return false;
    harden_again(span);
    return true;
}

/* --- cleared memory ------------------------------------------------------------------------------------------------------- */

/* The whole pages of a long range, most of which may never have been touched; a range within one page has none: the result is its
 * end. */
static char *pages_of(const char *start, size_t bytes, size_t *whole)
{
    size_t page = hak__page_size();
    uintptr_t first = hak_align_up((uintptr_t)start, page), last = hak_align_down((uintptr_t)start + bytes, page);
    *whole = last > first ? last - first : 0;
    return (char *)hak_min(first, (uintptr_t)start + bytes);
}

/* Which of up to PAGES_ASKED pages are resident, one byte each; all of them if the kernel does not tell. The byte behind the last
 * is 0. */
struct pages_there {
    uint64_t words[PAGES_ASKED / 8 + 1];
    size_t count;
};

static void hardened_ask(struct pages_there *there, const char *pages, size_t bytes)
{
    there->count = bytes / hak__page_size();
    there->words[there->count / 8] = there->words[(there->count + 7) / 8] = 0;
    if (hak__os_resident((uintptr_t)pages, bytes, (unsigned char *)there->words) != 0)
        memset(there->words, 1, there->count);
}

static size_t sum_there(const struct pages_there *there)
{
    size_t sum = 0;
    for (size_t i = 0; i * 8 < there->count; i++)
        sum += hak_popcount64(there->words[i]);
    return sum;
}

/* Calls `look` for each resident page until it returns false. */
hak_inline bool each_there(const struct pages_there *there, char *pages, bool look(char *page, size_t bytes))
{
    size_t page = hak__page_size();
    for (size_t i = 0; i * 8 < there->count; i++)
        for (uint64_t word = there->words[i]; word != 0; word &= word - 1)
            if (!look(pages + (i * 8 + hak_ctz64(word) / 8) * page, page))
                return false;
    return true;
}

static bool clear_page(char *page, size_t bytes) { return memset(page, 0, bytes) != NULL; }
static bool page_is_clear(char *page, size_t bytes) { return hak__is_zero(page, bytes); }

/* Clears a few pages; returns many to the system, which also spares checking them. */
static void clear_pages(char *pages, size_t bytes)
{
    struct pages_there there;
    for (size_t step; bytes != 0; pages += step, bytes -= step) {
        step = hak_min(bytes, PAGES_ASKED * hak__page_size());
        hardened_ask(&there, pages, step);
        if (sum_there(&there) <= PAGES_CLEARED || !hak__arena_purge_range(pages, step, HAK_UNUSED_PAGES))
            each_there(&there, pages, clear_page);
    }
}

static bool pages_are_clear(char *pages, size_t bytes)
{
    struct pages_there there;
    bool clear = true;
    for (size_t step; bytes != 0 && clear; pages += step, bytes -= step) {
        step = hak_min(bytes, PAGES_ASKED * hak__page_size());
        hardened_ask(&there, pages, step);
        clear = each_there(&there, pages, page_is_clear);
    }
    return clear;
}

void hak__hardened_clear_long(char *start, size_t bytes)
{
    size_t whole;
    char *pages = pages_of(start, bytes, &whole);
    memset(start, 0, (size_t)(pages - start));
    clear_pages(pages, whole);
    memset(pages + whole, 0, (size_t)(start + bytes - (pages + whole)));
}

bool hak__hardened_long_is_clear(const char *start, size_t bytes)
{
    size_t whole;
    char *pages = pages_of(start, bytes, &whole);
    const char *behind = pages + whole;
    return hak__is_zero(start, (size_t)(pages - start)) && pages_are_clear(pages, whole)
        && hak__is_zero(behind, (size_t)(start + bytes - behind));
}

/* --- closed blocks ------------------------------------------------------------------------------------------------------ */

/* The block's span, and its bit in `closed`; 0: no block begins there. */
static struct hak_span *closable_at(const void *p, uint8_t *bit)
{
    uint32_t index;
    struct hak_span *span = hak__span_at(hak__slab_of(p));
    *bit = hak__span_index(span, p, &index) == HAK_SPAN_OK && index < HAK_CLOSED_BLOCKS ? (uint8_t)(1u << index) : 0;
    return span;
}

bool hak__hardened_is_closed(const void *p, uint32_t class)
{
    uint8_t bit;
    if (!hak__hardened_closes(class))
        return false;
    const struct hak_span *span = closable_at(p, &bit);
    return (hak_load(&span->closed, HAK_ACQUIRE) & bit) != 0;
}

/* A gate is held only for a moment, unless its holder is interrupted or does not exist in a forked child; so the tries are
 * limited. */
static bool take_gate(struct hak_span *span)
{
    for (unsigned tries = 0; tries < GATE_TRIES; tries++) {
        /* acquire: pairs with the release below; the bit and the pages then match. */
        if (hak_exchange(&span->gate, 1, HAK_ACQUIRE) == 0)
            return true;
        hak_pause();
    }
    return false;
}

static void leave_gate(struct hak_span *span) { hak_store(&span->gate, 0, HAK_RELEASE); }

bool hak__hardened_hold(const void *p, uint32_t class)
{
    uint8_t bit;
    if (!hak__hardened_closes(class))
        return true;
    struct hak_span *span = closable_at(p, &bit);
    if (!take_gate(span))
        return false;
    if ((hak_load(&span->closed, HAK_ACQUIRE) & bit) == 0)
        return true;
    leave_gate(span);
    return false;
}

void hak__hardened_let(const void *p, uint32_t class)
{
    uint8_t bit;
    if (hak__hardened_closes(class))
        leave_gate(closable_at(p, &bit));
}

/* Without guards the pages are returned first, since protection would keep them. */
static bool close_whole(char *pages, size_t whole)
{
    if (whole == 0 || guard_pages(pages, whole))
        return whole != 0;
    if (hak_load(&no_kernel_guards, HAK_RELAXED) && !hak__arena_purge_range(pages, whole, HAK_UNUSED_PAGES))
        memset(pages, 0, whole);
    return forbid_pages(pages, whole);
}

bool hak__hardened_close(void *p, uint32_t class, bool *again)
{
    hak_assert(hak__hardened_closes(class), "blocks of the class are closed");
    uint8_t bit;
    size_t whole;
    struct hak_span *span = closable_at(p, &bit);
    char *pages = pages_of(p, hak__hardened.room[class], &whole), *end = (char *)p + hak__hardened.room[class];
    *again = false;
    if (!take_gate(span))
        return false;
    *again = (hak_fetch_or(&span->closed, bit, HAK_RELAXED) & bit) != 0;
    bool done = !*again && close_whole(pages, whole);
    if (done) {
        memset(p, 0, (size_t)(pages - (char *)p));
        memset(pages + whole, 0, (size_t)(end - (pages + whole)));
    } else if (!*again) {
        hak_fetch_and(&span->closed, (uint8_t)~bit, HAK_RELAXED);
    }
    leave_gate(span);
    return done;
}

/* Removing protection from one of two neighbours splits a mapping, which the kernel may refuse. */
bool hak__hardened_reopen(void *p, uint32_t class)
{
    hak_assert(hak__hardened_closes(class), "blocks of the class are closed");
    uint8_t bit;
    size_t whole;
    struct hak_span *span = closable_at(p, &bit);
    char *pages = pages_of(p, hak__hardened.room[class], &whole);
    if ((hak_load(&span->closed, HAK_RELAXED) & bit) == 0)
        return true;
    if (!reopen_pages(pages, whole))
        return false;
    *hak__hardened_mark(p, class) = hak__freed_key;
    /* release: pairs with the acquire of hak__hardened_hold. */
    hak_fetch_and(&span->closed, (uint8_t)~bit, HAK_RELEASE);
    return true;
}

static void note_all_slabs(struct hak_span *span)
{
    for (uint32_t i = 0; i < span->slabs; i++)
        hak_fetch_or(&span[i].shielded, HAK_SHIELD_SLAB, HAK_RELAXED);
    hak_store(&hak__shields, true, HAK_RELAXED);
}

/* Opens the free blocks too. Pages that the kernel refuses to open count as having changed rights (shield.h), which are checked at
 * the end of a heap. */
void hak__span_end_guard(struct hak_span *span)
{
    hak_assert(span->keys == HAK_SPAN_HARDENED, "a hardened span");
    size_t size = hak__classes[span->class].size;
    for (uint32_t i = 0; i < span->blocks && hak_load(&span->closed, HAK_RELAXED) != 0; i++)
        if (!hak__hardened_reopen(hak__span_start(span) + i * size, span->class))
            note_all_slabs(span);
    if (hak__hardened.guards)
        reopen_pages(guard_of(span), hak__page_size());
}

/* --- taking ------------------------------------------------------------------------------------------------------------- */

/* Turns blocks beyond the frontier into free ones. */
static void hardened_extend(struct hak_span *span, uint32_t count)
{
    size_t size = hak__classes[span->class].size;
    char *block = hak__span_start(span) + span->frontier * size;
    count = count < (uint32_t)(span->blocks - span->frontier) ? count : (uint32_t)(span->blocks - span->frontier);
    for (uint32_t i = span->frontier; i < span->frontier + count; i++, block += size) {
        if (!span->fresh && hak__hardened.zero)
            hak__hardened_clear(block, hak__hardened.room[span->class]);
        *hak__hardened_mark(block, span->class) = hak__hardened.never_key;
        span->free[i / 64] |= 1ull << i % 64;
        span->summary |= 1ull << i / 64;
    }
    span->frontier = (uint16_t)(span->frontier + count);
    span->free_count = (uint16_t)(span->free_count + count);
}

/* The first set bit from `place` on, wrapping around. */
static unsigned first_from(uint64_t bits, unsigned place)
{
    return (hak_ctz64(bits >> place | bits << (64 - place) % 64) + place) % 64;
}

static uint32_t draw_block(struct hak_span *span)
{
    hak_assert(span->summary != 0, "there is a free block");
    uint64_t random = hak__hardened.random ? hak__random_next(&span->random) : 0;
    unsigned word = first_from(span->summary, random % 64);
    unsigned bit = first_from(span->free[word], random / 64 % 64);
    span->free[word] &= ~(1ull << bit);
    span->summary &= ~((uint64_t)(span->free[word] == 0) << word);
    return word * 64 + bit;
}

uint32_t hak__span_take_hardened(struct hak_span *span, void **out, uint32_t want)
{
    hak_assert(span->keys == HAK_SPAN_HARDENED && span->reach != 0 && want != 0,
               "a hardened span awake, of which something is asked");
    size_t size = hak__classes[span->class].size;
    uint32_t step = (uint32_t)(EXTENT / size > EXTENT_BLOCKS ? EXTENT / size : EXTENT_BLOCKS);
    while (span->free_count < want + step / 2 && span->frontier < span->blocks)
        hardened_extend(span, step);
    uint32_t taken = 0;
    while (taken < want && span->free_count != 0) {
        char *block = hak__span_start(span) + draw_block(span) * size;
        span->free_count--;
        if (hak__hardened_closes(span->class) && hak_unlikely(!hak__hardened_reopen(block, span->class)))
            continue;
        hak_key *mark = hak__hardened_mark(block, span->class);
        if (hak_unlikely(*mark == 0))
            *mark = hak__freed_key;
        out[want - ++taken] = block;
    }
    span->changes++;
    return taken;
}
