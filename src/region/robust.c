/* See robust.h. */
#include "region/robust.h"

#include <errno.h>
#include <linux/futex.h>
#include <time.h>

#include "base/lock.h"
#include "base/syscall.h"

enum { ROBUST_SPINS = 100, ROBUST_LOOK_MS = 50 };

static _Atomic uint32_t robust_generation = 1;

static hak_cold void robust_find(struct hak_robust_thread *me)
{
    size_t bytes;
    if (hak__syscall(SYS_get_robust_list, 0, &me->list, &bytes) != 0)
        me->list = NULL;
    me->number = (uint32_t)hak__syscall(SYS_gettid);
    me->generation = hak_load(&robust_generation, HAK_RELAXED);
}

static void robust_set_pending(struct robust_list_head *head, void *entry) { *(void *volatile *)&head->list_op_pending = entry; }

/* From here on the kernel looks at the word when this thread ends. Only this thread and the kernel read the list, so compiler order
 * is enough. */
static void robust_enter(struct hak_robust *lock, struct hak_robust_thread *me)
{
    if (hak_unlikely(me->generation != hak_load(&robust_generation, HAK_RELAXED)))
        robust_find(me);
    struct robust_list_head *head = me->list;
    if (head != NULL) {
        me->entered = head->list_op_pending;
        robust_set_pending(head, (void *)((uintptr_t)&lock->word - (uintptr_t)head->futex_offset));
    } else if (hak_load(&lock->unlisted, HAK_RELAXED) == 0)
        hak_store(&lock->unlisted, 1, HAK_RELAXED); /* waiters check now and then */
    hak_signal_fence();
}

static void robust_leave(struct hak_robust_thread *me)
{
    struct robust_list_head *head = me->list;
    hak_signal_fence();
    if (head != NULL)
        robust_set_pending(head, me->entered);
}

static bool robust_lives(uint32_t number) { return hak__syscall(SYS_kill, number, 0) != -ESRCH; }

/* Takes a free lock; keeps the waiters' mark. */
static bool robust_try(struct hak_robust *lock, uint32_t word, uint32_t number)
{
    /* acquire: pairs with the release in hak__robust_release, or with the kernel's store for a dead holder. */
    return hak_cas_strong(&lock->word, &word, (word & FUTEX_WAITERS) | number, HAK_ACQUIRE, HAK_RELAXED);
}

/* Only for a holder that has noted that the kernel does not report its death. A reported death is in the word before the thread is
 * gone. */
static bool robust_try_dead(struct hak_robust *lock, uint32_t word, uint32_t number)
{
    return hak_load(&lock->unlisted, HAK_RELAXED) != 0 && !robust_lives(word & FUTEX_TID_MASK) && robust_try(lock, word, number);
}

/* Sleeps until the word is no longer `word`, which names a holder. A thread that has slept sets the waiters' mark when it takes the
 * lock, since others may still sleep. */
static void robust_sleep(struct hak_robust *lock, uint32_t word)
{
    static const struct timespec time = { 0, ROBUST_LOOK_MS * 1000000 };
    if ((word & FUTEX_WAITERS) == 0 && !hak_cas_strong(&lock->word, &word, word | FUTEX_WAITERS, HAK_RELAXED, HAK_RELAXED))
        return;
    hak__syscall(SYS_futex, &lock->word, FUTEX_WAIT, word | FUTEX_WAITERS, &time, NULL, 0);
}

/* A handler may have forked: the child's thread has another number and another list, and its own copy of the lock has no holder
 * (hak__robust_orphan). */
static void robust_look_at_fork(struct hak_robust *lock, struct hak_robust_thread *me)
{
    hak__fork_look();
    if (hak_likely(me->generation == hak_load(&robust_generation, HAK_RELAXED)))
        return;
    void *entered = me->entered;
    robust_enter(lock, me);
    me->entered = entered; /* the list's memory is unchanged */
}

static hak_cold bool robust_wait(struct hak_robust *lock, struct hak_robust_thread *me)
{
    uint32_t waiters = 0;
    for (unsigned tries = 0;; tries++) {
        robust_look_at_fork(lock, me);
        uint32_t word = hak_load(&lock->word, HAK_RELAXED);
        if ((word & FUTEX_TID_MASK) == 0) {
            if (robust_try(lock, word, me->number | waiters))
                return (word & FUTEX_OWNER_DIED) == 0;
        } else if (tries < ROBUST_SPINS) {
            hak_pause();
        } else {
            if (robust_try_dead(lock, word, me->number | waiters))
                return false;
            waiters = FUTEX_WAITERS;
            robust_sleep(lock, word);
        }
    }
}

bool hak__robust_acquire(struct hak_robust *lock, struct hak_robust_thread *me)
{
    robust_enter(lock, me);
    bool whole = hak_likely(hak_load(&lock->word, HAK_RELAXED) == 0 && robust_try(lock, 0, me->number)) || robust_wait(lock, me);
    hak_assert((hak_load(&lock->word, HAK_RELAXED) & FUTEX_TID_MASK) == me->number, "the word names the holder");
    return whole;
}

void hak__robust_release(struct hak_robust *lock, struct hak_robust_thread *me)
{
    hak_assert((hak_load(&lock->word, HAK_RELAXED) & FUTEX_TID_MASK) == me->number, "a thread releases a lock that it has");
    /* release: pairs with the acquire of the next thread to take the lock. */
    if (hak_unlikely((hak_exchange(&lock->word, 0, HAK_RELEASE) & FUTEX_WAITERS) != 0))
        hak__syscall(SYS_futex, &lock->word, FUTEX_WAKE, 1, 0, 0, 0);
    robust_leave(me);
}

void hak__robust_fork_child(void) { hak_fetch_add(&robust_generation, 1, HAK_RELAXED); }

void hak__robust_orphan(struct hak_robust *lock)
{
    if (hak_load(&lock->word, HAK_RELAXED) != 0)
        hak_store(&lock->word, FUTEX_OWNER_DIED, HAK_RELAXED);
}
