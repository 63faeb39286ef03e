/* The thread around the step. See background.h. */
#include "upkeep/background.h"

#include "arena/arena.h"
#include "base/bits.h"
#include "diag/options.h"
#include "os/os.h"
#include "upkeep/counts.h"
#include "upkeep/step.h"

/* auto: so many threads have allocated, so much is mapped. */
enum { THREADS_LEAST = 2, PERIOD_LEAST_MS = 10, PERIOD_MOST_MS = 250, RETRY_MS = 1000 };
#define MAPPED_LEAST ((size_t)16 << 20)

_Atomic uint32_t hak__background_word;
_Atomic bool hak__background_wanted;
static _Atomic uint32_t pulse;               /* what the thread waits on; changes to wake it */
static _Atomic uint32_t threads_begun;       /* those that have attached a heap in this process */
static _Atomic uint32_t threads_alive;       /* ... and have not parked it */
static _Atomic bool ready;
static _Atomic uint64_t refused_ms;          /* when the system last refused a thread */

/* --- what other threads do ---------------------------------------------------------------------------------------- */

void hak__background_stir_slow(uint32_t word)
{
    if (!hak_cas_strong(&hak__background_word, &word, HAK_BACKGROUND_STIRRED, HAK_RELAXED, HAK_RELAXED)
        || word != HAK_BACKGROUND_ASLEEP)
        return;
    hak_fetch_add(&pulse, 1, HAK_RELEASE);
    hak__os_wake(&pulse);
}

static bool is_wanted(void)
{
    uint64_t mode = hak__option(HAK_OPTION_background);
    struct hak_arena_figures arena;
    if (mode != HAK_OPTION_AUTO)
        return mode != 0;
    hak__arena_figures(&arena);
    return hak_load(&threads_begun, HAK_RELAXED) >= THREADS_LEAST && arena.mapped >= MAPPED_LEAST;
}

void hak__background_consider(uint64_t now_ms)
{
    if (hak_load(&hak__background_word, HAK_RELAXED) != HAK_BACKGROUND_NONE || !hak_load(&ready, HAK_RELAXED))
        return;
    uint64_t refused = hak_load(&refused_ms, HAK_RELAXED);
    if ((refused == 0 || now_ms - refused >= RETRY_MS) && is_wanted())
        hak_store(&hak__background_wanted, true, HAK_RELAXED);
}

static hak_cold void thread_body(void);

void hak__background_start(void)
{
    uint32_t none = HAK_BACKGROUND_NONE;
    hak_store(&hak__background_wanted, false, HAK_RELAXED);
    /* When the last thread has ended the C library calls exit, whose functions may allocate. A thread that begins now would find
     * nobody to serve, be the last to end, and run exit a second time beside the first. */
    if (hak_load(&threads_alive, HAK_RELAXED) == 0)
        return;
    if (!hak_cas_strong(&hak__background_word, &none, HAK_BACKGROUND_STARTING, HAK_RELAXED, HAK_RELAXED))
        return;
    if (hak__os_thread_start(thread_body)) {
        hak_fetch_add(&hak__upkeep_counts.background_starts, 1, HAK_RELAXED);
        return;   /* the thread sets the word: it may have ended again by now */
    }
    hak_store(&refused_ms, hak__os->now_ms(), HAK_RELAXED);
    hak_store(&hak__background_word, HAK_BACKGROUND_NONE, HAK_RELAXED);
}

void hak__background_ready(void) { hak_store(&ready, true, HAK_RELAXED); }

void hak__background_thread_begins(void)
{
    hak_fetch_add(&threads_begun, 1, HAK_RELAXED);
    hak_fetch_add(&threads_alive, 1, HAK_RELAXED);
}

void hak__background_thread_ends(void)
{
    if (hak_fetch_sub(&threads_alive, 1, HAK_RELAXED) != 1 || hak_load(&hak__background_word, HAK_RELAXED) == 0)
        return;
    hak_fetch_add(&pulse, 1, HAK_RELEASE);
    hak__os_wake(&pulse);
}

void hak__background_fork_child(bool attached)
{
    hak_store(&hak__upkeep_counts.background, 0, HAK_RELAXED);
    hak_store(&hak__background_word, HAK_BACKGROUND_NONE, HAK_RELAXED);
    hak_store(&hak__background_wanted, false, HAK_RELAXED);
    hak_store(&threads_begun, attached, HAK_RELAXED);
    hak_store(&threads_alive, attached, HAK_RELAXED);
}

/* --- the thread ----------------------------------------------------------------------------------------------------- */

static uint64_t longest_delay(void)
{
    return hak_max(hak__option(HAK_OPTION_purge_delay), hak__option(HAK_OPTION_idle_purge));
}

/* Half of the time after which a span counts as idle, so that the second step after the one that has seen it first finds it
 * so, and not the third. */
static uint64_t period(void)
{
    uint64_t idle = hak__option(HAK_OPTION_idle_purge), delay = hak__option(HAK_OPTION_purge_delay) / 4;
    uint64_t wish = idle != 0 ? hak_min(idle / 2, delay) : delay;
    return hak_min(hak_max(wish, PERIOD_LEAST_MS), PERIOD_MOST_MS);
}

/* Whether the thread may sleep until it is woken: everything that was freed has had its time to go back since the last
 * slow path, and a slow path that comes meanwhile finds the word ASLEEP or makes this fail. */
static bool falls_asleep(uint64_t calm_ms)
{
    uint32_t calm = HAK_BACKGROUND_CALM;
    return calm_ms > 2 * longest_delay() + PERIOD_MOST_MS
           && hak_cas_strong(&hak__background_word, &calm, HAK_BACKGROUND_ASLEEP, HAK_RELAXED, HAK_RELAXED);
}

static void thread_body(void)
{
    uint64_t stirred_ms = hak__os->now_ms();
    hak_store(&hak__upkeep_counts.background, 1, HAK_RELAXED);
    hak_store(&hak__background_word, HAK_BACKGROUND_STIRRED, HAK_RELAXED);
    for (;;) {
        /* acquire: pairs with the release of who wakes; what it has done is seen by what follows. */
        uint32_t seen = hak_load(&pulse, HAK_ACQUIRE);
        if (hak_load(&threads_alive, HAK_RELAXED) == 0 || hak__option(HAK_OPTION_background) == 0)
            break;
        uint64_t now = hak__os->now_ms();
        if (hak_exchange(&hak__background_word, HAK_BACKGROUND_CALM, HAK_RELAXED) == HAK_BACKGROUND_STIRRED)
            stirred_ms = now;
        hak__upkeep_step(now, HAK_UPKEEP_DUE);
        hak__os_sleep(&pulse, seen, falls_asleep(now - stirred_ms) ? HAK_OS_UNLIMITED : period());
        hak_fetch_add(&hak__upkeep_counts.background_wakeups, 1, HAK_RELAXED);
    }
    hak_store(&hak__upkeep_counts.background, 0, HAK_RELAXED);
    hak_store(&hak__background_word, HAK_BACKGROUND_NONE, HAK_RELAXED);
}
