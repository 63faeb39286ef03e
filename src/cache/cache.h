/* The thread cache: per class a stack of ready blocks, the same for the tiny, mid and large pools. This header is the
 * fast path, pop and push, and what goes with it: refill and overflow (refill.c), drain and marks (cache.c), and all that a heap
 * caches, at once (contents.c).
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

/* A closed bin points here: empty to a pop, full to a push. */
extern void *const hak__closed_slots[2];
#define HAK_CLOSED_TOP ((void **)(uintptr_t)&hak__closed_slots[1])

/* --- the calling thread's heap ----------------------------------------------------------------------------------------------
 *
 * A thread starts with the sentinel, whose bins are empty to a pop and full to a push and
 * whose tag owns nothing, so the fast paths need no "is there a heap?" test. The thread's word is the distance from the
 * sentinel to its heap: zero, which is what thread-local memory holds before anything has run, means the sentinel. */

/* Only the front of a heap exists: every slow path checks the mode before it reads more. */
extern struct hak_heap_front hak__sentinel __attribute__((visibility("hidden")));
extern __thread intptr_t hak__thread_word __attribute__((tls_model("initial-exec")));

hak_inline struct hak_heap *hak__heap_current(void)
{
    return (struct hak_heap *)((uintptr_t)&hak__sentinel + (uintptr_t)hak__thread_word);
}

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
    heap->foreign[hak__class_of_offset(offset)] = true; /* before the block can be seen: a child forked in between has to know */
    hak_slot_store(top, p);
    hak_owner_store(&bin->top, top + 1);
}

/* --- a miss, an overflow (refill.c) ------------------------------------------------------------------------------------- */

/* Refills the empty bin of a class and pops a block; NULL when the system refuses. */
void *hak__cache_refill(struct hak_heap *heap, uint32_t class);

/* Pushes a block on a full bin: makes room by growth, or by draining the older half. */
void hak__cache_overflow(struct hak_heap *heap, uint32_t class, void *block, const char *function);

/* --- out of the bins (cache.c) ------------------------------------------------------------------------------------------ */

/* Gives the blocks of a bin back, other heaps' among them (cache.c). */
void hak__cache_give(struct hak_heap *heap, uint32_t class, void *const *blocks, uint32_t count, const char *function);

/* Drains the oldest `count` blocks of a class into the heap. */
void hak__cache_drain(struct hak_heap *heap, uint32_t class, uint32_t count, const char *function);

/* Entries of the bin, as far as another thread can tell, and the blocks among them: the others are marks (mark.h). */
uint32_t hak__cache_count(struct hak_heap *heap, uint32_t class);
uint32_t hak__cache_blocks(struct hak_heap *heap, uint32_t class);

/* --- marks (cache.c) ------------------------------------------------------------------------------------------------------------
 *
 * NULLs between the blocks of a bin, while HAKMEM_SAMPLE_GUARDS is on. The fast path takes one for an empty bin and calls the slow
 * path, which knows the size asked for and serves this one request elsewhere. So one in N of the blocks that refills bring is sampled,
 * and the fast path counts nothing. */

/* After a refill, one block of which is handed out at once: puts marks among the others, one in N. */
hak_cold void hak__cache_mark(struct hak_heap *heap, uint32_t class);

/* Makes the next request of the class meet a mark. */
hak_cold void hak__cache_mark_next(struct hak_heap *heap, uint32_t class);

/* Whether a request of the class that found no block has met a mark, or would meet one as the first of the next batch. Takes the mark
 * away. */
hak_cold bool hak__cache_unmark(struct hak_heap *heap, uint32_t class);
hak_cold void hak__cache_drop_marks(struct hak_heap *heap, uint32_t class);

/* --- all that a heap caches, at once (contents.c) ----------------------------------------------------------------------- */

/* Empties all bins and the outbox; at a thread's end all but a few small blocks, which the next thread finds. */
void hak__cache_flush(struct hak_heap *heap);
void hak__cache_leave(struct hak_heap *heap);

/* Drains the blocks that an exited thread left before the last step of upkeep, or all. The caller holds the heap's lock. The second is
 * the new thread's side, before it touches a bin. */
void hak__cache_age_left(struct hak_heap *heap, bool all);
void hak__cache_take_up(struct hak_heap *heap);

hak_cold bool hak__cache_is_valid(struct hak_heap *heap);

/* Whether the block of the class at p, which looks freed, really is free: in a bin, in an outbox, or in its span. `mine` is the calling
 * thread's heap, not locked, or NULL; a block in that heap's hands is always found. A block that another thread is moving may be
 * missed: its double free is found when it is collected. */
bool hak__cache_has_freed(struct hak_heap *mine, uint32_t class, const void *p);

/* The same for a block that may have lost its key, which only blocks free in their spans do. */
bool hak__cache_has_purged(uint32_t class, const void *p);
