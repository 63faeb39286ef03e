/* The recoverable lock. See lock.h for what it promises and lock ranks for the order. */
#include "base/lock.h"

#include <sched.h>

#include "base/assert.h"
#include "base/forked.h"

enum { SPINS = 100 };

_Atomic uint64_t hak__lock_wait_count;

#if HAK_DEBUG
static __thread uint32_t held_ranks;   /* bit r: a lock of rank r is held */

static void rank_enter(uint32_t rank)
{
    hak_assert((held_ranks >> rank) == 0, "lock order");
    held_ranks |= 1u << rank;
}
static void rank_leave(uint32_t rank) { held_ranks &= ~(1u << rank); }
#else
static void rank_enter(uint32_t rank) { (void)rank; }
static void rank_leave(uint32_t rank) { (void)rank; }
#endif

void hak__lock_acquire(struct hak_lock *lock)
{
    rank_enter(lock->rank);
    /* acquire: pairs with the release in hak__lock_release. */
    if (hak_exchange(&lock->held, 1, HAK_ACQUIRE) == 0)
        return;
    hak_fetch_add(&hak__lock_wait_count, 1, HAK_RELAXED);
    for (unsigned spins = 0;; spins++) {
        if (hak_load(&lock->held, HAK_RELAXED) == 0 && hak_exchange(&lock->held, 1, HAK_ACQUIRE) == 0)
            return;
        if (spins < SPINS)
            hak_pause();
        else
            hak__yield();
    }
}

void hak__lock_release(struct hak_lock *lock)
{
    rank_leave(lock->rank);
    hak_store(&lock->held, 0, HAK_RELEASE);
}

void hak__lock_reset(struct hak_lock *lock)
{
    rank_leave(lock->rank);
    hak_store(&lock->held, 0, HAK_RELAXED);
}

void hak__yield(void)
{
    hak__fork_check();
    hak__fork_unwatched();
    sched_yield();
}

uint64_t hak__lock_waits(void) { return hak_load(&hak__lock_wait_count, HAK_RELAXED); }
