/* Forked children, and the one way to take a lock: those declared here, and the heaps' (heap/heap.h), which use the same word.
 * Small locks for short sections on slow paths: one word, no system call when uncontended. All waiting uses futex(2), so that a
 * program that filters system calls has to allow no other; each wait has a limit and checks for a fork again.
 *
 *   the word    FREE;  LOST: can never be taken again;  else (the holder's number << 1) | MARK
 *
 * Taking a lock first repairs a forked child if necessary, then notes the holder in the word; debug builds assert the order. The
 * number makes a lock recoverable: a child's repair frees the locks of threads that do not exist there, or makes them LOST. It
 * leaves the calling thread's locks alone, because the fork may have interrupted that thread in the middle of a section. The
 * sections that locks guard keep their data valid at every step. Ranks are the whole lock order: a thread waits only for a lock of
 * a higher rank than those it holds. */
#pragma once

#include "base/assert.h"
#include "base/atomic.h"
#include "base/limits.h"

/* --- forked children -------------------------------------------------------------------------------------------------- */

/* Detects a child that was forked while its parent had threads and has not been repaired yet. The kernel wipes the page of a mark
 * word in each child (MADV_WIPEONFORK), so the C library's fork handlers are not needed, and _Fork() and bare system calls are
 * covered too. Slow paths check the mark before they touch shared data.
 *
 *   mark == NULL   the kernel has refused the page so far: a handler of the C library's repairs its fork()'s children; others are
 *                  detected by their process number, and only before a thread without a heap gets one, or waits; process/start.c
 *                  makes sure that this is enough
 *   *mark          REPAIRED, or WIPED in a new child; REPAIRING while its first slow path repairs it; AWAITED: only the part is
 *                  left that the forking thread itself must do, and each thread checks whether it is that one
 *
 * The first thread to reach a slow path repairs the child, and a second one waits for that; either may be the thread that forked
 * (process/start.c). */

enum hak_fork_mark { HAK_FORK_WIPED, HAK_FORK_REPAIRED, HAK_FORK_REPAIRING, HAK_FORK_AWAITED };

/* Every slow path reads it, so it has its own cache line, apart from the call counters that the linker would place beside it. */
struct hak_forked {
    hak_line_aligned _Atomic uint32_t *mark;
};

extern struct hak_forked hak__forked;

/* What a child finds zero, if the kernel wipes this page: the mark, and the bounds by which free's fast path asks whether an address
 * is in the window. A child's first free so takes the slow path, which repairs it (kinds/plain.c). All other code reads the
 * bounds in hak__window (arena/owner.h). */
struct hak_wiped {
    _Alignas(HAK_PAGE_MOST) _Atomic uint32_t mark;
    size_t slabs, sized_slabs;
};

extern struct hak_wiped hak__wiped;

/* Called at the library's start. `repair` repairs a child and takes no lock; it returns false if a part is left for the thread that
 * forked. `arrive` then returns whether the calling thread is that one, and does the rest. `find_mark` returns the mark, a word
 * that is wiped in children, or NULL if there is none yet. Without a mark, `is_copy` says whether this memory is a copy that a fork
 * has made since it was last asked; in a child of vfork() it is not. */
void hak__fork_begin(bool (*repair)(void), bool (*arrive)(void), _Atomic uint32_t *(*find_mark)(void), bool (*is_copy)(void));

/* Without a mark: has the C library repair the children of its fork(). May allocate. */
hak_cold void hak__fork_handle(void);

/* From now on every forked child is repaired. Called before a second thread takes a lock (lock.h) or the library starts a thread.
 * May allocate. */
hak_cold void hak__fork_watch(void);
bool hak__fork_alone(void); /* neither has happened yet */

/* Without a mark: repairs a child that a thread without a heap has forked. Called by a thread that is about to get a heap, or waits
 * for a lock. */
hak_cold void hak__fork_unwatched(void);

hak_cold void hak__fork_found(void);
hak_for_region void hak__fork_look(void); /* hak__fork_check for libhakmem-region */

/* How often this process's memory has been repaired. A thread that finds a different number after it has waited is in a child; the
 * repair has dealt with everything that the thread held without a lock. */
hak_at_start uint32_t hak__fork_repairs(void);

/* Whether the caller runs in the process that owns this memory. A child of vfork() runs in its parent's memory, thread-local memory
 * included: the parent would keep any change to the state of the process. */
hak_cold bool hak__fork_is_home(void);
hak_cold bool hak__fork_is_new(void); /* a forked child that is not yet repaired */

/* Whether the caller is a child of vfork(). Asks the kernel for its number. Without a mark, and in a forked child that is not yet
 * repaired, the answer is no. */
hak_cold bool hak__fork_is_borrowed(void);

hak_inline void hak__fork_check(void)
{
    _Atomic uint32_t *mark = hak_read_mostly(&hak__forked.mark);
    /* acquire: pairs with the release of the repairing thread. */
    if (hak_unlikely(mark != NULL && hak_load(mark, HAK_ACQUIRE) != HAK_FORK_REPAIRED))
        hak__fork_found();
}

/* --- locks ------------------------------------------------------------------------------------------------------------ */

#if defined(HAK_RACE_TEST) && HAK_RACE_TEST
#define HAK_LOCK_FIBERS 1   /* threads are fibers (tests/race), which share thread-local variables */
#else
#define HAK_LOCK_FIBERS 0
#endif

enum hak_lock_rank {
    HAK_RANK_INIT = 1, /* the library's start */
    HAK_RANK_EXIT_HEAP, /* the shared heap of threads that have ended */
    HAK_RANK_BACKGROUND, /* the background thread's beginning and end */
    HAK_RANK_HEAP, /* the calling thread's heap, or the exit heap */
    HAK_RANK_OWNS, /* the list of user heaps */
    HAK_RANK_OWN, /* one user heap, its shares and huge blocks; taken before its shares' locks */
    HAK_RANK_SAMPLES, /* a user heap's samples */
    HAK_RANK_SPARE, /* shares that belong to no user heap */
    HAK_RANK_SHARE, /* a share's heap */
    HAK_RANK_FOREIGN, /* the heap of another thread or of none: several at once, in any order, since their holders wait for no other */
    HAK_RANK_ARENA, /* growth and runs of SuperSlabs */
    HAK_RANK_REPORT, /* the text of a report of misuse */
    HAK_RANK_CALLBACK, /* the callback of the soft limit, while it is read or changed */
    HAK_RANKS,
};

/* MARK: threads sleep until the word changes. In a heap's word: the holder is a sweeper. */
enum { HAK_LOCK_FREE = 0, HAK_LOCK_MARK = 1 };
#define HAK_LOCK_LOST UINT32_MAX

struct hak_lock {
    _Atomic uint32_t held;
    uint32_t rank;
};

#define HAK_LOCK_INIT(r) { HAK_LOCK_FREE, (r) }

struct hak_heap;

/* A thread's state outside its heap. One struct, since static TLS is scarce and each variable may bring its own padding. */
struct hak_thread_notes {
    uint32_t lock_number; /* see hak__lock_me; 0: none yet */
    uint16_t frees_without_heap; /* before it has one (thread.c) */
    bool in_callback; /* the callback of a user heap at its limit is running (userheap/userheap.c) */
    struct hak_heap *home; /* its own heap, once it has had a default heap (cache/cache.h); or NULL */
    const struct hak_labels *labels; /* of its samples (sample/sample.h) */
};
extern __thread struct hak_thread_notes hak__thread_notes __attribute__((tls_model("initial-exec")));

/* The calling thread's number among those that have taken a lock, from 1. With the second number the process counts as one of
 * several threads, and all its children are repaired (hak__fork_watch, which may allocate: a thread gets its number before it holds
 * any lock). */
#if HAK_LOCK_FIBERS
uint32_t hak__lock_me(void);
#else
hak_at_start uint32_t hak__lock_number_slow(void);
hak_inline uint32_t hak__lock_me(void)
{
    uint32_t number = hak__thread_notes.lock_number;
    return hak_likely(number != 0) ? number : hak__lock_number_slow();
}
#endif

/* Debug builds: the calling thread holds one more lock of the rank, or one less, or is about to wait for one. */
#if HAK_DEBUG && !HAK_LOCK_FIBERS
void hak__lock_note(uint32_t rank, int change);
void hak__lock_expect_order(uint32_t rank);
#else
#define hak__lock_note(rank, change) ((void)sizeof((rank) + (uint32_t)(change)))   /* compiled, not evaluated */
#define hak__lock_expect_order(rank) ((void)sizeof(rank))
#endif

/* --- words ---------------------------------------------------------------------------------------------------------------- */

hak_inline bool hak__lock_word_try(_Atomic uint32_t *word, uint32_t mark, uint32_t rank)
{
    uint32_t free = HAK_LOCK_FREE;
    /* acquire: pairs with the release of the thread that had it. */
    if (!hak_cas_strong(word, &free, hak__lock_me() << 1 | mark, HAK_ACQUIRE, HAK_RELAXED))
        return false;
    hak__lock_note(rank, 1);
    return true;
}

/* Waits. False: the lock is lost. */
hak_cold bool hak__lock_word_wait(_Atomic uint32_t *word, uint32_t mark, uint32_t rank);
hak_inline bool hak__lock_word_take(_Atomic uint32_t *word, uint32_t mark, uint32_t rank)
{
    hak__fork_check();
    hak__lock_expect_order(rank);
    return hak_likely(hak__lock_word_try(word, mark, rank)) || hak__lock_word_wait(word, mark, rank);
}

/* Whether the calling thread holds it; and, in a child under repair, whether a thread holds it that does not exist there. */
hak_inline bool hak__lock_word_is_mine(const _Atomic uint32_t *word)
{
    uint32_t now = hak_load(word, HAK_RELAXED);
    return now != HAK_LOCK_LOST && now >> 1 == hak__lock_me();
}
hak_inline bool hak__lock_word_is_left(const _Atomic uint32_t *word)
{
    return hak_load(word, HAK_RELAXED) != HAK_LOCK_FREE && !hak__lock_word_is_mine(word);
}

/* --- locks that are never lost ------------------------------------------------------------------------------------------------ */

void hak__lock_acquire(struct hak_lock *lock);
bool hak__lock_try(struct hak_lock *lock); /* false if another thread holds it: does not wait */
void hak__lock_release(struct hak_lock *lock);

/* In a forked child under repair: frees the lock if a thread that does not exist here holds it. Returns whether one did. */
bool hak__lock_fork_child(struct hak_lock *lock);

/* The same, but the calling thread then holds the lock as if it had taken it: for sections that repair the guarded data. */
bool hak__lock_inherit(struct hak_lock *lock);

bool hak__lock_is_held(struct hak_lock *lock); /* by any thread */

/* How often a lock was found held; for the statistics. */
extern _Atomic uint64_t hak__lock_wait_count;

/* --- waiting ------------------------------------------------------------------------------------------------------------ */

/* One round of a loop that waits for another thread; `tries` counts the rounds. Pauses at first, later sleeps briefly, so that the
 * other thread can run. In a forked child that thread may not exist: hak__yield repairs the child first, hak__nap does not. */
void hak__yield(unsigned tries);
void hak__nap(unsigned tries);

/* The same for a loop that waits until a word is no longer `value`: sleeps until hak__wake, but not for long. */
void hak__yield_on(_Atomic uint32_t *word, uint32_t value, unsigned tries);
void hak__wake(_Atomic uint32_t *word);

enum { HAK_WAIT_SPINS = 100 }; /* rounds before the first sleep */
