/* The thread cache: a stack of ready blocks per class, the same for tiny, mid and large classes. This header holds the fast path
 * (pop and push) and declares the rest: refill and overflow (refill.c), drain (cache.c), and whole-heap operations
 * (contents.c).
 *
 *      bottom[-1]   bottom                 top            end = bottom + capacity
 *        NULL      | oldest ... newest    | (free slots) |
 *
 * A slot is stored before `top` moves over it, so a bin is valid at every instruction: no signal handler or forked child sees a
 * stack with an unwritten slot. */
#pragma once

#include "heap/heap.h"

hak_inline struct hak_bin *hak__bin_at(struct hak_heap *heap, struct hak_class_offset offset)
{
    return (struct hak_bin *)((char *)heap->bins + offset.bytes);
}

/* Pops the newest block; NULL if the bin is empty or closed. */
hak_inline void *hak__cache_pop(struct hak_bin *bin)
{
    void **top = bin->top;
    void *block = top[-1];
    if (hak_likely(block != NULL))
        hak_owner_store(&bin->top, top - 1);
    return block;
}

/* Returns false if the bin is full or closed. */
hak_inline bool hak__cache_push(struct hak_bin *bin, void *block)
{
    void **top = bin->top;
    if (hak_unlikely(top == bin->end))
        return false;
    hak_slot_store(top, block);
    hak_owner_store(&bin->top, top + 1);
    return true;
}

/* A closed bin points here: empty to a pop, full to a push. */
extern void *const hak__closed_slots[2];
#define HAK_CLOSED_TOP ((void **)(uintptr_t)&hak__closed_slots[1])

/* --- the calling thread's heap ----------------------------------------------------------------------------------------------
 *
 * A thread starts with the sentinel: its bins are empty to a pop and full to a push, and its tag owns nothing, so the fast paths
 * need no test for a missing heap. The thread's word is the distance from the sentinel to its heap; thread-local memory starts
 * as zero, which means the sentinel. A user heap that is the thread's default takes the place of its heap. */

/* Only the front of a heap exists: every slow path checks the mode before it reads more. */
extern struct hak_heap_front hak__sentinel __attribute__((visibility("hidden")));
extern __thread intptr_t hak__thread_word __attribute__((tls_model("initial-exec")));

hak_inline struct hak_heap *hak__heap_current(void)
{
    return (struct hak_heap *)((uintptr_t)&hak__sentinel + (uintptr_t)hak__thread_word);
}

hak_inline void hak__heap_set_current(const void *heap)
{
    hak__thread_word = (intptr_t)((uintptr_t)heap - (uintptr_t)&hak__sentinel);
}

/* The calling thread's own heap, or a sentinel. While a user heap is the thread's default, the word leads to the thread's share of
 * it, or to the sentinel until there is one (userheap/defaults.c). */
hak_inline struct hak_heap *hak__heap_mine(void)
{
    struct hak_heap *heap = hak__heap_current();
    struct hak_heap *home = hak_unlikely((heap->mode & HAK_MODE_APART) != 0) ? hak_read_mostly(&hak__thread_notes.home) : NULL;
    return home != NULL ? home : heap;
}

/* --- blocks of other heaps ------------------------------------------------------------------------------------------ */

/* A bin keeps another heap's block, marked free, if its thread allocates from this class, the bin is less than half full and,
 * for small blocks, holds fewer than HAK_ABSORB_MOST. Only sizes of a cache line or more (docs/decisions/0003, 0053). */
hak_inline bool hak__cache_absorbs(struct hak_heap *heap, struct hak_class_offset offset)
{
    return hak__bin_at(heap, offset)->top < heap->absorb[hak__class_of_offset(offset)];
}
hak_inline void hak__cache_absorb(struct hak_heap *heap, struct hak_class_offset offset, void *p)
{
    struct hak_bin *bin = hak__bin_at(heap, offset);
    void **top = bin->top;
    heap->foreign[hak__class_of_offset(offset)] = true; /* before the block can be seen: a child forked in between has to know */
    hak_slot_store(top, p);
    hak_owner_store(&bin->top, top + 1);
}

/* --- a miss, an overflow (refill.c) ------------------------------------------------------------------------------------- */

/* Refills the class's empty bin and pops a block; NULL when the system refuses. */
void *hak__cache_refill(struct hak_heap *heap, uint32_t class);

/* With sampled guards a refill ends where the request that shall be sampled comes next, which then misses: one in N refilled
 * blocks, without a counter on the fast path. Whether a request that met an empty bin is such a one; asked once for each. */
hak_cold bool hak__cache_sample_due(struct hak_heap *heap, uint32_t class);

/* Pushes a block on a full bin; makes room by growing it or draining its older half. */
void hak__cache_overflow(struct hak_heap *heap, uint32_t class, void *block, const char *function);

/* --- out of the bins (cache.c) ------------------------------------------------------------------------------------------ */

/* Returns blocks of a bin to their heaps, which may be others. */
void hak__cache_give(struct hak_heap *heap, uint32_t class, void *const *blocks, uint32_t count, const char *function);

/* Drains the oldest `count` blocks of a class into the heap. */
void hak__cache_drain(struct hak_heap *heap, uint32_t class, uint32_t count, const char *function);

/* Blocks in the bin, as seen from any thread. */
uint32_t hak__cache_count(struct hak_heap *heap, uint32_t class);

/* --- whole-heap operations (contents.c) --------------------------------------------------------------------------------- */

/* Empties all bins and the outbox. At a thread's end a few small blocks stay for the next thread. */
void hak__cache_flush(struct hak_heap *heap);
void hak__cache_leave(struct hak_heap *heap);

/* Drains the blocks that an exited thread left before the last upkeep step, or all of them; the caller holds the heap lock. A
 * new thread calls take_up before it touches a bin. */
void hak__cache_age_left(struct hak_heap *heap, bool all);
void hak__cache_take_up(struct hak_heap *heap);

hak_cold bool hak__cache_is_valid(struct hak_heap *heap);

/* Whether the block of the class at p, which looks freed, really is free: in a bin, an outbox or its span. `mine` is the calling
 * thread's heap, unlocked, or NULL; its own blocks are always found. A block that another thread is moving may be missed; its
 * double free is found when it is collected. */
bool hak__cache_has_freed(struct hak_heap *mine, uint32_t class, const void *p);

/* The same for a block that may have lost its key; only blocks free in their spans do. */
bool hak__cache_has_purged(uint32_t class, const void *p);
