/* Runs that wait in front of the arena (arena/waiting.h), every schedule within the bounds: threads that put and take at the same
 * line while another gives all of them back. Each run is in one hand, in one word, or with the arena, and one that waits is
 * found by the next who gives back. */
#include "arena/waiting.h"

#include "arena/limit.h"
#include "arena/lru.h"
#include "arena/state.h"
#include "diag/options.h"
#include "world.h"

enum { RUNS = 4, BYTES = 3 << 20 };
enum holder { WITH_PROGRAM, WAITING, WITH_ARENA };

_Atomic uint64_t hak__option_words[HAK_OPTIONS] = { [HAK_OPTION_dirty_limit] = 2 << 20, [HAK_OPTION_purge_delay] = 800 };

static struct hak_super runs[RUNS];
static enum holder holders[RUNS];
static unsigned content[RUNS];   /* what the holder writes, plainly */

/* --- what lies below --------------------------------------------------------------------------------------------------- */

static _Atomic uint32_t locked;

void hak__arena_lock(void)
{
    while (hak_exchange(&locked, 1, HAK_ACQUIRE) != 0)
        explore_yield();
}
void hak__arena_unlock(void) { hak_store(&locked, 0, HAK_RELEASE); }
bool hak__limit_is_near(void) { return false; }
void hak__limit_refused(size_t mapped) { (void)mapped; }
bool hak__lru_unmap_all(void) { return false; }
struct hak_arena_state hak__arena_state;
bool hak__ahead_counts(void) { return false; }
void hak__lru_note(uint64_t now_ms) { (void)now_ms; }
void hak__lru_due(uint64_t now_ms) { (void)now_ms; }

void hak__lru_add_run(size_t first, size_t count, uint64_t now_ms)
{
    (void)count, (void)now_ms;
    EXPLORE_EXPECT(holders[first] == WAITING, "what is given back has not waited");
    holders[first] = WITH_ARENA;
    content[first]++;
}

/* --- the threads ------------------------------------------------------------------------------------------------------- */

static void waiting_setup(void)
{
    world_reset();
    hak__supers = runs;
    atomic_store(&locked, 0);
    for (unsigned i = 0; i < RUNS; i++) {
        holders[i] = WITH_PROGRAM;
        content[i] = 0;
    }
    for (unsigned i = 0; i < HAK_WAITING_RUNS; i++)
        atomic_store(&hak__waiting->run[i], 0);
    atomic_store(&hak__waiting->room, 0);
    atomic_store(&hak__waiting_rules.any, true);
    hak__waiting_end();
    EXPLORE_EXPECT(atomic_load(&hak__waiting_rules.left) == 4 * (2 << 20), "the policy has been asked");
}

static bool put(size_t run)
{
    _Atomic uint64_t *word = hak__waiting_word(hak__waiting, BYTES);
    if (word == NULL)
        return false;
    content[run]++;
    holders[run] = WAITING;
    bool waits = hak__waiting_put(word, run, BYTES);
    if (!waits)
        holders[run] = WITH_PROGRAM;
    return waits;
}

static size_t take(void)
{
    size_t bytes, run = hak__waiting_take(hak__waiting, BYTES - 100, &bytes);
    if (run == HAK_NO_SUPER)
        return run;
    EXPLORE_EXPECT(bytes == BYTES, "a run has the bytes that it was put with");
    EXPLORE_EXPECT(holders[run] == WAITING, "a run is in two hands");
    holders[run] = WITH_PROGRAM;
    content[run]++;
    return run;
}

static void put_first(void) { put(0); }
static void put_second(void) { put(1); }
static void take_one(void) { take(); }
static void give_all(void) { hak__waiting_end(); }

static void put_and_take(void)
{
    if (put(0))
        take();
}

static void put_take_and_put(void)
{
    put(1);
    size_t run = take();
    if (run != HAK_NO_SUPER)
        put(run);
}

/* What waits still is found. */
static void waiting_check(void)
{
    hak__waiting_end();
    for (unsigned i = 0; i < RUNS; i++)
        EXPLORE_EXPECT(holders[i] != WAITING, "a run waits that nobody finds");
}

static void one_waits(void)
{
    waiting_setup();
    put(2);
}

static const struct explore_case cases[] = {
    { "one puts, one gives back", EXPLORE_ALL, 2, waiting_setup, { put_first, give_all }, waiting_check },
    { "two put into one line", 4, 2, waiting_setup, { put_first, put_second }, waiting_check },
    { "two take what waits, one gives it back", 2, 3, one_waits, { take_one, take_one, give_all }, waiting_check },
    { "one puts and takes, one gives back", 4, 2, waiting_setup, { put_and_take, give_all }, waiting_check },
    { "two put and take, one gives back", 2, 3, waiting_setup, { put_and_take, put_take_and_put, give_all }, waiting_check, 1, 1 },
};

int main(int argc, char **argv) { return explore_main(cases, sizeof cases / sizeof *cases, argc, argv); }
