/* Seals, slack, and freed blocks that stay clear. See harden.h. */
#include "harden/harden.h"

#include <string.h>

#include "base/assert.h"
#include "base/lock.h"
#include "cache/cache.h"
#include "diag/report.h"
#include "harden/quarantine.h"
#include "heap/heap.h"
#include "huge/huge.h"
#include "span/shield.h"

enum { BLOCK_LOOKS = 2000 };

/* --- misuse ---------------------------------------------------------------------------------------------------------------- */

static hak_cold void report_overflow(const void *p, size_t size, const char *function)
{
    hak__misuse(&(struct hak_mistake){ .kind = HAK_MISUSE_WRITTEN, .function = function, .p = p },
                "%s(): overflow of %p (%u-byte block): something was written past its end", function, p, (uint64_t)size);
}

static hak_cold size_t report_invalid(const void *p, const char *function, const char *why)
{
    hak__misuse_invalid(function, p, why);
    return HAK_NO_BLOCK;
}

static hak_cold size_t report_freed(const void *p, uint32_t class, const char *function, const char *why_freed)
{
    if (why_freed != NULL)
        return report_invalid(p, function, why_freed);
    hak__misuse_double_free(function, p, hak__classes[class].size);
    return HAK_NO_BLOCK;
}

/* Whether the block below its span's frontier is free, given that it bears no seal. */
static hak_cold bool is_free(const void *p, uint32_t class, uint64_t mark)
{
    bool marked = hak__hardened.canary && mark == hak__freed_key;
    return (marked && hak__heap_is_unusable_at(p)) || hak__cache_has_freed(NULL, class, p);
}

/* Reports p and returns HAK_NO_BLOCK if it is no block in use, given that it bears no seal or, without canaries, may be free; else n.
 * Without canaries no mark proves anything: blocks that are not cleared hold old ones, which realloc or the program copies. */
static hak_cold size_t judge_block(const void *p, uint32_t class, uint64_t mark, const char *function, const char *why_freed,
                                   size_t n)
{
    uint32_t index;
    const struct hak_span *span = hak__span_at(hak__slab_of(p));
    if (hak__span_index(span, p, &index) != HAK_SPAN_OK)
        return report_invalid(p, function, "not the start of a block");
    bool never = index >= span->frontier || (hak__hardened.canary && mark == hak__hardened.never_key);
    if (!never && !is_free(p, class, mark))
        return n;
    if (never || mark == hak__hardened.never_key)
        return report_invalid(p, function, "this block was never allocated");
    return report_freed(p, class, function, why_freed);
}

/* Survives an overflow: the block is sealed anew, and is never freed if this was its free. `n`: the bytes asked for, or at most. */
static hak_cold size_t survive_overflow(const void *p, uint32_t class, size_t n, const char *function, bool freeing)
{
    struct hak_heap *heap = hak__heap_mine();
    report_overflow(p, hak__classes[class].size, function);
    struct hak_quarantine *quarantine = (heap->mode & HAK_MODE_SENTINEL) != 0 ? NULL : heap->quarantine;
    const void *before = hak__quarantine_at(quarantine, p);
    hak__seal((void *)(uintptr_t)p, class, n);
    hak__quarantine_at_end(quarantine, before);
    return freeing ? HAK_NO_BLOCK : n;
}

size_t hak__harden_size(const void *p, uint32_t word, const char *function, const char *why_freed)
{
    const struct hak_slab *slab = &hak__window.map[hak__slab_of(p)];
    uint32_t class = hak__owner_class(word);
    size_t n = hak__hardened.room[class];
    if (hak_unlikely(!hak__begins_below(hak__hardened.bound[class], slab, p)))
        return report_invalid(p, function, "not the start of a block");
    if (hak_unlikely(hak__hardened_is_closed(p, class)))
        return report_freed(p, class, function, why_freed);
    if (!hak__hardened.canary) {
        const hak_key *mark = hak__hardened_mark(p, class);
        uint64_t found = hak__shield_covers(mark) ? hak__freed_key : *mark; /* without seals it is program data */
        return hak__hardened_is_mark(found) ? judge_block(p, class, found, function, why_freed, n) : n;
    }
    bool sealed = hak__is_sealed(p, class, &n);
    if (hak_unlikely(!sealed)) {
        n = judge_block(p, class, *hak__hardened_mark(p, class), function, why_freed, hak__hardened.room[class] - HAK_SEAL);
        return n == HAK_NO_BLOCK ? n : survive_overflow(p, class, n, function, why_freed == NULL);
    }
    if (hak_unlikely(!hak__slack_is_whole(p, n, hak__hardened.room[class] - HAK_SEAL)))
        return survive_overflow(p, class, n, function, why_freed == NULL);
    return n;
}

/* A seal proves it, and without canaries a last word that is no mark, nor the zero of a returned page; else the heap is asked. */
bool hak__harden_is_live(const void *p, uint32_t class)
{
    uint32_t index;
    size_t n;
    if (!hak__begins_below(hak__hardened.bound[class], &hak__window.map[hak__slab_of(p)], p) || hak__hardened_is_closed(p, class))
        return false;
    const hak_key *mark = hak__hardened_mark(p, class);
    bool covered = hak__shield_covers(mark);
    if (!covered && (hak__hardened.canary ? hak__is_sealed(p, class, &n) : *mark != 0 && !hak__hardened_is_mark(*mark)))
        return true;
    const struct hak_span *span = hak__span_at(hak__slab_of(p));
    return hak__span_index(span, p, &index) == HAK_SPAN_OK && index < span->frontier && !is_free(p, class, covered ? 0 : *mark);
}

size_t hak__harden_asked(const void *p, uint32_t class, size_t otherwise)
{
    size_t n = otherwise;
    bool sealed = hak__hardened.canary && !hak__hardened_is_closed(p, class) && hak__harden_is_in_use(p, class);
    return sealed && hak__is_sealed(p, class, &n) ? n : otherwise;
}

/* --- malloc and free ----------------------------------------------------------------------------------------------------- */

uint32_t hak__harden_class(size_t align, size_t n)
{
    size_t need = n + (hak__hardened.canary ? HAK_SEAL : 0);
    if (align > HAK_SLAB_SIZE || n > HAK_LARGE_MAX || need > HAK_LARGE_MAX)
        return HAK_CLASSES;
    uint32_t class = hak__class_of(need < align ? align : need);
    while (class < HAK_CLASSES && (need > hak__hardened.room[class] || hak__classes[class].size % align != 0))
        class++;
    return class;
}

/* Where the heap's layer would make a single-block span, a listed one already exists. */
static void *harden_refill(struct hak_heap *heap, uint32_t class)
{
    if (hak__classes[class].blocks == 1 && heap->classes[class].spans == NULL) {
        hak__heap_collect(heap);
        if (heap->classes[class].spans == NULL && hak__heap_new_span(heap, class) == NULL)
            return NULL;
    }
    void *block = NULL;
    if (!hak__is_large(class))
        return hak__cache_refill(heap, class);
    hak__heap_take(heap, class, &block, 1); /* large blocks wait in quarantine, and the large cache holds none */
    return block;
}

static void *next_block(struct hak_heap *heap, uint32_t class)
{
    bool cached = heap->classes[class].capacity != 0 && !hak__is_large(class);
    void *block = cached ? hak__cache_pop(&heap->classes[class].hidden) : NULL;
    if (block == NULL)
        block = harden_refill(heap, class);
    if (hak_unlikely(block == NULL) && hak__quarantine_flush(heap, "free"))
        block = harden_refill(heap, class);
    return block;
}

void hak__harden_written(const void *p, uint32_t class)
{
    hak__misuse(&(struct hak_mistake){ .kind = HAK_MISUSE_WRITTEN, .function = "malloc", .p = p },
                "malloc(): %p (%u-byte block) was written after free", p, (uint64_t)hak__classes[class].size);
}

/* A survived block that was written after free counts as allocated from then on. */
void *hak__harden_take(struct hak_heap *heap, uint32_t class, size_t n)
{
    void *block;
    do
        block = next_block(heap, class);
    while (block != NULL && hak_unlikely(!hak__harden_begin_block(heap->quarantine, block, class, n)));
    return block;
}

void hak__harden_free(struct hak_heap *heap, void *p, uint32_t word, const char *function)
{
    uint32_t class = hak__owner_class(word);
    if ((heap->closed_reasons[class] & HAK_CLOSED_EXACT) != 0 && hak__owner_id(word) == heap->id)
        hak_count(&heap->classes[class].frees, 1);
    bool again = false, waits = heap->quarantine != NULL && hak__hardened_closes(class);
    bool closed = waits && hak__hardened_close(p, class, &again);
    if (again) {
        hak__misuse_double_free(function, p, hak__classes[class].size);
        return;
    }
    if (!closed)
        hak__harden_clear(heap->quarantine, p, class);
    hak__quarantine_add(heap, p, word, function);
}

/* Clears the old slack, so that its pattern never reaches the program. */
bool hak__harden_resize(struct hak_heap *heap, void *p, uint32_t class, size_t have, size_t n, bool wasteful)
{
    size_t room = hak__hardened.room[class], need = n + (hak__hardened.canary ? HAK_SEAL : 0);
    if (n == 0 || need > room || (need < room / 2 && !wasteful))
        return false;
    struct hak_quarantine *quarantine = heap == NULL ? NULL : heap->quarantine;
    const void *before = hak__quarantine_at(quarantine, p);
    if (hak__hardened.canary && n > have)
        memset((char *)p + have, 0, hak_min(n, hak__slack_end(have & ~(size_t)7, room - HAK_SEAL)) - have);
    hak__seal(p, class, n);
    hak__quarantine_at_end(quarantine, before);
    return true;
}

/* --- huge blocks ------------------------------------------------------------------------------------------------------------ */

/* A block from before the options were read bears no seal. */
static bool huge_is_sealed(const void *p) { return hak__hardened.canary && hak__hardened_at(hak__slab_of(p)); }

/* Whole pages bear no seal either: the guard follows them directly. */
size_t hak__harden_huge_room(size_t n)
{
    bool whole = n != 0 && n % hak__page_size() == 0;
    return n + (hak__hardened.canary && !whole ? HAK_HUGE_SEAL : 0);
}

static uint64_t huge_seal_of(uint64_t secret, size_t n)
{
    return ((secret ^ hak__hardened.keys[2] ^ n) * hak__hardened.keys[1] ^ secret) & ~0xffull;
}

void hak__harden_huge_seal(void *p, size_t n)
{
    size_t end = hak__huge_usable(p) - HAK_HUGE_SEAL;
    uint64_t secret = hak__secret_of(p);
    if (!hak__hardened.canary)
        return;
    if (n > end) {
        hak_assert(n == end + HAK_HUGE_SEAL, "the block is as long as the request, or has room for its seal");
        hak__huge_unsealed(p, true);
        return;
    }
    hak__fill_slack(p, n, end);
    *hak__hard_word(p, end) = huge_seal_of(secret, n);
    *hak__hard_word(p, end + 8) = n ^ secret;
    hak__map_start_bound(&hak__window.map[hak__slab_of(p)], 0);
}

size_t hak__harden_huge_size(const void *p, const char *function, bool freeing)
{
    size_t whole = hak__huge_usable(p), end = whole - HAK_HUGE_SEAL;
    if (whole == 0 || !huge_is_sealed(p))
        return whole;
    uint64_t secret = hak__secret_of(p), n = *hak__hard_word(p, end + 8) ^ secret;
    bool sealed = n <= end && *hak__hard_word(p, end) == huge_seal_of(secret, n);
    if (hak_likely(sealed && hak__slack_is_whole(p, n, end)))
        return n;
    report_overflow(p, whole, function);
    n = sealed ? n : end;
    hak__harden_huge_seal((void *)(uintptr_t)p, n); /* as in survive_overflow */
    return freeing ? HAK_NO_BLOCK : n;
}

/* Clears the old slack, so that its pattern never reaches the program. */
static void clear_huge_slack(void *p, size_t n, size_t end) { memset((char *)p + n, 0, hak__slack_end(n & ~(size_t)7, end) - n); }

bool hak__harden_huge_fit(void *p, size_t have, size_t n)
{
    size_t end = hak__huge_usable(p) - HAK_HUGE_SEAL;
    if (!huge_is_sealed(p) || n > end)
        return false;
    clear_huge_slack(p, have, end);
    hak__harden_huge_seal(p, n);
    return true;
}

bool hak__harden_huge_unseal(void *p, size_t have)
{
    size_t end = hak__huge_usable(p) - HAK_HUGE_SEAL;
    bool sealed = huge_is_sealed(p);
    if (sealed) {
        hak__huge_unsealed(p, false);
        clear_huge_slack(p, have, end);
        memset((char *)p + end, 0, HAK_HUGE_SEAL);
    }
    return sealed;
}

/* --- the check of the heap ------------------------------------------------------------------------------------------------ */

/* The program may have made pages inside a block inaccessible: of a whole-page block only the end is read. */
static enum hak_wrong wrong_with(const void *p, uint32_t class)
{
    size_t n;
    if (hak__is_sealed(p, class, &n))
        return hak__slack_is_whole(p, n, hak__hardened.room[class] - HAK_SEAL) ? HAK_WRONG_NOTHING : HAK_WRONG_SLACK;
    bool clear = hak__hardened.zero ? hak__is_clear(p, class) : hak__hardened_is_mark(*hak__hardened_mark(p, class));
    return clear ? HAK_WRONG_NOTHING : HAK_WRONG_SEAL;
}

enum hak_wrong hak__harden_wrong(const void *p, uint32_t class)
{
    if (!hak__hardened.canary || !hak__hardened_hold(p, class))
        return HAK_WRONG_NOTHING;
    enum hak_wrong wrong = wrong_with(p, class);
    hak__hardened_let(p, class);
    return wrong;
}

/* Caller ensures that the block is not freed meanwhile. */
enum hak_wrong hak__harden_huge_wrong(const void *p, size_t whole)
{
    uint64_t secret = hak__secret_of(p);
    size_t end = whole - HAK_HUGE_SEAL, n = *hak__hard_word(p, end + 8) ^ secret;
    if (!huge_is_sealed(p))
        return HAK_WRONG_NOTHING;
    if (n > end || *hak__hard_word(p, end) != huge_seal_of(secret, n))
        return HAK_WRONG_SEAL;
    return hak__slack_is_whole(p, n, end) ? HAK_WRONG_NOTHING : HAK_WRONG_SLACK;
}

/* A thread may be sealing or clearing the block, or have been interrupted there: only a lasting error is a finding. */
bool hak__harden_check(const void *p, uint32_t class)
{
    static const char *const said[] = {
        [HAK_WRONG_NOTHING] = NULL, [HAK_WRONG_SLACK] = "nothing was written behind a block",
        [HAK_WRONG_SEAL] = "a block in use has its canary, a free one is clear",
    };
    enum hak_wrong wrong = hak__harden_wrong(p, class);
    for (unsigned looks = 0; wrong != HAK_WRONG_NOTHING && looks < BLOCK_LOOKS; looks++) {
        hak__yield(looks);
        wrong = hak__harden_wrong(p, class);
    }
    return hak__holds(wrong == HAK_WRONG_NOTHING, said[wrong], p);
}
