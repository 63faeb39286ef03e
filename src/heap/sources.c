/* Where a span comes from when a heap has none listed: the stages of the shared pool, in order, each counted in the heap
 * (hak_heap.counts). Also how a span begins and ends. Called by heap.c, under the heap lock.
 *
 *   0    own hint    slabs that were in use before, of the SuperSlab from which this heap last took a single one; for large
 *                    blocks any of those assigned to this heap (large.c)
 *   0.5  own empty   the heap's own span of another class, of which no block is allocated
 *   1    adopted     spans with free blocks of heaps whose threads have ended (lock-free)
 *   2    claimed     unused slabs of any SuperSlab, its last one first (lock-free); also after what waits for some idle
 *                    heaps has been collected
 *   3    locked      a new SuperSlab: a free one of the arena, or a new one
 *
 * The first three touch no page that was not in use before. */
#include "arena/meta.h"
#include "base/bits.h"
#include "heap/heap.h"
#include "heap/park.h"
#include "span/hardened.h"
#include "span/pool.h"

/* A class's first spans are short (docs/decisions/0040, 0059). */
enum { SHORT_SPANS = 3 };

/* Heaps that are looked at before a SuperSlab is opened, so that it costs the same with ten thousand threads (docs/decisions/0079). */
enum { HEAPS_SWEPT = 64 };

/* --- begin and end ---------------------------------------------------------------------------------------------------- */

static _Atomic(void *) bitmaps_left[HAK_BITMAP_SIZES];   /* by heaps that were given back, by size */

/* Takes all that are left of the size and puts those that are not needed back, unless others have come meanwhile: no single one is
 * popped, so there is no ABA. acquire and release: who left them has done with them. */
static void *bitmaps_take_left(void **head, _Atomic(void *) *left)
{
    void *memory = hak_load(left, HAK_RELAXED) == NULL ? NULL : hak_exchange(left, NULL, HAK_ACQUIRE), *none = NULL;
    void *rest = memory == NULL ? NULL : *(void **)memory;
    if (rest != NULL && !hak_cas_strong(left, &none, rest, HAK_RELEASE, HAK_RELAXED))
        *head = rest;
    return memory;
}

static void *bitmaps_take(struct hak_heap *heap, size_t bytes)
{
    size_t size = bytes / HAK_BITMAP_UNIT - 1;
    void **head = &heap->sources.bitmaps[size], *memory = *head;
    if (memory != NULL)
        *head = *(void **)memory;
    else if ((memory = bitmaps_take_left(head, &bitmaps_left[size])) == NULL)
        memory = hak__meta_alloc(bytes);
    return memory;
}

void hak__bitmaps_leave(struct hak_heap *heap)
{
    for (size_t size = 0; size < HAK_BITMAP_SIZES; size++)
        for (void *memory = heap->sources.bitmaps[size], *next; memory != NULL; memory = next) {
            next = *(void **)memory;
            void *head = hak_load(&bitmaps_left[size], HAK_RELAXED);
            do
                *(void **)memory = head;
            while (!hak_cas_weak(&bitmaps_left[size], &head, memory, HAK_RELEASE, HAK_RELAXED));
        }
}

void hak__bitmaps_give(struct hak_heap *heap, void *memory, size_t bytes)
{
    void **head = &heap->sources.bitmaps[bytes / HAK_BITMAP_UNIT - 1];
    *(void **)memory = *head;
    *head = memory;
}

static void count_begun(struct hak_heap *heap, struct hak_span *span)
{
    hak_count(&heap->counts.slabs, span->slabs);
    hak_count(&heap->classes[span->class].span_count, 1);
    if (hak_likely(!hak__heap_is_share(heap)))
        return;
    hak__owned_add(&heap->share.first_span, hak__span_slab(span));
    if (!span->fresh)
        span->account = heap->share.account;
}

/* Slabs are to become a span, or the slabs of one go: a share's count against its heap's limit (share.h). */
static bool span_admit(struct hak_heap *heap, unsigned slabs)
{
    return hak_likely(!hak__heap_is_share(heap)) || hak__account_take(heap->share.account, (size_t)slabs << HAK_SLAB_SHIFT);
}
static void span_discount(struct hak_heap *heap, unsigned slabs)
{
    if (hak_unlikely(hak__heap_is_share(heap)))
        hak__account_give(heap->share.account, (size_t)slabs << HAK_SLAB_SHIFT);
}

static uint32_t owner_of_spans(const struct hak_heap *heap)
{
    return heap->id | (hak__heap_is_share(heap) ? HAK_SPAN_OWN : 0);
}

/* Slabs that could not become a span. */
static void give_back(struct hak_heap *heap, size_t slab, unsigned slabs)
{
    span_discount(heap, slabs);
    hak__pool_give(slab, slabs);
}

static void count_ended(struct hak_heap *heap, const struct hak_span *span)
{
    hak_count(&heap->counts.slabs, 0 - (uint64_t)span->slabs);
    hak_count(&heap->classes[span->class].span_count, (uint64_t)-1);
}

/* A hardened span is mapped whole from the start. */
static bool harden_span(struct hak_heap *heap, struct hak_span *span)
{
    size_t bytes = hak__span_bitmap_bytes(&hak__classes[span->class]), slab = hak__span_slab(span);
    unsigned slabs = span->slabs;
    if (hak__span_reach(span, (size_t)slabs << HAK_SLAB_SHIFT)) {
        hak__span_harden(span, owner_of_spans(heap));
        return true;
    }
    void *bitmaps = hak__span_destroy(span);
    if (bitmaps != NULL)
        hak__bitmaps_give(heap, bitmaps, bytes);
    give_back(heap, slab, slabs);
    return false;
}

/* A span for a single block; NULL if the system refuses its memory. */
static struct hak_span *begin_single(struct hak_heap *heap, uint32_t class_index, size_t slab, unsigned slabs, bool fresh)
{
    struct hak_span *span = hak__span_create(slab, slabs, class_index, owner_of_spans(heap), NULL, fresh);
    if (span->blocks != 1 || hak__span_reach(span, hak__classes[class_index].size)) {
        count_begun(heap, span);
        return span;
    }
    hak__span_destroy(span);
    give_back(heap, slab, slabs);
    return NULL;
}

static struct hak_span *begin_span(struct hak_heap *heap, uint32_t class_index, size_t slab, unsigned slabs, bool fresh)
{
    size_t bytes = hak__span_bitmap_bytes(&hak__classes[class_index]);
    void *bitmaps = bytes == 0 ? NULL : bitmaps_take(heap, bytes);
    if (bytes != 0 && bitmaps == NULL) {
        give_back(heap, slab, slabs);
        return NULL;
    }
    struct hak_span *span = hak__span_create(slab, slabs, class_index, owner_of_spans(heap), bitmaps, fresh);
    if (hak_unlikely(hak__hardened.on) && !harden_span(heap, span))
        return NULL;
    hak__heap_list(heap, span);
    count_begun(heap, span);
    return span;
}

/* Ends a span, but leaves its slabs to the caller. */
static void end_span(struct hak_heap *heap, struct hak_span *span)
{
    size_t bytes = hak__span_bitmap_bytes(&hak__classes[span->class]);
    if (span->listed)
        hak__heap_unlist(heap, span);
    count_ended(heap, span);
    if (hak_unlikely(hak__heap_is_share(heap)))
        hak__owned_remove(&heap->share.first_span, hak__span_slab(span));
    span_discount(heap, span->slabs);
    void *bitmaps = hak__span_destroy(span);
    if (bitmaps != NULL)
        hak__bitmaps_give(heap, bitmaps, bytes);
}

void hak__heap_end_span(struct hak_heap *heap, struct hak_span *span)
{
    unsigned slabs = span->slabs;
    end_span(heap, span);
    if (hak__pool_give_assigned(hak__span_slab(span), slabs, heap->id))
        hak__assigned_emptied(heap, hak__span_slab(span));
}

void hak__heap_end_idle(struct hak_heap *heap, struct hak_span *span)
{
    unsigned slabs = span->slabs;
    hak__span_unguard(span);
    end_span(heap, span);
    hak__pool_give_idle(hak__span_slab(span), slabs);
}

/* --- adoption: spans of heaps whose threads have ended --------------------------------------------------------------------
 *
 * The adopter first takes the parked heap off the list, so nobody else can adopt from it; locks it, because a sweeper may have; and
 * parks it again afterwards. Rewriting the owner words is then safe: no thread matches the old tag any more, and only the adopter
 * matches the new one. A thread that has read the old word frees as a stranger,
 * which is right for either owner; a span that it queues on the former owner's stack is sent on (remote.c). */

enum { HEAPS_PER_CALL = 4 };

/* Whether the heap may be worth locking: a guess without the lock. */
static bool sources_promising(struct hak_heap *heap, uint32_t class)
{
    return hak_peek(&heap->classes[class].spans) != NULL || hak_load(&heap->pending, HAK_RELAXED) != NULL;
}

/* The few blocks that the thread left for the next one move with their spans. */
static void give_what_is_left(struct hak_heap *heap, uint32_t index)
{
    struct hak_bin *bin = hak__heap_bin(heap, index);
    void **bottom = heap->classes[index].bottom;
    if (heap->left == HAK_LEFT_NOTHING || bin->top == bottom)
        return;
    hak__heap_give(heap, bottom, (uint32_t)(bin->top - bottom), "free");
    hak_owner_store(&bin->top, bottom);
}

/* A heap that a forked child has parked is as the fork found it: blocks in its bin may lie in the adopted spans, and are drained as
 * another heap's from then on. */
static bool caches_blocks(struct hak_heap *heap, uint32_t index)
{
    return hak__heap_bin(heap, index)->top != heap->classes[index].bottom;
}

static void take_over(struct hak_heap *heap, struct hak_heap *former, uint32_t class)
{
    struct hak_span *span;
    give_what_is_left(former, class);
    former->foreign[class] |= former->classes[class].spans != NULL && caches_blocks(former, class);
    while ((span = former->classes[class].spans) != NULL) {
        hak__heap_unlist(former, span);
        hak__span_change_owner(span, heap->id);
        hak__heap_list(heap, span);
        hak__heap_large_moved(former, class, 0 - (size_t)hak__span_allocated(span));
        hak__heap_large_moved(heap, class, hak__span_allocated(span));
        count_ended(former, span);
        count_begun(heap, span);
        hak_count(&heap->counts.adopted, 1);
    }
}

bool hak__heap_adopt(struct hak_heap *heap, uint32_t class)
{
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
    /* A look beforehand: the claim itself takes unused slabs of either kind, if another thread was faster. */
    uint64_t word = hak_load(&hak__supers[(heap->sources.home - 1) / HAK_SUPER_SLABS].slabs, HAK_RELAXED);
    if (hak_run_starts(hak__slabs_unused(word) & hak__slabs_dirty(word), count) == 0)
        return HAK_NO_RUN;
    return hak__pool_take_near(heap->sources.home - 1, count, fresh);
}

/* A class keeps its last span when that empties (heap.c). */
static size_t own_empty(struct hak_heap *heap, unsigned count)
{
    for (uint64_t idle = heap->sources.idle_classes; idle != 0; idle &= idle - 1) {
        struct hak_span *span = heap->classes[hak_ctz64(idle)].spans;
        if (span == NULL || hak__span_allocated(span) != 0) {
            heap->sources.idle_classes &= ~(idle & -idle);
        } else if (span->slabs == count) {
            heap->sources.idle_classes &= ~(idle & -idle);
            hak__span_unguard(span);
            end_span(heap, span);
            return hak__span_slab(span);
        }
    }
    return HAK_NO_RUN;
}

void hak__heap_spare(struct hak_heap *heap, uint32_t class_index)
{
    heap->sources.idle_classes &= class_index < HAK_CLASSES ? 1ull << class_index : 0;
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        for (struct hak_span *span = heap->classes[c].spans, *next; span != NULL && c != class_index; span = next) {
            next = span->next;
            hak__span_retreat(span);
            if (hak__span_allocated(span) != 0 || span->keys == HAK_SPAN_HARDENED)
                continue;
            hak__heap_end_span(heap, span);
        }
    }
}

/* How many slabs a new span of the class gets. The first ones are short: of most sizes above 16 KiB a thread uses only a few
 * blocks at a time, and the rest of a full span would lie idle. */
static unsigned wanted_slabs(const struct hak_heap *heap, uint32_t class_index)
{
    bool few = hak_counted(&heap->classes[class_index].span_count) < SHORT_SPANS && !hak__hardened.on;
    return few ? hak__class_short_slabs(class_index) : hak__classes[class_index].slabs;
}

/* If a full span of large blocks has several, a run for just one serves too: such runs fill the ends of SuperSlabs that full spans
 * leave over. */
static size_t find_unused(struct hak_heap *heap, uint32_t class_index, unsigned *count, bool *fresh)
{
    unsigned full = wanted_slabs(heap, class_index), single = hak__class_single_slabs(class_index);
    *count = full;
    size_t slab = heap->sources.home == 0 ? HAK_NO_RUN : hak__pool_take_near(heap->sources.home - 1, full, fresh);
    if (slab == HAK_NO_RUN)
        slab = hak__pool_take(full, fresh);
    if (slab == HAK_NO_RUN)
        slab = hak__assigned_take(heap, full, fresh);
    if (slab != HAK_NO_RUN || class_index < HAK_CLASS_FIRST_LARGE || single == full || hak__hardened.on)
        return slab;
    *count = single;
    slab = hak__pool_take(single, fresh);
    return slab != HAK_NO_RUN ? slab : hak__assigned_take(heap, single, fresh);
}

static size_t sources_claimed(struct hak_heap *heap, uint32_t class_index, unsigned *count, bool *fresh)
{
    size_t slab = find_unused(heap, class_index, count, fresh);
    if (slab != HAK_NO_RUN)
        return slab;
    heap->sources.swept = hak__heaps_sweep(heap, heap->sources.swept, HEAPS_SWEPT);
    slab = find_unused(heap, class_index, count, fresh);
    return slab != HAK_NO_RUN ? slab : hak__pool_take_assigned(*count, false, fresh);
}

/* Slabs that are not resident make the process grow like a new SuperSlab, while others are resident and unused, but too short or out
 * of sight. */
static void grown_by(struct hak_heap *heap, unsigned count)
{
    heap->sources.clean_slabs += count;
    if (heap->sources.clean_slabs < HAK_SUPER_SLABS)
        return;
    heap->sources.clean_slabs = 0;
    hak__pool_trim();
}

/* Opens a SuperSlab. If the system gives none, those assigned to other heaps serve too. */
static size_t sources_locked(struct hak_heap *heap, unsigned count, bool large, bool *fresh)
{
    if (heap->sources.no_new_span)
        return HAK_NO_RUN;
    heap->sources.clean_slabs = 0;
    hak__pool_trim();
    size_t slab = hak__pool_open(count, large ? HAK_OPEN_LARGE : HAK_OPEN_SMALL, fresh);
    if (slab == HAK_NO_RUN)
        slab = hak__pool_take_assigned(count, true, fresh);
    if (slab == HAK_NO_RUN)
        slab = hak__pool_open(count, HAK_OPEN_BARE, fresh);
    if (hak_likely(slab != HAK_NO_RUN))
        return slab;
    hak__heaps_sweep(heap, 0, UINT32_MAX);
    return hak__pool_take(count, fresh);
}

/* A single-block span ends with its block, so there is none to adopt; and a share must not take others' blocks with it when its
 * heap ends. */
static bool may_adopt(const struct hak_heap *heap, uint32_t class_index)
{
    return (hak__classes[class_index].blocks > 1 || hak__hardened.on) && !hak__heap_is_share(heap);
}

/* Finds slabs for a span of the class, `count` of them, and says which stage they come from. */
static size_t search_slabs(struct hak_heap *heap, uint32_t class_index, unsigned *count, bool *fresh, enum hak_stage *stage)
{
    bool large = class_index >= HAK_CLASS_FIRST_LARGE;
    *count = wanted_slabs(heap, class_index);
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
        *count = wanted_slabs(heap, class_index);
        slab = sources_locked(heap, *count, large, fresh);
    } else if (*fresh) {
        grown_by(heap, *count);
    }
    if (slab != HAK_NO_RUN && large && *stage != HAK_STAGE_OWN_HINT)
        hak__assigned_add(heap, slab);
    return slab;
}

/* The same within the limit of a share's heap. The slabs that are counted beforehand are the most that there can be. */
static size_t find_slabs(struct hak_heap *heap, uint32_t class_index, unsigned *count, bool *fresh, enum hak_stage *stage)
{
    unsigned most = wanted_slabs(heap, class_index);
    *stage = HAK_STAGE_LOCKED;
    if (hak_unlikely(!span_admit(heap, most))) {
        hak__heap_spare(heap, class_index);
        most = wanted_slabs(heap, class_index);
        if (!span_admit(heap, most))
            return HAK_NO_RUN;
    }
    size_t slab = search_slabs(heap, class_index, count, fresh, stage);
    span_discount(heap, slab == HAK_NO_RUN ? most : most - *count);
    return slab;
}

struct hak_span *hak__heap_new_span(struct hak_heap *heap, uint32_t class_index)
{
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
    if (count == 1)   /* single slabs gather here, so that long runs stay whole elsewhere */
        heap->sources.home = slab + 1;
    hak_count(&heap->counts.runs_claimed, stage == HAK_STAGE_OWN_HINT || stage == HAK_STAGE_CLAIMED);
    struct hak_span *span = begin_span(heap, class_index, slab, count, fresh);
    hak_count(&heap->counts.stages[stage], span != NULL);
    return span;
}

struct hak_span *hak__heap_assigned_span(struct hak_heap *heap, uint32_t class_index)
{
    unsigned count = wanted_slabs(heap, class_index), single = hak__class_single_slabs(class_index);
    bool fresh = false;
    if (!span_admit(heap, count))
        return NULL;
    unsigned most = count;
    size_t slab = hak__assigned_take(heap, count, &fresh);
    if (slab == HAK_NO_RUN && single != count) {
        count = single;
        slab = hak__assigned_take(heap, count, &fresh);
    }
    span_discount(heap, slab == HAK_NO_RUN ? most : most - count);
    if (slab == HAK_NO_RUN)
        return NULL;
    hak_count(&heap->counts.runs_claimed, 1);
    hak_count(&heap->counts.stages[HAK_STAGE_OWN_HINT], 1);
    struct hak_span *span = begin_single(heap, class_index, slab, count, fresh);
    if (span != NULL && span->blocks != 1)
        hak__heap_list(heap, span);
    return span;
}

void *hak__heap_take_single(struct hak_heap *heap, uint32_t class_index)
{
    unsigned count;
    enum hak_stage stage;
    bool fresh = false;
    size_t slab = find_slabs(heap, class_index, &count, &fresh, &stage);
    if (slab == HAK_NO_RUN)
        return NULL;
    hak_count(&heap->counts.runs_claimed, stage != HAK_STAGE_LOCKED);
    hak_count(&heap->counts.stages[stage], 1);
    struct hak_span *span = begin_single(heap, class_index, slab, count, fresh);
    return span == NULL ? NULL : hak__span_take_single(span);
}
