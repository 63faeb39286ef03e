/* stats/stats.h: off, nothing is timed; on, each time falls into the bucket of its power of two. */
#include "stats/stats.h"

#include "support/check.h"

FRESH_TEST(off_by_default)
{
    (void)argument;
    expect_eq(hak__latency_begin(), 0);
    hak__latency_end(HAK_LATENCY_MALLOC, 0);
    expect_eq(hak__latency_sum(HAK_LATENCY_MALLOC), 0);
    for (unsigned i = 0; i < HAK_LATENCY_BUCKETS; i++)
        expect_eq(hak__latency_bucket(HAK_LATENCY_MALLOC, i), 0);
}

static uint64_t count_from(enum hak_latency_kind kind, unsigned bucket)
{
    uint64_t count = 0;
    for (; bucket < HAK_LATENCY_BUCKETS; bucket++)
        count += hak__latency_bucket(kind, bucket);
    return count;
}

/* What began so long ago took at least that, and a test is not so slow that it takes twice as much. */
FRESH_TEST(buckets)
{
    (void)argument;
    expect_eq(hak__option_set("latency", "1"), 0);
    expect_op(hak__latency_begin(), >, 0);
    hak__latency_end(HAK_LATENCY_FREE, hak__latency_now() - (1ull << 28));
    expect_eq(count_from(HAK_LATENCY_FREE, 0), 1);
    expect_eq(count_from(HAK_LATENCY_FREE, 29), 1);
    expect_op(hak__latency_sum(HAK_LATENCY_FREE), >=, 1ull << 28);
    hak__latency_end(HAK_LATENCY_FREE, hak__latency_now() - (1ull << 50));   /* beyond the last bucket */
    expect_eq(hak__latency_bucket(HAK_LATENCY_FREE, HAK_LATENCY_BUCKETS - 1), 1);
    expect_eq(count_from(HAK_LATENCY_MALLOC, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(off_by_default),
        cmocka_unit_test(buckets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
