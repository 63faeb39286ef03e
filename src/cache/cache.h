/* The thread cache: per class a stack of ready blocks, the same for the tiny, mid and large pools. This header is the
 * fast path, pop and push, and their slow halves in cache.c: refill and drain.
 *
 *      bottom[-1]   bottom                 top            end = bottom + capacity
 *        NULL      | oldest ... newest    | (free slots) |
 *
 * A slot is stored before `top` moves over it, so a bin is valid at every instruction: a signal handler or a forked
 * child never sees a stack that contains a slot not yet written. */
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

/* Gives the blocks of a bin back, other heaps' among them (cache.c). */
void hak__cache_give(struct hak_heap *heap, uint32_t class, void *const *blocks, uint32_t count, const char *function);

/* A closed bin points here: empty to a pop, full to a push. */
extern void *const hak__closed_slots[2];
#define HAK_CLOSED_TOP ((void **)(uintptr_t)&hak__closed_slots[1])

/* Refills the empty bin of a class and pops a block; NULL when the system refuses. */
void *hak__cache_refill(struct hak_heap *heap, uint32_t class);

/* Pushes a block on a full bin: makes room by growth, or by draining the older half. */
void hak__cache_overflow(struct hak_heap *heap, uint32_t class, void *block, const char *function);

/* Drains the oldest `count` blocks of a class into the heap. */
void hak__cache_drain(struct hak_heap *heap, uint32_t class, uint32_t count, const char *function);

/* Entries of the bin, as far as another thread can tell, and the blocks among them: the others are marks (mark.h). */
uint32_t hak__cache_count(struct hak_heap *heap, uint32_t class);
uint32_t hak__cache_blocks(struct hak_heap *heap, uint32_t class);

/* --- blocks of other heaps ------------------------------------------------------------------------------------------ */

/* A thread that allocates from a class itself keeps another heap's block, marked as free, for its own next request, while its bin is
 * less than half full, and of small blocks holds fewer than HAK_ABSORB_MOST. Only sizes of a cache line or more (docs/decisions/0003,
 * 0053). */
hak_inline bool hak__cache_absorbs(struct hak_heap *heap, struct hak_class_offset offset)
{
    return hak__bin_at(heap, offset)->top < heap->absorb[hak__class_of_offset(offset)];
}
hak_inline void hak__cache_absorb(struct hak_heap *heap, struct hak_class_offset offset, void *p)
{
    struct hak_bin *bin = hak__bin_at(heap, offset);
    void **top = bin->top;
    heap->foreign[hak__class_of_offset(offset)] = true;   /* before the block can be seen: a child forked in between has to know */
    hak_slot_store(top, p);
    hak_owner_store(&bin->top, top + 1);
}
