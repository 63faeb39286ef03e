/* The large cache: large blocks that a thread has freed, ready for its next requests. Their bins are always closed, so every
 * call comes here. That allows an exact byte count over all classes, and lets upkeep take a sleeping thread's cached blocks
 * (protocol in large_cache.h). Called by malloc.c, kinds/, guard/ and upkeep/.
 *
 * The limit is in resident bytes; sampling estimates the resident share (large_weigh).
 *
 * A cached block of one of the next classes also serves a request that fills at least half of it. A full cache evicts the blocks
 * freed first. On a miss the heap searches its assigned SuperSlabs (heap/large.c) and releases cached blocks there, oldest
 * first, before it grows.
 *
 * Invariants, with the heap locked: the bin of class c has a block => bit c of `classes`;  `bytes` is the sum of their sizes;
 * oldest[c] is the time of its lowest block. A pop leaves the bit set; searches clear the bits of empty bins. */
#include "cache/large_cache.h"

#include <string.h>

#include "arena/returned.h"
#include "base/assert.h"
#include "base/bits.h"
#include "cache/cache.h"
#include "diag/options.h"
#include "os/os.h"

/* How long an owner must be silent before its blocks are taken: a thousand times what a store takes to become visible. The clock
 * advances in steps of up to 4 ms. */
enum { LARGE_ASKED_MS = 10 };

/* Samples residency with mincore: often while the thread is young, then at every fourth aging pass, and more often while the
 * figure surprises. From an absent share of one half on, it decides where blocks go. */
enum { WEIGH_EVERY = 256, WEIGH_FIRST = 8192, WEIGH_AT_LOOK = 4, LOOKS_TO_PASS = 3 };
enum { SURPRISE = HAK_RETAIN_WHOLE / 4, ABSENT_MUCH = HAK_RETAIN_WHOLE / 2 };

/* --- which classes have blocks ---------------------------------------------------------------------------------------- */

/* A block up to this many classes larger may serve a request. */
enum { LARGE_REACH = 3 };

/* Classes whose block is alone in its span and can be resized in place (heap/heap.h): no other class serves their requests. */
#define X(index, size, slabs, blocks, reciprocal, batch) | (uint64_t)(blocks == 1) << (index)
static const uint64_t single_classes = 0
#include "size/classes.def"
    ;
#undef X

_Static_assert(HAK_CLASSES <= 64, "a class is a bit of a word");

/* The classes that have blocks. */
static uint64_t held_classes(struct hak_heap *heap)
{
    uint64_t held = heap->large_cache.classes;
    for (uint64_t left = held; left != 0; left &= left - 1) {
        const struct hak_heap_class *class = &heap->classes[hak_ctz64(left)];
        if (class->hidden.top == class->bottom)
            held &= ~(left & -left);
    }
    if (held != heap->large_cache.classes)
        hak_owner_store(&heap->large_cache.classes, held);
    return held;
}

void *hak__large_cache_pop_above(struct hak_heap *heap, uint32_t index)
{
    uint64_t fit = heap->large_cache.classes >> index & hak_ones64(LARGE_REACH + 1);
    fit &= single_classes >> index | ((single_classes >> index & 1) - 1);
    for (; fit != 0; fit &= fit - 1) {
        void *block = hak__large_cache_pop(heap, index + hak_ctz64(fit));
        if (block != NULL)
            return block;
    }
    return NULL;
}

/* --- out of the bins -------------------------------------------------------------------------------------------------- */

/* Returns `count` blocks from slot `at` of the bin on to the heap. */
static void give_from(struct hak_heap *heap, uint32_t index, uint32_t at, uint32_t count, const char *function)
{
    struct hak_heap_class *class = &heap->classes[index];
    uint32_t held = (uint32_t)(class->hidden.top - class->bottom), rest = held - at - count;
    hak_assert(count != 0 && at + count <= held, "blocks of the bin");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    void **first = class->bottom + at;
    uintptr_t *freed = hak__large_time(class, first);
    hak__cache_give(heap, index, first, count, function);
    heap->foreign[index] &= count != held;
    memmove(first, first + count, rest * sizeof *first);
    memmove(freed, freed + count, rest * sizeof *freed);
    hak_owner_store(&class->hidden.top, first + rest);
    hak__large_bin_lost(heap, index, count);
    heap->large_cache.oldest[index - HAK_CLASS_FIRST_LARGE] = (uint32_t)*hak__large_time(class, class->bottom);
}

/* Returns to the heap the oldest `count` blocks of the class. */
static void large_cache_drain(struct hak_heap *heap, uint32_t index, uint32_t count, const char *function)
{
    count = (uint32_t)hak_min(count, heap->classes[index].hidden.top - heap->classes[index].bottom);
    if (count != 0)
        give_from(heap, index, 0, count, function);
}

bool hak__large_cache_clear_behind(struct hak_heap *heap, const void *block)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    const struct hak_span *span = hak__span_at(hak__slab_of(block));
    size_t behind = hak__span_slab(span) + span->slabs;
    if (span->blocks != 1 || behind % HAK_SUPER_SLABS == 0)
        return false;
    uint32_t word = hak__owner_at(behind), index = hak__owner_class(word);
    if (hak__owner_id(word) != heap->id || index >= HAK_CLASSES || !hak__is_large(index))
        return false;
    const struct hak_heap_class *class = &heap->classes[index];
    for (void **slot = class->hidden.top; slot != class->bottom;)
        if (*--slot == hak__slab_start(behind) && hak__span_at(behind)->blocks == 1) {
            give_from(heap, index, (uint32_t)(slot - class->bottom), 1, "realloc");
            return true;
        }
    return false;
}

/* The class in the nonempty set `held` whose oldest block was freed first. */
static uint32_t oldest_class(const struct hak_heap *heap, uint64_t held)
{
    hak_assert(held != 0, "a class has blocks");
    uint32_t found = 0, age = 0;
    for (uint64_t left = held; left != 0; left &= left - 1) {
        uint32_t class = hak_ctz64(left), its = heap->large_cache.clock - heap->large_cache.oldest[class - HAK_CLASS_FIRST_LARGE];
        if (its >= age) {
            age = its;
            found = class;
        }
    }
    return found;
}

static void give_up_oldest(struct hak_heap *heap) { large_cache_drain(heap, oldest_class(heap, held_classes(heap)), 1, "free"); }

/* --- into the bins ---------------------------------------------------------------------------------------------------- */

static bool is_mostly_absent(const struct hak_heap *heap) { return heap->large_cache.absent_share >= ABSENT_MUCH; }

static bool weigh_due(const struct hak_heap *heap)
{
    return heap->large_cache.clock < WEIGH_FIRST
        && heap->large_cache.clock - heap->large_cache.weighed >= hak_min(WEIGH_EVERY, heap->large_cache.clock / 8);
}

/* Counts the block's absent pages; a sample moves the estimate by a quarter. Returns whether the sample was far from it. */
static hak_noinline bool large_weigh(struct hak_heap *heap, uint32_t index, const void *block)
{
    hak_assert(hak__is_large(index), "a class of the large pool");
    unsigned char pages[HAK_LARGE_MAX >> 12];
    size_t page = hak__page_size(), absent = 0;
    uintptr_t start = hak_align_up((uintptr_t)block, page); /* large pages: it may begin within one, and have no whole one */
    size_t count = ((uintptr_t)block + hak__classes[index].size - start) / page;
    bool known = count != 0 && hak__os_resident(start, count * page, pages) == 0;
    for (size_t i = 0; known && i < count; i++)
        absent += pages[i] == 0;
    int change = (int)(absent * HAK_RETAIN_WHOLE / hak_max(count, 1)) - (int)heap->large_cache.absent_share;
    heap->large_cache.absent_share += (uint32_t)(change / 4);
    heap->large_cache.weighed = heap->large_cache.clock;
    return change >= SURPRISE || change <= -SURPRISE;
}

static size_t large_cache_limit(struct hak_heap *heap)
{
    struct hak_large_cache *cache = &heap->large_cache;
    size_t used = heap->large_out - hak_load(&heap->large_remote_freed, HAK_RELAXED) - cache->bytes;
    if ((ptrdiff_t)used < 0) /* another thread may free a block before its owner has counted it */
        return 0;
    cache->peak = hak_max(cache->peak, used);
    return hak__retain_large((struct hak_large_retention){
        .used = used,
        .cached = cache->bytes,
        .peak = cache->peak,
        .budget = hak__option(HAK_OPTION_thread_budget),
        .spent = heap->budget.bytes,
        .absent = cache->absent_share,
    });
}

/* Makes room for the block just freed by releasing others; false: do not cache it. */
static hak_noinline bool find_place(struct hak_heap *heap, uint32_t index, const void *block, const char *function)
{
    struct hak_heap_class *class = &heap->classes[index];
    size_t size = hak__classes[index].size, limit = large_cache_limit(heap);
    if ((heap->large_cache.bytes + size > limit || is_mostly_absent(heap)) && weigh_due(heap)) {
        large_weigh(heap, index, block);
        limit = large_cache_limit(heap);
    }
    if (class->capacity == 0 || size > limit)
        return false;
    if (class->hidden.top == class->hidden.end)
        large_cache_drain(heap, index, 1, function);
    while (heap->large_cache.bytes + size > limit)
        give_up_oldest(heap);
    while (heap->large_cache.bytes + size > heap->large_cache.charged && !hak__cache_charge_large(heap)) {
        if (heap->large_cache.bytes == 0)
            return false;
        give_up_oldest(heap);
    }
    heap->large_cache.sure = hak_min(limit, heap->large_cache.charged);
    if (heap->large_cache.clock % HAK_LARGE_LOOK_EVERY == 0) /* not when the bin is full: then every free comes here */
        heap->polling.calls += HAK_LARGE_LOOK_EVERY; /* the uncounted frees */
    return true;
}

void hak__large_cache_push(struct hak_heap *heap, uint32_t index, void *block, const char *function)
{
    hak_assert(hak__is_large(index), "a class of the large pool");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    hak__large_cache_answer(&heap->large_cache);
    if (find_place(heap, index, block, function))
        hak__large_bin_push(heap, index, block, heap->large_cache.bytes + hak__classes[index].size);
    else
        hak__heap_give(heap, &block, 1, function);
}

/* --- a block that is not cached ---------------------------------------------------------------------------------------- */

/* Releases a cached block whose place fits one of the class, or else the oldest. */
static void give_up_for(struct hak_heap *heap, uint32_t index, uint64_t held)
{
    uint64_t larger = held & single_classes & ~0ull << index;
    large_cache_drain(heap, larger != 0 ? hak_ctz64(larger) : oldest_class(heap, held), 1, "free");
}

/* Whether a new SuperSlab fits the heap's peak of large blocks. If many of them are absent, cached blocks stay where their pages
 * are; blocks elsewhere would touch new ones. */
static bool may_open(struct hak_heap *heap, uint64_t held)
{
    uint32_t oldest = oldest_class(heap, held);
    if (weigh_due(heap))
        large_weigh(heap, oldest, heap->classes[oldest].bottom[0]);
    return is_mostly_absent(heap) || (hak_max(heap->assigned.count, 1u) + 1) * HAK_SUPER_SIZE <= heap->large_cache.peak;
}

void *hak__large_cache_refill(struct hak_heap *heap, uint32_t index)
{
    hak_assert(hak__is_large(index), "a class of the large pool");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    hak__large_cache_answer(&heap->large_cache);
    void *block = hak__large_cache_pop(heap, index);
    if (block != NULL)
        return block;
    hak_count(&heap->classes[index].misses, 1);
    heap->polling.refills++;
    uint64_t held;
    while ((block = hak__heap_take_at_hand(heap, index)) == NULL && (held = held_classes(heap)) != 0 && !may_open(heap, held))
        give_up_for(heap, index, held);
    if (block == NULL)
        hak__heap_take(heap, index, &block, 1);
    return block;
}

/* --- aging ------------------------------------------------------------------------------------------------------------- */

/* Releases the blocks freed before `time`. */
static void give_up_before(struct hak_heap *heap, uint32_t time)
{
    for (uint64_t held; (held = held_classes(heap)) != 0;) {
        uint32_t oldest = oldest_class(heap, held);
        if ((int32_t)(heap->large_cache.oldest[oldest - HAK_CLASS_FIRST_LARGE] - time) > 0)
            return;
        large_cache_drain(heap, oldest, 1, "free");
    }
}

/* Samples the newest block of one class, and of the next classes while the figure surprises. */
static void weigh_some(struct hak_heap *heap)
{
    uint64_t left = held_classes(heap);
    if (left == 0 || heap->large_cache.pass-- != 0)
        return;
    bool surprised = true;
    for (uint32_t i = 0; i < WEIGH_AT_LOOK && left != 0 && surprised; i++, left &= left - 1) {
        uint32_t index = hak_ctz64(left);
        surprised = large_weigh(heap, index, heap->classes[index].hidden.top[-1]);
    }
    heap->large_cache.pass = surprised ? 0 : LOOKS_TO_PASS;
    heap->large_cache.sure = 0;
}

void hak__large_cache_age(struct hak_heap *heap)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    if (heap->large_cache.clock == 0 && heap->large_cache.peak == 0)
        return; /* the thread has had no large block; its struct stays untouched */
    give_up_before(heap, heap->large_cache.seen);
    weigh_some(heap);
    heap->large_cache.seen = heap->large_cache.clock;
    heap->large_cache.peak -= heap->large_cache.peak / 4;
    hak__cache_discharge_large(heap);
}

void hak__large_cache_flush(struct hak_heap *heap)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    for (uint64_t left = held_classes(heap); left != 0; left &= left - 1)
        large_cache_drain(heap, hak_ctz64(left), UINT32_MAX, "free");
    hak__cache_discharge_large(heap);
}

bool hak__large_cache_reclaim(struct hak_heap *heap, uint64_t now_ms, bool waited)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    struct hak_large_cache *cache = &heap->large_cache;
    uint32_t now = (uint32_t)now_ms != 0 ? (uint32_t)now_ms : 1, asked = hak_load(&cache->asked_ms, HAK_RELAXED);
    if (asked != 0 && (waited || now - asked >= LARGE_ASKED_MS) && !hak__large_cache_is_busy(cache)) {
        hak__large_cache_flush(heap);
        return true;
    }
    if (asked == 0)
        hak_store(&cache->asked_ms, now, HAK_RELAXED);
    return false;
}

/* If owner_turns shows that the owner interfered, reports nothing. */
bool hak__large_cache_is_valid(const struct hak_heap *heap)
{
    size_t bytes = 0;
    bool valid = true;
    uint32_t turns = hak_load(&heap->large_cache.owner_turns, HAK_ACQUIRE);
    uint64_t classes = hak_peek(&heap->large_cache.classes);
    for (uint32_t index = HAK_CLASS_FIRST_LARGE; index < HAK_CLASSES; index++) {
        const struct hak_heap_class *class = &heap->classes[index];
        if (class->bottom == NULL)
            continue;
        size_t held = (size_t)(hak_peek(&class->hidden.top) - class->bottom);
        bytes += held * hak__classes[index].size;
        uint32_t time = (uint32_t)hak_peek(hak__large_time(class, class->bottom));
        bool noted = (classes >> index & 1) != 0 && hak_peek(&heap->large_cache.oldest[index - HAK_CLASS_FIRST_LARGE]) == time;
        valid &= held == 0 || noted;
    }
    valid &= bytes == hak_peek(&heap->large_cache.bytes) && bytes <= heap->large_cache.charged;
    bool busy = (turns & 1) != 0 || hak_load(&heap->large_cache.owner_turns, HAK_RELAXED) != turns;
    return busy || hak__holds(valid, "cached large blocks are counted", &heap->large_cache.bytes);
}
