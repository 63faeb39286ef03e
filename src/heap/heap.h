/* A heap is everything that one thread owns: its bins (managed by cache/), its spans by class, its outbox, its pending stack
 * (state.h). Called by cache/, malloc.c, kinds/, thread.c. A heap outlives its thread: it is parked, and a new thread takes it
 * over.
 *
 * Access:
 *   bins                the owner thread; while the heap is parked, the holder of `lock`
 *   classes, bitmaps    the holder of `lock`: the owner in its slow paths, or a thread that sweeps idle heaps (before it asks for
 *                       new memory, or in a step of upkeep); a forked child's only thread takes over heaps that were not locked
 *   outbox              the owner appends without `lock`; every other access needs it (cache/cache.h)
 *   pending, remote bits of the heap's spans    any thread
 *   counters            written by the owner, read by any thread (base/atomic.h, "shared plain")
 *
 * heap.c has heaps as a whole, take.c where blocks come from, give.c how they come back, spans.c its spans, large.c large blocks. */
#pragma once

#include "arena/window.h"
#include "base/assert.h"
#include "base/lock.h"
#include "heap/state.h"

/* The bin that holds the class's blocks, visible or hidden. */
hak_inline struct hak_bin *hak__heap_bin(struct hak_heap *heap, uint32_t class)
{
    hak_assert(class < HAK_CLASSES, "a class");
    return heap->closed_reasons[class] != 0 ? &heap->classes[class].hidden : &heap->bins[class];
}

/* Counts bytes of blocks given back, or taken. Under `lock`, or by the owner; if both count at once, the figure is a little wrong,
 * but it only decides how soon upkeep comes. */
hak_inline void hak__heap_idle_more(struct hak_heap *heap, size_t bytes) { hak_count(&heap->polling.idle_bytes, bytes); }
hak_inline void hak__heap_idle_less(struct hak_heap *heap, size_t bytes)
{
    uint64_t idle = hak_counted(&heap->polling.idle_bytes);
    hak_store(&heap->polling.idle_bytes, bytes < idle ? idle - bytes : 0, HAK_RELAXED);
}

/* What a share takes may be what its thread saw given back when a user heap ended. Called by the thread, or under the user heap's lock. */
hak_inline void hak__share_taken(struct hak_heap *share, size_t bytes)
{
    struct hak_heap *user = hak_load(&share->user, HAK_RELAXED);
    if (user != NULL)
        hak__heap_idle_less(user, bytes);
}

hak_inline bool hak__heap_is_share(const struct hak_heap *heap) { return heap->share.account != NULL; }

/* Whether spans and bins of a heap in this state may be used. */
hak_inline bool hak__heap_is_open(uint32_t state) { return state != HAK_HEAP_NEW && state != HAK_HEAP_UNUSABLE; }

/* Whether a forked child has given the heap up, because it was half changed. */
hak_inline bool hak__heap_is_unusable(struct hak_heap *heap) { return hak_load(&heap->state, HAK_RELAXED) == HAK_HEAP_UNUSABLE; }

/* The lock's place in the order, which only debug builds check. */
hak_inline uint32_t hak__heap_rank(struct hak_heap *heap, enum hak_heap_user user)
{
    if (!HAK_DEBUG || HAK_LOCK_FIBERS)
        return HAK_RANK_HEAP;
    if (user == HAK_SWEEPER)
        return HAK_RANK_FOREIGN;
    uint32_t state = hak_load(&heap->state, HAK_RELAXED);
    bool lost = state == HAK_HEAP_UNUSABLE && (heap->mode & HAK_MODE_SHARE) != 0;
    return state == HAK_HEAP_SHARE || lost ? HAK_RANK_SHARE : HAK_RANK_HEAP;
}

/* Gives the heap up for good. Called in a child under repair, or by the holder of its lock, which then does not release it. */
hak_inline void hak__heap_lose(struct hak_heap *heap)
{
    if (hak__lock_word_is_mine(&heap->lock))
        hak__lock_note(hak__heap_rank(heap, hak_load(&heap->lock, HAK_RELAXED) & HAK_LOCK_MARK), -1);
    hak_store(&heap->state, HAK_HEAP_UNUSABLE, HAK_RELAXED);
    hak_store(&heap->lock, HAK_LOCK_LOST, HAK_RELAXED);
}

/* Slow paths run between these two. The owner rarely waits: only while another thread collects for it. False: the heap is unusable,
 * because a fork, for example in a handler, has brought the thread into a child that has to abandon the heap: the collecting thread
 * does not exist there. The thread then has another heap, or a sentinel; callers for other heaps do without. */
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

/* Whether the caller may touch the data that the lock protects, for assertions. They act once the library has started; before, tests of
 * single layers have unshared heaps and lock few. */
extern bool hak__heaps_are_shared;
hak_inline bool hak__heap_is_mine(const struct hak_heap *heap)
{
    return !hak__heaps_are_shared || hak__lock_word_is_mine(&heap->lock);
}

/* In a child under repair: whether a thread that does not exist here was inside. */
hak_inline bool hak__heap_is_left(struct hak_heap *heap)
{
    bool in_large_cache = (hak_load(&heap->large_cache.owner_turns, HAK_RELAXED) & 1) != 0; /* its owner, without the lock */
    return hak__lock_word_is_left(&heap->lock) || in_large_cache;
}

/* Whether a span of several blocks begins at the descriptor and belongs to the heap, which the caller has locked: then it neither
 * ends nor changes hands. Any thread may end a single-block span at any moment, and another heap may begin one there; the
 * descriptor names no owner of those (span/span.h), so they need no second check. Frees of a share's blocks take its lock, so the map
 * tells. */
hak_inline bool hak__heap_has_span(struct hak_heap *heap, struct hak_span *span)
{
    hak_assert(hak__lock_word_is_mine(&heap->lock), "only the lock makes the answer last");
    size_t slab = hak__span_slab(span);
    if (!hak__heap_is_share(heap))
        return hak_load(&span->owner, HAK_RELAXED) == heap->id;
    return hak__owner_id(hak__owner_at(slab)) == heap->id && hak__span_at(slab) == span && !span->single;
}

/* Enters another thread's heap as a sweeper. False: the heap is not in use, or was locked at each try. The caller may have
 * interrupted the owner, so the number of tries is limited. */
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

/* A new heap, mapped and named, in state NEW: its classes and bins are still zero. NULL if the system refuses, or the maximum
 * number of heaps exists. */
struct hak_heap *hak__heap_new(void);
/* The same, but may also use the last id, which is kept for the exit heap: it serves threads that find no other heap. */
struct hak_heap *hak__heap_new_last(void);

/* Makes the calling thread's heap one of the present generation (arena/owner.h): what it has begun before a fork is inherited. */
void hak__heap_renew(struct hak_heap *heap);

/* Memory for the bitmaps of a new span, from former bitmaps or new (NULL: the system refuses). The second: takes back the bitmaps
 * of a span that has ended. */
void *hak__bitmaps_take(struct hak_heap *heap, size_t bytes);
void hak__bitmaps_give(struct hak_heap *heap, void *memory, size_t bytes);

/* Ends a heap that has nothing left, a share without a user heap: its memory goes back to the system and its id to the next
 * hak__heap_new. `heir` takes over its counters. The caller has locked both and unlocks neither, and must not touch the first one
 * afterwards. False: the system refuses memory to note the id in, and nothing has happened. */
hak_cold bool hak__heap_give_back(struct hak_heap *heap, struct hak_heap *heir);

hak_inline struct hak_heap *hak__heap_by_id(uint32_t id) { return hak__heap_address(id); }

/* Whether the block's heap is one that a forked child has abandoned: it takes no block back, so a freed block's mark alone tells. */
hak_inline bool hak__heap_is_unusable_at(const void *p)
{
    uint32_t id = hak__owner_id(hak__owner_of(p)); /* 0: its span has just ended */
    return id != 0 && hak__heap_is_unusable(hak__heap_by_id(id));
}

extern _Atomic uint32_t hak__heap_last;
/* Heaps 1..this exist. acquire: pairs with the release in hak__heap_new. */
hak_inline uint32_t hak__heap_last_id(void) { return hak_load(&hak__heap_last, HAK_ACQUIRE); }

/* The caller has unlocked the heap, and no other thread can want it. */
void hak__heap_park(struct hak_heap *heap);
uint64_t hak__heap_parkings(void); /* changes with each heap that is parked or taken up */

/* Takes a heap off the list and locks it; NULL if none is parked. A heap in a thread's hands stays locked until it is parked again
 * or has become the thread's own, so a fork at any moment finds each heap in one place. */
struct hak_heap *hak__heap_unpark(void);

/* take_up: the same for a new thread, which waits briefly while a heap is borrowed. An adopter borrows: the heap still counts as
 * parked. The adopter announces this before it takes heaps off the list, and again when it has parked them all. */
struct hak_heap *hak__heap_take_up(void);
struct hak_heap *hak__heap_borrow(void);
void hak__heaps_borrow(bool begin);

/* Whether one of the first few parked heaps is wanted now. Takes none off the list. */
bool hak__heap_any_parked(bool (*wanted)(struct hak_heap *, uint32_t), uint32_t class, unsigned most);

/* In a forked child: parks the heaps of threads that do not exist there, or makes them unusable if they were locked. `mine` and
 * `shared` (either may be NULL) stay in use. */
void hak__heaps_fork_child(const struct hak_heap *mine, const struct hak_heap *shared);

/* The same if it is not known which heaps are still in use: only those that a sweeper had locked become unusable. False if a thread
 * may still take one of these as its own. */
bool hak__heaps_fork_further(void);

/* --- blocks out of the heap (take.c) ------------------------------------------------------------------------------------ */

/* Takes up to `want` blocks of a class into out[0..], which then pops (from the end) in ascending order. They come from the warm
 * pool; if that is empty, waiting remote frees are collected first, then spans with blocks serve, then a new span. 0 if the system
 * refuses. */
uint32_t hak__heap_take(struct hak_heap *heap, uint32_t class, void **out, uint32_t want);

/* A large block that the heap has at hand: from a listed span, or a run in a SuperSlab assigned to it, or in any open one if none
 * is. NULL: there is none. */
void *hak__heap_take_at_hand(struct hak_heap *heap, uint32_t class);

/* The last resort of a thread's heap for n bytes: a block of the class, or of one as aligned that a sized free may find, out of any
 * thread's spans. */
hak_cold void *hak__heap_take_last(struct hak_heap *heap, uint32_t class, size_t n);

/* Counts blocks of the large pool that have left their spans, or, with a negative `count`, come back. */
hak_inline void hak__heap_large_moved(struct hak_heap *heap, uint32_t class, size_t count)
{
    if (class >= HAK_CLASS_FIRST_LARGE)
        heap->large_out += count * hak__classes[class].size;
}

/* One block that is known to be zero, if that costs nothing; else NULL. */
void *hak__heap_take_zeroed(struct hak_heap *heap, uint32_t class);

/* Adopts the spans of a class with free blocks from parked heaps; returns whether there were any. */
bool hak__heap_adopt(struct hak_heap *heap, uint32_t class);

/* The common heaps belong to no thread, and serve the first blocks of small classes to the threads of a process that has many.
 * Makes a new heap a common one if the number of heaps calls for one more. */
bool hak__common_add(struct hak_heap *heap);

/* How many blocks of the class they may give to the heap, which has not used it so far. */
uint32_t hak__common_first(const struct hak_heap *heap, uint32_t class);
bool hak__common_exist(void);

/* Takes a few blocks of a class with common_left, at most its capacity, into out[0..], like hak__heap_take; returns 0 if there are
 * none now. */
uint32_t hak__common_take(struct hak_heap *heap, uint32_t class, void **out);

/* In a forked child, before hak__heaps_fork_child: treats them as heaps of threads that do not exist. */
void hak__common_fork_child(void);

/* --- blocks back into the heap (give.c) --------------------------------------------------------------------------------- */

/* Gives back blocks of this heap, of any classes. `function` names the public call for reports of misuse. */
void hak__heap_give(struct hak_heap *heap, void *const *blocks, uint32_t count, const char *function);

/* Gives back a block of this heap's inherited span, without a key. */
void hak__heap_give_spared(struct hak_heap *heap, void *block, const char *function);

/* Ends a single-block span for another thread that has freed the block: its slabs go to the pool at once, since the owner holds
 * only counters of such a span. `heap` is the freeing thread's (NULL: it has none), `word` the slab's owner word as read. */
void hak__heap_end_foreign(struct hak_heap *heap, void *block, uint32_t word, const char *function);

/* Collects the spans in which other threads have freed blocks. */
void hak__heap_collect(struct hak_heap *heap);

/* Collects for parked heaps and those whose owners are not in a slow path, so that spans that have emptied can serve others. Visits
 * `most` heaps in the order of their ids, starting after the id *after, which becomes the last one's, and wrapping around. Whether
 * there was anything to collect. Caller holds the lock of `mine`. */
bool hak__heaps_sweep(const struct hak_heap *mine, uint32_t *after, uint32_t most);

/* The same for one heap, not the caller's. */
bool hak__heap_sweep(struct hak_heap *heap);

/* Whether p, a block of the class, is free in a bin, the outbox or a span of the heap; the second: in a span. Caller holds the heap
 * lock. */
hak_cold bool hak__heap_has_free(struct hak_heap *heap, uint32_t class, const void *p);
hak_cold bool hak__heap_has_in_span(const struct hak_heap *heap, uint32_t class, const void *p);

/* Asks one heap that the caller has not locked; false if it is locked at each try. The second: asks all heaps but one, until one
 * answers yes. A caller that holds a heap lock tries once, since others may wait for it. */
enum { HAK_HEAP_ASK_TRIES = 1000 };
typedef bool hak_heap_question(struct hak_heap *heap, uint32_t class, const void *p);
hak_cold bool hak__heap_ask(struct hak_heap *heap, hak_heap_question *question, uint32_t class, const void *p, unsigned tries);
hak_cold bool hak__heaps_ask(const struct hak_heap *except, hak_heap_question *question, uint32_t class, const void *p,
                             unsigned tries);

/* --- frees by other threads --------------------------------------------------------------------------------------------- */

/* Whether a live block of `class` is its span's only one. Safe from any thread. A class whose spans have several blocks may have
 * single-block ones too; the owner word of their second slab tells. */
bool hak__span_is_single(size_t slab, uint32_t class);

/* From any thread: publishes frees of blocks of one word of a span, and notifies the owner. */
void hak__remote_publish(struct hak_span *span, uint32_t word, uint64_t bits, const char *function);

/* Takes the whole pending stack and calls `collect` for each span that belongs to the heap; sends the others on. */
void hak__remote_receive(struct hak_heap *heap, void (*collect)(struct hak_heap *, struct hak_span *));

/* --- large blocks (large.c) --------------------------------------------------------------------------------------------- */

/* A run of slabs in a SuperSlab assigned to the heap, or HAK_NO_RUN. */
size_t hak__assigned_take(struct hak_heap *heap, unsigned count, bool *fresh);

/* Assigns the SuperSlab of the slab to the heap, unless another heap has it, or this one has few bytes in large blocks. */
void hak__assigned_add(struct hak_heap *heap, size_t slab);

/* Notes that the SuperSlab of this slab, which is assigned to the heap, has emptied. */
void hak__assigned_emptied(struct hak_heap *heap, size_t slab);

void hak__assigned_let_go(struct hak_heap *heap);

/* Resizes an allocated block of this heap in place to at least the size of another large class: takes free slabs behind it, or
 * releases slabs. Its new class is that one, or after growth the largest that fits its slabs. False: unchanged, because the slabs
 * behind are taken, or other blocks share the span. */
bool hak__large_resize_owner(struct hak_heap *heap, void *block, uint32_t class);

/* --- the spans of a heap ---------------------------------------------------------------------------------------------- */

/* How they begin and end, the list of those with blocks to give, and the warm pool of those known to be good
 * for the next refill. For heap/, and for userheap/ and upkeep/, which end spans; always under the heap lock.
 *
 * For each class the warm pool has up to HAK_WARM_MAX listed spans; the newest serves a miss of the cache without a search. A span
 * is good while it can give `warm_need` blocks (computed in spans.c). Spans enter the pool
 *   - by prefill, when a refill finds the pool empty: listed spans with that many freed blocks, up to the budget;
 *   - when no listed span has that many: the last span of the search, if the blocks beyond its frontier make it good, as
 *     in a new span;
 *   - when a drain or a collection has given a span blocks back, and it now has that many freed ones.
 * A span leaves when it is no longer good, or unlisted. No span is made for the pool: it has only spans that exist anyway.
 *
 * Invariants (hak__heap_is_valid), for every class of a heap:
 *   1. warm_count <= HAK_WARM_MAX;  hak__warm_member(i)->warm == i + 1;  all other spans have warm == 0
 *   2. members are listed, of the class, and good */

/* Starts the layer once the arena runs. */
void hak__heap_init(void);

/* --- begin and end ------------------------------------------------------------------------------------------------------ */

/* Counts the first block of a span that is to begin against the limit of a share's heap (state.h), or takes that back. */
bool hak__span_admit(struct hak_heap *heap, uint32_t class, unsigned slabs);
void hak__span_discount(struct hak_heap *heap, uint32_t class, unsigned slabs);

/* What a share's span counts against the limit: what its frontier has reached, so that pages of which nothing is used are free. */
hak_inline size_t hak__span_charge(const struct hak_span *span)
{
    bool whole = span->keys == HAK_SPAN_HARDENED && !hak__span_sleeps(span);
    return whole ? (size_t)span->slabs << HAK_SLAB_SHIFT : span->frontier * (size_t)hak__classes[span->class].size;
}

/* Makes a span of admitted slabs, and lists it unless it is for a single block. NULL: the system refuses, and the slabs have been
 * given back. */
struct hak_span *hak__heap_begin_span(struct hak_heap *heap, uint32_t class, size_t slab, unsigned slabs, bool fresh);
struct hak_span *hak__heap_begin_single(struct hak_heap *heap, uint32_t class, size_t slab, unsigned slabs, bool fresh);

/* Ends a wholly free span, but leaves its slabs to the caller. */
void hak__heap_dissolve_span(struct hak_heap *heap, struct hak_span *span);

/* Takes over a span of another heap, whose lock the caller holds too. */
void hak__heap_adopt_span(struct hak_heap *heap, struct hak_heap *former, struct hak_span *span);

/* Ends a wholly free span, and gives its slabs to the pool. */
void hak__heap_end_span(struct hak_heap *heap, struct hak_span *span);

/* Ends a listed span without allocated blocks, even the last of its class. Its slabs have been idle for as long as their SuperSlab
 * has. */
hak_cold void hak__heap_end_idle(struct hak_heap *heap, struct hak_span *span);

/* Has an empty hardened span give its memory back, or take it again (harden/spans.h); of a share, its part of the limit too. False: the
 * system or the limit refuses, or it sleeps already. */
hak_cold bool hak__heap_sleep_span(struct hak_heap *heap, struct hak_span *span);
hak_cold bool hak__heap_wake_span(struct hak_heap *heap, struct hak_span *span);

/* For want of memory: ends the empty spans of other classes, a share's hardened ones sleep, and the rest give up memory ahead of
 * need. HAK_CLASSES: of all classes. */
hak_cold void hak__heap_spare(struct hak_heap *heap, uint32_t class);

/* --- new spans (take.c) --------------------------------------------------------------------------------------------------- */

/* A new span of the class with blocks to give, for a heap that has none listed; NULL if the system refuses. */
struct hak_span *hak__heap_new_span(struct hak_heap *heap, uint32_t class);

/* --- the list and the warm pool ----------------------------------------------------------------------------------------- */

/* Adds a span to the list of those with blocks to give, or removes it. */
void hak__heap_list(struct hak_heap *heap, struct hak_span *span);
void hak__heap_unlist(struct hak_heap *heap, struct hak_span *span);

/* All spans of a class leave the list and the warm pool. */
void hak__heap_unlist_all(struct hak_heap *heap, uint32_t class);

hak_inline struct hak_span *hak__warm_member(struct hak_heap *heap, uint32_t class, uint32_t place)
{
    return &hak__spans[heap->classes[class].warm[place]];
}

hak_inline struct hak_span *hak__warm_newest(struct hak_heap *heap, uint32_t class)
{
    return hak__warm_member(heap, class, heap->classes[class].warm_count - 1u);
}

hak_inline bool hak__warm_good(const struct hak_span *span, uint32_t need)
{
    return span->free_count + (uint32_t)(span->blocks - span->frontier) >= need;
}

void hak__warm_join(struct hak_heap *heap, struct hak_span *span);
void hak__warm_leave(struct hak_heap *heap, struct hak_span *span);

/* Makes a span of the heap's the newest, so that the class's next refill comes from it, unless it has too few blocks for that. */
hak_cold void hak__warm_prefer(struct hak_heap *heap, struct hak_span *span);

/* After a listed span has got blocks back. */
hak_inline void hak__warm_regained(struct hak_heap *heap, struct hak_span *span)
{
    const struct hak_heap_class *class = &heap->classes[span->class];
    bool enough = span->free_count > class->warm_need - 1u; /* never, if there is no pool */
    if (span->warm == 0 && enough && class->warm_count < HAK_WARM_MAX)
        hak__warm_join(heap, span);
}

/* After a span has lost blocks; it is unlisted if these were its last ones. */
hak_inline void hak__warm_lost(struct hak_heap *heap, struct hak_span *span)
{
    if (hak_unlikely(!hak__span_has_blocks(span)))
        hak__heap_unlist(heap, span);
    else if (span->warm != 0 && !hak__warm_good(span, heap->classes[span->class].warm_need))
        hak__warm_leave(heap, span);
}

/* After a refill has found the pool empty: updates the class's hit rate and its budget. */
void hak__warm_missed(struct hak_heap *heap, uint32_t class);

/* Called next: puts listed spans with enough freed blocks into the pool; returns whether it has any now. */
bool hak__warm_prefill(struct hak_heap *heap, uint32_t class);

/* Called after the search: the span that ended it joins the pool if it is good for the next refill. */
void hak__warm_keep(struct hak_heap *heap, struct hak_span *span);

hak_cold bool hak__heap_is_valid(struct hak_heap *heap);
