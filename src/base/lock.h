/* A small lock for short sections on slow paths: one word, spin then sleep, no system call when uncontended.
 * All waiting is done by futex(2): a program that has forbidden itself system calls needs to allow no other.
 * It is recoverable: a forked child resets it with hak__lock_reset, because its holder does not exist there; for
 * that reason the sections that it guards keep their data valid at every step.
 * Ranks are the whole lock order: a thread may only take a lock of a higher rank than those it holds. Debug builds
 * check it. */
#pragma once

#include "base/atomic.h"

enum hak_lock_rank {
    HAK_RANK_INIT = 1,  /* the library's start */
    HAK_RANK_EXIT_HEAP,      /* the shared heap of threads that have ended */
    HAK_RANK_BACKGROUND,/* the background thread's beginning and end */
    HAK_RANK_OWNS,      /* the list of heaps of one's own */
    HAK_RANK_OWN,       /* one of them: its shares, its huge blocks; before the locks of its shares */
    HAK_RANK_SAMPLES,   /* the samples of one */
    HAK_RANK_SPARE,     /* the shares that are of no heap */
    HAK_RANK_ARENA,     /* growth and runs of SuperSlabs */
    HAK_RANK_CALLBACK,  /* the callback of the soft limit, while it is read or changed */
};

struct hak_lock {
    _Atomic uint32_t held;
    uint32_t rank;
};

#define HAK_LOCK_INIT(r) { 0, (r) }

void hak__lock_acquire(struct hak_lock *lock);
bool hak__lock_try(struct hak_lock *lock);     /* false when somebody holds it: does not wait */
void hak__lock_release(struct hak_lock *lock);
void hak__lock_reset(struct hak_lock *lock);   /* in a forked child only */
bool hak__lock_is_held(struct hak_lock *lock); /* by anybody; in a child, when it was forked */

/* For a loop that waits for another thread, with the number of its rounds so far: a moment's pause at first, later a short sleep, so
 * that the other can run. In a forked child the other may not exist, so hak__yield repairs the child first; hak__nap does not. */
void hak__yield(unsigned tries);
void hak__nap(unsigned tries);

/* How often a lock was found held, for the statistics. */
extern _Atomic uint64_t hak__lock_wait_count;
