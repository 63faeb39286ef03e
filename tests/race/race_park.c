/* Parked heaps (heap/heap.c), every schedule within the bounds: threads that take and give back heaps at the same time.
 * No heap is in two hands, none is lost, none stands on the stack twice. The planted bug is the classic one: without
 * the count of changes a heap that was taken and given back meanwhile (ABA) brings a stale link to the top. */
#include "heap/heap.h"
#include "world.h"

static bool held[WORLD_HEAPS + 1];

static struct hak_heap *take(void)
{
    struct hak_heap *heap = hak__heap_unpark();
    if (heap == NULL)
        return NULL;
    EXPLORE_EXPECT(!held[heap->id], "a heap is in two hands");
    EXPLORE_EXPECT(atomic_load(&heap->state) == HAK_HEAP_ACTIVE, "a heap that is taken is active");
    held[heap->id] = true;
    return heap;
}

static void give(struct hak_heap *heap)
{
    if (heap == NULL)
        return;
    held[heap->id] = false;
    hak__heap_unlock(heap);
    hak__heap_park(heap);
}

static void setup(void)
{
    while (hak__heap_unpark() != NULL)
        ;
    world_reset();
    for (uint32_t id = WORLD_HEAPS; id >= 1; id--) {
        held[id] = false;
        hak__heap_park(hak__heap_by_id(id));
    }
}

static void take_one(void) { take(); }
static void take_and_give(void) { give(take()); }

/* The pattern that breaks a stack without a count: two are taken, the first comes back. */
static void take_two_give_first(void)
{
    struct hak_heap *first = take();
    take();
    give(first);
}

static void take_two_give_both(void)
{
    struct hak_heap *first = take(), *second = take();
    give(first);
    give(second);
}

/* Every heap is in one hand or on the stack, once. */
static void check(void)
{
    unsigned found = 0, in_hands = 0;
    for (uint32_t id = 1; id <= WORLD_HEAPS; id++)
        in_hands += held[id];
    for (struct hak_heap *heap = take(); heap != NULL; heap = take())
        EXPLORE_EXPECT(++found <= WORLD_HEAPS, "the stack has a cycle");
    EXPLORE_EXPECT(found + in_hands == WORLD_HEAPS, "a heap is lost");
}

static const struct explore_case cases[] = {
    { "one takes, one takes two and gives one back", 4, 2, setup, { take_one, take_two_give_first }, check },
    { "one takes, one takes and gives two", 3, 2, setup, { take_one, take_two_give_both }, check },
    { "three threads", 2, 3, setup, { take_one, take_two_give_first, take_and_give }, check },
};

int main(int argc, char **argv) { return explore_main(cases, sizeof cases / sizeof cases[0], argc, argv); }
