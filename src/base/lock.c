/* Locks by their words. See lock.h for what is promised and lock ranks for the order. */
#include "base/lock.h"

#include "base/assert.h"

_Atomic uint64_t hak__lock_wait_count;
__thread struct hak_thread_notes hak__thread_notes __attribute__((tls_model("initial-exec")));

#if !HAK_LOCK_FIBERS
static _Atomic uint32_t lock_numbers;

/* The number first: what watches forks may allocate. */
uint32_t hak__lock_number_slow(void)
{
    uint32_t number = hak_fetch_add(&lock_numbers, 1, HAK_RELAXED) + 1;
    hak__thread_notes.lock_number = number;
    if (number != 1)
        hak__fork_watch();
    hak_assert(number == 1 || !hak__fork_alone(), "a child of a process of several threads is repaired");
    return number;
}
#endif

#if HAK_DEBUG && !HAK_LOCK_FIBERS
static __thread uint8_t ranks_held[HAK_RANKS];

void hak__lock_note(uint32_t rank, int change)
{
    ranks_held[rank] = (uint8_t)(ranks_held[rank] + change);
}

void hak__lock_expect_order(uint32_t rank)
{
    for (uint32_t higher = rank + (rank == HAK_RANK_FOREIGN); higher < HAK_RANKS; higher++)
        hak_assert(ranks_held[higher] == 0, "lock order");
}
#endif

/* Whoever releases a heap does not look whether somebody waits, so nobody says so there. */
static bool lock_wakes(uint32_t rank)
{
    return rank != HAK_RANK_HEAP && rank != HAK_RANK_SHARE && rank != HAK_RANK_FOREIGN;
}

/* A thread that has slept leaves the mark when it takes the lock, since there may be more that sleep. */
bool hak__lock_word_wait(_Atomic uint32_t *word, uint32_t mark, uint32_t rank)
{
    hak_fetch_add(&hak__lock_wait_count, lock_wakes(rank), HAK_RELAXED);
    for (unsigned tries = 0;; tries++) {
        uint32_t now = hak_load(word, HAK_RELAXED);
        if (now == HAK_LOCK_LOST)
            return false;
        if (now == HAK_LOCK_FREE && hak__lock_word_try(word, mark, rank))
            return true;
        if (now == HAK_LOCK_FREE)
            continue;
        hak_assert(!hak__lock_word_is_mine(word), "a thread waits for a lock that it has");
        if (lock_wakes(rank) && tries >= HAK_WAIT_SPINS) {
            mark = HAK_LOCK_MARK;
            if ((now & HAK_LOCK_MARK) == 0 && !hak_cas_strong(word, &now, now | HAK_LOCK_MARK, HAK_RELAXED, HAK_RELAXED))
                continue;
            now |= HAK_LOCK_MARK;
        }
        hak__yield_on(word, lock_wakes(rank) ? now : HAK_LOCK_FREE, tries);
    }
}

void hak__lock_acquire(struct hak_lock *lock)
{
    bool taken = hak__lock_word_take(&lock->held, 0, lock->rank);
    hak_assert(taken, "only a heap's lock is ever lost");
    (void)taken;
}

bool hak__lock_try(struct hak_lock *lock)
{
    hak__fork_check();
    return hak__lock_word_try(&lock->held, 0, lock->rank);
}

void hak__lock_release(struct hak_lock *lock)
{
    hak_assert(hak__lock_word_is_mine(&lock->held), "a thread releases a lock that it has");
    hak__lock_note(lock->rank, -1);
    if ((hak_exchange(&lock->held, HAK_LOCK_FREE, HAK_RELEASE) & HAK_LOCK_MARK) != 0)
        hak__wake(&lock->held);
}

bool hak__lock_fork_child(struct hak_lock *lock)
{
    bool left = hak__lock_word_is_left(&lock->held);
    if (left)
        hak_store(&lock->held, HAK_LOCK_FREE, HAK_RELAXED);
    return left;
}

bool hak__lock_inherit(struct hak_lock *lock) { return hak__lock_fork_child(lock) && hak__lock_word_try(&lock->held, 0, lock->rank); }

bool hak__lock_is_held(struct hak_lock *lock) { return hak_load(&lock->held, HAK_ACQUIRE) != HAK_LOCK_FREE; }
