/* What the cases that link heap/heap.c share: heaps with spans of two classes in SuperSlab 0, and every block's owner
 * known, so that no schedule can hand a block out twice or lose one. Include once per program. */
#ifndef HAK_TESTS_RACE_HEAPS_WORLD_H
#define HAK_TESTS_RACE_HEAPS_WORLD_H

#include <setjmp.h>

#include "diag/options.h"
#include "heap/heap.h"
#include "span/pool.h"
#include "world.h"

enum { SMALL = HAK_CLASS_2048, LARGE = HAK_CLASS_524288, LARGE_SLABS = 8, SLABS = WORLD_SUPERS * HAK_SUPER_SLABS, PER_SLAB = 32 };

/* The options that heap/ reads, at their defaults. */
_Atomic uint64_t hak__option_words[HAK_OPTIONS] = { [HAK_OPTION_refill_count] = 32, [HAK_OPTION_warm_pool_prefill] = 3 };

static _Atomic uint32_t out[SLABS];            /* blocks in the program's hands, by slab and index */
static unsigned content[SLABS * PER_SLAB];     /* what their holders write, plainly */

static inline struct hak_heap *heap(uint32_t id) { return hak__heap_by_id(id); }
static inline struct hak_span *span(size_t slab) { return &hak__spans[slab]; }
static inline char *block_at(size_t slab, uint32_t index) { return hak__slab_start(slab) + index * hak__classes[SMALL].size; }

static inline uint32_t index_of(const void *block)
{
    size_t slab = hak__slab_of(block);
    return (uint32_t)(((const char *)block - hak__slab_start(slab)) / hak__classes[SMALL].size);
}

/* Bookkeeping is no point of the schedule and orders nothing. */
static inline void note_taken(const void *block)
{
    size_t slab = hak__slab_of(block);
    uint32_t bit = 1u << index_of(block), before = atomic_fetch_or_explicit(&out[slab], bit, HAK_RELAXED);
    EXPLORE_EXPECT((before & bit) == 0, "a block is in two hands");
    content[slab * PER_SLAB + index_of(block)]++;
}

static inline void note_given(const void *block)
{
    size_t slab = hak__slab_of(block);
    content[slab * PER_SLAB + index_of(block)]++;
    atomic_fetch_and_explicit(&out[slab], ~(1u << index_of(block)), HAK_RELAXED);
}

/* --- what threads do -------------------------------------------------------------------------------------------------- */

/* A heap is refused only in a child of a fork that has given it up. */
static inline bool lock(uint32_t id)
{
    bool locked = hak__heap_lock(heap(id));
    EXPLORE_EXPECT(locked || hak__heap_is_unusable(heap(id)), "a heap is refused that nobody has given up");
    return locked;
}

static inline void *take(uint32_t id, uint32_t class)
{
    void *block = NULL;
    if (!lock(id))
        return NULL;
    if (hak__heap_take(heap(id), class, &block, 1) != 0) {
        hak__mark_live(block);
        note_taken(block);
    }
    hak__heap_unlock(heap(id));
    return block;
}

static inline void give(uint32_t id, void *block)
{
    note_given(block);
    if (!lock(id))
        return;
    hak__heap_give(heap(id), &block, 1, "free");
    hak__heap_unlock(heap(id));
}

static inline void publish(void *block)
{
    note_given(block);
    hak__remote_publish(hak__span_at(hak__slab_of(block)), index_of(block) / 64, 1ull << index_of(block) % 64, "free");
}

static inline void end_foreign(uint32_t id, void *block)
{
    uint32_t word = hak__owner_at(hak__slab_of(block));
    note_given(block);
    hak__heap_end_foreign(heap(id), block, word, "free");
}

static inline void collect(uint32_t id)
{
    if (!lock(id))
        return;
    hak__heap_collect(heap(id));
    hak__heap_unlock(heap(id));
}

static inline void sweep(uint32_t id)
{
    if (!lock(id))
        return;
    uint32_t after = 0;
    hak__heaps_sweep(heap(id), &after, UINT32_MAX);
    hak__heap_unlock(heap(id));
}

/* --- the state in which a schedule begins ------------------------------------------------------------------------------- */

static inline void begin(void)
{
    for (uint32_t id = 1; id <= WORLD_HEAPS && hak__heap_last_id() < WORLD_HEAPS; id++)
        hak__heap_new()->refill_count = 32;   /* as hak__cache_open does by default */
    for (struct hak_heap *one; (one = hak__heap_unpark()) != NULL;)
        hak__heap_unlock(one);
    world_reset();
    for (size_t slab = 0; slab < SLABS; slab++)
        atomic_store_explicit(&out[slab], 0, HAK_RELAXED);
    world_take_super(0);
    hak__slabs_open(&hak__supers[0], HAK_SUPER_SLABS, false);
    atomic_store(&hak__supers[0].kind, HAK_SUPER_IN_SLABS);
}

/* A span of the heap of which the first `count` blocks are in the program's hands and `given` are back. */
static inline void begin_span(size_t slab, uint32_t class, uint32_t owner, uint16_t count, uint16_t given)
{
    hak__span_create(slab, hak__classes[class].slabs, class, owner, NULL, false);
    span(slab)->frontier = (uint16_t)(count + given);
    hak_count(&heap(owner)->classes[class].span_count, 1);
    if (class == SMALL)
        hak__heap_list(heap(owner), span(slab));
    for (uint16_t i = 0; i < count + given; i++)
        note_taken(block_at(slab, i));
    for (uint16_t i = count; i < count + given; i++)
        give(owner, block_at(slab, i));
}

/* The slabs from `first` on are nobody's. */
static inline void begin_unused(size_t first, unsigned count) { hak__pool_give(first, count); }

/* --- what holds at the end ------------------------------------------------------------------------------------------------ */

/* By the map: the span's own word is 0 when it has one block. */
static inline uint32_t owner_of(size_t slab)
{
    uint32_t word = atomic_load(&hak__window.map[slab].owner);
    return hak__owner_has_class(word) ? hak__owner_id(word) : 0;
}

static inline unsigned spans_of(uint32_t id, uint32_t class)
{
    unsigned count = 0;
    for (size_t slab = 0; slab < SLABS; slab++)
        count += owner_of(slab) == id && span(slab)->class == class;
    return count;
}

static inline void expect_span(size_t slab)
{
    struct hak_span *one = span(slab);
    uint32_t owner = owner_of(slab);
    unsigned outside = (unsigned)__builtin_popcount(atomic_load(&out[slab]));
    EXPLORE_EXPECT(atomic_load(&one->queued) == 0, "a span is marked as queued and stands on no stack");
    if (owner == 0) {
        EXPLORE_EXPECT(outside == 0, "a block lies in a span that has ended");
        return;
    }
    EXPLORE_EXPECT(hak__span_is_valid(one), "a span is not valid");
    bool queued = one->blocks != 1 && !hak__owner_is_own(atomic_load(&hak__window.map[slab].owner));
    EXPLORE_EXPECT(atomic_load(&one->owner) == (queued ? owner : 0),
                   "the map and the span name two owners");
    EXPLORE_EXPECT(hak__span_allocated(one) == outside, "a block that was freed did not come back, or one twice");
    EXPLORE_EXPECT(one->blocks == 1 || one->listed == hak__span_has_blocks(one), "a span with blocks is not listed");
}

/* Every slab of a SuperSlab in slabs is a span's or unused. */
static inline void expect_slabs(size_t super)
{
    uint32_t used = 0, unused = hak__slabs_unused(atomic_load(&hak__supers[super].slabs));
    for (size_t i = 0; i < HAK_SUPER_SLABS; i++)
        if (owner_of(super * HAK_SUPER_SLABS + i) != 0)
            used |= hak_ones32(span(super * HAK_SUPER_SLABS + i)->slabs) << i;
    EXPLORE_EXPECT((used & unused) == 0, "a slab of a span is unused");
    EXPLORE_EXPECT(!world_super_is_free(super) || (used | unused) == 0, "a SuperSlab with slabs in use was given back");
}

static inline void check(void)
{
    for (int round = 0; round < 3; round++)   /* a span may be sent on */
        for (uint32_t id = 1; id <= WORLD_HEAPS; id++)
            hak__heap_collect(heap(id));
    for (size_t slab = 0; slab < SLABS; slab++)
        expect_span(slab);
    for (size_t super = 0; super < WORLD_SUPERS; super++)
        expect_slabs(super);
    uint64_t counted[2] = { 0 }, found[2] = { 0 };
    for (uint32_t id = 1; id <= WORLD_HEAPS; id++) {
        EXPLORE_EXPECT(hak__heap_is_valid(heap(id)), "a heap is not valid");
        EXPLORE_EXPECT(atomic_load(&heap(id)->lock) == HAK_LOCK_FREE, "a heap stays entered");
        counted[0] += hak_counted(&heap(id)->classes[SMALL].span_count);
        counted[1] += hak_counted(&heap(id)->classes[LARGE].span_count);
        found[0] += spans_of(id, SMALL);
        found[1] += spans_of(id, LARGE);
    }
    EXPLORE_EXPECT(counted[0] == found[0] && counted[1] == found[1], "a count of spans is wrong");
}

#endif
