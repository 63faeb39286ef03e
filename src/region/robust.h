/* A lock in memory that several processes share, which detects the death of its holder. The word is a futex with the holder's
 * number as the kernel writes it. While a thread takes, holds or releases the lock, the kernel knows the word's address (the
 * pending operation of the thread's list of robust locks; see the kernel's "robust futexes"). When the thread ends in any way, the
 * kernel marks the word and wakes a waiter. Called by region.c.
 *
 *   word = 0                 free
 *   word & FUTEX_TID_MASK    the holder; all processes see the same numbers, since they share a PID namespace
 *   word & FUTEX_WAITERS     a thread sleeps
 *   word & FUTEX_OWNER_DIED  the holder died, and the guarded data may be half changed
 *
 * If the C library has registered no list with the kernel, `unlisted` is set for good, and waiters check now and then whether the
 * holder lives. */
#pragma once

#include "base/atomic.h"

struct hak_robust {
    _Atomic uint32_t word;
    _Atomic uint32_t unlisted;
};

/* A thread's own list; zero at first. Valid in the process and thread in which it was found. */
struct hak_robust_thread {
    void *list; /* the kernel's struct robust_list_head; NULL: there is none */
    void *entered; /* its pending operation before */
    uint32_t number;
    uint32_t generation;
};

/* Waits for the lock. False: its holder died, or a fork left the lock behind; the caller holds it all the same. Keeps errno. */
bool hak__robust_acquire(struct hak_robust *lock, struct hak_robust_thread *me);
void hak__robust_release(struct hak_robust *lock, struct hak_robust_thread *me);

/* In a forked child: threads look their lists up anew; a held lock in private memory loses its holder. */
void hak__robust_fork_child(void);
void hak__robust_orphan(struct hak_robust *lock);
