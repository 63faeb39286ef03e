/* Detects forked children. Lock words, and all waiting for other threads, by pauses and futex sleeps. Every sleep has a limit: a
 * handler that interrupted it may have forked, and no thread wakes the child. See lock.h. */
#include "base/lock.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/syscall.h"

/* --- forked children -------------------------------------------------------------------------------------------------- */

struct hak_forked hak__forked;
hak_page_data struct hak_wiped hak__wiped;
static bool (*repair_child)(void), (*arrive_late)(void);
static _Atomic uint32_t *(*find_fork_mark)(void);
static bool (*is_fork_copy)(void);
static _Atomic long process; /* whose memory this is; negative while that process repairs it, without a mark */
static _Atomic uint32_t repairs;
static _Atomic bool several; /* more than one thread has taken a lock or is about to */

/* Any thread may call this any number of times: the word is always the same. */
static bool look_at_mark(void)
{
    _Atomic uint32_t *mark = find_fork_mark();
    if (mark == NULL)
        return false;
    hak_store(mark, HAK_FORK_REPAIRED, HAK_RELAXED);
    hak_owner_store(&hak__forked.mark, mark);
    return true;
}

void hak__fork_begin(bool (*repair)(void), bool (*arrive)(void), _Atomic uint32_t *(*find_mark)(void), bool (*is_copy)(void))
{
    hak_assert(repair != NULL && arrive != NULL && find_mark != NULL && is_copy != NULL, "a child is repaired by all of these");
    is_fork_copy = is_copy;
    repair_child = repair;
    arrive_late = arrive;
    hak_store(&process, hak__syscall(SYS_getpid), HAK_RELAXED);
    hak_owner_store(&find_fork_mark, find_mark);
    look_at_mark();
}

bool hak__fork_alone(void) { return !hak_load(&several, HAK_RELAXED); }

static bool repair_now(void)
{
    hak_assert(repair_child != NULL, "there are no children to repair before the library has started");
    hak_fetch_add(&repairs, 1, HAK_RELAXED);
    return repair_child();
}

static void repair_at_once(void)
{
    is_fork_copy();
    hak_store(&process, hak__syscall(SYS_getpid), HAK_RELAXED);
    repair_now();
}

uint32_t hak__fork_repairs(void) { return hak_load(&repairs, HAK_RELAXED); }

static void repair_settled(long now)
{
    long repairing = -now;
    repair_now();
    hak_cas_strong(&process, &repairing, now, HAK_RELEASE, HAK_RELAXED);
}

/* Without a mark: settles whose memory this is in a new child, whose first thread is the one that forked, and repairs. `locks`: the
 * caller is about to be the second thread that takes locks. If it is not the first here, that one has nothing to repair, and must
 * not begin while others run: whichever is first settles it, and the second waits for a repair that has begun. A handler may fork
 * in the middle of this; the child then has another number. */
static void settle(bool locks)
{
    if (hak_peek(&hak__forked.mark) != NULL)
        return; /* before any system call, which a filter may forbid */
    long now = hak__syscall(SYS_getpid), home;
    bool forker = hak__syscall(SYS_gettid) == now;
    if (!forker && !locks)
        return;
    /* acquire: pairs with the release of the repairing thread. */
    for (unsigned tries = 0; (home = hak_load(&process, HAK_ACQUIRE)) != now && home != 0; tries++) {
        bool repairing = home == -now, copy = !repairing && is_fork_copy();
        if (forker && (repairing || (!copy && !locks)))
            return;
        if (repairing)
            hak__nap(tries);
        else if (hak_cas_strong(&process, &home, forker && copy ? -now : now, HAK_RELAXED, HAK_RELAXED) && forker && copy)
            repair_settled(now);
    }
}

void hak__fork_unwatched(void) { settle(false); }

/* Kernels before 4.14, and sandboxes that implement the calls themselves. */
void hak__fork_handle(void)
{
    static _Atomic uint32_t handled;
    bool begun = hak_peek(&find_fork_mark) != NULL;
    if (hak_likely(hak_peek(&hak__forked.mark) != NULL) || !begun || hak_load(&handled, HAK_RELAXED) != 0)
        return;
    if (!look_at_mark() && hak_exchange(&handled, 1, HAK_RELAXED) == 0)
        pthread_atfork(NULL, NULL, repair_at_once);
}

void hak__fork_watch(void)
{
    /* acquire, release: a thread that settles nothing finds it settled, and the child repaired. */
    if (hak_unlikely(!hak_load(&several, HAK_ACQUIRE))) {
        settle(true);
        hak_store(&several, true, HAK_RELEASE);
    }
    hak__fork_handle();
}

void hak__fork_look(void) { hak__fork_check(); }

bool hak__fork_is_new(void)
{
    const _Atomic uint32_t *mark = hak_peek(&hak__forked.mark);
    return mark != NULL && hak_load(mark, HAK_RELAXED) == HAK_FORK_WIPED;
}

bool hak__fork_is_borrowed(void)
{
    const _Atomic uint32_t *mark = hak_peek(&hak__forked.mark);
    /* acquire: pairs with the release of the repairing thread, which has stored whose memory this is. */
    uint32_t now = mark == NULL ? HAK_FORK_WIPED : hak_load(mark, HAK_ACQUIRE);
    return (now == HAK_FORK_REPAIRED || now == HAK_FORK_AWAITED) && !hak__fork_is_home();
}

bool hak__fork_is_home(void) { return hak__syscall(SYS_getpid) == labs(hak_load(&process, HAK_RELAXED)); }

/* A handler may fork in the middle of this; the mark is then wiped again in the child. */
void hak__fork_found(void)
{
    hak_assert(hak__forked.mark != NULL, "only a mark that is there tells of a fork");
    for (unsigned tries = 0;; tries++) {
        uint32_t mark = hak_load(hak__forked.mark, HAK_ACQUIRE);
        hak_assert(mark <= HAK_FORK_AWAITED, "the mark is one of four");
        if (mark == HAK_FORK_WIPED) {
            if (!hak_cas_strong(hak__forked.mark, &mark, HAK_FORK_REPAIRING, HAK_ACQUIRE, HAK_RELAXED))
                continue;
            hak_store(&process, hak__syscall(SYS_getpid), HAK_RELAXED);
            uint32_t after = repair_now() ? HAK_FORK_REPAIRED : HAK_FORK_AWAITED, repairing = HAK_FORK_REPAIRING;
            if (hak_cas_strong(hak__forked.mark, &repairing, after, HAK_RELEASE, HAK_RELAXED))
                return;
        } else if (mark == HAK_FORK_REPAIRING) {
            hak__nap(tries);
        } else {
            if (mark == HAK_FORK_AWAITED && arrive_late())
                hak_store(hak__forked.mark, HAK_FORK_REPAIRED, HAK_RELAXED);
            return;
        }
    }
}

/* --- locks ------------------------------------------------------------------------------------------------------------ */

_Atomic uint64_t hak__lock_wait_count;
__thread struct hak_thread_notes hak__thread_notes __attribute__((tls_model("initial-exec")));

#if !HAK_LOCK_FIBERS
static _Atomic uint32_t lock_numbers;

/* Sets the number first, because watching forks may allocate. */
uint32_t hak__lock_number_slow(void)
{
    uint32_t number = hak_fetch_add(&lock_numbers, 1, HAK_RELAXED) + 1;
    hak_assert(number != 0 && number < HAK_LOCK_LOST >> 1, "a lock's word has room for the number beside the mark");
    hak__thread_notes.lock_number = number;
    if (number != 1)
        hak__fork_watch();
    hak_assert(number == 1 || !hak__fork_alone(), "a child of a process of several threads is repaired");
    return number;
}
#endif

#if HAK_DEBUG && !HAK_LOCK_FIBERS
/* The library's own thread, which the C library does not know, has no other model (os/thread.c). */
static __thread uint8_t ranks_held[HAK_RANKS] __attribute__((tls_model("initial-exec")));

void hak__lock_note(uint32_t rank, int change)
{
    hak_assert(rank != 0 && rank < HAK_RANKS, "a lock has a rank");
    hak_assert(change > 0 || ranks_held[rank] != 0, "no more locks are released than are held");
    ranks_held[rank] = (uint8_t)(ranks_held[rank] + change);
}

void hak__lock_expect_order(uint32_t rank)
{
    for (uint32_t higher = rank + (rank == HAK_RANK_FOREIGN); higher < HAK_RANKS; higher++)
        hak_assert(ranks_held[higher] == 0, "lock order");
}
#endif

/* A thread that releases a heap wakes none, so waiters set no mark there. */
static bool lock_wakes(uint32_t rank) { return rank != HAK_RANK_HEAP && rank != HAK_RANK_SHARE && rank != HAK_RANK_FOREIGN; }

/* A thread that has slept sets the mark when it takes the lock, since others may still sleep. */
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

bool hak__lock_inherit(struct hak_lock *lock)
{
    return hak__lock_fork_child(lock) && hak__lock_word_try(&lock->held, 0, lock->rank);
}

bool hak__lock_is_held(struct hak_lock *lock) { return hak_load(&lock->held, HAK_ACQUIRE) != HAK_LOCK_FREE; }

/* --- waiting ------------------------------------------------------------------------------------------------------------ */

#if !HAK_LOCK_FIBERS
enum { NAP_NS = 20000, SLEEP_NS = 10000000 };

static void futex_call(_Atomic uint32_t *word, int operation, uint32_t value, const struct timespec *time)
{
    hak__syscall(SYS_futex, word, operation, value, time, 0, 0);
}

void hak__nap(unsigned tries)
{
    static _Atomic uint32_t never;
    static const struct timespec time = { 0, NAP_NS };
    if (tries < HAK_WAIT_SPINS)
        hak_pause();
    else
        futex_call(&never, FUTEX_WAIT_PRIVATE, 0, &time);
}

/* Before it sleeps, repairs a child in which the other thread does not exist. */
static void wait_look(unsigned tries)
{
    hak__fork_check();
    if (tries >= HAK_WAIT_SPINS)
        hak__fork_unwatched();
}

void hak__yield(unsigned tries)
{
    wait_look(tries);
    hak__nap(tries);
}

void hak__yield_on(_Atomic uint32_t *word, uint32_t value, unsigned tries)
{
    static const struct timespec time = { 0, SLEEP_NS };
    wait_look(tries);
    if ((value & HAK_LOCK_MARK) == 0 || tries < HAK_WAIT_SPINS)
        hak__nap(tries);
    else
        futex_call(word, FUTEX_WAIT_PRIVATE, value, &time);
}

void hak__wake(_Atomic uint32_t *word) { futex_call(word, FUTEX_WAKE_PRIVATE, 1, NULL); }
#endif
