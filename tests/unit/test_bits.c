/* base/bits.h against the plainest code that does the same: rounding, counts, masks of the whole width, and the places
 * where runs of ones begin. */
#include "base/bits.h"

#include "support/check.h"

static void rounding(void **state)
{
    (void)state;
    for (unsigned shift = 0; shift < 12; shift++) {
        size_t step = (size_t)1 << shift;
        for (size_t n = 0; n < 5000; n++) {
            size_t up = (n + step - 1) / step * step;
            expect_eq(hak_align_up(n, step), up);
            expect_eq(hak_align_down(n, step), n / step * step);
            expect_eq(hak_div_up(n, step), up / step);
        }
    }
    expect_eq(hak_div_up(10, 3), 4);
    expect_eq(hak_min(3, 4), 3);
    expect_eq(hak_min(4, 3), 3);
    expect_eq(hak_max(3, 4), 4);
    expect_eq(hak_max(4, 3), 4);
}

static void powers_of_two(void **state)
{
    (void)state;
    expect(!hak_is_power_of_two(0));
    expect(!hak_is_power_of_two((size_t)-1));
    for (unsigned shift = 0; shift < 64; shift++) {
        size_t power = (size_t)1 << shift;
        expect(hak_is_power_of_two(power));
        expect(power < 4 || !hak_is_power_of_two(power - 1));
        expect(power < 2 || !hak_is_power_of_two(power + 1));
        expect_eq(hak_msb64(power), shift);
        expect_eq(hak_msb64(power | 1), shift);
        expect_eq(hak_ctz64(power), shift);
        expect_eq(hak_ctz64(power | 1ull << 63), shift);
        expect(shift >= 32 || hak_ctz32((uint32_t)power) == shift);
    }
}

static void counts_and_masks(void **state)
{
    (void)state;
    uint64_t mask = 0;
    for (unsigned n = 0; n <= 64; n++) {
        expect_eq(hak_ones64(n), mask);
        expect_eq(hak_ones32(n), (uint32_t)mask);
        expect_eq(hak_popcount64(mask), n);
        expect_eq(hak_popcount32((uint32_t)mask), n < 32 ? n : 32);
        mask = mask << 1 | 1;
    }
    expect_eq(hak_ones64(200), ~0ull);
    expect_eq(hak_ones32(200), ~0u);
}

/* Bit i of the result: bits i .. i + length - 1 are all set. */
static uint32_t run_starts_plainly(uint32_t mask, unsigned length)
{
    uint32_t starts = 0;
    for (unsigned i = 0; i + length <= 32; i++) {
        bool all = true;
        for (unsigned j = i; j < i + length; j++)
            all &= mask >> j & 1;
        starts |= (uint32_t)all << i;
    }
    return starts;
}

static void runs(void **state)
{
    (void)state;
    struct rng rng = { 1 };
    for (unsigned round = 0; round < 2000; round++) {
        uint32_t mask = (uint32_t)rng_next(&rng);
        if (round % 2)
            mask |= (uint32_t)rng_next(&rng);
        if (round % 3)
            mask |= (uint32_t)rng_next(&rng);
        if (round == 0)
            mask = ~0u;
        for (unsigned length = 1; length <= 32; length++)
            expect_eq(hak_run_starts(mask, length), run_starts_plainly(mask, length));
    }
    expect_eq(hak_run_starts(0, 1), 0);
}

/* --- texts ------------------------------------------------------------------------------------------------------------ */

/* hak_begins: what a text begins with, which may be all of it or nothing. */

static void beginnings(void **state)
{
    (void)state;
    expect(hak_begins("free", "free"));
    expect(hak_begins("free_sized", "free"));
    expect(hak_begins("free", ""));
    expect(hak_begins("", ""));
    expect(!hak_begins("fre", "free"));
    expect(!hak_begins("", "free"));
    expect(!hak_begins("realloc", "free"));
    expect(!hak_begins("frei", "free"));
}

static void texts_are_cut_between_characters(void **state)
{
    static const char text[] = "a\303\244\360\237\247\200";   /* 1, 2 and 4 bytes */
    static const size_t kept[] = { 0, 1, 1, 3, 3, 3, 3, 7, 7 };
    (void)state;
    for (size_t most = 0; most < sizeof kept / sizeof kept[0]; most++)
        expect_eq(hak_text_within(text, most), kept[most]);
    expect_eq(hak_text_within("", 0), 0);
    expect_eq(hak_text_within("\200\200", 1), 0);   /* no text */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding),
        cmocka_unit_test(powers_of_two),
        cmocka_unit_test(counts_and_masks),
        cmocka_unit_test(runs),
        cmocka_unit_test(beginnings),
        cmocka_unit_test(texts_are_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
