/* The background thread (HAKMEM_BACKGROUND): takes the steps of upkeep that slow paths would take, and those that nobody
 * would take while every thread sleeps. There is one at most; it begins when it is needed.
 *
 *   the word        meaning                                               leaves it
 *   NONE            there is no thread                                    a request that finds it wanted -> STARTING
 *   STARTING        one is being created                                  the creator -> STIRRED, or NONE if refused
 *   STIRRED         it runs; slow paths have been taken since its step    the thread -> CALM
 *   CALM            it runs; nothing has happened since                   a slow path -> STIRRED; the thread -> ASLEEP
 *   ASLEEP          it sleeps until somebody takes a slow path            a slow path -> STIRRED
 *
 * It is created at the end of a malloc, with no heap entered and no lock of ours held, since creating a thread allocates.
 * Never in a free: the C library frees while it holds the lock that creating a thread takes. So `auto` does not wait
 * until much memory is dirty; it starts the thread in processes that have threads and much memory that may become so.
 * The thread has no heap, allocates nothing, and ends when no other thread has one: a process whose threads have all
 * ended must not be kept by ours. A forked child has none. */
#ifndef HAK_UPKEEP_BACKGROUND_H
#define HAK_UPKEEP_BACKGROUND_H

#include "base/atomic.h"

enum hak_background_word {
    HAK_BACKGROUND_NONE = 0,
    HAK_BACKGROUND_CALM = 1,      /* odd: a slow path has something to do */
    HAK_BACKGROUND_STIRRED = 2,
    HAK_BACKGROUND_ASLEEP = 3,
    HAK_BACKGROUND_STARTING = 4,
};
extern _Atomic uint32_t hak__background_word;
extern _Atomic bool hak__background_wanted;

/* From slow paths: tells the thread that there may be work. */
hak_noinline void hak__background_stir_slow(uint32_t word);
hak_inline void hak__background_stir(void)
{
    uint32_t word = hak_load(&hak__background_word, HAK_RELAXED);
    if (hak_unlikely(word % 2 != 0))
        hak__background_stir_slow(word);
}

/* From a tick that looks at the clock: asks for a thread if the option and the process's state say so. */
hak_cold void hak__background_consider(uint64_t now_ms);

/* At the end of a request for memory, outside of everything. */
hak_cold void hak__background_start(void);

/* Whether it takes the steps, so that slow paths need not. */
hak_inline bool hak__background_runs(void)
{
    uint32_t word = hak_load(&hak__background_word, HAK_RELAXED);
    return word != HAK_BACKGROUND_NONE && word != HAK_BACKGROUND_STARTING;
}

hak_noinline void hak__background_ready(void);            /* the C library can create threads from now on */
hak_noinline void hak__background_thread_begins(void);    /* a thread has attached a heap */
hak_cold void hak__background_thread_ends(void);      /* and parked it */
hak_cold void hak__background_fork_child(bool attached);   /* whether the one thread has a heap */

#endif
