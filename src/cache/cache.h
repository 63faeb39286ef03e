/* The thread cache: per class a stack of ready blocks, the same for the tiny, mid and large pools. This header is the
 * fast path (pop and push); refill.c, drain.c, outbox.c and tune.c are its slow halves. The heap below does not know
 * what a stack is.
 *
 *      bottom[-1]   bottom                 top            end = bottom + capacity
 *        NULL      | oldest ... newest    | (free slots) |
 *
 * A slot is stored before `top` moves over it, so a bin is valid at every instruction: a signal handler or a forked
 * child never sees a stack that contains a slot not yet written. */
#ifndef HAK_CACHE_CACHE_H
#define HAK_CACHE_CACHE_H

#include "heap/heap.h"

hak_inline struct hak_bin *hak__bin_at(struct hak_heap *heap, uint32_t code)
{
    return (struct hak_bin *)((char *)heap->bins + code);
}

/* The newest block, or NULL when the bin is empty or closed. */
hak_inline void *hak__cache_pop(struct hak_bin *bin)
{
    void **top = bin->top;
    void *block = top[-1];
    if (hak_likely(block != NULL))
        hak_owner_store(&bin->top, top - 1);
    return block;
}

/* False when the bin is full or closed. */
hak_inline bool hak__cache_push(struct hak_bin *bin, void *block)
{
    void **top = bin->top;
    if (hak_unlikely(top == bin->end))
        return false;
    hak_slot_store(top, block);
    hak_owner_store(&bin->top, top + 1);
    return true;
}

/* --- large blocks (large_cache.c): closed bins, of which the stacks are worked with the heap entered ---------------------- */

/* A block of the class that is kept, or NULL; or one of the next classes, for a request that has no alignment. */
void *hak__large_cache_pop(struct hak_heap *heap, uint32_t class);
void *hak__large_cache_pop_near(struct hak_heap *heap, uint32_t class);

/* A block of the class, kept or not; NULL when the system refuses. */
void *hak__large_cache_refill(struct hak_heap *heap, uint32_t class);

/* Keeps the block, unless it is worth more than may be kept; quickly: false where there is more to do than that. */
bool hak__large_cache_push_quickly(struct hak_heap *heap, uint32_t class, void *block);
void hak__large_cache_push(struct hak_heap *heap, uint32_t class, void *block, const char *function);

/* Gives back the oldest `count` blocks of the class; all that were there at the last such call; all. */
void hak__large_cache_drain(struct hak_heap *heap, uint32_t class, uint32_t count, const char *function);
hak_cold void hak__large_cache_age(struct hak_heap *heap);
hak_cold void hak__large_cache_flush(struct hak_heap *heap);

/* Gives up the block that lies right behind a large one, which is in use; false: that is none that is kept. */
bool hak__large_cache_clear_behind(struct hak_heap *heap, const void *block);

hak_inline bool hak__is_large(uint32_t class) { return class >= HAK_CLASS_FIRST_LARGE; }

/* Charges the process with some more bytes that may be kept, or takes back what is not used; false: its budget is spent. */
bool hak__cache_charge_kept(struct hak_heap *heap);
hak_cold void hak__cache_discharge_kept(struct hak_heap *heap);

hak_cold bool hak__large_cache_is_valid(const struct hak_heap *heap);

/* Gives the blocks of a stack back, among which those of other heaps may be (drain.c). */
void hak__cache_give(struct hak_heap *heap, uint32_t class, void *const *blocks, uint32_t count, const char *function);

/* What a closed bin points to: empty to a pop, full to a push. */
extern void *const hak__closed_slots[2];
#define HAK_CLOSED_TOP ((void **)(uintptr_t)&hak__closed_slots[1])

/* Gives a new heap its bins, with first capacities from the options and its mode. */
void hak__cache_open(struct hak_heap *heap, uint32_t mode);

/* A block of a class whose bin is empty: refills the bin. NULL when the system refuses. */
void *hak__cache_refill(struct hak_heap *heap, uint32_t class);

/* Takes in a block whose bin is full: makes room by growth or by draining the oldest half. */
void hak__cache_overflow(struct hak_heap *heap, uint32_t class, void *block, const char *function);

/* Gives the oldest `count` blocks of a class back to the heap. */
void hak__cache_drain(struct hak_heap *heap, uint32_t class, uint32_t count, const char *function);

/* Empties all bins and the outbox; at a thread's end all but a few small blocks, which the next thread finds. */
void hak__cache_flush(struct hak_heap *heap);
void hak__cache_leave(struct hak_heap *heap);

/* Of a heap that a step of upkeep has entered: what was left there before the last step goes back, or all. And the new thread's
 * side, to come before it touches a bin: it enters the heap. */
void hak__cache_age_left(struct hak_heap *heap, bool all);
void hak__cache_take_up(struct hak_heap *heap);

/* --- marks (mark.c): NULLs in a stack at which a request goes the slow way, while sample_guards is on ----------------- */

/* After a refill, of which one block goes out at once: marks among the others, one in N of them. */
hak_cold void hak__cache_mark(struct hak_heap *heap, uint32_t class);

/* The next request of the class is to meet a mark. */
hak_cold void hak__cache_mark_next(struct hak_heap *heap, uint32_t class);

/* Whether a request of the class, for which the bin has no block, has met a mark, or would as the first one of the next
 * batch. The mark is gone then. */
hak_cold bool hak__cache_unmark(struct hak_heap *heap, uint32_t class);
hak_cold void hak__cache_drop_marks(struct hak_heap *heap, uint32_t class);

/* Blocks in the bin, as far as another thread can tell; marks are taken for some. */
uint32_t hak__cache_count(struct hak_heap *heap, uint32_t class);

/* --- blocks of other heaps ------------------------------------------------------------------------------------------ */

/* A thread that allocates from a class itself, and has less than half of what it may cache of it, keeps a block of
 * another heap, which is marked as free, for its own next request. Of small blocks it must have less than HAK_ABSORB_MOST. Only
 * sizes of a cache line or more (docs/decisions/0003, 0053). */
hak_inline bool hak__cache_absorbs(struct hak_heap *heap, uint32_t code)
{
    return hak__bin_at(heap, code)->top < heap->absorb[code / HAK_BIN_SIZE];
}
hak_inline void hak__cache_absorb(struct hak_heap *heap, uint32_t code, void *p)
{
    struct hak_bin *bin = hak__bin_at(heap, code);
    void **top = bin->top;
    heap->foreign[code / HAK_BIN_SIZE] = true;   /* before the block can be seen: a child forked in between has to know */
    hak_slot_store(top, p);
    hak_owner_store(&bin->top, top + 1);
}

/* --- the outbox (outbox.c): frees of other heaps' blocks, gathered by slab until a bucket is full -----------------
 *
 * The owner appends to a bucket on its fast path, without `lock`. A sweeper, which holds `lock`, may publish what waits
 * there all the same:
 *
 *   owner, appending                              sweeper
 *   1. slab and limit allow it                    a. limit := 0
 *   2. blocks[count] := p                         b. n := count (acquire)
 *   3. count := count + 1 (release)               c. publish blocks[taken .. n), then taken := n
 *
 * `count` has one writer, the owner; below it nothing changes while the owner is outside of its slow path; `taken` has
 * none but the holder of `lock`. So a block that is appended at the same time is published now or stays for the next
 * round, and none is published twice. From a. on the owner's next append takes the slow path, which begins the bucket
 * anew: a slab that has ended and serves another class by then is not met with the old class's limit. An append that
 * was past 1. already holds a block of the slab, which keeps it from ending. */

/* A block of another heap joins those of its slab that wait already. False when there are none, or too many: nothing
 * has happened then, and hak__outbox_add_slow is to be called. */
hak_inline bool hak__outbox_add_at(struct hak_heap *heap, size_t slab, void *p)
{
    struct hak_outbox_bucket *bucket = &heap->outbox[slab % HAK_OUTBOX_BUCKETS];
    uint32_t count = hak_load(&bucket->count, HAK_RELAXED);
    if (hak_unlikely(bucket->slab != (uint32_t)slab + 1 || count >= hak_load(&bucket->limit, HAK_RELAXED)))
        return false;
    bucket->blocks[count] = p;
    hak_store(&bucket->count, (uint16_t)(count + 1), HAK_RELEASE);
    return true;
}
hak_inline bool hak__outbox_add(struct hak_heap *heap, void *p) { return hak__outbox_add_at(heap, hak__slab_of(p), p); }

/* The same with everything that can come of it: a new bucket, publication, a report of misuse. `word` is the slab's
 * owner word. */
void hak__outbox_add_slow(struct hak_heap *heap, void *p, uint32_t word, const char *function);

/* The same from a thread that has no heap: published at once. */
void hak__outbox_bypass(void *p, uint32_t word, const char *function);
void hak__outbox_flush(struct hak_heap *heap, const char *function);

/* From a thread that has entered the heap as a sweeper: publishes what waits in its outbox; the number of blocks. */
hak_cold uint32_t hak__outbox_sweep(struct hak_heap *heap);

/* A class that is refilled begins to absorb, if its size allows. */
void hak__cache_absorb_begin(struct hak_heap *heap, uint32_t class);

/* Capacities (tune.c). A class that has run both empty and over since it last grew doubles, within its ceiling and the
 * thread's budget; false when it did not. */
bool hak__cache_grow(struct hak_heap *heap, uint32_t class);

/* Closes all bins, so that every call takes the slow path, and opens them again (upkeep/polling.h). */
hak_cold void hak__cache_arm(struct hak_heap *heap);
hak_cold void hak__cache_disarm(struct hak_heap *heap);

/* The same while the thread's requests go to a heap of one's own. */
hak_cold void hak__cache_redirect(struct hak_heap *heap, bool away);

/* A class that has moved no batch since the last such call gives back half of what it holds, and of its capacity down to
 * that which it began with. */
hak_cold void hak__cache_shrink_idle(struct hak_heap *heap);

/* A heap that is about to be parked, or has been taken up, leaves or joins the process's sum of capacities. */
hak_noinline void hak__cache_park(struct hak_heap *heap);
hak_noinline void hak__cache_unpark(struct hak_heap *heap);
size_t hak__cache_process_bytes(void);

/* Whether the heap's own state says that the block of the class at p, which looks freed, is: it is in a stack, in an outbox, or free
 * in its span. `mine` is the calling thread's heap, not entered, or NULL; what that heap has had in hand is always found.
 * A block that another thread is moving just now may be missed: its double free is found when it is collected. */
bool hak__cache_has_freed(struct hak_heap *mine, uint32_t class, const void *p);

/* The same for a block that may have lost its key, which only blocks free in their spans do. */
bool hak__cache_has_purged(uint32_t class, const void *p);

hak_cold bool hak__cache_is_valid(struct hak_heap *heap);

#endif
