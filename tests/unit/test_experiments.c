/* cache/experiments.h: by default each option of an experiment gives what the design says; set, it gives the experiment's value. */
#include "cache/experiments.h"

#include "hakmem.h"
#include "support/check.h"

static void set(enum hak_option option, uint64_t value) { hak_store(&hak__option_words[option], value, HAK_RELAXED); }

static struct hak_heap heap;

FRESH_TEST(defaults)
{
    (void)argument;
    expect(hak__options_read());
    hak__experiments_open(&heap);
    expect(!heap.budget.fixed && !heap.warm_fixed && heap.classes[0].warm_budget == 0);
    expect_eq(heap.refill_count, 32);
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        expect(hak__bin_ceiling(c) != 0);
        expect(!hak__slots_are_local(c));
    }
}

/* The cache of the tiny pool off: no bin of it may hold anything, and the others stay as they are. */
FRESH_TEST(no_unified_cache)
{
    (void)argument;
    expect(hak__options_read());
    uint32_t mid = hak__bin_ceiling(HAK_CLASS_MID_LAST);
    set(HAK_OPTION_tiny_unified_cache, 0);
    for (uint32_t c = 0; c <= HAK_CLASS_TINY_LAST; c++)
        expect_eq(hak__bin_ceiling(c), 0);
    expect_eq(hak__bin_ceiling(HAK_CLASS_MID_LAST), mid);
    set(HAK_OPTION_tiny_unified_cache, 1);
}

/* Each band has its own capacity, and local slots are those of one band. */
FRESH_TEST(bands)
{
    (void)argument;
    expect(hak__options_read());
    set((enum hak_option)(HAK_OPTION_tiny_unified_c0 + 4), 77);
    set((enum hak_option)(HAK_OPTION_tiny_c2_local_cache + 2), 1);
    for (uint32_t c = 0; c <= HAK_CLASS_TINY_LAST; c++) {
        expect_eq(hak__bin_ceiling(c) == 77, hak__band_of(c) == 4);
        expect_eq(hak__slots_are_local(c), hak__band_of(c) == 4);
    }
}

/* What a heap begins with, and keeps. */
FRESH_TEST(of_a_heap)
{
    (void)argument;
    expect(hak__options_read());
    expect_eq(hak__option_set("refill_count", "256"), 0);
    expect_eq(hak__option_set("warm_pool_prefill", "0"), 0);
    expect_eq(hak__option_set("ring_adapt", "0"), 0);
    hak__experiments_open(&heap);
    expect(heap.budget.fixed && heap.warm_fixed && heap.classes[3].warm_budget == 0);
    expect_eq(heap.refill_count, 256);
    expect_eq(hak__option_set("warm_pool_prefill", "7"), 0);
    hak__experiments_open(&heap);
    expect_eq(heap.classes[3].warm_budget, 7);
}

/* The slots of classes that become local later serve other bins already. */
FRESH_TEST(set_too_late)
{
    (void)argument;
    enum { BLOCKS = 100, LATE = 192, STEP = 16, MOST = 1024 };
    unsigned char *blocks[MOST / STEP][BLOCKS];
    for (unsigned round = 0; round < 20; round++) {
        for (uint32_t band = 2; round == 1 && band <= 6; band++)
            set((enum hak_option)(HAK_OPTION_tiny_c2_local_cache + band - 2), 1);
        for (unsigned size = round == 0 ? LATE : STEP; size < MOST; size += STEP)
            for (unsigned i = 0; i < BLOCKS; i++)
                memset(blocks[size / STEP][i] = hak_malloc(size), (int)(size / STEP), size);
        for (unsigned size = round == 0 ? LATE : STEP; size < MOST; size += STEP)
            for (unsigned i = 0; i < BLOCKS; i++) {
                expect_op(hak_usable_size(blocks[size / STEP][i]), >=, size);
                for (unsigned at = 0; at < size; at++)
                    expect_eq(blocks[size / STEP][i][at], size / STEP);
                hak_free(blocks[size / STEP][i]);
            }
        expect(hak_check_heap());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults), cmocka_unit_test(no_unified_cache), cmocka_unit_test(bands), cmocka_unit_test(of_a_heap), cmocka_unit_test(set_too_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
