/* Forks (heap/heap.c, hak__heaps_fork_child): the process forks at every step of another thread, and the child repairs
 * and goes on. The fork is a real one, made by a thread of the schedule; under weak.c plain writes are steps as well.
 * Heaps that the child parks keep what their threads had cached: others adopt their spans, and who takes such a heap up
 * drains blocks that have another owner by then.
 *
 * A handler may also have interrupted the thread itself, at each of its waits and at each of its steps: there the child goes on with the
 * interrupted call.
 *
 * In the child: no block is in two hands, whatever the program held can be freed, the parked heaps are a list without a
 * cycle, and every heap that is in use is valid. What the other thread was changing may be lost, nothing else. */
// test: check
#include "heap/heap.h"
#include "heaps_world.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/cache.h"
#include "cache/large_cache.h"

enum { CHILD_IS_CONTENT = 42, TAKES = 3 * PER_SLAB, SLOTS = 8 };

static bool taken_up_first;   /* the child takes parked heaps up before it adopts from them */

/* Forks in a handler: which thread may be interrupted, where, and the heap that is its own in the child. */
enum { NOWHERE, AT_WAITS, AT_POINTS };
static unsigned handled_at;
static bool handled, is_child;
static struct hak_heap *own;
static _Atomic uint32_t mark, repairs;

/* Records do not grow here. */
bool hak__cache_grow(struct hak_heap *heap, uint32_t class)
{
    (void)heap, (void)class;
    return false;
}

/* No bin is refilled here. */
void hak__cache_absorb_begin(struct hak_heap *heap, uint32_t class) { (void)heap, (void)class; }
void hak__cache_first_end(struct hak_heap *heap, uint32_t class) { (void)heap, (void)class; }

/* --- the child ---------------------------------------------------------------------------------------------------------- */

static bool is_lost(uint32_t id) { return atomic_load(&heap(id)->state) == HAK_HEAP_UNUSABLE; }

static void expect_valid_heaps(void)
{
    for (uint32_t id = 1; id <= WORLD_HEAPS; id++)
        EXPLORE_EXPECT(is_lost(id) || hak__heap_is_valid(heap(id)), "a heap that is in use in the child is not valid");
}

static void free_what_the_program_holds(void)
{
    for (size_t slab = 0; slab < SLABS; slab++)
        for (uint32_t i = 0; i < PER_SLAB; i++)
            if (atomic_load(&out[slab]) >> i & 1)
                publish(block_at(slab, i));
}

static unsigned parked_by_state(void)
{
    unsigned count = 0;
    for (uint32_t id = 1; id <= WORLD_HEAPS; id++)
        count += atomic_load(&heap(id)->state) == HAK_HEAP_PARKED;
    return count;
}

static void expect_parked_once(void)
{
    struct hak_heap *taken[WORLD_HEAPS];
    unsigned count = 0, wanted = parked_by_state();
    for (struct hak_heap *one; (one = hak__heap_unpark()) != NULL; taken[count++] = one) {
        EXPLORE_EXPECT(count < WORLD_HEAPS, "the parked heaps of the child have a cycle");
        EXPLORE_EXPECT(!is_lost(one->id) && one->id != 3, "a heap that must not serve is parked");
        hak__heap_unlock(one);
    }
    EXPLORE_EXPECT(count == wanted, "a heap is parked and in no list");
    while (count > 0)
        hak__heap_park(taken[--count]);
}

/* The threads that take the parked heaps up end. */
static void drain_parked(void)
{
    struct hak_heap *taken[WORLD_HEAPS];
    unsigned count = 0;
    for (struct hak_heap *one; (one = hak__heap_unpark()) != NULL; taken[count++] = one) {
        hak__cache_drain(one, SMALL, SLOTS, "free");
        hak__outbox_flush(one, "free");
        hak__heap_unlock(one);
    }
    while (count > 0)
        hak__heap_park(taken[--count]);
}

/* Heap 3 is the forking thread's own. */
static void child(void)
{
    hak__heaps_fork_child(heap(3), NULL);
    expect_parked_once();
    expect_valid_heaps();
    if (taken_up_first)
        drain_parked();
    for (unsigned i = 0; i < TAKES; i++)
        take(3, SMALL);
    drain_parked();
    free_what_the_program_holds();
    collect(3);
    sweep(3);
    for (unsigned i = 0; i < TAKES; i++)
        take(3, SMALL);
    expect_valid_heaps();
}

static void fork_now(void)
{
    int status = 0;
    explore_alone(true);
    pid_t pid = fork();
    if (pid == 0) {
        child();
        _Exit(CHILD_IS_CONTENT);
    }
    EXPLORE_EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid, "cannot fork");
    explore_alone(false);
    EXPLORE_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == CHILD_IS_CONTENT, "the child of a fork failed");
}

/* --- forks in a handler ----------------------------------------------------------------------------------------------------- */

uint32_t hak__fork_repairs(void) { return atomic_load_explicit(&repairs, HAK_RELAXED); }

/* The child is put in order when the interrupted call comes to look, not before. */
void hak__fork_found(void)
{
    atomic_store_explicit(&mark, HAK_FORK_REPAIRED, HAK_RELAXED);
    atomic_fetch_add_explicit(&repairs, 1, HAK_RELAXED);
    if (own != NULL && hak__lock_word_is_left(&own->lock))
        hak__heap_lose(own);
    hak__heaps_fork_child(own, NULL);
}

static void fork_here(void)
{
    int status = 0;
    explore_alone(true);
    pid_t pid = fork();
    if (pid == 0) {
        is_child = true;
        atomic_store_explicit(&mark, HAK_FORK_WIPED, HAK_RELAXED);
        return;   /* to the interrupted call */
    }
    EXPLORE_EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid, "cannot fork");
    explore_alone(false);
    EXPLORE_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == CHILD_IS_CONTENT, "the child of a fork in a handler failed");
}

static bool may_be_interrupted(unsigned where)
{
    return explore_thread() == 0 && !explore_directly() && handled && handled_at == where;
}

void world_waits(void)
{
    if (may_be_interrupted(AT_WAITS))
        fork_here();
}

/* One fork in a schedule: its cost is that of a process. */
void explore_resumed(void)
{
    if (!may_be_interrupted(AT_POINTS) || explore_choose(2) == 0)
        return;
    handled = false;
    fork_here();
}

/* The thread's own heap is its alone: it is not parked, and no parked heap stands in the list twice. */
static void expect_own_is_not_parked(void)
{
    struct hak_heap *taken[WORLD_HEAPS];
    unsigned count = 0, wanted = parked_by_state();
    for (struct hak_heap *one; (one = hak__heap_unpark()) != NULL; taken[count++] = one) {
        EXPLORE_EXPECT(count < WORLD_HEAPS, "the parked heaps of the child have a cycle");
        EXPLORE_EXPECT(one != own && !is_lost(one->id), "a heap that is in use, or must not serve, is parked");
        hak__heap_unlock(one);
    }
    EXPLORE_EXPECT(count == wanted, "a heap is parked and in no list");
    while (count > 0)
        hak__heap_park(taken[--count]);
}

/* Thread 0 begins, can be interrupted anywhere, and ends; the child with it. */
static void interrupted(struct hak_heap *mine, void (*body)(void))
{
    own = mine;
    handled = true;
    body();
    handled = false;
    if (!is_child)
        return;
    hak__fork_check();
    expect_own_is_not_parked();
    expect_valid_heaps();
    for (uint32_t id = 1; id <= WORLD_HEAPS; id++)
        EXPLORE_EXPECT(is_lost(id) || atomic_load(&heap(id)->lock) == HAK_LOCK_FREE, "a heap stays locked");
    for (unsigned i = 0; own != NULL && i < TAKES; i++)
        take(own->id, SMALL);
    free_what_the_program_holds();
    expect_valid_heaps();
    _Exit(CHILD_IS_CONTENT);
}

/* --- what the other thread is doing ---------------------------------------------------------------------------------------- */

/* Heap 1 is parked, with blocks free and blocks out. */
static void one_parked(void)
{
    hak_owner_store(&hak__forked.mark, NULL);
    handled_at = NOWHERE;
    begin();
    taken_up_first = false;
    for (uint32_t id = 1; id <= WORLD_HEAPS; id++) {
        memset(heap(id)->outbox_buckets, 0, sizeof heap(id)->outbox_buckets);
        atomic_store(&heap(id)->outbox.used, 0);
        heap(id)->bins[SMALL] = (struct hak_bin){ NULL, NULL };
        heap(id)->absorb[SMALL] = 0;
        heap(id)->foreign[SMALL] = false;
    }
    begin_span(0, SMALL, 1, 2, 2);
    begin_span(2, SMALL, 1, 1, 2);
    begin_unused(8, 24);
    hak__heap_park(heap(1));
}

/* The same, and heap 2 is the other thread's. */
static void two_heaps(void)
{
    one_parked();
    begin_span(1, SMALL, 2, 2, 0);
    begin_span(3, SMALL, 2, 1, 0);
}

/* Heap 2 caches one block of its own, and takes in those of others. */
static void cache_of_2(void)
{
    two_heaps();
    void **slots = heap(2)->slots.first;
    heap(2)->classes[SMALL].bottom = slots + 1;
    heap(2)->classes[SMALL].capacity = SLOTS;
    heap(2)->bins[SMALL] = (struct hak_bin){ slots + 1, slots + 1 + SLOTS };
    heap(2)->absorb[SMALL] = (uint16_t)(slots + 1 + SLOTS - (void **)heap(2));
    note_given(block_at(1, 1));
    hak__cache_push(&heap(2)->bins[SMALL], block_at(1, 1));
}

static void cache_taken_up_first(void)
{
    cache_of_2();
    taken_up_first = true;
}

/* Frees wait for heap 1. */
static void frees_for_one_parked(void)
{
    one_parked();
    publish(block_at(0, 0));
    publish(block_at(2, 0));
}

static void adopt_2(void) { take(2, SMALL); }
static void free_0(void) { publish(block_at(0, 0)); }
static void free_and_collect(void)
{
    publish(block_at(1, 0));
    collect(2);
}
static void end_2(void)
{
    collect(2);
    hak__heap_park(heap(2));
}
static void take_up(void)
{
    struct hak_heap *one = hak__heap_unpark();
    if (one == NULL)
        return;
    hak__heap_unlock(one);
    take(one->id, SMALL);
}
static void give_and_take(void)
{
    give(2, block_at(3, 0));   /* the span ends: its slab goes to the pool */
    give(2, block_at(1, 1));
    take(2, SMALL);
}
static void cache_and_absorb(void)
{
    note_given(block_at(3, 0));
    hak__cache_push(&heap(2)->bins[SMALL], block_at(3, 0));
    note_given(block_at(0, 0));
    hak__cache_absorb(heap(2), hak__offset_of_class(SMALL), block_at(0, 0));
}
static void sweep_2(void) { sweep(2); }
static void sweep_3(void) { sweep(3); }
static void adopt_3(void) { take(3, SMALL); }

static void interrupted_adopt(void) { interrupted(heap(2), adopt_2); }
static void interrupted_sweep(void) { interrupted(heap(2), sweep_2); }

/* The thread begins: the heap is its own once it has it. */
static void begins(void)
{
    struct hak_heap *one = hak__heap_unpark();
    if (one == NULL)
        return;
    own = one;
    hak__heap_unlock(one);
    take(one->id, SMALL);
}
static void interrupted_begin(void) { interrupted(NULL, begins); }

/* It ends: from the unlocking on the heap is nobody's. */
static void ends(void)
{
    if (!lock(2))
        return;
    hak__heap_collect(heap(2));
    hak__heap_unlock(heap(2));
    own = NULL;
    hak__heap_park(heap(2));
}
static void interrupted_end(void) { interrupted(heap(2), ends); }

static void where(unsigned place)
{
    one_parked();
    publish(block_at(2, 0));
    handled_at = place;
    atomic_store_explicit(&mark, HAK_FORK_REPAIRED, HAK_RELAXED);
    hak_owner_store(&hak__forked.mark, &mark);
}
static void two_parked(void)   /* the first that an adopter takes has nothing */
{
    where(AT_POINTS);
    hak__heap_park(heap(3));
}
static void at_waits(void) { where(AT_WAITS); }
static void at_points(void) { where(AT_POINTS); }

/* What is cached comes back before the world is looked at. */
static void check_cache(void)
{
    EXPLORE_EXPECT(hak__heap_lock(heap(2)), "nobody has given the heap up");
    hak__cache_drain(heap(2), SMALL, SLOTS, "free");
    hak__outbox_flush(heap(2), "free");
    hak__heap_unlock(heap(2));
    check();
}

static const struct explore_case cases[] = {
    { "fork while another adopts", EXPLORE_ALL, 2, one_parked, { adopt_2, fork_now }, check, 2, 1, true },
    { "fork while another frees to a parked heap", EXPLORE_ALL, 2, one_parked, { free_0, fork_now }, check, 2, 1, true },
    { "fork while another publishes and collects", EXPLORE_ALL, 2, two_heaps, { free_and_collect, fork_now }, check, 2, 1,
      true },
    { "fork while another ends", EXPLORE_ALL, 2, two_heaps, { end_2, fork_now }, check, 2, 1, true },
    { "fork while another takes a parked heap up", EXPLORE_ALL, 2, one_parked, { take_up, fork_now }, check, 2, 1, true },
    { "fork while another gives and takes", EXPLORE_ALL, 2, two_heaps, { give_and_take, fork_now }, check, 2, 1, true },
    { "fork while another caches blocks", EXPLORE_ALL, 2, cache_of_2, { cache_and_absorb, fork_now }, check_cache, 2, 1,
      true },
    { "fork while another caches blocks, taken up first", EXPLORE_ALL, 2, cache_taken_up_first, { cache_and_absorb, fork_now },
      check_cache, 2, 1, true },
    { "fork while a parked heap is swept", EXPLORE_ALL, 2, frees_for_one_parked, { sweep_2, fork_now }, check, 2, 1, true },
    { "at a wait: adopts, swept", 2, 2, at_waits, { interrupted_adopt, sweep_3 }, check, 1, 1 },
    { "at a wait: adopts, another adopts", 2, 2, at_waits, { interrupted_adopt, adopt_3 }, check, 1, 1 },
    { "at a wait: begins, swept", 2, 2, at_waits, { interrupted_begin, sweep_3 }, check, 1, 1 },
    { "at a wait: ends, swept", 3, 2, at_waits, { interrupted_end, sweep_3 }, check, 1, 1 },
    { "anywhere: adopts, swept", 1, 2, at_points, { interrupted_adopt, sweep_3 }, check, 1, 1 },
    { "anywhere: adopts, with two in hand", 1, 2, two_parked, { interrupted_adopt, free_0 }, check, 1, 1 },
    { "anywhere: begins, swept", 1, 2, at_points, { interrupted_begin, sweep_3 }, check, 1, 1 },
    { "anywhere: ends, swept", 2, 2, at_points, { interrupted_end, sweep_3 }, check, 1, 1 },
    { "anywhere: sweeps, another begins", 1, 2, at_points, { interrupted_sweep, take_up }, check, 1, 1 },
    { "fork while one adopts and one frees", 1, 3, one_parked, { adopt_2, free_0, fork_now }, check, 1, 1, true },
};

int main(int argc, char **argv) { return explore_main(cases, sizeof cases / sizeof cases[0], argc, argv); }
