/* Upkeep: work made necessary by the passing of time. A step is a function of state and time, so tests call it with their own
 * clock; in a program a slow path takes one when it is due, or the background thread does.
 *
 * A step
 *   1. serves unlocked heaps: collects remote frees and publishes outboxes;
 *   2. ends spans that have been empty, and purges pages in spans that have been partly free, long enough;
 *   3. returns the pages of old unused slabs and free SuperSlabs, as the policy says (arena/returned.h).
 * Bins belong to their owners: a poll gives back half of the blocks that its own thread has not moved for a while. */
#pragma once

#include "base/atomic.h"
#include "cache/cache.h"
#include "heap/heap.h"

enum hak_upkeep_effort {
    HAK_UPKEEP_BOUNDED, /* in a slow path: due work, for about a millisecond */
    HAK_UPKEEP_DUE, /* all due work */
    HAK_UPKEEP_ALL, /* everything, due or not */
};

/* Does what is due at `now_ms`. Caller holds no heap lock. Returns the bytes returned to the system; 0 also if another thread is
 * taking a step. */
hak_cold size_t hak__upkeep_step(uint64_t now_ms, enum hak_upkeep_effort effort);

/* Waits until no thread is in a step, but not very long: a signal handler may have interrupted that thread. */
hak_cold void hak__upkeep_await(void);

extern _Atomic uint64_t hak__upkeep_last_ms; /* when the last step began */

hak_cold void hak__upkeep_fork_child(void);

/* Checks some SuperSlabs, continuing from call to call; collapses one at most. Called by a step, one caller at a time. */
hak_cold void hak__collapse_walk(uint64_t now_ms);

/* --- idle spans (step.c) ---------------------------------------------------------------------------------------------- */

/* Returns idle spans, and idle pages in spans. A walk visits all slabs in address order, a part in each step: if nothing has
 * moved in a span for long enough, a free span ends; otherwise the pages that lie wholly in its free blocks go
 * back to the system. The library stores nothing in free blocks, so their pages may vanish at any time.
 *
 * A span's free bits change only under its heap's lock, which the walk holds for a few system calls at a time; blocks in bins
 * and outboxes have no free bit. A returned page reads as zeros, so `fresh` stays true. A purged span is skipped until a batch
 * moves (span.h, changes). One caller at a time. */

struct hak_idle_work {
    uint64_t now_ms;
    uint32_t slabs; /* the most slabs to visit */
    uint32_t purges; /* the most system calls to make */
    uint64_t idle_ms; /* what has been unused for so long goes back */
    size_t most; /* and no more bytes than these */
};

/* Returns the resident bytes that were purged. */
hak_cold size_t hak__idle_walk(const struct hak_idle_work *work);

/* Whether the last walk stopped at its limit of system calls. */
hak_cold bool hak__idle_unfinished(void);

/* Upkeep's work so far, in one struct for all readers; each figure has one writer at a time. */
struct hak_upkeep_counts {
    hak_line_aligned hak_counter steps; /* step.c, like the next two */
    hak_counter collected_heaps, outbox_blocks;
    hak_counter spans_ended, span_purges, span_purged; /* of idle spans */
    hak_counter armings; /* polling.c */
    hak_counter background_starts, background_wakeups; /* background.c */
};
extern struct hak_upkeep_counts hak__upkeep_counts;

/* --- polls (polling.c) ------------------------------------------------------------------------------------------------ */

/* How threads take upkeep steps without a background thread: slow paths poll the clock now and then, and a thread that only hits
 * is made to take slow paths.
 *
 * After a thread has given much memory back to its spans, and not seen it return to the system, it closes all bins of its heap,
 * so that each call takes the slow path and every 64th reads the clock: the heap polls. Such a call costs a few nanoseconds more
 * than the fast path, so the heap polls for HAK_POLLING_CALLS calls that its bins could serve. Then the thread's behaviour
 * decides:
 *   - If they passed within milliseconds, and blocks came in as many batches as they went, polling is too expensive and
 *     slow paths occur by themselves: the bins open. While memory waits, slow paths read the clock more often, and close
 *     the bins again after a quarter of the purge delay, or when the thread only frees.
 *   - If it only freed, only hit, or is in no hurry, the heap polls on until the memory has had time to go back, one and
 *     a half purge delays after it became much.
 * A heap that polls when its thread falls asleep still polls when the thread wakes, and then a step is due at once. */

enum { HAK_POLLING_CALLS = 4096, HAK_POLLING_PER_LOOK = 64 };
#define HAK_POLLING_MUCH ((size_t)8 << 20)

/* From a slow path of `heap`, without its lock: cheap unless a step is due. */
void hak__upkeep_poll(struct hak_heap *heap);

/* For want of memory: has all other threads empty their bins when they next poll; whether there are any. */
hak_cold bool hak__bins_want(void);

/* Makes the next poll read the clock, after a thread has given much back at once. */
void hak__polling_hurry(struct hak_heap *heap);

/* The same when it is time to read the clock. */
hak_cold void hak__upkeep_poll_now(struct hak_heap *heap);

/* A thread ends: notes what it gave back and has not seen return to the system, since a parked heap does not poll. Once at most one
 * thread is left, it counts as given back by the heap of the next slow path. The first before hak__cache_park, under the heap lock; the
 * second after hak__background_thread_ends. */
hak_cold void hak__polling_leave(struct hak_heap *heap);
hak_cold void hak__polling_thread_ended(void);

/* After HAK_POLLING_PER_LOOK more calls served by a polling heap's bins. */
hak_noinline void hak__polling_look(struct hak_heap *heap);

hak_inline void hak__polling_count(struct hak_heap *heap)
{
    if (hak_unlikely(--heap->polling.left % HAK_POLLING_PER_LOOK == 0))
        hak__polling_look(heap);
}

/* Pop from and push to the bin behind the closed one; NULL, false: it needs a refill or a drain, or is closed for another
 * reason. */
hak_inline void *hak__polling_pop(struct hak_heap *heap, uint32_t class)
{
    void *block = heap->classes[class].capacity == 0 ? NULL : hak__cache_pop(hak__heap_bin(heap, class));
    if (hak_likely(block != NULL))
        hak__polling_count(heap);
    return block;
}
hak_inline bool hak__polling_push(struct hak_heap *heap, uint32_t class, void *block)
{
    if (heap->classes[class].capacity == 0 || !hak__cache_push(hak__heap_bin(heap, class), block))
        return false;
    hak__polling_count(heap);
    return true;
}

/* --- the background thread (background.c) ----------------------------------------------------------------------------- */

/* HAKMEM_BACKGROUND: takes the upkeep steps that slow paths would take, and those that nothing takes while
 * every thread sleeps. There is at most one.
 *
 *   the word        meaning                                               leaves it
 *   NONE            there is no thread                                    a poll that finds it wanted -> ACTIVE
 *   ACTIVE          it runs; slow paths have been taken since its step    the thread -> CALM
 *   CALM            it runs; nothing has happened since                   a slow path -> ACTIVE; the thread -> RESTING
 *   RESTING         it has ended or is about to, for want of work         a slow path -> ACTIVE, with a new thread
 *
 * With the thread a program behaves as without it, except for /proc/self/task and the like while the program itself has threads;
 * docs/design.md lists what that takes. Only the kernel knows the thread (os/thread.c), so any slow path can make it, whatever
 * locks its caller holds. It lives while there is memory to return and (auto) at least two threads have heaps; the last thread but
 * one ends only after it, and the next is made a period after it was at the earliest (docs/decisions/0084). It has no heap and
 * allocates nothing. A forked child has none.
 *
 * Order: the maker writes the word and then reads the program's thread count; a thread that ends lowers the count and then reads
 * the word. Both are sequentially consistent, so one of them sees the other. */

enum hak_background_word {
    HAK_BACKGROUND_NONE = 0,
    HAK_BACKGROUND_CALM = 1, /* odd: a slow path has something to do */
    HAK_BACKGROUND_ACTIVE = 2,
    HAK_BACKGROUND_RESTING = 3,
};
extern _Atomic uint32_t hak__background_word;

/* From slow paths, without a heap lock: tells the thread of possible work, or makes a new one. */
hak_noinline void hak__background_poll_slow(uint32_t word);
hak_inline void hak__background_poll(void)
{
    uint32_t word = hak_load(&hak__background_word, HAK_RELAXED);
    if (hak_unlikely(word % 2 != 0))
        hak__background_poll_slow(word);
}

/* From a poll that reads the clock: makes the thread if the option and the process's state call for it. */
hak_cold void hak__background_consider(void);

/* Whether it takes the steps for the slow paths. */
hak_inline bool hak__background_runs(void)
{
    uint32_t word = hak_load(&hak__background_word, HAK_RELAXED);
    return word == HAK_BACKGROUND_CALM || word == HAK_BACKGROUND_ACTIVE;
}

/* There is no thread between these two calls: when the first returns, an existing thread has left the process's memory. For
 * changes that the thread would not follow: those of the process's credentials. Nests. */
extern const bool hak__is_interposed __attribute__((weak));   /* defined where the C library's functions of interpose/ call this one */
hak_cold void hak__background_forbid(void);
hak_cold void hak__background_allow(void);

/* Allows the thread from now on: options and scheduling are known. */
hak_noinline void hak__background_ready(void);

hak_noinline void hak__background_thread_begins(void); /* a thread has attached a heap */
hak_cold bool hak__background_is_alone(void); /* at most one thread has a heap */
hak_cold void hak__background_thread_ends(void); /* and has parked it; the caller holds no lock */
hak_cold void hak__background_fork_child(bool attached); /* attached: the child's only thread has a heap */
