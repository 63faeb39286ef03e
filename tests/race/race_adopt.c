/* Adoption and the busy word (heap/take.c, heap/heap.c, heap/give.c), every schedule within the bounds:
 *   1. the spans of a parked heap are taken over while others free into them, while another thread takes the heap up,
 *      and while two adopt at once; a span queued on the former owner's stack is sent on;
 *   2. an owner in its slow path and a sweeper take turns in a heap; one that parks, one that is parked and swept.
 * No block is in two hands or lost, every list and every count is right, and nobody waits for ever. */
// test: cost=60
#include "heap/heap.h"
#include "heaps_world.h"

/* --- 1 ------------------------------------------------------------------------------------------------------------------ */

/* Heap 1 is parked with a span that has blocks to give; blocks 0 to 2 of it are out. */
static void parked(void)
{
    begin();
    begin_span(0, SMALL, 1, 3, 1);
    begin_unused(8, 24);
    hak__heap_park(heap(1));
}

static void adopt_2(void) { take(2, SMALL); }
static void adopt_3(void) { take(3, SMALL); }
static void free_0(void) { publish(block_at(0, 0)); }
static void free_0_and_1(void)
{
    publish(block_at(0, 0));
    publish(block_at(0, 1));
}

/* A new thread takes the heap up, works, and ends. While the adopter has the heap, it is waited for. */
static void new_thread(void)
{
    struct hak_heap *mine = hak__heap_take_up();
    EXPLORE_EXPECT(mine != NULL, "a heap is parked or borrowed, and a new thread finds none");
    if (mine == NULL)
        return;
    hak__heap_unlock(mine);
    take(mine->id, SMALL);
    hak__heap_park(mine);
}

/* --- 2 ------------------------------------------------------------------------------------------------------------------ */

/* Heap 1 is active and has two spans; the second ends when its last block comes back. */
static void active(void)
{
    begin();
    begin_span(0, SMALL, 1, 2, 1);
    begin_span(1, SMALL, 1, 1, 0);
    begin_unused(8, 24);
}

static void owner_takes_and_gives(void) { give(1, take(1, SMALL)); }
static void owner_ends(void)
{
    collect(1);
    hak__heap_park(heap(1));
}
static void sweep_2(void) { sweep(2); }
static void sweep_3(void) { sweep(3); }
static void free_last(void) { publish(block_at(1, 0)); }
static void free_last_and_sweep(void)
{
    publish(block_at(1, 0));
    sweep(3);
}

static const struct explore_case cases[] = {
    { "adopt, free into the span", 4, 2, parked, { adopt_2, free_0_and_1 }, check },
    { "adopt, free into the span, take the heap up", 2, 3, parked, { adopt_2, free_0, new_thread }, check, .stale = 1 },
    { "two adopt, one frees", 2, 3, parked, { adopt_2, adopt_3, free_0 }, check, .stale = 1 },
    { "adopt a heap that is swept", 2, 3, parked, { adopt_2, sweep_3, free_0 }, check, .stale = 1 },
    { "owner and sweeper", 3, 3, active, { owner_takes_and_gives, free_last_and_sweep, sweep_2 }, check, 2, 1 },
    { "owner, sweeper and a free that empties a span", 3, 3, active, { owner_takes_and_gives, sweep_2, free_last }, check },
    { "an owner ends, a sweeper and an adopter", 2, 4, active, { owner_ends, sweep_2, adopt_3, free_last }, check, 1, 1 },
};

int main(int argc, char **argv) { return explore_main(cases, sizeof cases / sizeof cases[0], argc, argv); }
