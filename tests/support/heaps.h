/* Heaps without threads: tests of the layers from span/ up to cache/ make heaps themselves and call the layers as
 * malloc.c and kinds/plain.c would. */
#ifndef HAK_TESTS_SUPPORT_HEAPS_H
#define HAK_TESTS_SUPPORT_HEAPS_H

#include "arena/runs.h"
#include "cache/cache.h"
#include "cache/large_cache.h"
#include "harden/quarantine.h"
#include "heap/heap.h"
#include "support/check.h"
#include "support/memory.h"

static inline void heaps_start(void)
{
    expect_eq(hak__arena_init(), 0);
    hak__heap_init();
}

/* Locks a heap as slow paths do; true if the caller has to unlock it, because it had not locked it before. A test plays several threads
 * in one and may hold another heap, so the order of locks is not asked. */
static inline CHECK_UNUSED bool heap_enter(struct hak_heap *heap)
{
    if (hak__lock_word_is_mine(&heap->lock))
        return false;
    for (unsigned tries = 0; !hak__heap_try_lock(heap, HAK_OWNER); tries++)
        hak__yield(tries);
    return true;
}
static inline CHECK_UNUSED void heap_leave(struct hak_heap *heap, bool entered)
{
    if (entered)
        hak__heap_unlock(heap);
}

static inline CHECK_UNUSED struct hak_heap *heap_open(uint32_t mode)
{
    struct hak_heap *heap = hak__heap_new();
    expect(heap != NULL);
    if ((mode & HAK_MODE_HARDENED) != 0)
        hak__quarantine_open(heap);
    hak__cache_open(heap, mode);
    bool entered = heap_enter(heap);
    hak__cache_open_classes(heap);   /* as after a request of each */
    heap_leave(heap, entered);
    return heap;
}

/* One block, as malloc takes it: a pop, else a refill. */
static inline CHECK_UNUSED void *heap_malloc(struct hak_heap *heap, uint32_t class)
{
    void *block = hak__cache_pop(&heap->bins[class]);
    if (block != NULL)
        return block;
    bool entered = heap_enter(heap);
    block = hak__is_large(class) ? hak__large_cache_refill(heap, class) : hak__cache_refill(heap, class);
    heap_leave(heap, entered);
    return block;
}

/* A free by the owner: a push, else an overflow. */
static inline CHECK_UNUSED void heap_free(struct hak_heap *heap, uint32_t class, void *block)
{
    if (!hak__is_large(class) && hak__cache_push(&heap->bins[class], block))
        return;
    bool entered = heap_enter(heap);
    if (hak__is_large(class))
        hak__large_cache_push(heap, class, block, "free");
    else
        hak__cache_overflow(heap, class, block, "free");
    heap_leave(heap, entered);
}

/* A free by another heap's owner who has no use for the block, which the program has used. */
static inline CHECK_UNUSED void heap_free_remote(struct hak_heap *heap, void *block)
{
    if ((uintptr_t)block % HAK_ALIGN == 0)
        hak__mark_live(block);
    if (hak__outbox_add(heap, block))
        return;
    bool entered = heap_enter(heap);
    hak__outbox_add_slow(heap, block, hak__owner_of(block), "free");
    heap_leave(heap, entered);
}

/* Takes in what other heaps have freed, and what this heap has freed of theirs goes out; empties the bins. */
static inline CHECK_UNUSED void heap_collect(struct hak_heap *heap)
{
    bool entered = heap_enter(heap);
    hak__outbox_flush(heap, "free");
    hak__heap_collect(heap);
    heap_leave(heap, entered);
}
static inline CHECK_UNUSED void heap_flush(struct hak_heap *heap)
{
    bool entered = heap_enter(heap);
    hak__cache_flush(heap);
    heap_leave(heap, entered);
}

/* A free by another heap's owner who may have use for it. */
static inline CHECK_UNUSED bool heap_absorb(struct hak_heap *heap, uint32_t class, void *block)
{
    if (!hak__cache_absorbs(heap, hak__offset_of_class(class)))
        return false;
    hak__mark_freed(block);
    hak__cache_absorb(heap, hak__offset_of_class(class), block);
    return true;
}

static inline CHECK_UNUSED void expect_heap_valid(struct hak_heap *heap)
{
    expect(hak__heap_is_valid(heap));
    expect(hak__cache_is_valid(heap));
}

/* The same for many blocks of a class. */
static inline CHECK_UNUSED void heap_malloc_many(struct hak_heap *heap, uint32_t class, void **blocks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        blocks[i] = heap_malloc(heap, class);
}

static inline CHECK_UNUSED void heap_free_many(struct hak_heap *heap, uint32_t class, void *const *blocks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        heap_free(heap, class, blocks[i]);
    expect_heap_valid(heap);
}

/* What a heap's counters say is outside of it: with the program, or in an outbox. Summed over all heaps and without the
 * outboxes it is invariant 2 of heap.h. */
static inline CHECK_UNUSED uint64_t heap_live(struct hak_heap *heap, uint32_t class)
{
    const struct hak_heap_class *k = &heap->classes[class];
    return hak_counted(&k->refilled) - hak_counted(&k->drained) - hak_counted(&k->collected)
           - hak__cache_count(heap, class);
}

static inline CHECK_UNUSED uint64_t heap_live_of_all_classes(struct hak_heap *heap)
{
    uint64_t live = 0;
    for (uint32_t class = 0; class < HAK_CLASSES; class++)
        live += heap_live(heap, class);
    return live;
}

#endif
