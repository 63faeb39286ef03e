/* Where blocks come from: the warm pool, listed spans, new spans. Called by cache/, under the heap lock.
 *
 * A new span's slabs come from these stages, in order, each counted in the heap (hak_heap.counts):
 *
 *   0    own hint    used-before slabs of the SuperSlab from which this heap last took a single one; for large blocks, of any
 *                    SuperSlab assigned to this heap (large.c)
 *   0.5  own empty   the heap's own span of another class, without allocated blocks
 *   1    adopted     spans with free blocks of heaps whose threads have ended (lock-free)
 *   2    claimed     unused slabs of any SuperSlab, its last one first (lock-free); tried again after the frees that wait for some
 *                    idle heaps have been collected
 *   3    locked      a new SuperSlab: a free one of the arena, or newly mapped
 *
 * The first three touch no page that was not in use before. */
#include "heap/heap.h"

#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "diag/options.h"
#include "harden/spans.h"
#include "span/pool.h"

/* A class's first spans are short (docs/decisions/0040, 0059). */
enum { SHORT_SPANS = 3 };

/* Heaps visited before a SuperSlab is opened, so that this costs the same with ten thousand threads (docs/decisions/0079). */
enum { HEAPS_SWEPT = 64 };

/* --- adoption: spans of heaps whose threads have ended --------------------------------------------------------------------
 *
 * The adopter first takes the parked heap off the list, so that no other thread can adopt from it; locks it, because a sweeper may
 * hold it; and parks it again afterwards. Rewriting the owner words is then safe: no thread matches the old tag any more, and only
 * the adopter matches the new one. A thread that has read the old word frees as a foreign thread, which is right for either owner;
 * a span that it queues on the former owner's stack is sent on (give.c). */

enum { HEAPS_PER_CALL = 4 };

/* Guesses without the lock whether the heap is worth locking. */
static bool sources_promising(struct hak_heap *heap, uint32_t class)
{
    return hak_peek(&heap->classes[class].spans) != NULL || hak_load(&heap->pending, HAK_RELAXED) != NULL;
}

/* The few blocks that the ended thread left for its successor move with their spans. */
static void give_what_is_left(struct hak_heap *heap, uint32_t index)
{
    struct hak_bin *bin = hak__heap_bin(heap, index);
    void **bottom = heap->classes[index].bottom;
    if (heap->left == HAK_LEFT_NOTHING || bin->top == bottom)
        return;
    hak__heap_give(heap, bottom, (uint32_t)(bin->top - bottom), "free");
    hak_owner_store(&bin->top, bottom);
}

/* A heap that a forked child has parked is as the fork found it: blocks in its bin may lie in the adopted spans, and are then
 * drained as another heap's. */
static bool caches_blocks(struct hak_heap *heap, uint32_t index)
{
    return hak__heap_bin(heap, index)->top != heap->classes[index].bottom;
}

static void take_over(struct hak_heap *heap, struct hak_heap *former, uint32_t class)
{
    struct hak_span *span;
    give_what_is_left(former, class);
    former->foreign[class] |= former->classes[class].spans != NULL && caches_blocks(former, class);
    while ((span = former->classes[class].spans) != NULL)
        hak__heap_adopt_span(heap, former, span);
}

bool hak__heap_adopt(struct hak_heap *heap, uint32_t class)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    struct hak_heap *seen[HEAPS_PER_CALL];
    uint32_t count = 0;
    if (!hak__heap_any_parked(sources_promising, class, HEAPS_PER_CALL))
        return false;
    hak__heaps_borrow(true);
    while (count < HEAPS_PER_CALL && heap->classes[class].spans == NULL) {
        struct hak_heap *former = hak__heap_borrow();
        if (former == NULL)
            break;
        seen[count++] = former;
        if (!sources_promising(former, class))
            continue;
        hak__heap_collect(former);
        take_over(heap, former, class);
    }
    while (count > 0) {
        hak__heap_unlock(seen[--count]);
        hak__heap_park(seen[count]);
    }
    hak__heaps_borrow(false);
    return heap->classes[class].spans != NULL;
}

/* --- the stages ------------------------------------------------------------------------------------------------------- */

static size_t own_hint(struct hak_heap *heap, unsigned count, bool *fresh)
{
    if (heap->sources.home == 0)
        return HAK_NO_RUN;
    /* Looks beforehand, because the claim itself takes unused slabs of either kind if another thread was faster. */
    uint64_t word = hak_load(&hak__supers[(heap->sources.home - 1) / HAK_SUPER_SLABS].slabs, HAK_RELAXED);
    if (hak_run_starts(hak__slabs_unused(word) & hak__slabs_dirty(word), count) == 0)
        return HAK_NO_RUN;
    return hak__pool_take_near(heap->sources.home - 1, count, fresh);
}

/* A class keeps its last span when that empties (give.c). */
static size_t own_empty(struct hak_heap *heap, unsigned count)
{
    for (uint64_t idle = heap->sources.idle_classes; idle != 0; idle &= idle - 1) {
        struct hak_span *span = heap->classes[hak_ctz64(idle)].spans;
        if (span == NULL || hak__span_allocated(span) != 0) {
            heap->sources.idle_classes &= ~(idle & -idle);
        } else if (span->slabs == count) {
            heap->sources.idle_classes &= ~(idle & -idle);
            hak__span_unguard(span);
            hak__heap_dissolve_span(heap, span);
            return hak__span_slab(span);
        }
    }
    return HAK_NO_RUN;
}

/* The number of slabs for a new span of the class. The first spans are short: for most sizes above 16 KiB a thread uses only a few
 * blocks at a time, and the rest of a full span would lie idle. */
static unsigned wanted_slabs(const struct hak_heap *heap, uint32_t class_index)
{
    bool few = hak_counted(&heap->classes[class_index].span_count) < SHORT_SPANS && !hak__hardened.on;
    return few ? hak__class_short_slabs(class_index) : hak__classes[class_index].slabs;
}

/* If a full span of large blocks has several, a run for a single block serves too: such runs fill the ends of SuperSlabs that full
 * spans leave over. */
static size_t find_unused(struct hak_heap *heap, uint32_t class_index, unsigned *count, bool *fresh)
{
    unsigned full = *count;
    size_t slab = heap->sources.home == 0 ? HAK_NO_RUN : hak__pool_take_near(heap->sources.home - 1, full, fresh);
    if (slab == HAK_NO_RUN)
        slab = hak__pool_take(full, fresh);
    if (slab == HAK_NO_RUN && heap->assigned.count != 0)
        slab = hak__assigned_take(heap, full, fresh);
    if (slab != HAK_NO_RUN || class_index < HAK_CLASS_FIRST_LARGE || hak__hardened.on)
        return slab;
    unsigned single = hak__class_single_slabs(class_index);
    if (single == full)
        return HAK_NO_RUN;
    *count = single;
    slab = hak__pool_take(single, fresh);
    return slab != HAK_NO_RUN ? slab : hak__assigned_take(heap, single, fresh);
}

static size_t sources_claimed(struct hak_heap *heap, uint32_t class_index, unsigned *count, bool *fresh)
{
    unsigned full = *count;
    size_t slab = find_unused(heap, class_index, count, fresh);
    if (slab == HAK_NO_RUN && hak__heaps_sweep(heap, &heap->sources.swept, HEAPS_SWEPT)) {
        *count = full;
        slab = find_unused(heap, class_index, count, fresh);
    }
    return slab != HAK_NO_RUN ? slab : hak__pool_take_assigned(*count, false, fresh);
}

/* Trims after a SuperSlab's worth of non-resident slabs, which make the process grow like a new SuperSlab, while resident ones are
 * unused because their runs are too short or out of sight. */
static void grown_by(struct hak_heap *heap, unsigned count)
{
    heap->sources.clean_slabs += count;
    if (heap->sources.clean_slabs < HAK_SUPER_SLABS)
        return;
    heap->sources.clean_slabs = 0;
    hak__pool_trim();
}

/* So much growth may call for the background thread, and all threads may sleep soon: one of the next slow paths looks. */
enum { CALLS_WHEN_OPENED = 60 };

/* Opens a SuperSlab. If the system gives none, those assigned to other heaps serve too. */
static size_t sources_locked(struct hak_heap *heap, unsigned count, bool large, bool *fresh)
{
    if (heap->sources.no_new_span)
        return HAK_NO_RUN;
    heap->sources.clean_slabs = 0;
    if (heap->polling.calls < CALLS_WHEN_OPENED)
        heap->polling.calls = CALLS_WHEN_OPENED;
    hak__pool_trim();
    size_t slab = hak__pool_open(count, large ? HAK_OPEN_LARGE : HAK_OPEN_SMALL, fresh);
    if (slab == HAK_NO_RUN)
        slab = hak__pool_take_assigned(count, true, fresh);
    if (slab == HAK_NO_RUN)
        slab = hak__pool_open(count, HAK_OPEN_BARE, fresh);
    if (hak_likely(slab != HAK_NO_RUN))
        return slab;
    hak__heaps_sweep(heap, &heap->sources.swept, UINT32_MAX);
    return hak__pool_take(count, fresh);
}

/* A single-block span ends with its block, so there is none to adopt; and a share must not adopt blocks, which would end with its
 * user heap. */
static bool may_adopt(const struct hak_heap *heap, uint32_t class_index)
{
    return (hak__classes[class_index].blocks > 1 || hak__hardened.on) && !hak__heap_is_share(heap);
}

/* Finds *count slabs for a span of the class, or those for a single block; stores their number and the stage from which they come. */
static size_t search_slabs(struct hak_heap *heap, uint32_t class_index, unsigned *count, bool *fresh, enum hak_stage *stage)
{
    bool large = class_index >= HAK_CLASS_FIRST_LARGE;
    unsigned full = *count;
    *stage = HAK_STAGE_OWN_HINT;
    size_t slab = large ? hak__assigned_take(heap, *count, fresh) : own_hint(heap, *count, fresh);
    if (slab == HAK_NO_RUN) {
        *stage = HAK_STAGE_OWN_EMPTY;
        slab = own_empty(heap, *count);
    }
    if (slab == HAK_NO_RUN && may_adopt(heap, class_index) && hak__heap_adopt(heap, class_index)) {
        *stage = HAK_STAGE_ADOPTED;
        return HAK_NO_RUN;
    }
    if (slab == HAK_NO_RUN) {
        *stage = HAK_STAGE_CLAIMED;
        slab = sources_claimed(heap, class_index, count, fresh);
    }
    if (slab == HAK_NO_RUN) {
        *stage = HAK_STAGE_LOCKED;
        *count = full;
        slab = sources_locked(heap, *count, large, fresh);
    } else if (*fresh) {
        grown_by(heap, *count);
    }
    if (slab != HAK_NO_RUN && large && *stage != HAK_STAGE_OWN_HINT)
        hak__assigned_add(heap, slab);
    return slab;
}

/* The same within the limit of a share's user heap. On success the span's first block is counted. */
static size_t find_slabs_of_share(struct hak_heap *heap, uint32_t class_index, unsigned *count, bool *fresh, enum hak_stage *stage)
{
    unsigned most = *count;
    *stage = HAK_STAGE_LOCKED;
    if (!hak__span_admit(heap, class_index, most)) {
        hak__heap_spare(heap, class_index);
        *count = most = wanted_slabs(heap, class_index);
        if (!hak__span_admit(heap, class_index, most))
            return HAK_NO_RUN;
    }
    size_t slab = search_slabs(heap, class_index, count, fresh, stage);
    hak_assert(slab == HAK_NO_RUN || *count == most || !hak__hardened.on, "a hardened span is no shorter than was counted");
    if (slab == HAK_NO_RUN)
        hak__span_discount(heap, class_index, most);
    return slab;
}

static size_t find_slabs(struct hak_heap *heap, uint32_t class_index, unsigned *count, bool *fresh, enum hak_stage *stage)
{
    *count = wanted_slabs(heap, class_index);
    if (hak_unlikely(hak__heap_is_share(heap)))
        return find_slabs_of_share(heap, class_index, count, fresh, stage);
    return search_slabs(heap, class_index, count, fresh, stage);
}

struct hak_span *hak__heap_new_span(struct hak_heap *heap, uint32_t class_index)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    unsigned count;
    enum hak_stage stage;
    bool fresh = false;
    size_t slab = find_slabs(heap, class_index, &count, &fresh, &stage);
    if (stage == HAK_STAGE_ADOPTED) {
        hak_count(&heap->counts.stages[stage], 1);
        return heap->classes[class_index].spans;
    }
    if (slab == HAK_NO_RUN)
        return NULL;
    if (count == 1) /* single slabs gather here, so that long runs elsewhere stay whole */
        heap->sources.home = slab + 1;
    hak_count(&heap->counts.runs_claimed, stage == HAK_STAGE_OWN_HINT || stage == HAK_STAGE_CLAIMED);
    struct hak_span *span = hak__heap_begin_span(heap, class_index, slab, count, fresh);
    hak_count(&heap->counts.stages[stage], span != NULL);
    return span;
}

/* A span of large blocks in a SuperSlab assigned to the heap, listed unless it is for one block; or NULL. */
static struct hak_span *assigned_span(struct hak_heap *heap, uint32_t class_index)
{
    unsigned count = wanted_slabs(heap, class_index), single = hak__class_single_slabs(class_index);
    bool fresh = false;
    if (!hak__span_admit(heap, class_index, count))
        return NULL;
    size_t slab = hak__assigned_take(heap, count, &fresh);
    if (slab == HAK_NO_RUN && single != count) {
        count = single;
        slab = hak__assigned_take(heap, count, &fresh);
    }
    if (slab == HAK_NO_RUN) {
        hak__span_discount(heap, class_index, count);
        return NULL;
    }
    hak_count(&heap->counts.runs_claimed, 1);
    hak_count(&heap->counts.stages[HAK_STAGE_OWN_HINT], 1);
    struct hak_span *span = hak__heap_begin_single(heap, class_index, slab, count, fresh);
    if (span != NULL && span->blocks != 1)
        hak__heap_list(heap, span);
    return span;
}

/* A block of a class of single-block spans, which are never listed; NULL if the system refuses. */
static void *new_single(struct hak_heap *heap, uint32_t class_index)
{
    unsigned count;
    enum hak_stage stage;
    bool fresh = false;
    size_t slab = find_slabs(heap, class_index, &count, &fresh, &stage);
    if (slab == HAK_NO_RUN)
        return NULL;
    hak_count(&heap->counts.runs_claimed, stage != HAK_STAGE_LOCKED);
    hak_count(&heap->counts.stages[stage], 1);
    struct hak_span *span = hak__heap_begin_single(heap, class_index, slab, count, fresh);
    return span == NULL ? NULL : hak__span_take_single(span);
}

/* --- taking --------------------------------------------------------------------------------------------------------- */

hak_inline void note_taken(struct hak_heap *heap, uint32_t class_index, uint32_t count)
{
    hak_count(&heap->classes[class_index].refilled, count);
    hak__heap_large_moved(heap, class_index, count);
    hak__heap_idle_less(heap, count * (size_t)hak__classes[class_index].size);
}

/* Within its limit a heap takes its blocks in at least so many batches. */
enum { BATCHES_OF_LIMIT = 4096 };

/* Blocks of a user heap often end with it alone. After so many misses without a free its bin grows all the same, up to so much. */
enum { BUILDING = 4, BUILDING_SLOTS = 128, BUILDING_BYTES = 64 << 10 };

/* Takes from a share's span as many blocks as its heap's limit allows. Near a limit a batch is one block, since those in the bins of
 * other classes and threads would be missing. */
static uint32_t take_within_limit(struct hak_heap *heap, struct hak_span *span, void **out, uint32_t want)
{
    struct hak_account *account = heap->share.account;
    size_t size = hak__classes[span->class].size, limit = hak_load(&account->limit, HAK_RELAXED), frontier = span->frontier;
    size_t ask = hak_min(want, hak_max(limit / BATCHES_OF_LIMIT / size, 1)), freed = hak_min(ask, span->free_count);
    size_t new = hak_min(ask - freed, span->blocks - frontier);
    if (new != 0 && !hak__account_take(account, new *size))
        new = new > 1 && hak__account_take(account, size);
    if (freed + new == 0)
        return 0;
    ask = freed + new;
    uint32_t taken = hak__span_take(span, out + (want - ask), (uint32_t)ask);
    if (span->frontier - frontier != new)
        hak__account_give(account, (new - (span->frontier - frontier)) * size);
    hak__share_taken(heap, taken * size);
    struct hak_heap_class *class = &heap->classes[span->class];
    class->returned_lately |= class->dry > BUILDING && class->capacity < hak_min(BUILDING_SLOTS, BUILDING_BYTES / size);
    return taken;
}

/* Takes from a span down to out[0]. False: ask no other span, because the frontier moves one page per miss. */
hak_inline bool take_from(struct hak_heap *heap, struct hak_span *span, void **out, uint32_t want, uint32_t *got)
{
    bool hardened = span->keys == HAK_SPAN_HARDENED;
    if (hak_unlikely(hardened))
        *got += hak__span_sleeps(span) && !hak__heap_wake_span(heap, span) ? 0 : hak__span_take_hardened(span, out, want - *got);
    else if (hak_unlikely(hak__heap_is_share(heap)))
        *got += take_within_limit(heap, span, out, want - *got);
    else
        *got += hak__span_take(span, out, want - *got);
    bool at_frontier = span->free_count == 0 && span->frontier != span->blocks;
    hak__warm_lost(heap, span);
    return !at_frontier && *got < want;
}

/* Takes from a span of the warm pool, then from the next ones. */
hak_inline uint32_t take_warm(struct hak_heap *heap, struct hak_span *span, void **out, uint32_t want)
{
    uint32_t class_index = span->class, got = 0;
    const struct hak_heap_class *class = &heap->classes[class_index];
    while (take_from(heap, span, out, want, &got) && class->warm_count != 0)
        span = hak__warm_newest(heap, class_index);
    return got;
}

enum { DISPLACED_MOST = 4 << 10 }; /* bytes */

/* With HAKMEM_LAYOUT_SEED a new span of a tiny class gives a later block first: those before it go back. */
static hak_cold uint32_t take_displaced(struct hak_heap *heap, struct hak_span *span, void **out, uint32_t want)
{
    void *before[DISPLACED_MOST / HAK_ALIGN];
    uint32_t class = span->class, got = 0;
    if (hak__classes[class].size > HAK_TINY_MAX || span->frontier != 0 || span->keys != HAK_SPAN_KEYS_WHOLE)
        return 0;
    uint64_t what = (uint64_t)heap->id << 32 | class << 16 | (uint16_t)hak_counted(&heap->classes[class].span_count);
    uint32_t skip = (uint32_t)hak__layout_choice(what, DISPLACED_MOST / hak__classes[class].size);
    uint32_t skipped = skip == 0 ? 0 : hak__span_take(span, before, skip);
    note_taken(heap, class, skipped);
    take_from(heap, span, out, want, &got);
    if (skipped != 0)
        hak__heap_give(heap, before + skip - skipped, skipped, "malloc");
    return got;
}

/* Asks the listed spans in turn, then makes a new one. */
static uint32_t take_listed(struct hak_heap *heap, uint32_t class_index, void **out, uint32_t want)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    uint32_t got = 0;
    if (class->spans == NULL) {
        if (hak__heap_new_span(heap, class_index) == NULL)
            return 0;
        if (hak_unlikely(hak__option(HAK_OPTION_layout_seed) != 0) && !hak__heap_is_share(heap))
            got = take_displaced(heap, class->spans, out, want);
    }
    while (got < want && class->spans != NULL && take_from(heap, class->spans, out, want, &got))
        continue;
    if (class->spans != NULL)
        hak__warm_keep(heap, class->spans);
    return got;
}

static hak_noinline uint32_t take_missed(struct hak_heap *heap, uint32_t class_index, void **out, uint32_t want)
{
    hak__warm_missed(heap, class_index);
    hak__heap_collect(heap);
    if (hak__warm_prefill(heap, class_index))
        return take_warm(heap, hak__warm_newest(heap, class_index), out, want);
    return take_listed(heap, class_index, out, want);
}

/* The span that serves a refill without a search, or NULL. Freed blocks come before fresh ones: a refill that would move a frontier
 * first collects other threads' frees. */
hak_inline struct hak_span *warm_span(struct hak_heap *heap, uint32_t class_index)
{
    const struct hak_heap_class *class = &heap->classes[class_index];
    if (hak_unlikely(class->warm_count == 0))
        return NULL;
    struct hak_span *span = hak__warm_newest(heap, class_index);
    if (span->free_count >= class->warm_need || hak_load(&heap->pending, HAK_RELAXED) == NULL)
        return span;
    hak__heap_collect(heap);
    return class->warm_count == 0 ? NULL : hak__warm_newest(heap, class_index);
}

static uint32_t take_single(struct hak_heap *heap, uint32_t class_index, void **out)
{
    hak__heap_collect(heap);
    *out = new_single(heap, class_index);
    if (*out == NULL)
        return 0;
    note_taken(heap, class_index, 1);
    return 1;
}

/* Memory may be left where no piece has to be mapped: in a new span, which ends again if it is no better. */
static hak_cold uint32_t take_elsewhere(struct hak_heap *heap, uint32_t class_index, void **out, uint32_t want)
{
    struct hak_span *span = hak__heap_new_span(heap, class_index);
    uint32_t got = 0;
    if (span == NULL)
        return 0;
    take_from(heap, span, out, want, &got);
    if (got == 0 && hak__span_allocated(span) == 0)
        hak__heap_end_idle(heap, span);
    return got;
}

/* If there is no memory to move a span's frontier: takes freed blocks of other spans, or makes an empty span give up its memory. */
static hak_cold uint32_t take_scarce(struct hak_heap *heap, uint32_t class_index, void **out, uint32_t want)
{
    for (struct hak_span *span = heap->classes[class_index].spans; span != NULL; span = span->next) {
        uint32_t got = 0;
        if (span->free_count != 0) {
            take_from(heap, span, out, want, &got);
            return got;
        }
    }
    hak__heap_spare(heap, class_index);
    struct hak_span *first = heap->classes[class_index].spans;
    uint32_t got = 0;
    if (first != NULL)
        take_from(heap, first, out, want, &got);
    return got != 0 ? got : take_elsewhere(heap, class_index, out, want);
}

uint32_t hak__heap_take(struct hak_heap *heap, uint32_t class_index, void **out, uint32_t want)
{
    hak_assert(class_index < HAK_CLASSES && want != 0, "blocks of a class");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    struct hak_heap_class *class = &heap->classes[class_index];
    if (hak__classes[class_index].blocks == 1 && class->spans == NULL) /* a span is listed if it was not fresh enough for calloc */
        return take_single(heap, class_index, out);
    struct hak_span *span = warm_span(heap, class_index);
    uint32_t got = span != NULL ? take_warm(heap, span, out, want) : take_missed(heap, class_index, out, want);
    if (hak_unlikely(got == 0 && class->spans != NULL))
        got = take_scarce(heap, class_index, out, want);
    hak_count(&class->warm_hits, span != NULL);
    note_taken(heap, class_index, got);
    if (got != want)
        memmove(out, out + (want - got), got * sizeof *out);
    return got;
}

/* Out of listed spans alone, and not out of a share's: its blocks end with its user heap. The caller holds the lock. */
static hak_cold void *take_from_listed(struct hak_heap *source, uint32_t class_index)
{
    void *block = NULL;
    if ((source->mode & HAK_MODE_SHARE) != 0)
        return NULL;
    source->sources.no_new_span = true;
    hak__heap_collect(source);
    if (source->classes[class_index].spans != NULL)
        hak__heap_take(source, class_index, &block, 1);
    source->sources.no_new_span = false;
    return block;
}

static hak_cold void *take_from_any(struct hak_heap *mine, uint32_t class_index)
{
    void *block = take_from_listed(mine, class_index);
    for (uint32_t id = 1; id <= hak__heap_last_id() && block == NULL; id++) {
        struct hak_heap *source = hak__heap_by_id(id);
        if (source == mine || !sources_promising(source, class_index) || !hak__enter_foreign(source, 1))
            continue;
        block = take_from_listed(source, class_index);
        hak__heap_unlock(source);
    }
    return block;
}

void *hak__heap_take_last(struct hak_heap *heap, uint32_t class_index, size_t n)
{
    size_t size = hak__classes[class_index].size, align = size & -size;
    void *block = take_from_any(heap, class_index);
    for (uint32_t c = class_index + 1; block == NULL && c < HAK_CLASSES && hak__classes[c].size / 2 <= n; c++)
        if (hak__classes[c].size % align == 0)
            block = take_from_any(heap, c);
    if (block != NULL)
        hak__mark_live(block);
    return block;
}

void *hak__heap_take_zeroed(struct hak_heap *heap, uint32_t class_index)
{
    hak_assert(class_index < HAK_CLASSES, "a class");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    struct hak_heap_class *class = &heap->classes[class_index];
    hak__heap_collect(heap);
    struct hak_span *span = class->spans;
    if (span == NULL)
        span = hak__heap_new_span(heap, class_index);
    if (span == NULL || !span->fresh || span->free_count != 0)
        return NULL;
    if (!hak__span_admit(heap, class_index, span->slabs))
        return NULL;
    void *block = hak__span_take_fresh(span);
    if (block != NULL)
        hak__warm_lost(heap, span);
    else
        hak__span_discount(heap, class_index, span->slabs);
    note_taken(heap, class_index, block != NULL);
    return block;
}

void *hak__heap_take_at_hand(struct hak_heap *heap, uint32_t class_index)
{
    hak_assert(hak__is_large(class_index), "a class of the large pool");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    void *block = NULL;
    if (heap->assigned.count == 0) {
        heap->sources.no_new_span = true;
        hak__heap_take(heap, class_index, &block, 1);
        heap->sources.no_new_span = false;
        return block;
    }
    hak__heap_collect(heap);
    struct hak_span *span = heap->classes[class_index].spans;
    if (span == NULL && (span = assigned_span(heap, class_index)) == NULL)
        return NULL;
    if (span->listed) {
        hak__heap_take(heap, class_index, &block, 1);
        return block;
    }
    note_taken(heap, class_index, 1);
    return hak__span_take_single(span);
}
