/* arena/hugepages.h: a SuperSlab is made a huge page when it is opened if the one opened before for such blocks has been touched nearly
 * everywhere; one in eight is left as it is; a heap that is small or sparse, a kernel without huge pages and a user who wants none
 * change nothing. */
#include "arena/hugepages.h"

#include "arena/limit.h"
#include "arena/runs.h"
#include "diag/options.h"
#include "span/pool.h"
#include "support/fake_os.h"

enum { SMALL_HEAP = 8, EVERY = 8, PAUSE = 64 };

static void start(void)
{
    fake_install();
    fake.huge_setting = HAK_OS_HUGE_MADVISE;
    fake.huge_pages = true;
    expect_eq(hak__arena_init(), 0);
}

static size_t resident(size_t super)
{
    static unsigned char pages[HAK_SUPER_SIZE / 4096];
    size_t count = 0;
    expect_eq(hak__os_resident((uintptr_t)hak__super_start(super), HAK_SUPER_SIZE, pages), 0);
    for (size_t i = 0; i < HAK_SUPER_SIZE / 4096; i++)
        count += pages[i] & 1;
    return count;
}

/* Opens a SuperSlab and touches one page in `step` of it. */
static size_t open_and_touch(enum hak_opening opening, size_t step)
{
    bool fresh = false;
    size_t slab = hak__pool_open(HAK_SUPER_SLABS / 2, opening, &fresh), super = slab / HAK_SUPER_SLABS;
    expect(slab != HAK_NO_RUN && fresh);
    for (size_t at = 0; at < HAK_SUPER_SIZE; at += step * 4096)
        hak__super_start(super)[at] = 1;
    return super;
}

static unsigned prefaults(void) { return (unsigned)atomic_load(&hak__thp_counts.prefaulted); }

FRESH_TEST_OF_SMALL_PAGES(a_dense_heap_is_prefaulted)
{
    (void)argument;
    start();
    for (int i = 0; i < SMALL_HEAP; i++)
        open_and_touch(HAK_OPEN_SMALL, 1);
    expect_eq(fake.advices[HAK_OS_HUGE], 0);   /* small so far */
    unsigned ready = 0;
    for (int i = 0; i < 4 * EVERY; i++) {
        bool fresh;
        unsigned before = prefaults();
        size_t super = hak__pool_open(HAK_SUPER_SLABS / 2, HAK_OPEN_SMALL, &fresh) / HAK_SUPER_SLABS;
        expect(fresh && is_zero(hak__super_start(super), 4096));
        bool whole = prefaults() != before;
        expect_eq(whole, fake.advices[HAK_OS_HUGE] != before);
        ready += whole;
        memset(hak__super_start(super), 1, HAK_SUPER_SIZE);
    }
    expect_eq(ready, 4 * (EVERY - 1));
    expect_eq(fake.advices[HAK_OS_NO_HUGE], ready);   /* what goes back comes page by page */
    expect(hak__arena_is_valid());
}

FRESH_TEST_OF_SMALL_PAGES(a_sparse_heap_is_not)
{
    (void)argument;
    start();
    for (int i = 0; i < 3 * EVERY; i++)
        open_and_touch(HAK_OPEN_SMALL, 2);
    expect_eq(fake.advices[HAK_OS_HUGE], 0);
    /* It becomes dense: the next one to be opened is the first. */
    open_and_touch(HAK_OPEN_SMALL, 1);
    expect_eq(fake.advices[HAK_OS_HUGE], 0);
    size_t super = open_and_touch(HAK_OPEN_SMALL, 512);
    expect_eq(fake.advices[HAK_OS_HUGE], 1);
    expect_eq(resident(super), HAK_SUPER_SIZE / 4096);
}

/* One look at a sparse probe ends it. */
FRESH_TEST_OF_SMALL_PAGES(what_becomes_sparse_is_left_alone)
{
    (void)argument;
    start();
    for (int i = 0; i < SMALL_HEAP + EVERY; i++)
        open_and_touch(HAK_OPEN_SMALL, 1);
    expect_op(prefaults(), >, 0);
    for (int i = 0; i < EVERY; i++)   /* among these is a probe */
        open_and_touch(HAK_OPEN_SMALL, 4);
    unsigned before = prefaults();
    for (int i = 0; i < 3 * EVERY; i++)
        open_and_touch(HAK_OPEN_SMALL, 4);
    expect_eq(prefaults(), before);
}

FRESH_TEST_OF_SMALL_PAGES(large_blocks_are_left_alone)
{
    (void)argument;
    start();
    for (int i = 0; i < 2 * EVERY; i++) {
        open_and_touch(HAK_OPEN_SMALL, 1);
        unsigned before = prefaults();
        open_and_touch(HAK_OPEN_LARGE, 16);   /* and says nothing of the others */
        expect_eq(prefaults(), before);
    }
    expect_op(prefaults(), >=, EVERY);
}

/* A kernel that has none at hand may have searched: it is not asked again for a while. */
FRESH_TEST_OF_SMALL_PAGES(a_refusal_is_heard)
{
    (void)argument;
    start();
    fake.huge_pages = false;
    for (int i = 0; i < SMALL_HEAP + 2; i++)
        open_and_touch(HAK_OPEN_SMALL, 1);
    expect_eq(fake.advices[HAK_OS_HUGE], 1);
    expect_eq(prefaults(), 0);
    for (int i = 0; i < PAUSE; i++)
        open_and_touch(HAK_OPEN_SMALL, 1);
    expect_eq(fake.advices[HAK_OS_HUGE], 1);
    fake.huge_pages = true;
    for (int i = 0; i < 3 * EVERY; i++)
        open_and_touch(HAK_OPEN_SMALL, 1);
    expect_op(prefaults(), >=, EVERY);
}

static void expect_never(void)
{
    for (int i = 0; i < SMALL_HEAP + 2 * EVERY; i++) {
        bool fresh;
        memset(hak__slab_start(hak__pool_open(HAK_SUPER_SLABS / 2, HAK_OPEN_SMALL, &fresh)), 1, HAK_SUPER_SIZE);
    }
    expect_eq(fake.advices[HAK_OS_HUGE] + prefaults(), 0);
}

FRESH_TEST_OF_SMALL_PAGES(not_if_the_user_wants_none)
{
    (void)argument;
    char *environment[] = { "HAKMEM_THP=never", NULL };
    fake_install();
    fake.huge_setting = HAK_OS_HUGE_MADVISE;
    hak__options_read_from(NULL, environment);
    expect_eq(hak__arena_init(), 0);
    expect_never();
}

FRESH_TEST_OF_SMALL_PAGES(not_where_the_system_has_none)
{
    (void)argument;
    start();
    fake.huge_setting = HAK_OS_HUGE_NEVER;
    expect_never();
}

FRESH_TEST_OF_SMALL_PAGES(not_where_memory_counts_that_nobody_uses)
{
    (void)argument;
    start();
    hak__ahead_end();
    expect_never();
}

/* The kernel moves one mapping at a time, so a huge block's run becomes one again. */
FRESH_TEST_OF_SMALL_PAGES(a_run_is_one_mapping)
{
    (void)argument;
    bool fresh;
    size_t opened[2 * EVERY];
    start();
    for (int i = 0; i < 2 * EVERY; i++)
        opened[i] = open_and_touch(HAK_OPEN_SMALL, 1);
    for (int i = 0; i < 2 * EVERY; i++)
        hak__pool_give(opened[i] * HAK_SUPER_SLABS, HAK_SUPER_SLABS / 2);
    unsigned before = fake.advices[HAK_OS_NO_HUGE];
    size_t first = hak__supers_take(2 * EVERY, 1, 2 * EVERY * HAK_SUPER_SIZE, HAK_SUPER_HUGE, &fresh);
    expect_eq(fake.advices[HAK_OS_NO_HUGE], before + 1);
    expect_eq(fake.advised, (uintptr_t)hak__super_start(first));
    hak__supers_give(first, 2 * EVERY);
    hak__supers_take(2 * EVERY, 1, 2 * EVERY * HAK_SUPER_SIZE, HAK_SUPER_HUGE, &fresh);
    expect_eq(fake.advices[HAK_OS_NO_HUGE], before + 1);   /* it is one */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dense_heap_is_prefaulted), cmocka_unit_test(a_sparse_heap_is_not),
        cmocka_unit_test(what_becomes_sparse_is_left_alone), cmocka_unit_test(large_blocks_are_left_alone),
        cmocka_unit_test(a_refusal_is_heard), cmocka_unit_test(not_if_the_user_wants_none),
        cmocka_unit_test(not_where_the_system_has_none), cmocka_unit_test(not_where_memory_counts_that_nobody_uses),
        cmocka_unit_test(a_run_is_one_mapping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
