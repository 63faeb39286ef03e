/* Large blocks that a thread has freed, ready for its next requests: closed bins whose hidden blocks are limited by bytes
 * (large_cache.c). Called by malloc.c, kinds/, guard/ and upkeep/.
 *
 * A thread pops and pushes without the heap lock: a locked instruction would wait until the thread's earlier stores, such as the
 * program's writes to the block, have left the processor. Every other access holds the lock, as does the owner for anything more.
 * Upkeep takes the blocks of a sleeping thread:
 *
 *   owner, quick                                  sweeper, with the heap lock
 *   1. owner_turns := odd                         a. asked_ms := now, and goes away
 *   2. asked_ms is 0, else the slow path          b. at least LARGE_ASKED_MS later: asked_ms still says so
 *   3. pops or pushes                             c. owner_turns is even (acquire)
 *   4. owner_turns := even (release)              d. takes the blocks
 *
 * The owner answers on its next slow path, under the lock, with asked_ms := 0. No fence stands between 1 and 2, nor between a
 * and c; time replaces both. A processor's stores become visible to others within microseconds, and a thread interrupted between
 * 1 and 4 leaves owner_turns odd all that time. So at c either 1 is visible, or a was visible when the owner reached 2.
 * (Morrison and Afek, Temporally Bounding TSO for Fence-Free Asymmetric Synchronization, ASPLOS 2015.) */
#pragma once

#include "base/assert.h"
#include "cache/cache.h"

/* Bracket the owner's pops and pushes without the heap lock. `begin` returns the argument of `end`; 0: a sweeper has asked, so
 * the owner must take the lock. */
hak_inline uint32_t hak__large_cache_begin(struct hak_large_cache *cache)
{
    uint32_t turns = hak_load(&cache->owner_turns, HAK_RELAXED) | 1; /* odd already: a thread ended inside */
    hak_store(&cache->owner_turns, turns, HAK_RELAXED);
    hak_signal_fence();
    if (hak_likely(hak_load(&cache->asked_ms, HAK_RELAXED) == 0))
        return turns;
    hak_store(&cache->owner_turns, turns + 1, HAK_RELAXED);
    return 0;
}
hak_inline void hak__large_cache_end(struct hak_large_cache *cache, uint32_t turns)
{
    /* release: pairs with the acquire in hak__large_cache_is_busy; orders the owner's operation before the sweeper's. */
    hak_store(&cache->owner_turns, turns + 1, HAK_RELEASE);
}

/* Whether the owner is inside; in a forked child, whether a thread that the child lacks was. */
hak_inline bool hak__large_cache_is_busy(const struct hak_large_cache *cache)
{
    return (hak_load(&cache->owner_turns, HAK_ACQUIRE) & 1) != 0;
}

/* Tells sweepers that the owner is awake. Caller holds the heap lock. */
hak_inline void hak__large_cache_answer(struct hak_large_cache *cache) { hak_store(&cache->asked_ms, 0, HAK_RELAXED); }

/* --- pop and push ------------------------------------------------------------------------------------------------------ */

/* The limit is recomputed after this many blocks. */
enum { HAK_LARGE_LOOK_EVERY = 32 };

/* When the block in a slot was freed; the time lies as many words behind the slot as the bin has slots. */
hak_inline uintptr_t *hak__large_time(const struct hak_heap_class *class, void **slot)
{
    return (uintptr_t *)(slot + class->capacity);
}

/* Notes that blocks have left the bin. */
hak_inline void hak__large_bin_lost(struct hak_heap *heap, uint32_t class, uint32_t count)
{
    hak_assert(heap->large_cache.bytes >= count * (size_t)hak__classes[class].size, "no more goes than is cached");
    hak_owner_store(&heap->large_cache.bytes, heap->large_cache.bytes - count * (size_t)hak__classes[class].size);
}

/* A block of one of the next classes that may serve a request of this one, or NULL. */
void *hak__large_cache_pop_above(struct hak_heap *heap, uint32_t index);

hak_inline void *hak__large_cache_pop(struct hak_heap *heap, uint32_t index)
{
    struct hak_heap_class *class = &heap->classes[index];
    void **top = class->hidden.top;
    if (top == class->bottom)
        return NULL;
    void *block = *--top;
    hak_owner_store(&class->hidden.top, top);
    hak__large_bin_lost(heap, index, 1);
    return block;
}

/* Pops a block of this class or of the smallest of the next ones that has one; for requests without alignment. */
hak_inline void *hak__large_cache_pop_near(struct hak_heap *heap, uint32_t index)
{
    void *block = hak__large_cache_pop(heap, index);
    return hak_likely(block != NULL) ? block : hak__large_cache_pop_above(heap, index);
}

/* Pushes on a bin with room. */
hak_inline void hak__large_bin_push(struct hak_heap *heap, uint32_t index, void *block, size_t sum)
{
    hak_assert(heap->classes[index].hidden.top < heap->classes[index].hidden.end, "the bin has room");
    struct hak_heap_class *class = &heap->classes[index];
    void **top = class->hidden.top;
    uint32_t now = ++heap->large_cache.clock;
    hak_slot_store(hak__large_time(class, top), now);
    if (top == class->bottom) {
        hak_slot_store(&heap->large_cache.oldest[index - HAK_CLASS_FIRST_LARGE], now);
        hak_owner_store(&heap->large_cache.classes, heap->large_cache.classes | 1ull << index);
    }
    hak_slot_store(top, block);
    hak_owner_store(&class->hidden.top, top + 1);
    hak_owner_store(&heap->large_cache.bytes, sum);
}

/* Returns false if a push does not suffice. */
hak_inline bool hak__large_cache_push_quickly(struct hak_heap *heap, uint32_t index, void *block)
{
    struct hak_bin *bin = &heap->classes[index].hidden;
    size_t sum = heap->large_cache.bytes + hak__classes[index].size;
    if (hak_unlikely(sum > heap->large_cache.sure || bin->top == bin->end || heap->large_cache.clock % HAK_LARGE_LOOK_EVERY == 0))
        return false;
    hak__large_bin_push(heap, index, block, sum);
    return true;
}

/* --- under the heap lock ---------------------------------------------------------------------------------------------------- */

/* For a sweeper that holds the heap lock: takes back the blocks if the owner has been silent for long enough since it was asked;
 * otherwise asks it. `waited`: the caller has slept since it asked all heaps. False: the blocks are still there. */
hak_cold bool hak__large_cache_reclaim(struct hak_heap *heap, uint64_t now_ms, bool waited);

/* A block of the class, cached or new; NULL when the system refuses. */
void *hak__large_cache_refill(struct hak_heap *heap, uint32_t class);

/* Caches the block, or returns it to the heap if it exceeds the limit. */
void hak__large_cache_push(struct hak_heap *heap, uint32_t class, void *block, const char *function);

/* Return to the heap all blocks that were there at the last aging; all. */
hak_cold void hak__large_cache_age(struct hak_heap *heap);
hak_cold void hak__large_cache_flush(struct hak_heap *heap);

/* Releases the cached large block directly after `block`; false if there is none. */
bool hak__large_cache_clear_behind(struct hak_heap *heap, const void *block);

hak_cold bool hak__large_cache_is_valid(const struct hak_heap *heap);
