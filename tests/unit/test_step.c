/* upkeep/step.c, with a clock of the test's own: freed memory goes back to the system when the purge delay has passed
 * and not before, from partly used SuperSlabs as from free ones; frees that wait for an idle heap are collected; a
 * tick looks at the clock only now and then, and does nothing while nothing is due. */
#include "upkeep/step.h"

#include "diag/options.h"
#include "shared/pool.h"
#include "support/fake_os.h"
#include "support/heaps.h"

enum { CLASS_1024 = HAK_CLASS_TINY_LAST, MANY = 8192, DELAY = 1000 };

static void *blocks[MANY];

static void start(void)
{
    fake_install();
    heaps_start();
    expect_eq(hak__option(HAK_OPTION_purge_delay), DELAY);
}

static struct hak_heap *filled_heap(void)
{
    struct hak_heap *heap = heap_open(0);
    for (uint32_t i = 0; i < MANY; i++)
        memset(blocks[i] = heap_malloc(heap, CLASS_1024), 1, 1024);
    return heap;
}

/* All but one block of every `keep`-th SuperSlab's worth. */
static void free_most(struct hak_heap *heap, uint32_t keep)
{
    for (uint32_t i = 0; i < MANY; i++)
        if (i % keep != 0)
            heap_free(heap, CLASS_1024, blocks[i]);
    hak__cache_flush(heap);
}

FRESH_TEST(after_the_delay)
{
    (void)argument;
    start();
    struct hak_heap *heap = filled_heap();
    free_most(heap, MANY / 4);
    uint64_t now = fake.now;
    expect_eq(hak__upkeep_step(now + DELAY - 1, HAK_UPKEEP_BOUNDED), 0);
    size_t bytes = hak__upkeep_step(now + DELAY, HAK_UPKEEP_BOUNDED);
    expect_op(bytes, >=, (size_t)MANY * 1024 / 2);
    expect_eq(hak__upkeep_step(now + 2 * DELAY, HAK_UPKEEP_BOUNDED), 0);   /* nothing is left to give */
    for (uint32_t i = 0; i < MANY; i += MANY / 4)
        expect_eq(*(char *)blocks[i], 1);
    expect(hak__arena_is_valid());
    expect_heap_valid(heap);
}

FRESH_TEST(at_once)
{
    (void)argument;
    start();
    struct hak_heap *heap = filled_heap();
    free_most(heap, MANY / 4);
    expect_op(hak__upkeep_step(fake.now, HAK_UPKEEP_ALL), >=, (size_t)MANY * 1024 / 2);
}

/* What is used again before the delay has passed starts its time anew. */
FRESH_TEST(busy_superslabs_are_left_alone)
{
    (void)argument;
    bool fresh;
    start();
    size_t kept = hak__pool_open(1, &fresh), slab = hak__pool_take(4, &fresh);
    hak__pool_give(slab, 4);
    fake.now += DELAY - 1;
    expect_eq(hak__pool_take(4, &fresh), slab);
    hak__pool_give(slab, 4);
    fake.now += 1;
    expect_eq(hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED), 0);
    fake.now += DELAY;
    expect_eq(hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED), 4 * HAK_SLAB_SIZE);
    hak__pool_give(kept, 1);
}

FRESH_TEST(idle_heaps_are_swept)
{
    (void)argument;
    start();
    struct hak_heap *idle = filled_heap(), *heap = heap_open(0);
    for (uint32_t i = 0; i < MANY; i++)
        heap_free_remote(heap, blocks[i]);
    hak__outbox_flush(heap, "free");
    hak__enter(idle);   /* its owner is in a slow path: not to be touched */
    hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);
    expect_eq(hak_counted(&idle->classes[CLASS_1024].collected), 0);
    hak__leave(idle);
    hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);
    expect_eq(hak_counted(&idle->classes[CLASS_1024].collected), MANY);
    expect_heap_valid(idle);
}

FRESH_TEST(ticks)
{
    (void)argument;
    start();
    struct hak_heap *heap = filled_heap();
    free_most(heap, MANY / 4);
    unsigned before = fake.purges;
    for (unsigned i = 0; i < 1000; i++)
        hak__upkeep_tick(heap);
    expect_eq(fake.purges, before);   /* not due */
    fake.now += 2 * DELAY;
    unsigned ticks = 0;
    while (fake.purges == before && ticks < 1000) {
        hak__upkeep_tick(heap);
        ticks++;
    }
    expect_op(ticks, <=, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_the_delay),  cmocka_unit_test(at_once),
        cmocka_unit_test(busy_superslabs_are_left_alone),
        cmocka_unit_test(idle_heaps_are_swept), cmocka_unit_test(ticks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
