/* span/pool.h: a SuperSlab of which few slabs are used drains, serves only when nothing else can, empties and is
 * returned; between the two marks nothing changes, whatever the number of claims and releases. */
#include "span/pool.h"

#include "arena/retained.h"
#include "arena/runs.h"
#include "diag/options.h"
#include "support/fake_os.h"
#include "support/figures.h"

enum { SUPERS = 3, ALL = SUPERS * HAK_SUPER_SLABS };

static size_t take(unsigned count)
{
    bool fresh;
    size_t slab = hak__pool_take(count, &fresh);
    return slab != HAK_NO_RUN ? slab : hak__pool_open(count, HAK_OPEN_SMALL, &fresh);
}

static void give_range(size_t first, size_t last)
{
    for (; first < last; first++)
        hak__pool_give(first, 1);
}

/* Three full SuperSlabs; `used` slabs of the first one stay, and four of the second one are free. */
static void start(unsigned used)
{
    fake_install();
    expect_eq(hak__arena_init(), 0);
    for (size_t i = 0; i < ALL; i++)
        expect_eq(take(1), i);
    give_range(used, HAK_SUPER_SLABS);
    give_range(HAK_SUPER_SLABS, HAK_SUPER_SLABS + 4);
}

FRESH_TEST(drains_and_is_returned)
{
    struct arena_figures arena;
    (void)argument;
    start(HAK_TIER_LOW);
    expect_eq(atomic_load(&hak__tier_counts.draining), 0);
    hak__tiers_step();
    expect(hak__tier_draining(0) && !hak__tier_draining(1) && !hak__tier_draining(2));
    expect_eq(atomic_load(&hak__tier_counts.to_draining), 1);
    for (size_t i = 0; i < 4; i++)
        expect_eq(take(1), HAK_SUPER_SLABS + i);   /* although the first one is lower and has more */
    expect_eq(atomic_load(&hak__tier_counts.drawn), 0);
    give_range(0, HAK_TIER_LOW);
    expect_eq(atomic_load(&hak__tier_counts.emptied), 1);
    expect_eq(atomic_load(&hak__tier_counts.draining), 0);
    arena_figures(&arena);
    expect_eq(arena.kept, 1);
    fake.now += hak__option(HAK_OPTION_purge_delay);
    expect_eq(hak__arena_purge(fake.now, false), HAK_SUPER_SIZE);
}

/* Rather than a further SuperSlab is opened, one that drains serves; it is HOT again when it is well used. */
FRESH_TEST(serves_when_nothing_else_can)
{
    (void)argument;
    start(HAK_TIER_LOW);
    hak__tiers_step();
    for (unsigned i = 0; i < 4; i++)
        take(1);
    for (unsigned used = HAK_TIER_LOW; used < HAK_TIER_HIGH; used++) {
        expect(hak__tier_draining(0));
        expect_eq(take(1), used);
    }
    expect(!hak__tier_draining(0));
    expect_eq(atomic_load(&hak__tier_counts.to_hot), 1);
    expect_eq(atomic_load(&hak__tier_counts.drawn), HAK_TIER_HIGH - HAK_TIER_LOW);
}

FRESH_TEST(does_not_flap)
{
    (void)argument;
    start(HAK_TIER_LOW);
    hak__tiers_step();
    for (unsigned i = 0; i < 4; i++)
        take(1);
    for (unsigned round = 0; round < 100; round++) {   /* around the lower mark, while it drains */
        size_t slab = take(2);
        expect_op(slab, <, HAK_SUPER_SLABS);
        hak__tiers_step();
        hak__pool_give(slab, 2);
        hak__tiers_step();
    }
    take(4);
    hak__pool_give(HAK_SUPER_SLABS, 1);
    for (unsigned round = 0; round < 100; round++) {   /* around the upper mark, while it is HOT */
        hak__pool_give(HAK_TIER_LOW, 2);
        hak__tiers_step();
        expect(hak__pool_extend(HAK_TIER_LOW - 1, 1, 3));
    }
    expect_eq(atomic_load(&hak__tier_counts.to_draining), 1);
    expect_eq(atomic_load(&hak__tier_counts.to_hot), 1);
}

/* Nobody would take over: nothing drains. The same when the option is off. */
FRESH_TEST(only_if_others_have_room)
{
    (void)argument;
    start(HAK_TIER_LOW);
    expect_eq(hak__option_set("tiers", "0"), 0);
    hak__tiers_step();
    expect_eq(atomic_load(&hak__tier_counts.to_draining), 0);
    expect_eq(hak__option_set("tiers", "1"), 0);
    for (unsigned i = 0; i < 4; i++)
        expect(hak__pool_extend(HAK_SUPER_SLABS - 1 + i, 1, 2) || i == 0);
    give_range(HAK_SUPER_SLABS + 4, 2 * HAK_SUPER_SLABS);
    hak__tiers_step();
    expect_eq(atomic_load(&hak__tier_counts.to_draining), 0);
}

/* The fullest first: of two that have a single slab, the one that has fewer others. */
FRESH_TEST(the_fullest_serves)
{
    (void)argument;
    bool fresh;
    start(HAK_SUPER_SLABS);
    expect_eq(hak__pool_take(16, &fresh), HAK_NO_RUN);   /* clears the hints of what is full */
    for (size_t i = 0; i < 8; i += 2)
        hak__pool_give(i, 1);   /* the first SuperSlab: four, none adjacent */
    expect_eq(take(1), 0);      /* its longest run is the shorter one */
    give_range(2 * HAK_SUPER_SLABS + 5, 2 * HAK_SUPER_SLABS + 6);
    expect_eq(take(1), 2 * HAK_SUPER_SLABS + 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drains_and_is_returned),   cmocka_unit_test(serves_when_nothing_else_can),
        cmocka_unit_test(does_not_flap),            cmocka_unit_test(only_if_others_have_room),
        cmocka_unit_test(the_fullest_serves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
