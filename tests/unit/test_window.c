/* arena/window.h: the first random base that is free is taken; when several are occupied the system is asked where
 * there is room, for less and less; a failure leaves nothing mapped and the next attempt may succeed. */
#include "arena/window.h"

#include "arena/runs.h"
#include "base/bits.h"
#include "diag/options.h"
#include "support/fake_os.h"

static int choose(void)
{
    hak__arena_lock();
    int code = hak__window_choose();
    hak__arena_unlock();
    return code;
}

static void expect_usable(void)
{
    bool fresh;
    expect(hak__window.base % HAK_SUPER_SIZE == 0);
    expect_eq(hak__arena_init(), 0);
    expect_eq(hak__supers_take(1, 1, HAK_SUPER_SIZE, HAK_SUPER_HUGE, &fresh), 0);
    memset(hak__super_start(0), 1, HAK_SUPER_SIZE);
    expect(hak__arena_is_valid());
}

FRESH_TEST(first_base_is_random)
{
    (void)argument;
    fake_install();
    fake.randoms = 12345;
    expect_eq(choose(), 0);
    expect_eq(fake.randoms, 12346);
    expect_eq(fake.probes, 0);
    expect_eq(hak__window_supers(), HAK_WINDOW_SUPERS);
    expect_op(hak__window.base, >=, HAK_WINDOW_LOW);
    expect_op(hak__window.base + HAK_WINDOW_SIZE, <=, HAK_WINDOW_HIGH);
    expect_usable();
}

static void give_up(void)
{
    hak__arena_lock();
    hak__meta_give_up(HAK_META_HEAPS);
    for (int w = 0; w < HAK_META_WINDOWS; w++)
        if (w != HAK_META_HEAPS)
            hak__meta_give_up((enum hak_meta_window)w);
    hak__arena_unlock();
}

/* Where addresses are to repeat, no random number is asked for. */
FRESH_TEST(fixed_base_repeats)
{
    (void)argument;
    fake_install();
    fake.fixed = true;
    expect_eq(choose(), 0);
    uintptr_t base = hak__window.base;
    expect_eq(fake.randoms, 0);
    fake_add_foreign((void *)base, HAK_SUPER_SIZE);   /* what is in the window does not matter, only the tables' places */
    give_up();
    expect_eq(choose(), 0);
    expect_eq(hak__window.base, base);
}

/* A seed stands for a base, whatever the random numbers are; other seeds have others. */
FRESH_TEST(a_layout_seed_chooses_the_base)
{
    (void)argument;
    uintptr_t bases[4];
    fake_install();
    for (uint64_t i = 0; i < 4; i++) {
        hak__option_put(HAK_OPTION_layout_seed, 1 + i % 3);
        expect_eq(choose(), 0);
        bases[i] = hak__window.base;
        if (i < 3)
            give_up();
    }
    expect_eq(fake.randoms, 0);
    expect_eq(bases[0], bases[3]);
    expect(bases[0] != bases[1] && bases[1] != bases[2] && bases[0] != bases[2]);
    expect_usable();
}

/* The bases follow the random numbers, over the whole range. */
FRESH_TEST(bases_vary)
{
    uintptr_t lowest = UINTPTR_MAX, highest = 0;
    (void)argument;
    fake_install();
    for (fake.randoms = 1; fake.randoms < 64;) {
        expect_eq(choose(), 0);
        lowest = hak_min(lowest, hak__window.base);
        highest = hak_max(highest, hak__window.base);
    }
    expect_op(highest - lowest, >, (HAK_WINDOW_HIGH - HAK_WINDOW_LOW) / 4);
}

FRESH_TEST(occupied_base_is_passed_over)
{
    (void)argument;
    fake_install();
    fake.randoms = 7;
    expect_eq(choose(), 0);
    fake_add_foreign((void *)hak__meta_start(HAK_META_HEAPS), HAK_SUPER_SIZE);
    size_t before = fake.mapped;
    fake.randoms = 7;
    expect_eq(choose(), 0);
    expect_eq(fake.randoms, 9);
    expect_eq(fake.mapped, 2 * before);   /* what was mapped for the first base was unmapped again */
    expect_usable();
}

FRESH_TEST(system_is_asked_when_random_bases_fail)
{
    (void)argument;
    fake_install();
    fake.map_refused_from = HAK_WINDOW_LOW;
    fake.map_refused_to = HAK_WINDOW_HIGH;
    expect_eq(choose(), 0);
    expect_op(fake.randoms, >, 1);
    expect_op(fake.probes, >=, 1);
    expect_usable();
}

FRESH_TEST(small_address_space)
{
    (void)argument;
    fake_install();
    fake.map_refused_from = HAK_WINDOW_LOW;
    fake.map_refused_to = HAK_WINDOW_HIGH;
    size_t supers = (size_t)1 << (30 - HAK_SUPER_SHIFT);
    fake.largest_probe = ((size_t)1 << 30) + hak__meta_span(supers) + HAK_GUARDED_SIZE + HAK_ZERO_SIZE_SIZE
        + HAK_SUPER_SIZE;
    expect_eq(choose(), 0);
    expect_eq(hak__window_supers(), supers);
    expect_usable();
    bool fresh;
    expect(hak__supers_take(supers, 1, 0, HAK_SUPER_HUGE, &fresh) == HAK_NO_SUPER);   /* one of them is taken */
}

FRESH_TEST(failure_leaves_nothing)
{
    (void)argument;
    fake_install();
    fake.limit = 3 * hak__page_size();   /* not enough for the first pieces of all windows */
    expect(hak__arena_init() != 0);
    expect_eq(fake.mapped, 0);
    expect(hak__window.base == 0);
    expect(hak__arena_init() != 0);
    fake.limit = SIZE_MAX;
    expect_eq(hak__arena_init(), 0);
    expect_usable();
}

static void choose_unlocked(void *argument)
{
    (void)argument;
    fake_install();
    hak__window_choose();
}

static void map_a_sample_elsewhere(void *argument)
{
    (void)argument;
    fake_install();
    choose();
    hak__guarded_map(hak__window.base, hak__page_size());
}

static void contracts(void **state)
{
    (void)state;
    expect_contract(choose_unlocked, NULL, "the caller holds the arena's lock");
    expect_contract(map_a_sample_elsewhere, NULL, "sampled blocks have a range of their own");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_base_is_random),
        cmocka_unit_test(fixed_base_repeats),
        cmocka_unit_test(a_layout_seed_chooses_the_base),
        cmocka_unit_test(bases_vary),
        cmocka_unit_test(occupied_base_is_passed_over),
        cmocka_unit_test(system_is_asked_when_random_bases_fail),
        cmocka_unit_test(small_address_space),
        cmocka_unit_test(failure_leaves_nothing),
        cmocka_unit_test(contracts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
