/* A heap is all that one thread owns: its bins (worked by cache/), its spans by class, its outbox, its pending stack (state.h).
 * Called by cache/, malloc_slow.c, kinds/, thread.c. A heap outlives its thread: it is parked, and a new thread takes it over.
 *
 * Who may touch what:
 *   bins                the owner thread; while the heap is parked, the holder of `lock`
 *   classes, bitmaps    the holder of `lock`: the owner in its slow paths, or a thread that sweeps idle heaps (before it asks for
 *                       new memory, or in a step of upkeep); a forked child's only thread takes over heaps that were not locked
 *   outbox              the owner appends without `lock`; all else under it (cache/outbox.h)
 *   pending, remote bits of the heap's spans    any thread
 *   counters            written by the owner, read by anyone (base/atomic.h, "shared plain")
 *
 * heap.c has heaps as a whole, take.c where blocks come from, give.c how they come back, remote.c what other threads free,
 * large.c large blocks; spans.h is for these alone. */
#pragma once

#include "arena/meta.h"
#include "base/assert.h"
#include "base/forked.h"
#include "base/lock.h"
#include "heap/state.h"

/* The bin that really has the class's blocks, visible or hidden. */
hak_inline struct hak_bin *hak__heap_bin(struct hak_heap *heap, uint32_t class)
{
    hak_assert(class < HAK_CLASSES, "a class");
    return heap->closed_reasons[class] != 0 ? &heap->classes[class].hidden : &heap->bins[class];
}

/* Counts bytes of blocks given back, or taken. Under `lock`, or by the owner; if both do so at once, the figure is a little wrong, but
 * it only decides how soon upkeep comes. */
hak_inline void hak__heap_idle_more(struct hak_heap *heap, size_t bytes) { hak_count(&heap->polling.idle_bytes, bytes); }
hak_inline void hak__heap_idle_less(struct hak_heap *heap, size_t bytes)
{
    uint64_t idle = hak_counted(&heap->polling.idle_bytes);
    hak_store(&heap->polling.idle_bytes, bytes < idle ? idle - bytes : 0, HAK_RELAXED);
}

hak_inline bool hak__heap_is_share(const struct hak_heap *heap) { return heap->share.account != NULL; }

/* Whether a heap in this state has spans and bins that may be used. */
hak_inline bool hak__heap_is_open(uint32_t state) { return state != HAK_HEAP_NEW && state != HAK_HEAP_UNUSABLE; }

/* Whether a forked child has given the heap up, because it was half done. */
hak_inline bool hak__heap_is_unusable(struct hak_heap *heap) { return hak_load(&heap->state, HAK_RELAXED) == HAK_HEAP_UNUSABLE; }

/* The lock's place in the order, which only debug builds ask. */
hak_inline uint32_t hak__heap_rank(struct hak_heap *heap, enum hak_heap_user user)
{
    if (!HAK_DEBUG || HAK_LOCK_FIBERS)
        return HAK_RANK_HEAP;
    if (user == HAK_SWEEPER)
        return HAK_RANK_FOREIGN;
    return hak_load(&heap->state, HAK_RELAXED) == HAK_HEAP_SHARE ? HAK_RANK_SHARE : HAK_RANK_HEAP;
}

/* Gives the heap up for good. In a child that is being repaired, or by the holder of its lock, who does not release it. */
hak_inline void hak__heap_lose(struct hak_heap *heap)
{
    if (hak__lock_word_is_mine(&heap->lock))
        hak__lock_note(hak__heap_rank(heap, hak_load(&heap->lock, HAK_RELAXED) & HAK_LOCK_MARK), -1);
    hak_store(&heap->state, HAK_HEAP_UNUSABLE, HAK_RELAXED);
    hak_store(&heap->lock, HAK_LOCK_LOST, HAK_RELAXED);
}

/* Slow paths run between these two. The owner rarely waits: only while another thread collects for it. False: the heap is unusable. A
 * fork, in a handler, say, has brought the thread into a child where it has had to leave it, since the collecting thread does not exist
 * there. It then has another heap, or a sentinel; other heaps' callers do without. */
__attribute__((warn_unused_result)) hak_inline bool hak__heap_lock(struct hak_heap *heap)
{
    return hak__lock_word_take(&heap->lock, HAK_OWNER, hak__heap_rank(heap, HAK_OWNER));
}
hak_inline bool hak__heap_try_lock(struct hak_heap *heap, enum hak_heap_user user)
{
    return hak__lock_word_try(&heap->lock, user, hak__heap_rank(heap, user));
}
hak_inline void hak__heap_unlock(struct hak_heap *heap)
{
    hak_assert(hak__lock_word_is_mine(&heap->lock), "a thread unlocks a heap that it has locked");
    hak__lock_note(hak__heap_rank(heap, hak_load(&heap->lock, HAK_RELAXED) & HAK_LOCK_MARK), -1);
    hak_store(&heap->lock, HAK_LOCK_FREE, HAK_RELEASE);
}

/* Whether the caller may touch what the lock protects, for assertions. They act once the library has started: tests of single layers, in
 * which it has not, have heaps that no other thread knows, and lock few. */
extern bool hak__heaps_are_shared;
hak_inline bool hak__heap_is_mine(const struct hak_heap *heap)
{
    return !hak__heaps_are_shared || hak__lock_word_is_mine(&heap->lock);
}

/* Whether a thread that does not exist in this child, which is being repaired, was inside. */
hak_inline bool hak__heap_is_left(struct hak_heap *heap)
{
    bool in_large_cache = (hak_load(&heap->large_cache.owner_turns, HAK_RELAXED) & 1) != 0; /* its owner; needs no lock there */
    return hak__lock_word_is_left(&heap->lock) || in_large_cache;
}

/* Whether a span of several blocks begins at the descriptor and is the heap's, which the caller has locked: then it neither ends nor
 * changes hands. Any thread may end a single-block span at any moment, and another heap may begin one there; the descriptor names no
 * owner of those (span/span.h), so nothing is asked twice. */
hak_inline bool hak__heap_has_span(struct hak_heap *heap, struct hak_span *span)
{
    hak_assert(hak__lock_word_is_mine(&heap->lock), "only the lock makes the answer last");
    return hak_load(&span->owner, HAK_RELAXED) == heap->id;
}

/* The way into another thread's heap, as a sweeper: false if the heap is not in use, or locked at each of so many tries. The owner may
 * be the one who was interrupted by the caller, so nobody tries for ever. */
hak_inline bool hak__enter_foreign(struct hak_heap *heap, unsigned tries)
{
    hak_assert(tries != 0, "it is tried once at least");
    hak__fork_check();
    for (unsigned i = 0; i < tries; i++) {
        if (i != 0)
            hak__yield(i - 1);
        if (!hak__heap_is_open(hak_load(&heap->state, HAK_ACQUIRE)))
            return false;
        if (!hak__heap_try_lock(heap, HAK_SWEEPER))
            continue;
        if (hak_likely(hak__heap_is_open(hak_load(&heap->state, HAK_RELAXED))))
            return true;
        hak__heap_unlock(heap); /* it was given back meanwhile */
        return false;
    }
    return false;
}

/* --- heaps as a whole (heap.c) ------------------------------------------------------------------------------------------ */

/* A new heap, mapped and named, in state NEW: its classes and bins are still zero. NULL when the system refuses, or there are as many
 * as can be. */
struct hak_heap *hak__heap_new(void);
/* The same, also with the last id of all, which is kept for the exit heap: it serves threads that find no other. */
struct hak_heap *hak__heap_new_last(void);

/* Memory for the bitmaps of a span that begins, of its former bitmaps or new (NULL: the system refuses); bitmaps of one that has ended. */
void *hak__bitmaps_take(struct hak_heap *heap, size_t bytes);
void hak__bitmaps_give(struct hak_heap *heap, void *memory, size_t bytes);

/* Ends a heap that has nothing left, a share of no heap: its memory goes back to the system and its id to the next hak__heap_new. `heir`
 * goes on with its counters. The caller has locked both, and let go of neither; of the first nothing is looked at afterwards. False: the
 * system refuses the memory to note it in, and nothing has happened. */
hak_cold bool hak__heap_give_back(struct hak_heap *heap, struct hak_heap *heir);

hak_inline struct hak_heap *hak__heap_by_id(uint32_t id) { return hak__heap_address(id); }
extern _Atomic uint32_t hak__heap_last;
/* Heaps 1..this exist. acquire: pairs with the release in hak__heap_new. */
hak_inline uint32_t hak__heap_last_id(void) { return hak_load(&hak__heap_last, HAK_ACQUIRE); }

/* The caller has unlocked the heap, which nobody else can want. */
void hak__heap_park(struct hak_heap *heap);

/* A heap off the list, locked by the caller; NULL if none is parked. A heap in somebody's hands is locked until it is parked again or a
 * thread's own, so a fork at any moment finds each heap in one place. */
struct hak_heap *hak__heap_unpark(void);

/* take_up: the same for a new thread, which waits a little while a heap is borrowed. An adopter borrows: the heap still counts as
 * parked. It says so before it takes heaps off the list, and again when it has parked them all. */
struct hak_heap *hak__heap_take_up(void);
struct hak_heap *hak__heap_borrow(void);
void hak__heaps_borrow(bool begin);

/* Whether one of the first few parked heaps is wanted at this moment. Takes none off the list. */
bool hak__heap_any_parked(bool (*wanted)(struct hak_heap *, uint32_t), uint32_t class, unsigned most);

/* In a forked child: parks the heaps of threads that do not exist there, or makes them unusable if they were locked. `mine` and
 * `shared` (either may be NULL) stay in use. */
void hak__heaps_fork_child(const struct hak_heap *mine, const struct hak_heap *shared);

/* The same if it is not known which heap is still in use: only those that a sweeper had locked become unusable. False if a thread
 * may still take one of these for its own. */
bool hak__heaps_fork_further(void);

/* --- blocks out of the heap (take.c) ------------------------------------------------------------------------------------ */

/* Takes up to `want` blocks of a class into out[0..], which afterwards pops (from the end) in ascending order: from the
 * warm pool; when that is empty the remote frees that wait are collected, then come spans with blocks, then a new
 * span. 0 when the system refuses. */
uint32_t hak__heap_take(struct hak_heap *heap, uint32_t class, void **out, uint32_t want);

/* A large block from what the heap has at hand: a listed span, or a run in a SuperSlab assigned to it, or in any open one if none is.
 * NULL: there is none. */
void *hak__heap_take_at_hand(struct hak_heap *heap, uint32_t class);

/* Blocks of the large pool have left their spans, or come back: then `count` is negative. */
hak_inline void hak__heap_large_moved(struct hak_heap *heap, uint32_t class, size_t count)
{
    if (class >= HAK_CLASS_FIRST_LARGE)
        heap->large_out += count * hak__classes[class].size;
}

/* One block that is known to be zero if that costs nothing, else NULL. */
void *hak__heap_take_zeroed(struct hak_heap *heap, uint32_t class);

/* Adopts the spans of a class that have free blocks from parked heaps; returns whether there were any. */
bool hak__heap_adopt(struct hak_heap *heap, uint32_t class);

/* The common heaps belong to no thread, and serve the first blocks of small classes to the threads of a process that has many. Makes a
 * new heap a common one, if the process has so many heaps that it needs one more. */
bool hak__common_add(struct hak_heap *heap);

/* How many blocks of the class they may give to a new heap. */
uint32_t hak__common_first(uint32_t class);

/* Takes a few blocks of a class with common_left, at most its capacity, into out[0..], like hak__heap_take; returns 0 if there are none
 * now. */
uint32_t hak__common_take(struct hak_heap *heap, uint32_t class, void **out);

/* In a forked child, before hak__heaps_fork_child: makes them heaps of threads that do not exist. */
void hak__common_fork_child(void);

/* --- blocks back into the heap (give.c) --------------------------------------------------------------------------------- */

/* Gives back blocks of this heap, of any classes. `function` names the public call for reports of misuse. */
void hak__heap_give(struct hak_heap *heap, void *const *blocks, uint32_t count, const char *function);

/* Ends a single-block span for another thread that has freed the block: its slabs go to the pool at once, since the owner holds
 * nothing but counters of such a span. `heap` is the freeing thread's (NULL: it has none), `word` the slab's owner word as read. */
void hak__heap_end_foreign(struct hak_heap *heap, void *block, uint32_t word, const char *function);

/* Collects the spans on which other threads have freed blocks. */
void hak__heap_collect(struct hak_heap *heap);

/* Collects for the heaps whose owners are not in a slow path, and for parked ones, so that spans that have emptied can
 * serve others: for `most` heaps in the order of their ids, from the one after `after` on, and the first after the last. The id of the
 * last one. Caller holds the lock of `mine`. */
uint32_t hak__heaps_sweep(const struct hak_heap *mine, uint32_t after, uint32_t most);

/* The same for one heap, which is not the caller's. */
void hak__heap_sweep(struct hak_heap *heap);

/* Whether p, a block of the class, is free in a bin, the outbox or a span of the heap; the second: in a span. Caller holds the heap
 * lock. */
hak_cold bool hak__heap_has_free(struct hak_heap *heap, uint32_t class, const void *p);
hak_cold bool hak__heap_has_in_span(const struct hak_heap *heap, uint32_t class, const void *p);

/* Asks a heap that the caller has not locked; false if it is locked at each of so many tries. Then all heaps but one, until one says
 * yes. A caller that holds a heap lock tries once: others may wait for it. */
enum { HAK_HEAP_ASK_TRIES = 1000 };
typedef bool hak_heap_question(struct hak_heap *heap, uint32_t class, const void *p);
hak_cold bool hak__heap_ask(struct hak_heap *heap, hak_heap_question *question, uint32_t class, const void *p, unsigned tries);
hak_cold bool hak__heaps_ask(const struct hak_heap *except, hak_heap_question *question, uint32_t class, const void *p,
                             unsigned tries);

/* --- frees by other threads (remote.c) ---------------------------------------------------------------------------------- */

/* Whether the span in which a live block of `class` lies has only this one, as seen by any thread: a class whose spans
 * have several blocks may have single-block ones too, and the owner map tells them by the word of their second slab. */
bool hak__span_is_single(size_t slab, uint32_t class);

/* From any thread: publishes frees of blocks of one word of a span, and tells the owner. */
void hak__remote_publish(struct hak_span *span, uint32_t word, uint64_t bits, const char *function);

/* Takes the whole pending stack and calls collect for each span that is the heap's; others are sent on. */
void hak__remote_receive(struct hak_heap *heap, void (*collect)(struct hak_heap *, struct hak_span *));

/* --- large blocks (large.c) --------------------------------------------------------------------------------------------- */

/* A run of slabs of a SuperSlab assigned to the heap, or HAK_NO_RUN. */
size_t hak__assigned_take(struct hak_heap *heap, unsigned count, bool *fresh);

/* Assigns the SuperSlab in which the slab lies to the heap, unless another has it, or the heap has little in large blocks. */
void hak__assigned_add(struct hak_heap *heap, size_t slab);

/* Notes that the SuperSlab of this slab, which is assigned to the heap, has emptied. */
void hak__assigned_emptied(struct hak_heap *heap, size_t slab);

void hak__assigned_let_go(struct hak_heap *heap);

/* Gives an allocated block of this heap at least the size of another large class in place: takes free slabs behind it, or releases
 * slabs. Its class is then that one, or if it has grown the largest that fits the slabs it has. False: unchanged, because the slabs
 * behind are taken, or other blocks share the span. */
bool hak__large_resize_owner(struct hak_heap *heap, void *block, uint32_t class);
