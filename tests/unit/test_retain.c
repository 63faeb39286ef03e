/* base/retain.h as tables: what may stay of each kind, for what is in use, its recent peak, the limits and pressure; how long a peak
 * counts; a thread's large blocks; and the smaller questions. */
#include "base/retain.h"

#include "support/check.h"

#define MIB ((size_t)1 << 20)

/* In MiB: used, taken, recent_peak, dirty_limit, emptied_limit; then what may stay. */
static const struct {
    const char *what;
    size_t used, taken, peak, dirty_limit, emptied_limit;
    bool pressure;
    size_t emptied, unused, growth, reserve, waiting;
} retain_table[] = {
    { "nothing was ever used", 0, 0, 0, 16, 20, false, 20, 18, 16, 0, 64 },
    { "a buffer of 40 MiB was freed", 0, 0, 40, 16, 20, false, 40, 18, 56, 0, 64 },
    { "the same under pressure", 0, 0, 40, 16, 20, true, 20, 18, 56, 0, 0 },
    { "half of it is used again", 20, 20, 40, 16, 20, false, 26, 20, 36, 5, 64 },
    { "what is free and as new is no room", 48, 0, 40, 16, 20, false, 40, 24, 56, 0, 64 },
    { "a small peak adds nothing to the fixed amount", 0, 0, 8, 16, 20, false, 20, 18, 24, 0, 64 },
    { "no more than four times the dirty limit", 0, 0, 1000, 16, 20, false, 64, 18, 1016, 0, 64 },
    { "a small limit bounds the peak too", 0, 0, 1000, 4, 5, false, 16, 4, 1004, 0, 16 },
    { "nothing may stay", 0, 0, 1000, 0, 0, false, 0, 0, 1000, 0, 0 },
    { "in use is the peak: the share alone", 300, 300, 300, 16, 20, false, 120, 60, 16, 75, 64 },
    { "a peak below what is in use is none", 300, 300, 200, 16, 20, false, 120, 60, 16, 75, 64 },
};

static void what_may_stay(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof retain_table / sizeof *retain_table; i++) {
        const struct hak_retention in = {
            .used = retain_table[i].used * MIB, .taken = retain_table[i].taken * MIB,
            .recent_peak = retain_table[i].peak * MIB, .dirty_limit = retain_table[i].dirty_limit * MIB,
            .emptied_limit = retain_table[i].emptied_limit * MIB, .pressure = retain_table[i].pressure,
        };
        struct hak_retained out = hak__retain(in);
        print_message("%s\n", retain_table[i].what);
        expect_eq(out.emptied / MIB, retain_table[i].emptied);
        expect_eq(out.unused / MIB, retain_table[i].unused);
        expect_eq(out.growth / MIB, retain_table[i].growth);
        expect_eq(out.reserve / MIB, retain_table[i].reserve);
        expect_eq(out.waiting / MIB, retain_table[i].waiting);
    }
}

static void limit_of_any_size(void **state)
{
    (void)state;
    const struct hak_retention in = { .recent_peak = SIZE_MAX / 2, .dirty_limit = SIZE_MAX / 3 };
    expect_eq(hak__retain(in).emptied, SIZE_MAX / 2);
}

static void peak_of_two_periods(void **state)
{
    (void)state;
    struct hak_recent recent = { 0 };
    expect_eq(hak__recent_peak(&recent, 5, 10000, 800), 5);
    expect_eq(hak__recent_peak(&recent, 40, 10100, 800), 40);
    expect_eq(hak__recent_peak(&recent, 7, 10700, 800), 40);
    expect_eq(hak__recent_peak(&recent, 7, 10800, 800), 40);   /* the period before */
    expect_eq(hak__recent_peak(&recent, 9, 11599, 800), 40);
    expect_eq(hak__recent_peak(&recent, 3, 11600, 800), 9);
    expect_eq(hak__recent_peak(&recent, 2, 13200, 800), 2);    /* two periods without a look: all is forgotten */
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
            .used = large_table[i].used * MIB, .cached = large_table[i].cached * MIB, .peak = large_table[i].peak * MIB,
            .budget = large_table[i].budget * MIB, .spent = large_table[i].spent * MIB,
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
    expect(!hak__retain_assigned(MIB, MIB));         /* all of it is gone again */
    expect(!hak__retain_assigned(0, MIB));           /* freed before it was counted */
    expect(hak__retain_empty_span(true, 16 << 10));
    expect(!hak__retain_empty_span(true, (16 << 10) + 1));
    expect(!hak__retain_empty_span(false, 16));
    expect(hak__retain_idle_span(399, 800));
    expect(!hak__retain_idle_span(400, 800));
    expect(!hak__retain_idle_span(0, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_may_stay),
        cmocka_unit_test(limit_of_any_size),
        cmocka_unit_test(peak_of_two_periods),
        cmocka_unit_test(no_delay_no_peak),
        cmocka_unit_test(large_blocks_that_may_stay),
        cmocka_unit_test(smaller_questions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
