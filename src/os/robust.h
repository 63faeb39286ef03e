/* A lock in memory that several processes share, which knows when its holder has died: the word is a futex, with the holder's number
 * as the kernel writes it, and while a thread takes, has or releases the lock the kernel knows where the word lies (the pending
 * operation of the thread's list of robust locks; see "robust futexes" of the kernel). A thread's end, however it comes, then marks
 * the word and wakes one that waits. Called by userheap/region.c.
 *
 *   word = 0                 free
 *   word & FUTEX_TID_MASK    the thread that has it; all processes see the same numbers: they are of one PID namespace
 *   word & FUTEX_WAITERS     a thread sleeps
 *   word & FUTEX_OWNER_DIED  its holder died, and what it guards may be half changed
 *
 * Where the C library has told the kernel of no list, `unlisted` is set for good, and waiters ask now and then whether the
 * holder lives. */
#pragma once

#include "base/atomic.h"

struct hak_robust {
    _Atomic uint32_t word;
    _Atomic uint32_t unlisted;
};

/* What a thread knows of itself; zero at first. Valid in the process and thread in which it was found. */
struct hak_robust_thread {
    void *list; /* the kernel's struct robust_list_head; NULL: there is none */
    void *entered; /* what its pending operation was before */
    uint32_t number;
    uint32_t generation;
};

/* Waits for the lock. False: its holder has died, or a fork has left it behind; the caller has it all the same. Keeps errno. */
bool hak__robust_acquire(struct hak_robust *lock, struct hak_robust_thread *me);
void hak__robust_release(struct hak_robust *lock, struct hak_robust_thread *me);

/* In a forked child: the parent's threads must find their lists anew; a lock in private memory that was held has no holder. */
void hak__robust_fork_child(void);
void hak__robust_orphan(struct hak_robust *lock);
