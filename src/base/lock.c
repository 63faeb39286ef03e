/* The recoverable lock, and waiting. See lock.h for what is promised and lock ranks for the order. */
#include "base/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/forked.h"

enum { SPINS = 100, NAP_NS = 20000 };

/* The values of a lock's word. A thread that has spun in vain makes it WAITED and sleeps while it is that. */
enum { LOCK_FREE, LOCK_HELD, LOCK_WAITED };

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

static void futex_call(_Atomic uint32_t *word, int operation, uint32_t value, const struct timespec *time)
{
    int saved = errno;
    syscall(SYS_futex, word, operation, value, time, NULL, 0);
    errno = saved;
}

static bool try_take(struct hak_lock *lock)
{
    uint32_t free = LOCK_FREE;
    /* acquire: pairs with the release in hak__lock_release. */
    return hak_load(&lock->held, HAK_RELAXED) == LOCK_FREE
           && hak_cas_strong(&lock->held, &free, LOCK_HELD, HAK_ACQUIRE, HAK_RELAXED);
}

/* A child in which the holder does not exist is put in order before it sleeps: that frees the lock. */
static hak_cold void wait_for(struct hak_lock *lock)
{
    hak_fetch_add(&hak__lock_wait_count, 1, HAK_RELAXED);
    for (unsigned spins = 0; spins < SPINS; spins++) {
        if (try_take(lock))
            return;
        hak_pause();
    }
    /* acquire: as above. */
    while (hak_exchange(&lock->held, LOCK_WAITED, HAK_ACQUIRE) != LOCK_FREE) {
        hak__fork_check();
        hak__fork_unwatched();
        futex_call(&lock->held, FUTEX_WAIT_PRIVATE, LOCK_WAITED, NULL);
    }
}

void hak__lock_acquire(struct hak_lock *lock)
{
    rank_enter(lock->rank);
    if (!try_take(lock))
        wait_for(lock);
}

bool hak__lock_try(struct hak_lock *lock)
{
    bool taken = try_take(lock);
    if (taken)
        rank_enter(lock->rank);
    return taken;
}

void hak__lock_release(struct hak_lock *lock)
{
    rank_leave(lock->rank);
    if (hak_exchange(&lock->held, LOCK_FREE, HAK_RELEASE) == LOCK_WAITED)
        futex_call(&lock->held, FUTEX_WAKE_PRIVATE, 1, NULL);
}

void hak__lock_reset(struct hak_lock *lock)
{
    rank_leave(lock->rank);
    hak_store(&lock->held, LOCK_FREE, HAK_RELAXED);
}

bool hak__lock_is_held(struct hak_lock *lock) { return hak_load(&lock->held, HAK_ACQUIRE) != LOCK_FREE; }

void hak__nap(unsigned tries)
{
    static _Atomic uint32_t never;
    static const struct timespec time = { 0, NAP_NS };
    if (tries < SPINS)
        hak_pause();
    else
        futex_call(&never, FUTEX_WAIT_PRIVATE, 0, &time);
}

void hak__yield(unsigned tries)
{
    hak__fork_check();
    if (tries >= SPINS)
        hak__fork_unwatched();
    hak__nap(tries);
}
