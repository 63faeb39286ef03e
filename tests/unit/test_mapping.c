/* arena/mapping.h on a steered system: a run's gaps are mapped, one call each, and what fails says where; trimming, purging parts of a
 * SuperSlab, with the bound of HAKMEM_UNMAP. */
#include "arena/mapping.h"

#include "arena/runs.h"
#include "diag/options.h"
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
    expect_eq(hak__run_map(0, 4, 3 * HAK_SUPER_SIZE + MIB, &at), 0);   /* below it, and its rest with what follows */
    expect_eq(fake.maps - maps, 2);
    expect_eq(fake.mapped - mapped, 3 * HAK_SUPER_SIZE);
    expect_eq(hak__supers[3].mapped, MIB);
    expect_eq(hak__run_map(0, 4, 3 * HAK_SUPER_SIZE, &at), 0);   /* all is there */
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
    expect_eq(hak__supers[1].mapped, HAK_SUPER_SIZE);   /* and is accounted for */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gaps_are_mapped_by_one_call_each),
        cmocka_unit_test(a_failure_says_where),
        cmocka_unit_test(trimmed_from_the_end),
        cmocka_unit_test(a_purged_range_reads_as_zeros),
        cmocka_unit_test(purged_and_mapped_memory_is_bounded_where_mappings_count),
        cmocka_unit_test(contracts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
