/* region/units.h: runs of units against a map of who has each one. They do not overlap, begin where they say, are aligned, join when
 * given back, so that all of the region serves as one run again, and every invariant holds after each step. */
#include "region/region.h"

#include "support/check.h"

enum { SIZE = 1 << 20, RUNS = 200, STEPS = 30000 };

static char memory[SIZE] __attribute__((aligned(4096)));
static unsigned char who[SIZE >> 10];   /* of each unit; 0: free */

struct run {
    uint32_t unit, units;
};
static struct run runs[RUNS]; /* run i is 1 + i in `who` */

static struct hak_region *empty_region(void)
{
    struct hak_region *region = hak__region_new(
        &(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .region = memory, .region_size = sizeof memory });
    expect(region != NULL && hak__region_unit_bytes(region) == 1 << 10 && region->units <= sizeof who);
    memset(who, 0, sizeof who);
    memset(runs, 0, sizeof runs);
    return region;
}

/* The statistics, which blocks.c writes; runs alone are all large. */
static bool is_valid(struct hak_region *region)
{
    uint64_t units = 0;
    for (unsigned i = 0; i < RUNS; i++)
        units += runs[i].units;
    hak_store(&region->large_units, units, HAK_RELAXED);
    return hak__region_is_valid(region);
}

/* Changes the owner of units, which must have been `from`. */
static void mark(uint32_t unit, uint32_t units, unsigned from, unsigned to)
{
    for (uint32_t i = unit; i < unit + units; i++) {
        expect_eq(who[i], from);
        who[i] = (unsigned char)to;
    }
}

static void step(struct hak_region *region, struct rng *rng, unsigned i)
{
    uint32_t units = 1 + (uint32_t)rng_below(rng, rng_below(rng, 10) == 0 ? 200 : 12), have = runs[i].units;
    size_t align = rng_below(rng, 4) == 0 ? 4096 : 16;
    if (have == 0) {
        uint32_t unit = hak__run_take(region, units, align);
        if (unit == UINT32_MAX)
            return;
        expect(unit + units <= region->units && (uintptr_t)hak__region_unit_start(region, unit) % align == 0);
        expect_eq(hak__run_at(region, unit), hak__run_state(HAK_RUN_LARGE, 0, units));
        mark(unit, units, 0, 1 + i);
        runs[i] = (struct run){ unit, units };
    } else if (rng_below(rng, 3) == 0) {
        if (!hak__run_resize(region, runs[i].unit, units)) {
            expect_op(units, >, have);
            return;
        }
        mark(runs[i].unit + hak_min(have, units), (uint32_t)(hak_max(have, units) - hak_min(have, units)), units < have ? 1 + i : 0,
             units < have ? 0 : 1 + i);
        runs[i].units = units;
    } else {
        mark(runs[i].unit, have, 1 + i, 0);
        hak__run_give(region, runs[i].unit);
        runs[i].units = 0;
    }
}

static void runs_of_a_model(void **state)
{
    struct rng rng = { 1 };
    struct hak_region *region = empty_region();
    (void)state;
    for (unsigned n = 0; n < STEPS; n++) {
        step(region, &rng, (unsigned)rng_below(&rng, RUNS));
        expect(is_valid(region));
    }
    for (unsigned i = 0; i < RUNS; i++) {
        if (runs[i].units == 0)
            continue;
        for (uint32_t unit = runs[i].unit; unit < runs[i].unit + runs[i].units; unit++)
            expect_eq(hak__run_start(region, unit, region->units), runs[i].unit);
        hak__run_give(region, runs[i].unit);
        runs[i].units = 0;
        expect(is_valid(region));
    }
    expect_eq(hak_load(&region->frontier, HAK_RELAXED), 0);
    expect_eq(hak__run_take(region, region->units, 16), 0);
}

/* A run that a bin holds is no shorter than what the bin before it holds, and no bin is beyond the last. */
static void bins_are_in_order(void **state)
{
    (void)state;
    for (uint32_t units = 1; units < 1 << 20; units++)
        expect(hak__region_bin(units) == hak__region_bin(units - 1) || hak__region_bin(units) == hak__region_bin(units - 1) + 1);
    expect_op(hak__region_bin(UINT32_MAX), <, HAK_REGION_BINS);
}

/* Neighbours on both sides join, whichever is given last. */
static void neighbours_join(void **state)
{
    static const unsigned orders[][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
    (void)state;
    for (unsigned order = 0; order < 6; order++) {
        struct hak_region *region = empty_region();
        uint32_t unit[3];
        for (unsigned i = 0; i < 3; i++)
            unit[i] = hak__run_take(region, 5, 16);
        uint32_t behind = hak__run_take(region, 1, 16);
        for (unsigned i = 0; i < 3; i++)
            hak__run_give(region, unit[orders[order][i]]);
        expect_eq(hak__run_at(region, unit[0]), hak__run_state(HAK_RUN_FREE, 0, 15));
        expect_eq(hak__run_start(region, unit[2] + 4, region->units), unit[0]);
        expect_eq(hak__run_take(region, 15, 16), unit[0]);
        expect_eq(behind, unit[2] + 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_of_a_model),
        cmocka_unit_test(bins_are_in_order),
        cmocka_unit_test(neighbours_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
