/* arena/returned.h end to end, with a clock that only the test moves and an own price of returning: bursts of several sizes and
 * periods, steady saw teeth and an idle process keep HAKMEM_RETURN's promise, regret is counted where it occurs, delays follow it, and
 * an idle process has its memory back in time. */
#include "arena/returned.h"

#include "arena/retained.h"
#include "arena/runs.h"
#include "diag/options.h"
#include "support/fake_os.h"
#include "support/figures.h"

#define MIB ((size_t)1 << 20)
enum { TICK = 10, PRICE = 100000, FAST_PRICE = 25600 };

static uint64_t begun, resident_ms; /* MiB * ms */

static void start(void)
{
    fake_install();
    fake.purge_ns = PRICE;
    expect_eq(hak__arena_init(), 0);
    begun = fake.now;
}

static size_t take(size_t mib)
{
    bool fresh;
    size_t first = hak__supers_take(mib / 2, 1, mib * MIB, HAK_SUPER_HUGE, &fresh);
    expect(first != HAK_NO_SUPER);
    return first;
}

static size_t mib_kept(void)
{
    struct arena_figures figures;
    arena_figures(&figures);
    return figures.dirty / MIB;
}

/* Time passes, with the steps that are due. */
static void pass(uint64_t ms, size_t in_use)
{
    static uint64_t next;
    hak_store(&hak__return_counts.watched, 1, HAK_RELAXED); /* these steps are the background thread's */
    for (uint64_t end = fake.now + ms; fake.now < end; fake.now += TICK) {
        if (fake.now >= next) {
            hak__arena_purge(fake.now, false);
            next = fake.now + hak__return_ask((struct hak_retention){ 0 }, fake.now).look_ms;
        }
        resident_ms += (in_use + mib_kept()) * TICK;
    }
}

static uint64_t spent_ns(void)
{
    return hak_load(&hak__return_counts.cost_ns, HAK_RELAXED) + hak_load(&hak__return_counts.regret_ns, HAK_RELAXED);
}

/* The promise, and what may be spent ahead of it. */
static void expect_promise(void)
{
    if (hak__option_origin(HAK_OPTION_purge_delay) != HAK_FROM_DEFAULT)
        return;
    uint64_t percent = hak__option(HAK_OPTION_return), ahead = (HAK_RETURN_MOST - HAK_RETURN_START) + 1000;
    uint64_t last = 512 * (uint64_t)PRICE * 5; /* of the last burst before nothing may go any more, the faults */
    expect_op(spent_ns(), <=, (fake.now - begun + ahead) * percent * 10000 + last);
}

/* A burst of `mib` every `period` ms, in use for a tenth of it. Returns the mean of what is resident, in MiB. */
static size_t bursts(size_t mib, uint64_t period, uint64_t ms)
{
    resident_ms = 0;
    for (uint64_t end = fake.now + ms; fake.now < end;) {
        size_t first = take(mib);
        pass(hak_max(period / 10, TICK), mib);
        hak__supers_give(first, mib / 2);
        pass(period - hak_max(period / 10, TICK), 0);
        expect_promise();
    }
    return resident_ms / ms;
}

static void expect_back_within(uint64_t ms, size_t mib)
{
    pass(ms, 0);
    expect_op(mib_kept(), <=, mib / 10);
}

FRESH_TEST(rare_bursts_go_back_at_once)
{
    (void)argument;
    start();
    pass(10000, 0);
    expect_op(bursts(64, 30000, 600000), <=, 64 / 8);
    expect(hak_load(&hak__return_counts.regretted[HAK_UNUSED_SUPERS], HAK_RELAXED) != 0);
    expect_back_within(2000, 64);
}

FRESH_TEST(frequent_bursts_stay)
{
    (void)argument;
    start();
    size_t mean = bursts(512, 500, 120000);
    expect_op(mean, >=, 300);
    uint64_t before = spent_ns(), then = fake.now;
    bursts(512, 500, 120000);
    expect_op(spent_ns() - before, <=, (fake.now - then) * 10000 * 5 / 4); /* 1 %, and no burst more than pays for itself */
    expect_back_within(2000, 512);
}

/* What may be spent is spent well: a third of each burst goes back at once, rather than all of it shortly before it is used again. */
FRESH_TEST(bursts_too_large_to_return_go_back_in_part)
{
    (void)argument;
    start();
    bursts(512, 10000, 60000);
    expect_op(bursts(512, 10000, 240000), <=, 512 * 8 / 10);
}

FRESH_TEST(bursts_of_all_sizes_and_periods)
{
    (void)argument;
    static const size_t sizes[] = { 16, 64, 512 };
    static const uint64_t periods[] = { 100, 1000, 10000, 60000 };
    start();
    fake.purge_ns = FAST_PRICE;
    for (size_t size = 0; size < 3; size++) {
        for (size_t i = 0; i < 4; i++) {
            size_t mean = bursts(sizes[size], periods[i], 10 * hak_max(periods[i], 6000));
            print_message("%zu MiB every %zu ms: %zu MiB on the mean\n", sizes[size], (size_t)periods[i], mean);
            expect_op(mean, <=, sizes[size] + 1);
            expect_back_within(2000, sizes[size]);
        }
    }
}

FRESH_TEST(an_idle_process_pays_nothing)
{
    (void)argument;
    start();
    size_t first = take(256);
    pass(1000, 256);
    hak__supers_give(first, 128);
    expect_back_within(2000, 256);
    uint64_t before = spent_ns();
    pass(600000, 0);
    expect_eq(spent_ns() - before, mib_kept() * PRICE);
    expect_eq(mib_kept(), 0);
}

/* A saw tooth of 64 steps of 2 MiB, back and forth, every 20 ms a step: within its period the memory stays. */
FRESH_TEST(saw_teeth_stay)
{
    (void)argument;
    start();
    size_t held[64], n = 0;
    for (unsigned tooth = 0; tooth < 60; tooth++) {
        for (; n < 64; n++, pass(2 * TICK, 2 * n))
            held[n] = take(2);
        while (n > 0) {
            hak__supers_give(held[--n], 1);
            pass(2 * TICK, 2 * n);
        }
        expect_promise();
    }
    expect_back_within(5000, 128); /* twice the tooth: nobody can tell sooner that it has ended */
}

FRESH_TEST(regret_is_what_comes_back_soon)
{
    (void)argument;
    start();
    size_t first = take(16);
    hak__supers_give(first, 8);
    expect_op(hak__arena_purge(fake.now, true), ==, 16 * MIB);
    expect_eq(hak_load(&hak__return_counts.returned[HAK_UNUSED_SUPERS], HAK_RELAXED), 16 * MIB);
    expect_eq(hak_load(&hak__return_counts.cost_ns, HAK_RELAXED), 16 * PRICE);
    fake.now += 4000;
    take(8);
    expect_eq(hak_load(&hak__return_counts.regretted[HAK_UNUSED_SUPERS], HAK_RELAXED), 8 * MIB);
    expect_op(hak_load(&hak__return_counts.regret_ns, HAK_RELAXED), >=, 8 * 128000);
    expect_op(hak__return_period(fake.now), >, 800); /* learned */
    fake.now += HAK_RETURN_LATEST;
    take(8); /* too late for any delay */
    expect_eq(hak_load(&hak__return_counts.regretted[HAK_UNUSED_SUPERS], HAK_RELAXED), 8 * MIB);
    take(8); /* new memory */
    expect_eq(hak_load(&hak__return_counts.regretted[HAK_UNUSED_SUPERS], HAK_RELAXED), 8 * MIB);
}

FRESH_TEST(a_larger_share_returns_more)
{
    (void)argument;
    start();
    size_t little = bursts(128, 1000, 120000);
    expect_eq(hak__option_set("return", "50%"), 0);
    expect_op(bursts(128, 1000, 120000), <, little / 2);
}

FRESH_TEST(a_fixed_delay_counts_no_cost)
{
    (void)argument;
    start();
    expect_eq(hak__option_set("purge_delay", "100"), 0);
    expect_op(bursts(512, 1000, 60000), <=, 512 / 4);
    expect_op(spent_ns(), >, 60000 * 10000);
    expect_eq(hak__return_ask((struct hak_retention){ 0 }, fake.now).delay_ms[HAK_UNUSED_PAGES], 50);
    expect_eq(hak__return_horizon(fake.now), 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rare_bursts_go_back_at_once),
        cmocka_unit_test(frequent_bursts_stay),
        cmocka_unit_test(bursts_too_large_to_return_go_back_in_part),
        cmocka_unit_test(bursts_of_all_sizes_and_periods),
        cmocka_unit_test(an_idle_process_pays_nothing),
        cmocka_unit_test(saw_teeth_stay),
        cmocka_unit_test(regret_is_what_comes_back_soon),
        cmocka_unit_test(a_larger_share_returns_more),
        cmocka_unit_test(a_fixed_delay_counts_no_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
