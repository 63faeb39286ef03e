/* arena/returned.h end to end, with a clock that only the test moves and an own price of returning: bursts of several sizes and
 * periods, steady saw teeth and an idle process keep HAKMEM_RETURN's promise, regret is counted where it occurs, delays follow it, and
 * an idle process has its memory back in time. */
#include "arena/returned.h"

#include "arena/retained.h"
#include "arena/runs.h"
#include "diag/options.h"
#include "support/check.h"
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

static void step_takes(uint64_t ms)
{
    hak__return_step((fake.now - ms) * 1000000, hak_load(&hak__return_counts.cost_ns, HAK_RELAXED));
}

/* As when the processor is taken from a thread: neither a step nor a call that does little says what the next will cost. */
FRESH_TEST(one_slow_step_defers_nothing)
{
    (void)argument;
    start();
    for (unsigned i = 0; i < 3; i++, fake.now += HAK_RETURN_MUCH) {
        step_takes(1);
        uint32_t quick = hak__return_ask((struct hak_retention){ 0 }, fake.now).look_ms;
        step_takes(1200);
        expect_op(hak__return_ask((struct hak_retention){ 0 }, fake.now).look_ms, <=, hak_max(quick, 200));
    }
    size_t first = take(64);
    hak__supers_give(first, 32);
    expect_back_within(HAK_RETURN_MUCH, 64);
}

FRESH_TEST(one_slow_call_teaches_little)
{
    (void)argument;
    start();
    for (unsigned i = 0; i < 3; i++) {
        pass(2 * HAK_RETURN_MUCH, 0);
        size_t first = take(2);
        hak__supers_give(first, 1);
        fake.purge_ns = 1000000000;
        hak__arena_purge(fake.now, true);
        fake.purge_ns = PRICE;
        first = take(64);
        pass(100, 64);
        hak__supers_give(first, 32);
        expect_back_within(HAK_RETURN_MUCH, 64);
    }
}

/* Steps that took long are rare, and memory goes back later: who waits for it waits for two more of them. */
FRESH_TEST(slow_steps_defer_the_horizon)
{
    (void)argument;
    start();
    hak__return_ask((struct hak_retention){ 0 }, fake.now);
    uint64_t quick = hak__return_horizon(fake.now);
    step_takes(20);
    step_takes(20);
    uint32_t look_ms = hak__return_ask((struct hak_retention){ 0 }, fake.now).look_ms;
    expect_op(look_ms, >, quick);
    expect_op(hak__return_horizon(fake.now), >=, 2 * look_ms);
}

/* --- the policy, as tables -------------------------------------------------------------------------------------------- */

/* arena/returned.h as tables: what may stay of each kind, for what is in use, its recent peak, the limits and pressure; how long a peak
 * counts; a thread's large blocks; and the smaller questions. */

/* In MiB: used, taken, recent_peak, slack; then what may stay. Returning costs nothing (share 0). */
static const struct {
    const char *what;
    size_t used, taken, peak, slack;
    bool pressure;
    size_t emptied, opening, reserve, waiting;
} retain_table[] = {
    { "nothing was ever used", 0, 0, 0, 16, false, 20, 16, 0, 64 },
    { "a buffer of 40 MiB was freed", 0, 0, 40, 16, false, 40, 18, 0, 64 },
    { "the same under pressure", 0, 0, 40, 16, true, 20, 18, 0, 0 },
    { "half of it is used again", 20, 20, 40, 16, false, 26, 20, 5, 64 },
    { "a tail is taken, and unused", 10, 12, 40, 16, false, 30, 19, 3, 64 },
    { "a small peak adds nothing to the fixed amount", 0, 0, 8, 16, false, 20, 18, 0, 64 },
    { "no more than four times the slack", 0, 0, 1000, 16, false, 64, 18, 0, 64 },
    { "a small limit bounds the peak too", 0, 0, 1000, 4, false, 16, 4, 0, 16 },
    { "nothing may stay", 0, 0, 1000, 0, false, 0, 0, 0, 0 },
    { "in use is the peak: the share alone", 300, 300, 300, 16, false, 120, 16, 75, 64 },
    { "a peak below what is in use is none", 300, 300, 200, 16, false, 120, 16, 75, 64 },
};

static void what_may_stay(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof retain_table / sizeof *retain_table; i++) {
        const struct hak_retention in = {
            .used = retain_table[i].used * MIB,
            .taken = retain_table[i].taken * MIB,
            .recent_peak = retain_table[i].peak * MIB,
            .slack = retain_table[i].slack * MIB,
            .pressure = retain_table[i].pressure,
            .unused = 4096 * MIB,
        };
        struct hak_retained out = hak__retain(in);
        print_message("%s\n", retain_table[i].what);
        expect_eq(out.emptied / MIB, retain_table[i].emptied);
        expect_eq(out.opening / MIB, retain_table[i].opening);
        expect_eq(out.reserve / MIB, retain_table[i].reserve);
        expect_eq(out.waiting / MIB, retain_table[i].waiting);
        expect_eq(out.may_go, SIZE_MAX);
    }
}

static void limit_of_any_size(void **state)
{
    (void)state;
    const struct hak_retention in = { .recent_peak = SIZE_MAX / 2, .slack = SIZE_MAX / 3 };
    expect_eq(hak__retain(in).emptied, SIZE_MAX / 2);
}

/* A process with 600 MiB unused of which 20 may stay; a MiB costs 0.1 ms to return and 0.4 to bring back. */
static struct hak_retention owing(uint64_t owed_ms)
{
    return (struct hak_retention){
        .recent_peak = 600 * MIB,
        .unused = 600 * MIB,
        .slack = 16 * MIB,
        .watched = true,
        .cost = { .owed_ms = owed_ms,
                  .soonest_ms = 50,
                  .delay_ms = { 800, 1200, 400 },
                  .purge_ns = 100000,
                  .fault_ns = 400000,
                  .share = 1 },
    };
}

static void little_owed_memory_goes_soon(void **state)
{
    (void)state;
    struct hak_retained out = hak__retain(owing(0));
    for (unsigned kind = 0; kind < HAK_UNUSED_KINDS; kind++)
        expect_eq(out.delay_ms[kind], 50);
    expect_eq(out.look_ms, 25);
    expect_eq(out.may_go / MIB, 80); /* 4 s are 40 ms of cost, at 0.5 a MiB */
    expect_eq(out.emptied / MIB, 360); /* 12 s are 240 of the 600 */
}

static void more_owed_memory_goes_late(void **state)
{
    (void)state;
    struct hak_retained out = hak__retain(owing(4000));
    expect_eq(out.delay_ms[HAK_UNUSED_SUPERS], 800);
    expect_eq(out.delay_ms[HAK_UNUSED_SLABS], 1200);
    expect_eq(out.delay_ms[HAK_UNUSED_PAGES], 400);
    expect_eq(out.look_ms, 200);
    expect_eq(out.may_go / MIB, 2000); /* 20 s are 200 ms, at 0.1 a MiB */
    expect_eq(out.emptied / MIB, 440); /* 8 s are 160 of the 600 */
    expect_eq(hak__retain(owing(12000)).emptied / MIB, 600);
    expect_eq(hak__retain(owing(24000)).may_go, 0);
    struct hak_retention alone = owing(12000);
    alone.watched = false; /* nothing may look again for long */
    expect_eq(hak__retain(alone).emptied / MIB, 64);
    expect_eq(hak__retain(owing(UINT64_MAX)).may_go, 0);
}

static void as_much_goes_as_the_peak_rises(void **state)
{
    (void)state;
    struct hak_retention in = owing(4000);
    expect_eq(hak__retain(in).at_once, 0);
    in.risen = 40 * MIB;
    expect_eq(hak__retain(in).at_once / MIB, 40);
    in.cost.owed_ms = 11900; /* 0.1 s is 1 ms of cost, at 0.5 a MiB */
    expect_eq(hak__retain(in).at_once / MIB, 2);
    in.cost.owed_ms = 12000;
    expect_eq(hak__retain(in).at_once, 0);
    in.cost.share = 0; /* a fixed delay is kept */
    expect_eq(hak__retain(in).at_once, 0);
}

static void pressure_costs_what_it_may(void **state)
{
    (void)state;
    struct hak_retention in = owing(100000);
    in.pressure = true;
    expect_eq(hak__retain(in).emptied / MIB, 20);
    in.pressure = false;
    in.cost.share = 0; /* nor does a fixed delay count it */
    expect_eq(hak__retain(in).may_go, SIZE_MAX);
    expect_eq(hak__retain(in).emptied / MIB, 64);
}

/* Properties, over many states: the more is owed, the less goes and the later; a larger share lets more go; what may stay never
 * exceeds what is unused unless that is within the amounts. */
static void properties_of_cost(void **state)
{
    (void)state;
    struct rng rng = { 37 };
    for (unsigned i = 0; i < 20000; i++) {
        struct hak_retention in = owing(rng_next(&rng) % 30000), worse = in, richer = in;
        in.unused = worse.unused = richer.unused = rng_next(&rng) % (8192 * MIB);
        in.used = in.taken = worse.used = worse.taken = richer.used = richer.taken = rng_next(&rng) % (8192 * MIB);
        in.cost.purge_ns = worse.cost.purge_ns = richer.cost.purge_ns = 1 + (uint32_t)(rng_next(&rng) % 400000);
        worse.cost.owed_ms += rng_next(&rng) % 10000;
        richer.cost.share = 2 + (uint32_t)(rng_next(&rng) % 49);
        struct hak_retained out = hak__retain(in), less = hak__retain(worse), more = hak__retain(richer);
        bool same = (in.cost.owed_ms < HAK_RETURN_LITTLE) == (worse.cost.owed_ms < HAK_RETURN_LITTLE);
        expect(!same || less.may_go <= out.may_go);
        expect_op(less.emptied, >=, out.emptied);
        expect_op(less.opening, >=, out.opening);
        expect_op(less.delay_ms[0], >=, out.delay_ms[0]);
        expect_op(less.look_ms, >=, out.look_ms);
        expect_op(more.may_go, >=, out.may_go);
        expect_op(more.emptied, <=, out.emptied);
        expect(in.cost.owed_ms < HAK_RETURN_MOST || out.may_go == 0);
    }
}

static void steps_take_their_share(void **state)
{
    (void)state;
    struct hak_retention in = owing(0);
    in.cost.step_ms = 3;
    expect_eq(hak__retain(in).look_ms, 600);
}

static void delays_are_learned(void **state)
{
    (void)state;
    expect_eq(hak__retain_learn(800, 400, 1000000000, 4000, 1), 800); /* it would have gone too late anyway */
    expect_eq(hak__retain_learn(800, 4000, 1000000000, 4000, 1), 5000); /* a quarter more */
    expect_eq(hak__retain_learn(800, 4000, 1000000000, 3999, 1), 800); /* it could be afforded */
    expect_eq(hak__retain_learn(800, 4000, 5000000, 4000, 1), 2900); /* half of what a second may cost: half the way */
    expect_eq(hak__retain_learn(800, 4000, 0, 4000, 1), 800);
    expect_eq(hak__retain_learn(800, 59000, 1000000000, 4000, 1), 60000);
    expect_eq(hak__retain_learn(60000, 60000, 1, 4000, 1), 60000);
    expect_eq(hak__retain_fall(5000, 600000, 800), 2500);
    expect_eq(hak__retain_fall(5000, 12000, 800), 4950);
    expect_eq(hak__retain_fall(1000, 600000, 800), 800);
    expect_eq(hak__retain_fall(5000, UINT64_MAX, 800), 800);
}

static void peak_of_two_periods(void **state)
{
    (void)state;
    struct hak_recent recent = { 0 };
    expect_eq(hak__recent_peak(&recent, 5, 10000, 800), 5);
    expect_eq(hak__recent_peak(&recent, 40, 10100, 800), 40);
    expect_eq(hak__recent_peak(&recent, 7, 10700, 800), 40);
    expect_eq(hak__recent_peak(&recent, 7, 10800, 800), 40); /* the period before */
    expect_eq(hak__recent_peak(&recent, 9, 11599, 800), 40);
    expect_eq(hak__recent_peak(&recent, 3, 11600, 800), 9);
    expect_eq(hak__recent_peak(&recent, 2, 13200, 800), 2); /* two periods without a look: all is forgotten */
}

static void no_delay_no_peak(void **state)
{
    (void)state;
    struct hak_recent recent = { 0 };
    expect_eq(hak__recent_peak(&recent, 40, 100, 0), 40);
    expect_eq(hak__recent_peak(&recent, 1, 100, 0), 1);
}

/* In MiB; what is absent in 256ths. The share is HAK_BUDGET_SHARE, 33 %. */
static const struct {
    const char *what;
    size_t used, cached, peak, budget, spent;
    unsigned absent;
    size_t may;
} large_table[] = {
    { "no budget, no cache", 100, 0, 100, 0, 0, 0, 0 },
    { "nothing was used lately: half the budget", 0, 0, 0, 4, 0, 0, 2 },
    { "what was used a moment ago may stay", 0, 0, 3, 4, 0, 0, 4 },
    { "all in use: the peak leaves its share and half the budget", 100, 0, 100, 4, 0, 0, 35 },
    { "a share of what the spans hold", 0, 100, 100, 4, 0, 0, 37 },
    { "in use and cached together stay near the peak", 98, 2, 100, 8, 0, 0, 39 },
    { "other bins have spent half of it", 0, 0, 100, 8, 4, 0, 4 },
    { "they have spent more than there is", 0, 0, 100, 8, 20, 0, 0 },
    { "they have spent it all: the share is left", 0, 100, 100, 8, 8, 0, 33 },
    { "half is not resident: twice as much", 0, 0, 100, 8, 0, 128, 16 },
    { "no more than four times, whatever is said to be absent", 0, 0, 100, 8, 0, 256, 32 },
};

static void large_blocks_that_may_stay(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof large_table / sizeof *large_table; i++) {
        const struct hak_large_retention in = {
            .used = large_table[i].used * MIB,
            .cached = large_table[i].cached * MIB,
            .peak = large_table[i].peak * MIB,
            .budget = large_table[i].budget * MIB,
            .spent = large_table[i].spent * MIB,
            .absent = large_table[i].absent,
        };
        print_message("%s\n", large_table[i].what);
        expect_eq((hak__retain_large(in) + MIB / 2) / MIB, large_table[i].may);
    }
}

static void smaller_questions(void **state)
{
    (void)state;
    expect(!hak__retain_assigned(MIB / 2 - 1, 0));
    expect(hak__retain_assigned(MIB / 2, 0));
    expect(!hak__retain_assigned(MIB, MIB)); /* all of it is gone again */
    expect(!hak__retain_assigned(0, MIB)); /* freed before it was counted */
    expect(hak__retain_empty_span(true, 16 << 10));
    expect(!hak__retain_empty_span(true, (16 << 10) + 1));
    expect(!hak__retain_empty_span(false, 16));
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
        cmocka_unit_test(one_slow_step_defers_nothing),
        cmocka_unit_test(one_slow_call_teaches_little),
        cmocka_unit_test(slow_steps_defer_the_horizon),
        cmocka_unit_test(what_may_stay),
        cmocka_unit_test(limit_of_any_size),
        cmocka_unit_test(little_owed_memory_goes_soon),
        cmocka_unit_test(more_owed_memory_goes_late),
        cmocka_unit_test(as_much_goes_as_the_peak_rises),
        cmocka_unit_test(pressure_costs_what_it_may),
        cmocka_unit_test(properties_of_cost),
        cmocka_unit_test(steps_take_their_share),
        cmocka_unit_test(delays_are_learned),
        cmocka_unit_test(peak_of_two_periods),
        cmocka_unit_test(no_delay_no_peak),
        cmocka_unit_test(large_blocks_that_may_stay),
        cmocka_unit_test(smaller_questions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
