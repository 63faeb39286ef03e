/* Runs that wait in front of the arena (arena/retained.h), every schedule within the bounds: threads that put and take at the same
 * line while another gives all of them back. Each run is in one hand, in one word, or with the arena, and one that waits is
 * found by the next who gives back. */
#include "arena/returned.h"
#include "arena/retained.h"

#include <errno.h>

#include "arena/limit.h"
#include "arena/mapping.h"
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
bool hak__arena_is_mine(void) { return hak_load(&locked, HAK_RELAXED) != 0; }
struct hak_arena_state hak__arena_state;
bool hak__ahead_counts(void) { return false; }
struct hak_retained hak__return_ask(struct hak_retention in, uint64_t now_ms)
{
    (void)now_ms;
    in.slack = hak__option(HAK_OPTION_dirty_limit);
    in.cost.delay_ms[HAK_UNUSED_SUPERS] = (uint32_t)hak__option(HAK_OPTION_purge_delay);
    return hak__retain(in);
}
void hak__retained_note(uint64_t now_ms) { (void)now_ms; }
void hak__retained_due(uint64_t now_ms) { (void)now_ms; }

void hak__retained_add_run(size_t first, size_t count, uint64_t now_ms)
{
    (void)count, (void)now_ms;
    EXPLORE_EXPECT(holders[first] == WAITING, "what is given back has not waited");
    holders[first] = WITH_ARENA;
    content[first]++;
}

/* For lent pages, which no schedule here comes to. */
size_t hak__limit_mappings(void) { return 0; }
bool hak__arena_is_crowded(void) { return true; }
void hak__super_count_mapped(size_t super, size_t bytes) { (void)super, (void)bytes; }
void hak__super_set_moved(size_t super, size_t pieces) { (void)super, (void)pieces; }
void hak__retained_add(size_t super, size_t dirty, uint64_t now_ms) { (void)super, (void)dirty, (void)now_ms; }
void hak__retained_remove(size_t super) { (void)super; }
void hak__retained_cut(size_t super, size_t dirty) { (void)super, (void)dirty; }
int hak__run_map(size_t first, size_t count, size_t bytes, size_t *at) { return (void)first, (void)count, (void)bytes, (void)at, ENOMEM; }
bool hak__place_stays(uintptr_t place, size_t bytes) { return (void)place, (void)bytes, false; }
int hak__os_move(uintptr_t from, size_t size, uintptr_t to, size_t new_size) { return (void)from, (void)size, (void)to, (void)new_size, ENOMEM; }
int hak__os_unmap(uintptr_t address, size_t size) { return (void)address, (void)size, ENOMEM; }

/* --- the threads ------------------------------------------------------------------------------------------------------- */

static void waiting_setup(void)
{
    world_reset();
    hak__supers = runs;
    atomic_store(&locked, 0);
    for (unsigned i = 0; i < RUNS; i++) {
        atomic_store(&runs[i].kind, HAK_SUPER_HUGE);
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
