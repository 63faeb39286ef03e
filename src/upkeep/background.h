/* The background thread (HAKMEM_BACKGROUND): takes the upkeep steps that slow paths would take, and those that nothing takes while
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
#pragma once

#include "base/atomic.h"

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
extern const bool hak__background_sees_credentials __attribute__((weak));   /* defined where credential changes call the library */
hak_cold void hak__background_forbid(void);
hak_cold void hak__background_allow(void);

/* Allows the thread from now on: options and scheduling are known. */
hak_noinline void hak__background_ready(void);

hak_noinline void hak__background_thread_begins(void); /* a thread has attached a heap */
hak_cold void hak__background_thread_ends(void); /* and has parked it; the caller holds no lock */
hak_cold void hak__background_fork_child(bool attached); /* attached: the child's only thread has a heap */
