/* The background thread's beginning and end (upkeep/background.c), every schedule within the bounds: who makes it against the
 * program's last thread but one that ends, against who changes credentials, and against the thread's own coming to rest. When
 * a thread has ended as the last but one, or credentials are being changed, no background thread is left and none comes; what
 * slow paths say is followed by a step. Below it is a kernel of three functions: a thread here is a fiber that waits to be
 * made. */
#include <setjmp.h>

#include "arena/arena.h"
#include "arena/window.h"
#include "base/lock.h"
#include "diag/options.h"
#include "os/os.h"
#include "support/explore.h"
#include "upkeep/upkeep.h"

#include "arena/returned.h"
#include "upkeep/nearness.h"

enum { ACTORS = 2 };

static _Atomic uint32_t made, done;          /* threads that the kernel has been asked for; actors that have ended */
static _Atomic(bool) alone;                  /* the program has a single thread, or changes its credentials */
static _Atomic(bool) polled, stepped;       /* a slow path has been taken; and a step after it */
static void (*body)(void);
static _Atomic uint32_t *alive;
static jmp_buf leave;                        /* out of the thread when nothing will happen any more */
static _Atomic uint64_t clock_ms;
static bool first_sleep;

_Atomic uint64_t hak__option_words[HAK_OPTIONS] = { [HAK_OPTION_background] = HAK_OPTION_AUTO };
const bool hak__is_interposed = true;
struct hak_upkeep_counts hak__upkeep_counts;

/* --- below it ----------------------------------------------------------------------------------------------------------- */

bool hak__os_thread_start(void (*thread)(void), _Atomic uint32_t *word)
{
    EXPLORE_EXPECT(hak_load(word, HAK_RELAXED) == 0, "two background threads at once");
    EXPLORE_EXPECT(!hak_load(&alone, HAK_RELAXED), "one is made where there must be none");
    body = thread;
    alive = word;
    hak_store(word, 1, HAK_RELAXED);
    hak_fetch_add(&made, 1, HAK_RELEASE);
    return true;
}

bool hak__os_thread_settle(void) { return true; }
void hak__os_names_begin(uintptr_t start, uintptr_t end) { (void)start, (void)end; }
uintptr_t hak__meta_begin(void) { return 1; }
bool hak__os_can_change_user(void) { return false; }
uint64_t hak__os_block_signals(void) { return 0; }
void hak__os_restore_signals(uint64_t before) { (void)before; }
bool hak__fork_is_home(void) { return true; }

void hak__os_thread_wait(_Atomic uint32_t *word)
{
    while (hak_load(word, HAK_ACQUIRE) != 0)
        explore_yield();
}

void hak__os_wake(_Atomic uint32_t *word) { (void)word; }

void hak__os_sleep(_Atomic uint32_t *word, uint32_t value, uint64_t ms)
{
    (void)ms;
    if (first_sleep) {   /* its time is up */
        first_sleep = false;
        return;
    }
    while (hak_load(word, HAK_RELAXED) == value) {
        if (hak_load(&hak__background_word, HAK_RELAXED) == HAK_BACKGROUND_ACTIVE)
            return;   /* here, too */
        if (hak_load(&done, HAK_ACQUIRE) == ACTORS)
            longjmp(leave, 1);
        explore_yield();
    }
}

struct hak_return_counts hak__return_counts;
struct hak_arena_published hak__arena_published = { .mapped = (size_t)1 << 30 };

/* Time goes by in steps of 250 ms. */
struct hak_retained hak__return_ask(struct hak_retention in, uint64_t now)
{
    (void)in, (void)now;
    return (struct hak_retained){ .look_ms = 200 };
}
uint64_t hak__return_horizon(uint64_t now) { return (void)now, hak__option(HAK_OPTION_purge_delay); }

size_t hak__upkeep_step(uint64_t now_ms, enum hak_upkeep_effort effort)
{
    (void)now_ms, (void)effort;
    EXPLORE_EXPECT(!hak_load(&alone, HAK_RELAXED), "a step where there must be no thread");
    if (hak_load(&polled, HAK_RELAXED))
        hak_store(&stepped, true, HAK_RELAXED);
    return 0;
}

/* A period later with each look, so that a thread may always be made anew. */
static uint64_t now_ms(void) { return hak_fetch_add(&clock_ms, 250, HAK_RELAXED); }
static const struct hak_os table = { .now_ms = now_ms };

/* --- who takes part ------------------------------------------------------------------------------------------------------ */

/* Whether the kernel is asked for one more than the so many that it has made; waits for that while anyone may ask. */
static bool is_asked(uint32_t before)
{
    while (hak_load(&made, HAK_ACQUIRE) == before) {
        if (hak_load(&done, HAK_ACQUIRE) == ACTORS && hak_load(&made, HAK_ACQUIRE) == before)
            return false;
        explore_yield();
    }
    return true;
}

static void kernel_thread(void)
{
    if (setjmp(leave) != 0)
        return;   /* it sleeps, and would for ever */
    for (uint32_t before = 0; is_asked(before); before++) {
        body();
        hak_store(alive, 0, HAK_RELEASE);
    }
}

static void act(void (*what)(void))
{
    what();
    hak_fetch_add(&done, 1, HAK_RELEASE);
}

void hak__fork_watch(void) { }
_Atomic uint64_t hak__near_next_ms = UINT64_MAX; /* no limit is near */
void hak__near_poll_slow(struct hak_heap *heap, uint64_t now_ms) { (void)heap, (void)now_ms; }

static void nothing(void) { }

static void begin(uint32_t threads, const struct hak_os *os)
{
    hak__os = os;
    hak__background_fork_child(false);
    hak__background_ready();
    for (uint32_t i = 0; i < threads; i++)
        hak__background_thread_begins();
    atomic_store(&made, 0);
    atomic_store(&done, 0);
    atomic_store(&alone, false);
    atomic_store(&polled, false);
    atomic_store(&stepped, false);
    alive = NULL;
    hak_store(&clock_ms, 1000, HAK_RELAXED);   /* as if none had been made for long */
    first_sleep = true;
}

static bool there_is_one(void) { return alive != NULL && atomic_load(alive) != 0; }

static void two_threads(void) { begin(2, &table); }

static void make(void) { hak__background_consider(); }
static void make_it(void) { act(make); }

static void end(void)
{
    hak__background_thread_ends();
    EXPLORE_EXPECT(alive == NULL || hak_load(alive, HAK_ACQUIRE) == 0, "a thread ends before the background thread");
    hak_store(&alone, true, HAK_RELAXED);
}
static void end_one(void) { act(end); }

static void check_alone(void)
{
    EXPLORE_EXPECT(!there_is_one(), "a background thread in a program of one thread");
    EXPLORE_EXPECT(!hak__background_runs(), "slow paths leave the steps to nobody");
}

static void change(void)
{
    hak__background_forbid();
    EXPLORE_EXPECT(alive == NULL || hak_load(alive, HAK_ACQUIRE) == 0, "credentials change beside the background thread");
    hak_store(&alone, true, HAK_RELAXED);
    hak_store(&alone, false, HAK_RELAXED);
    hak__background_allow();
}
static void change_credentials(void) { act(change); }

static void check_changed(void) { EXPLORE_EXPECT(there_is_one() == hak__background_runs(), "the word is not true"); }

/* --- coming to rest: the clock goes on by an hour with each look ------------------------------------------------------------ */

static uint64_t later_ms(void) { return hak_fetch_add(&clock_ms, 3600000, HAK_RELAXED); }
static const struct hak_os later_table = { .now_ms = later_ms };

static void about_to_rest(void)
{
    begin(2, &later_table);
    hak__background_consider();
}

/* The word is loaded without an order, as on every slow path: one may see an older one, and then the next does it. */
static void poll_once(void)
{
    hak_store(&polled, true, HAK_RELAXED);
    hak__background_poll();
    hak__background_poll();
}
static void poll_it(void) { act(poll_once); }
static void nobody(void) { act(nothing); }

static void check_stepped(void)
{
    EXPLORE_EXPECT(atomic_load(&stepped) || (there_is_one() && hak__background_runs()), "a slow path is not followed by a step");
}

static const struct explore_case cases[] = {
    { "made while the last but one ends", 3, 3, two_threads, { make_it, end_one, kernel_thread }, check_alone, 1, 1 },
    { "made while credentials change", 3, 3, two_threads, { make_it, change_credentials, kernel_thread }, check_changed, 1, 1 },
    { "polled while it comes to rest", 3, 3, about_to_rest, { poll_it, nobody, kernel_thread }, check_stepped, 1, 1 },
};

int main(int argc, char **argv) { return explore_main(cases, sizeof cases / sizeof cases[0], argc, argv); }
