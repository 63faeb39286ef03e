/* arena/mapping.h on a steered system: a run's gaps are mapped, one call each, and what fails says where; trimming, purging parts of a
 * SuperSlab, with the bound of HAKMEM_UNMAP. */
#include "arena/mapping.h"

#include "arena/limit.h"
#include "arena/runs.h"
#include "diag/options.h"
#include "span/pool.h"
#include "support/fake_os.h"

enum { MIB = 1 << 20 };

static void start(size_t taken, enum hak_super_kind kind)
{
    bool fresh;
    fake_install();
    expect_eq(hak__arena_init(), 0);
    for (size_t i = 0; i < taken; i++)
        expect_eq(hak__supers_take(1, 1, kind == HAK_SUPER_HUGE ? 0 : HAK_SUPER_SIZE, kind, &fresh), i);
}

FRESH_TEST(gaps_are_mapped_by_one_call_each)
{
    size_t at;
    (void)argument;
    start(4, HAK_SUPER_HUGE);
    hak__arena_lock();
    expect_eq(hak__run_map(1, 1, MIB, &at), 0);
    unsigned maps = fake.maps;
    size_t mapped = fake.mapped;
    expect_eq(hak__run_map(0, 4, 3 * HAK_SUPER_SIZE + MIB, &at), 0); /* below it, and its rest with what follows */
    expect_eq(fake.maps - maps, 2);
    expect_eq(fake.mapped - mapped, 3 * HAK_SUPER_SIZE);
    expect_eq(hak__supers[3].mapped, MIB);
    expect_eq(hak__run_map(0, 4, 3 * HAK_SUPER_SIZE, &at), 0); /* all is there */
    expect_eq(fake.maps - maps, 2);
    hak__arena_unlock();
    expect(hak__arena_is_valid());
}

FRESH_TEST(a_failure_says_where)
{
    size_t at;
    (void)argument;
    start(4, HAK_SUPER_HUGE);
    fake_add_foreign(hak__super_start(2) + MIB, MIB);
    hak__arena_lock();
    expect_eq(hak__run_map(0, 4, 4 * HAK_SUPER_SIZE, &at), EEXIST);
    expect_eq(at, 2);
    expect_eq(hak__supers[1].mapped, HAK_SUPER_SIZE); /* and is accounted for */
    expect_eq(hak__supers[2].mapped, 0);
    hak__arena_unlock();
    expect(hak__arena_is_valid());
}

FRESH_TEST(trimmed_from_the_end)
{
    size_t at;
    (void)argument;
    start(3, HAK_SUPER_HUGE);
    hak__arena_lock();
    expect_eq(hak__run_map(0, 3, 3 * HAK_SUPER_SIZE, &at), 0);
    expect(hak__run_trim(0, 3, HAK_SUPER_SIZE + MIB));
    expect(is_mapped(hak__super_start(1) + MIB - 1) && !is_mapped(hak__super_start(1) + MIB));
    fake.refuse_unmap = true;
    expect(!hak__run_trim(0, 3, 0));
    expect_eq(hak__supers[1].mapped, MIB);
    hak__arena_unlock();
    expect(hak__arena_is_valid());
}

FRESH_TEST(a_purged_range_reads_as_zeros)
{
    (void)argument;
    start(1, HAK_SUPER_IN_SLABS);
    char *p = hak__super_start(0);
    memset(p, 1, 2 * MIB);
    expect(hak__arena_purge_range(p, MIB, HAK_UNUSED_SLABS));
    expect(is_zero(p, MIB));
    expect_eq(p[MIB], 1);
    fake.refuse_purge = true;
    expect(!hak__arena_purge_range(p + MIB, MIB, HAK_UNUSED_SLABS));
    expect_eq(p[MIB], 1);
}

FRESH_TEST(purged_and_mapped_memory_is_bounded_where_mappings_count)
{
    (void)argument;
    start(10, HAK_SUPER_IN_SLABS);
    expect_eq(hak__option_set("unmap", "1"), 0);
    size_t purged = 0;
    for (size_t i = 0; i < 10; i++)
        purged += hak__arena_purge_range(hak__super_start(i), 2 * MIB, HAK_UNUSED_SLABS) ? 2 * MIB : 0;
    expect_eq(purged, 16 * MIB);
    hak__super_set_purged(0, 0);
    expect(hak__arena_purge_range(hak__super_start(9), 2 * MIB, HAK_UNUSED_SLABS));
}

static void purge_two_at_once(void *argument)
{
    (void)argument;
    start(2, HAK_SUPER_IN_SLABS);
    hak__arena_purge_range(hak__super_start(0) + MIB, 2 * MIB, HAK_UNUSED_SLABS);
}

static void trim_what_is_free(void *argument)
{
    (void)argument;
    start(2, HAK_SUPER_HUGE);
    hak__supers_give(1, 1);
    hak__arena_lock();
    hak__run_trim(0, 2, 0);
}

static void contracts(void **state)
{
    (void)state;
    expect_contract(purge_two_at_once, NULL, "the range lies in one SuperSlab");
    expect_contract(trim_what_is_free, NULL, "the run is the caller's");
}

/* --- huge pages ------------------------------------------------------------------------------------------------------- */

/* arena/mapping.h: a SuperSlab is made a huge page when it is opened if the one opened before for such blocks has been touched nearly
 * everywhere; one in eight is left as it is; a heap that is small or sparse, a kernel without huge pages and a user who wants none
 * change nothing. */

enum { SMALL_HEAP = 8, EVERY = 8, PAUSE = 64 };

static void start_with(enum hak_os_huge_setting setting)
{
    fake_install();
    fake.huge_setting = setting;
    fake.huge_pages = true;
    expect_eq(hak__arena_init(), 0);
    hak__thp_look();
}

static void start_huge(void) { start_with(HAK_OS_HUGE_MADVISE); }

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
    start_huge();
    for (int i = 0; i < SMALL_HEAP; i++)
        open_and_touch(HAK_OPEN_SMALL, 1);
    expect_eq(fake.advices[HAK_OS_HUGE], 0); /* small so far */
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
    expect_eq(fake.advices[HAK_OS_NO_HUGE], ready); /* what goes back comes page by page */
    expect(hak__arena_is_valid());
}

FRESH_TEST_OF_SMALL_PAGES(a_sparse_heap_is_not)
{
    (void)argument;
    start_huge();
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
    start_huge();
    for (int i = 0; i < SMALL_HEAP + EVERY; i++)
        open_and_touch(HAK_OPEN_SMALL, 1);
    expect_op(prefaults(), >, 0);
    for (int i = 0; i < EVERY; i++) /* among these is a probe */
        open_and_touch(HAK_OPEN_SMALL, 4);
    unsigned before = prefaults();
    for (int i = 0; i < 3 * EVERY; i++)
        open_and_touch(HAK_OPEN_SMALL, 4);
    expect_eq(prefaults(), before);
}

FRESH_TEST_OF_SMALL_PAGES(large_blocks_are_left_alone)
{
    (void)argument;
    start_huge();
    for (int i = 0; i < 2 * EVERY; i++) {
        open_and_touch(HAK_OPEN_SMALL, 1);
        unsigned before = prefaults();
        open_and_touch(HAK_OPEN_LARGE, 16); /* and says nothing of the others */
        expect_eq(prefaults(), before);
    }
    expect_op(prefaults(), >=, EVERY);
}

/* A kernel that has none at hand may have searched: it is not asked again for a while. */
FRESH_TEST_OF_SMALL_PAGES(a_refusal_is_heard)
{
    (void)argument;
    start_huge();
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
    hak__thp_look();
    expect_never();
}

FRESH_TEST_OF_SMALL_PAGES(not_where_the_system_has_none)
{
    (void)argument;
    start_with(HAK_OS_HUGE_NEVER);
    expect_never();
}

/* Nobody has looked at the setting: memory is marked, and so is what is mapped behind a marked part of a SuperSlab later, lest it be two
 * mappings. */
FRESH_TEST_OF_SMALL_PAGES(marked_while_nothing_is_known)
{
    (void)argument;
    bool fresh;
    fake_install();
    fake.huge_setting = HAK_OS_HUGE_MADVISE;
    expect_eq(hak__arena_init(), 0);
    size_t first = hak__supers_take(2, 1, HAK_SUPER_SIZE + HAK_SUPER_SIZE / 2, HAK_SUPER_HUGE, &fresh);
    expect_eq(fake.advices[HAK_OS_NO_HUGE], 1);
    expect(hak__supers[first].no_huge && hak__supers[first + 1].no_huge);
    expect(hak__thp_look());
    hak__supers_give(first, 2);
    expect_eq(hak__supers_take(4, 1, 4 * HAK_SUPER_SIZE, HAK_SUPER_HUGE, &fresh), first);
    expect_eq(fake.advices[HAK_OS_NO_HUGE], 3); /* the other half, and the run made even */
    expect(hak__arena_is_valid());
}

FRESH_TEST_OF_SMALL_PAGES(not_where_memory_counts_that_nobody_uses)
{
    (void)argument;
    start_huge();
    hak__ahead_end();
    expect_never();
}

/* The kernel moves one mapping at a time, so a huge block's run becomes one again. */
FRESH_TEST_OF_SMALL_PAGES(a_run_is_one_mapping)
{
    (void)argument;
    bool fresh;
    size_t opened[2 * EVERY];
    start_huge();
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
    expect_eq(fake.advices[HAK_OS_NO_HUGE], before + 1); /* it is one */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gaps_are_mapped_by_one_call_each),
        cmocka_unit_test(a_failure_says_where),
        cmocka_unit_test(trimmed_from_the_end),
        cmocka_unit_test(a_purged_range_reads_as_zeros),
        cmocka_unit_test(purged_and_mapped_memory_is_bounded_where_mappings_count),
        cmocka_unit_test(contracts),
        cmocka_unit_test(a_dense_heap_is_prefaulted),
        cmocka_unit_test(a_sparse_heap_is_not),
        cmocka_unit_test(what_becomes_sparse_is_left_alone),
        cmocka_unit_test(large_blocks_are_left_alone),
        cmocka_unit_test(a_refusal_is_heard),
        cmocka_unit_test(not_if_the_user_wants_none),
        cmocka_unit_test(not_where_the_system_has_none),
        cmocka_unit_test(marked_while_nothing_is_known),
        cmocka_unit_test(not_where_memory_counts_that_nobody_uses),
        cmocka_unit_test(a_run_is_one_mapping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
