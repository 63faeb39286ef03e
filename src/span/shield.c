/* See shield.h. mprotect below, aligned.c and heap_malloc.c call it to note; kinds/, huge/, userheap/, sample/ and profile/ call it
 * before they touch a block. */
#include "span/shield.h"

#include <errno.h>
#include <sys/mman.h>

#include "arena/mapping.h"
#include "arena/window.h"
#include "base/assert.h"
#include "base/bits.h"
#include "base/syscall.h"
#include "harden/mode.h"

enum { BESIDE_WORDS = 64 };

_Atomic bool hak__shields;
static hak_rare_data _Atomic uint64_t beside_notes[BESIDE_WORDS]; /* indexed by an address's slab, modulo their number */
static _Atomic uintptr_t watched_start, watched_end;

static uint64_t beside_bit(uintptr_t at) { return 1ull << (at >> HAK_SLAB_SHIFT) % 64; }
static _Atomic uint64_t *beside_word(uintptr_t at) { return &beside_notes[(at >> HAK_SLAB_SHIFT) / 64 % BESIDE_WORDS]; }

/* --- the window ---------------------------------------------------------------------------------------------------------- */

static bool shield_is_huge(size_t slab)
{
    uint32_t kind = hak_load(&hak__supers[slab / HAK_SUPER_SLABS].kind, HAK_RELAXED);
    return kind == HAK_SUPER_HUGE || kind == HAK_SUPER_HUGE_TAIL;
}

/* The span of the block in a slab, NULL if there is none. */
static struct hak_span *shield_span(size_t slab)
{
    uint32_t word = hak__owner_at(slab);
    return word == 0 || word == hak__owner_huge() ? NULL : hak__span_around(slab);
}

/* The first SuperSlab of the huge block that contains a slab. */
static struct hak_super *shield_huge(size_t slab)
{
    size_t super = slab / HAK_SUPER_SLABS;
    while (super > 0 && hak_load(&hak__supers[super].kind, HAK_RELAXED) == HAK_SUPER_HUGE_TAIL)
        super--;
    return &hak__supers[super];
}

static void note_slab(size_t slab)
{
    struct hak_span *span = shield_span(slab);
    if (span == NULL)
        return;
    hak_fetch_or(&hak__spans[slab].shielded, HAK_SHIELD_SLAB, HAK_RELAXED);
    hak__span_shield(span);
}

static void note_in_window(uintptr_t from, uintptr_t to)
{
    hak_assert(from < to && from >= hak__window.base, "a range of the window");
    size_t slab = (from - hak__window.base) >> HAK_SLAB_SHIFT, last = (to - 1 - hak__window.base) >> HAK_SLAB_SHIFT;
    for (bool begun = false; slab <= last; slab++) {
        bool huge = shield_is_huge(slab), first = slab % HAK_SUPER_SLABS == 0;
        if (!huge)
            note_slab(slab);
        else if (!begun || (first && hak_load(&hak__supers[slab / HAK_SUPER_SLABS].kind, HAK_RELAXED) == HAK_SUPER_HUGE))
            hak_store(&shield_huge(slab)->shielded, 1, HAK_RELAXED);
        begun = huge;
    }
}

/* Whether the slab is noted; beside the window, whether any slab with the same bit is. */
static bool is_noted(uintptr_t at)
{
    size_t slab = hak__slab_of((void *)at);
    if (slab < hak_read_mostly(&hak__window.slabs))
        return (hak_load(&hak__spans[slab].shielded, HAK_RELAXED) & HAK_SHIELD_SLAB) != 0;
    return (hak_load(beside_word(at), HAK_RELAXED) & beside_bit(at)) != 0;
}

static bool restore_pages(uintptr_t from, uintptr_t to)
{
    hak_assert(from < to, "a range");
    size_t page = hak__page_size();
    from = hak_align_down(from, page), to = hak_align_up(to, page);
    return hak__arena_advise((void *)from, to - from, HAK_OS_RESTORE) == 0;
}

bool hak__shield_lift_range_slow(uintptr_t start, size_t bytes)
{
    bool noted = false;
    for (uintptr_t at = hak_align_down(start, HAK_SLAB_SIZE); at < start + bytes; at += HAK_SLAB_SIZE)
        noted |= is_noted(at);
    return !noted || restore_pages(start, start + bytes);
}

static bool lift_huge(struct hak_super *first)
{
    uintptr_t start = (uintptr_t)hak__super_start((size_t)(first - hak__supers));
    if (hak_load(&first->shielded, HAK_RELAXED) == 0)
        return true;
    if (!restore_pages(start, start + hak_load(&first->huge_bytes, HAK_RELAXED)))
        return false;
    hak_store(&first->shielded, 0, HAK_RELAXED);
    return true;
}

/* A block that has its span to itself takes the notes with it, since no other block has a page there. Otherwise they stay until the
 * span ends, since a slab may hold parts of other blocks. */
static bool lift_in_span(struct hak_span *span, uintptr_t block)
{
    hak_assert(block >= (uintptr_t)hak__span_start(span), "a block of the span");
    uintptr_t start = (uintptr_t)hak__span_start(span), end = start + ((size_t)span->slabs << HAK_SLAB_SHIFT);
    bool alone = span->blocks == 1;
    if (span->keys == HAK_SPAN_HARDENED && hak__hardened.guards)
        end -= hak__page_size();
    if (alone)
        block = start;
    bool done = hak__shield_lift_range_slow(block, hak_min(block + hak__classes[span->class].size, end) - block);
    if (done && alone)
        hak__span_unshield(span);
    return done;
}

/* The span in which a page may have changed its rights; NULL: none has. */
static struct hak_span *shielded_span(size_t slab)
{
    struct hak_span *span = shield_span(slab);
    return span != NULL && hak_load(&span->shielded, HAK_RELAXED) != 0 ? span : NULL;
}

bool hak__shield_lift_slow(const void *p)
{
    size_t slab = hak__slab_of(p);
    if (slab >= hak_read_mostly(&hak__window.slabs))
        return true;
    if (shield_is_huge(slab))
        return lift_huge(shield_huge(slab));
    struct hak_span *span = shielded_span(slab);
    return span == NULL || lift_in_span(span, (uintptr_t)p);
}

bool hak__shield_covers_slow(const void *p)
{
    size_t slab = hak__slab_of(p);
    if (slab >= hak_read_mostly(&hak__window.slabs))
        return false;
    bool noted = shield_is_huge(slab) ? hak_load(&shield_huge(slab)->shielded, HAK_RELAXED) != 0 : shielded_span(slab) != NULL;
    return noted && hak__os_readable((uintptr_t)p) != 0;
}

/* --- notes ----------------------------------------------------------------------------------------------------------------- */

/* One pass over the bits suffices to set all of them. */
static void note_beside(uintptr_t from, uintptr_t to)
{
    from = hak_align_down(from, HAK_SLAB_SIZE);
    to = hak_min(to, from + ((size_t)64 * BESIDE_WORDS << HAK_SLAB_SHIFT));
    for (uintptr_t at = from; at < to; at += HAK_SLAB_SIZE)
        hak_fetch_or(beside_word(at), beside_bit(at), HAK_RELAXED);
}

static void note_within(uintptr_t from, uintptr_t to, uintptr_t start, uintptr_t end, void note(uintptr_t, uintptr_t))
{
    from = hak_max(from, start), to = hak_min(to, end);
    if (start == 0 || from >= to)
        return;
    hak_store(&hak__shields, true, HAK_RELAXED);
    note(from, to);
}

void hak__shield_note(uintptr_t start, size_t bytes)
{
    uintptr_t end = start + bytes < start ? UINTPTR_MAX : start + bytes, base = hak__window.base, guarded = hak__guarded_start();
    note_within(start, end, base, base + (hak_read_mostly(&hak__window.slabs) << HAK_SLAB_SHIFT), note_in_window);
    note_within(start, end, guarded, guarded + HAK_GUARDED_SIZE, note_beside);
    note_within(start, end, hak_load(&watched_start, HAK_RELAXED), hak_load(&watched_end, HAK_RELAXED), note_beside);
}

void *hak__shield_note_aligned(void *block, size_t align, size_t n)
{
    if (block != NULL && n > HAK_MID_MAX && align >= hak__page_size())
        hak__shield_note((uintptr_t)block, 1);
    return block;
}

void hak__shield_watch(uintptr_t start, size_t bytes)
{
    hak_assert(hak_load(&watched_start, HAK_RELAXED) == 0, "a second range is watched once");
    hak_store(&watched_start, start, HAK_RELAXED);
    hak_store(&watched_end, start + bytes, HAK_RELAXED);
}

/* mprotect, so that the library knows, before a block is freed, of access that the program revoked from its pages. It makes that
 * system call; a direct system call of the program goes unseen. Compiled only where the library replaces malloc, and not with
 * HAKMEM_INTERPOSE=malloc-only. */
#if HAK_OVERRIDE && HAK_INTERPOSE
hak_export int mprotect(void *start, size_t bytes, int rights)
{
    bool fewer = (rights & (PROT_READ | PROT_WRITE)) != (PROT_READ | PROT_WRITE);
    if (fewer)
        hak__shield_note((uintptr_t)start, bytes);
    int code = hak__syscall_code(hak__syscall(SYS_mprotect, start, bytes, rights));
    if (fewer)
        hak__shield_note((uintptr_t)start, bytes);
    if (code != 0)
        errno = code;
    return code == 0 ? 0 : -1;
}

#endif
