/* The background thread itself. */
#include "upkeep/upkeep.h"

#include "arena/arena.h"
#include "arena/returned.h"
#include "arena/window.h"
#include "base/assert.h"
#include "base/bits.h"
#include "base/lock.h"
#include "diag/options.h"
#include "os/os.h"
#include "profile/profile.h"
#include "upkeep/nearness.h"

/* auto: the least number of threads with heaps, and of mapped bytes. */
enum { THREADS_LEAST = 2, PERIOD_LEAST_MS = 10, PERIOD_MOST_MS = 250, RETRY_MS = 1000 };
#define MAPPED_LEAST ((size_t)16 << 20)

_Atomic uint32_t hak__background_word;
static struct hak_lock background_lock = HAK_LOCK_INIT(HAK_RANK_BACKGROUND); /* held around every start and stop */
static _Atomic uint32_t background_alive; /* the thread's number until it has exited; the kernel clears it */
static _Atomic uint32_t background_pulse; /* the thread waits on this word; a change wakes it */
static _Atomic uint32_t background_threads; /* threads with a heap in this process */
static _Atomic bool background_stopping; /* it must end now; under the lock */
static uint32_t background_forbidders; /* under the lock */
static _Atomic bool background_is_ready;
static _Atomic uint64_t background_made_ms; /* when the last one was made, or the next may be tried */

/* --- whether there should be one ------------------------------------------------------------------------------------ */

static uint32_t threads_least(void) { return hak__option(HAK_OPTION_background) == HAK_OPTION_AUTO ? THREADS_LEAST : 1; }

/* Sequentially consistent (upkeep.h). */
static bool has_threads(void) { return hak_load(&background_threads, HAK_SEQ_CST) >= threads_least(); }

static bool is_wanted(void)
{
    uint64_t mode = hak__option(HAK_OPTION_background);
    if (mode == 0 || !has_threads())
        return false;
    if (mode != HAK_OPTION_AUTO)
        return true;
    return hak_counted(&hak__arena_published.mapped) >= MAPPED_LEAST && (&hak__is_interposed != NULL || !hak__os_can_change_user());
}

/* --- its beginning -------------------------------------------------------------------------------------------------- */

static hak_cold void background_body(void);

static uint64_t background_period(uint64_t now)
{
    uint64_t look = hak__return_ask((struct hak_retention){ 0 }, now).look_ms;
    return hak_min(hak_max(look, PERIOD_LEAST_MS), PERIOD_MOST_MS);
}

static void note_made(uint64_t later_ms) { hak_store(&background_made_ms, hak__os->now_ms() + later_ms, HAK_RELAXED); }

/* Where generations of two threads live for milliseconds, one background thread is made per period, not per generation. Among many
 * threads its price is small, and they may all sleep before a period has passed. */
static bool was_made_lately(uint64_t now)
{
    uint64_t threads = hak_max(hak_load(&background_threads, HAK_RELAXED), THREADS_LEAST);
    return now < hak_load(&background_made_ms, HAK_RELAXED) + background_period(now) * THREADS_LEAST / threads;
}

/* Waits for a resting thread: it only has to exit, and the latest frees may be the last for long. Does not wait for one that
 * ends for another reason. A vfork child makes none: the thread would be the child's, and nothing would ever end it. */
static void begin_locked(uint32_t word)
{
    hak_assert(hak__lock_word_is_mine(&background_lock.held), "the lock is held");
    if (hak_load(&hak__background_word, HAK_RELAXED) == HAK_BACKGROUND_RESTING)
        hak__os_thread_wait(&background_alive);
    if (background_forbidders != 0 || hak_load(&background_alive, HAK_ACQUIRE) != 0 || !hak__fork_is_home())
        return;
    hak_store(&hak__background_word, HAK_BACKGROUND_ACTIVE, HAK_SEQ_CST);
    if (has_threads()) {
        bool made = hak__os_thread_start(background_body, &background_alive);
        note_made(made ? 0 : RETRY_MS);
        if (made) {
            hak_fetch_add(&hak__upkeep_counts.background_starts, 1, HAK_RELAXED);
            return;
        }
    }
    hak_store(&hak__background_word, word, HAK_RELAXED);
}

/* A slow path that finds RESTING comes here every time. */
static void not_wanted(uint32_t word)
{
    if (word == HAK_BACKGROUND_RESTING && hak_load(&background_alive, HAK_ACQUIRE) == 0)
        hak_cas_strong(&hak__background_word, &word, HAK_BACKGROUND_NONE, HAK_RELAXED, HAK_RELAXED);
}

/* Blocks signals around the lock: a handler may come back here, and the thread inherits its maker's signal mask. */
static hak_cold void background_begin(uint32_t word)
{
    if (!hak_load(&background_is_ready, HAK_ACQUIRE) || !is_wanted()) {
        not_wanted(word);
        return;
    }
    if (was_made_lately(hak__os->now_ms()))
        return;
    hak__fork_watch(); /* the process now has several threads */
    uint64_t signals = hak__os_block_signals();
    if (hak__lock_try(&background_lock)) {
        begin_locked(word);
        hak__lock_release(&background_lock);
    }
    hak__os_restore_signals(signals);
}

void hak__background_poll_slow(uint32_t word)
{
    if (word == HAK_BACKGROUND_CALM
        && hak_cas_strong(&hak__background_word, &word, HAK_BACKGROUND_ACTIVE, HAK_RELAXED, HAK_RELAXED))
        return;
    if (word == HAK_BACKGROUND_RESTING) /* perhaps only just now */
        background_begin(word);
}

void hak__background_consider(void)
{
    if (hak_load(&hak__background_word, HAK_RELAXED) == HAK_BACKGROUND_NONE)
        background_begin(HAK_BACKGROUND_NONE);
}

/* release: pairs with background_begin; publishes what hak__os_thread_init noted. */
void hak__background_ready(void) { hak_store(&background_is_ready, true, HAK_RELEASE); }

/* --- its end ---------------------------------------------------------------------------------------------------------- */

static void end_locked(void)
{
    hak_assert(hak__lock_word_is_mine(&background_lock.held), "the lock is held");
    if (hak_load(&background_alive, HAK_ACQUIRE) != 0) {
        hak_store(&background_stopping, true, HAK_RELAXED);
        hak_fetch_add(&background_pulse, 1, HAK_RELEASE);
        hak__os_wake(&background_pulse);
        hak__os_thread_wait(&background_alive);
        hak_store(&background_stopping, false, HAK_RELAXED);
    }
    hak_store(&hak__background_word, HAK_BACKGROUND_NONE, HAK_RELAXED);
}

static void background_end(uint32_t forbidders)
{
    uint64_t signals = hak__os_block_signals();
    hak__lock_acquire(&background_lock);
    background_forbidders += forbidders;
    end_locked();
    hak__lock_release(&background_lock);
    hak__os_restore_signals(signals);
}

void hak__background_forbid(void) { background_end(1); }

void hak__background_allow(void)
{
    uint64_t signals = hak__os_block_signals();
    hak__lock_acquire(&background_lock);
    if (background_forbidders != 0) /* 0: in a child forked meanwhile */
        background_forbidders--;
    hak__lock_release(&background_lock);
    hak__os_restore_signals(signals);
}

void hak__background_thread_begins(void) { hak_fetch_add(&background_threads, 1, HAK_RELAXED); }

bool hak__background_is_alone(void) { return hak_load(&background_threads, HAK_RELAXED) < THREADS_LEAST; }

void hak__background_thread_ends(void)
{
    uint32_t left = hak_fetch_sub(&background_threads, 1, HAK_SEQ_CST) - 1;
    if (left < threads_least() && hak_load(&hak__background_word, HAK_SEQ_CST) != HAK_BACKGROUND_NONE)
        background_end(0);
}

void hak__background_fork_child(bool attached)
{
    hak__lock_fork_child(&background_lock);
    background_forbidders = 0;
    hak_store(&background_alive, 0, HAK_RELAXED);
    hak_store(&background_stopping, false, HAK_RELAXED);
    hak_store(&hak__return_counts.watched, 0, HAK_RELAXED);
    hak_store(&hak__background_word, HAK_BACKGROUND_NONE, HAK_RELAXED);
    hak_store(&background_made_ms, 0, HAK_RELAXED);
    hak_store(&background_threads, attached, HAK_RELAXED);
}

/* --- the thread ----------------------------------------------------------------------------------------------------- */

/* Whether no work is left: since the last slow path all freed memory has had its time to be returned. A slow path that comes
 * meanwhile finds RESTING, or makes this fail. */
static bool comes_to_rest(uint64_t now, uint64_t active_ms)
{
    uint32_t calm = HAK_BACKGROUND_CALM;
    return now - active_ms > 2 * hak__return_horizon(now) + PERIOD_MOST_MS
        && hak_cas_strong(&hak__background_word, &calm, HAK_BACKGROUND_RESTING, HAK_RELAXED, HAK_RELAXED);
}

static bool is_to_go_on(void) { return hak__option(HAK_OPTION_background) != 0 && has_threads(); }

/* Runs until it must stop or has nothing left to do. Sets RESTING before exiting, so that a waiter does not assume the thread is
 * gone; the stopper sets NONE. */
static void take_steps(void)
{
    uint64_t active_ms = hak__os->now_ms();
    for (;;) {
        /* acquire: pairs with the release of the waking thread; all of its work is visible from here on. */
        uint32_t seen = hak_load(&background_pulse, HAK_ACQUIRE);
        if (hak_load(&background_stopping, HAK_RELAXED) || !is_to_go_on())
            break;
        uint64_t now = hak__os->now_ms();
        if (hak_exchange(&hak__background_word, HAK_BACKGROUND_CALM, HAK_RELAXED) == HAK_BACKGROUND_ACTIVE)
            active_ms = now;
        hak__profile_poll(NULL, now);
        hak__near_poll(NULL, now);
        hak__upkeep_step(now, HAK_UPKEEP_DUE);
        if (comes_to_rest(now, active_ms))
            return;
        hak__os_sleep(&background_pulse, seen, background_period(now));
        hak_fetch_add(&hak__upkeep_counts.background_wakeups, 1, HAK_RELAXED);
    }
    hak_store(&hak__background_word, HAK_BACKGROUND_RESTING, HAK_RELAXED);
}

static void background_body(void)
{
    if (!hak__os_thread_settle()) { /* another thread may succeed in making one */
        note_made(RETRY_MS);
        hak_store(&hak__background_word, HAK_BACKGROUND_RESTING, HAK_RELAXED);
        return;
    }
    hak__os_names_begin(hak__meta_begin(), hak__window.base + (hak__arena_top() << HAK_SUPER_SHIFT));
    hak_store(&hak__return_counts.watched, 1, HAK_RELAXED);
    take_steps();
    hak_store(&hak__return_counts.watched, 0, HAK_RELAXED);
}
