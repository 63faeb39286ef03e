/* The background thread (HAKMEM_BACKGROUND): takes the steps of upkeep that slow paths would take, and those that nobody
 * would take while every thread sleeps. There is one at most.
 *
 *   the word        meaning                                               leaves it
 *   NONE            there is no thread                                    a poll that finds it wanted -> ACTIVE
 *   ACTIVE          it runs; slow paths have been taken since its step    the thread -> CALM
 *   CALM            it runs; nothing has happened since                   a slow path -> ACTIVE; the thread -> RESTING
 *   RESTING         it has ended or is about to, for want of work         a slow path -> ACTIVE, with a new thread
 *
 * A program is the same with the thread as without it, but for /proc/self/task and its like while the program itself has
 * threads; docs/design.md lists what that takes. The thread is one that only the kernel knows (os/thread.c), so it can be
 * made in any slow path, whatever the caller holds. It lives while there is memory to return and (auto) while two threads at
 * least have heaps; the last but one ends only after it, and the next is made a period after it was at the earliest
 * (docs/decisions/0084). It has no heap and allocates nothing. A forked child has none.
 *
 * Order: its maker writes the word and then reads the number of the program's threads; a thread that ends counts itself out and then
 * reads the word. Both are sequentially consistent, so one of them sees the other. */
#pragma once

#include "base/atomic.h"

enum hak_background_word {
    HAK_BACKGROUND_NONE = 0,
    HAK_BACKGROUND_CALM = 1, /* odd: a slow path has something to do */
    HAK_BACKGROUND_ACTIVE = 2,
    HAK_BACKGROUND_RESTING = 3,
};
extern _Atomic uint32_t hak__background_word;

/* From slow paths, without a heap lock: tells the thread that there may be work, or makes a new one. */
hak_noinline void hak__background_poll_slow(uint32_t word);
hak_inline void hak__background_poll(void)
{
    uint32_t word = hak_load(&hak__background_word, HAK_RELAXED);
    if (hak_unlikely(word % 2 != 0))
        hak__background_poll_slow(word);
}

/* From a poll that looks at the clock: makes the thread if the option and the process's state say so. */
hak_cold void hak__background_consider(void);

/* Whether it takes the steps, so that slow paths need not. */
hak_inline bool hak__background_runs(void)
{
    uint32_t word = hak_load(&hak__background_word, HAK_RELAXED);
    return word == HAK_BACKGROUND_CALM || word == HAK_BACKGROUND_ACTIVE;
}

/* Between these two there is no thread: when the first returns, a thread that was there has left the process's memory. For changes
 * that the thread would not follow, those of the process's credentials. Nests. */
extern const bool hak__background_sees_credentials __attribute__((weak));   /* defined where changes of these come here */
hak_cold void hak__background_forbid(void);
hak_cold void hak__background_allow(void);

/* From now on it may be made: options and scheduling are known. */
hak_noinline void hak__background_ready(void);

hak_noinline void hak__background_thread_begins(void); /* a thread has attached a heap */
hak_cold void hak__background_thread_ends(void); /* and parked it; the caller holds no lock */
hak_cold void hak__background_fork_child(bool attached); /* whether the one thread has a heap */
