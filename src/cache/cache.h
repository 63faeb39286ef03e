/* The thread cache: a stack of ready blocks per class, the same for tiny, mid and large classes. This header holds the fast path
 * (pop and push) and declares the rest: refill, overflow and drain (refill.c), whole-heap operations (contents.c), frees of
 * other heaps' blocks (outbox.c), capacities (tune.c).
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

/* The same by a bin's offset, for malloc and free. x86 adds heap and offset in each access, so the compiler shall not keep the sum
 * (docs/decisions/0115); `offset` keeps its value. */
hak_inline void *hak__cache_pop_at(struct hak_heap *heap, struct hak_class_offset offset)
{
    void **top = hak__bin_at(heap, offset)->top;
    void *block = top[-1];
    hak_forget(offset.bytes);
    if (hak_likely(block != NULL))
        hak_owner_store(&hak__bin_at(heap, offset)->top, top - 1);
    return block;
}
hak_inline bool hak__cache_push_at(struct hak_heap *heap, struct hak_class_offset *offset, void *block)
{
    void **top = hak__bin_at(heap, *offset)->top;
    hak_forget(offset->bytes);
    if (hak_unlikely(top == hak__bin_at(heap, *offset)->end))
        return false;
    hak_forget(offset->bytes);
    hak_slot_store(top, block);
    hak_owner_store(&hak__bin_at(heap, *offset)->top, top + 1);
    return true;
}

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
    uintptr_t heap = (uintptr_t)&hak__sentinel + (uintptr_t)hak__thread_word;
    hak_keep(heap);
    return (struct hak_heap *)heap;
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
    return (size_t)((char *)hak__bin_at(heap, offset)->top - (char *)heap) / sizeof(void *)
         < heap->absorb[hak__class_of_offset(offset)];
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

/* --- out of the bins (refill.c) --------------------------------------------------------------------------------------- */

/* Returns blocks of a bin to their heaps, which may be others. */
void hak__cache_give(struct hak_heap *heap, uint32_t class, void *const *blocks, uint32_t count, const char *function);

/* Drains the oldest `count` blocks of a class into the heap. */
void hak__cache_drain(struct hak_heap *heap, uint32_t class, uint32_t count, const char *function);

/* Blocks in the bin, as seen from any thread. */
uint32_t hak__cache_count(struct hak_heap *heap, uint32_t class);

/* --- all of it at once (contents.c) ----------------------------------------------------------------------------------- */

/* Empties all bins and the outbox. A few small blocks may stay, of each class up to `bytes`: at a thread's end for the next thread; where
 * memory ends, for a program that has to report it, as an exception does, but each class that keeps one keeps a span. */
enum { HAK_LEFT_AT_END = 4 << 10, HAK_LEFT_WITHOUT_MEMORY = 256 };
void hak__cache_flush(struct hak_heap *heap);
void hak__cache_leave(struct hak_heap *heap, size_t bytes);

/* What the owner would get out of them. */
size_t hak__cache_bytes(struct hak_heap *heap);

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

/* --- the outbox (outbox.c) -------------------------------------------------------------------------------------------- */

/* Frees of other heaps' blocks, gathered by slab until a bucket is full. The owner appends to a bucket on its fast path, without
 * `lock`. A sweeper that holds `lock` may publish waiting blocks meanwhile:
 *
 *   owner, appending                              sweeper
 *   1. slab and limit allow it                    a. limit := 0
 *   2. blocks[count] := p                         b. n := count (acquire)
 *   3. count := count + 1 (release)               c. publish blocks[taken .. n), then taken := n
 *
 * The owner alone writes `count`; the slots below it do not change while the owner is outside its slow path. Only the holder of
 * `lock` writes `taken`. So a block appended meanwhile is published now or in the next round, and none twice. After a., the
 * owner's next append takes the slow path and restarts the bucket: a slab that has ended and serves another class by then never
 * meets the old class's limit. An append already past 1. holds a block of the slab, which keeps the slab from ending. */
/* Adds a block of another heap to its slab's bucket. Returns false and changes nothing if the bucket is full or serves another
 * slab; then call hak__outbox_add_slow. */
hak_inline bool hak__outbox_add_at(struct hak_heap *heap, size_t slab, void *p)
{
    struct hak_outbox_bucket *bucket = &heap->outbox_buckets[slab % HAK_OUTBOX_BUCKETS];
    uint32_t count = hak_load(&bucket->count, HAK_RELAXED);
    if (hak_unlikely(bucket->slab != (uint32_t)slab + 1 || count >= hak_load(&bucket->limit, HAK_RELAXED)))
        return false;
    bucket->blocks[count] = p;
    hak_store(&bucket->count, (uint16_t)(count + 1), HAK_RELEASE);
    return true;
}
hak_inline bool hak__outbox_add(struct hak_heap *heap, void *p) { return hak__outbox_add_at(heap, hak__slab_of(p), p); }

/* The slow half: starts a bucket, publishes, reports misuse. `word` is the slab's owner word. */
void hak__outbox_add_slow(struct hak_heap *heap, void *p, uint32_t word, const char *function);

/* The same from a thread without a heap: publishes at once. */
void hak__outbox_bypass(void *p, uint32_t word, const char *function);
void hak__outbox_flush(struct hak_heap *heap, const char *function);

/* Publishes the waiting blocks; returns their number. Called by a sweeper that holds the heap lock. */
hak_cold uint32_t hak__outbox_sweep(struct hak_heap *heap);

/* --- capacities (tune.c) ---------------------------------------------------------------------------------------------- */

/* Capacities of the bins, and the byte budgets of thread and process. Called when a heap is opened, parked and unparked, by
 * refill.c on misses and overflows, and by upkeep/. */

/* The mode that the options ask of a new heap; hak__cache_open gives it its bins, with first capacities from the options. */
uint32_t hak__cache_mode(void);
void hak__cache_open(struct hak_heap *heap, uint32_t mode);

/* Gives a class its bin at the first request or free that needs it; in a process with options that look at all bins, a new heap
 * has them all. Caller holds the heap lock. If the system refuses memory for slots, the class stays closed. */
hak_at_start void hak__cache_open_class(struct hak_heap *heap, uint32_t class);
hak_cold void hak__cache_open_classes(struct hak_heap *heap);

/* Lets a class that is refilled absorb blocks of other heaps, if its size allows. */
void hak__cache_absorb_begin(struct hak_heap *heap, uint32_t class);

/* A class has taken its last common block. If those of all classes lasted for FIRST_MS, they begin anew. */
void hak__cache_first_end(struct hak_heap *heap, uint32_t class);

/* Doubles a class that has both missed and overflowed since it last grew, within its ceiling and the thread's budget; returns
 * false if it did not. */
bool hak__cache_grow(struct hak_heap *heap, uint32_t class);

/* From now on the heap's large bins call the profiler. Caller holds the heap lock. */
hak_cold void hak__cache_profile(struct hak_heap *heap);

/* Closes all bins, so that every call takes the slow path, or opens them again (upkeep/upkeep.h). */
hak_cold void hak__cache_set_polling(struct hak_heap *heap, bool polling);

/* Halves the contents and the capacity, down to the first one, of each class that has moved no batch since the last call. */
hak_cold void hak__cache_shrink_idle(struct hak_heap *heap);

/* Takes a heap that is about to be parked out of the process's sum of capacities; adds an unparked one. Caller holds the heap
 * lock. */
hak_noinline void hak__cache_park(struct hak_heap *heap);
hak_noinline void hak__cache_unpark(struct hak_heap *heap);
size_t hak__cache_process_bytes(void);

/* Charges the process for more cached blocks, or releases unused charge; false: its budget is spent. */
bool hak__cache_charge_large(struct hak_heap *heap);
hak_cold void hak__cache_discharge_large(struct hak_heap *heap);
