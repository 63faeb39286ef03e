/* arena/limit.h: the hard limit refuses after free memory was unmapped, the soft one calls back once per crossing and not
 * inside itself, and what the system allows becomes defaults when 32 MiB are mapped, not before. */
#include "arena/arena.h"
#include "arena/limit.h"
#include "arena/retained.h"
#include "arena/runs.h"

#include "diag/options.h"
#include "support/fake_os.h"
#include "support/figures.h"

enum { MIB = 1 << 20 };

static void start(void)
{
    fake_install();
    expect_eq(hak__arena_init(), 0);
}

static void set(const char *name, const char *value) { expect_eq(hak__option_set(name, value), 0); }

static size_t take(size_t count)
{
    bool fresh;
    size_t first = hak__supers_take(count, 1, count << HAK_SUPER_SHIFT, HAK_SUPER_HUGE, &fresh);
    hak__limit_deliver();
    expect(hak__arena_is_valid());
    return first;
}

static size_t mapped(void)
{
    struct arena_figures figures;
    arena_figures(&figures);
    return figures.mapped;
}

FRESH_TEST(hard)
{
    (void)argument;
    start();
    set("limit", "10M");
    size_t first = take(3);
    expect(first != HAK_NO_SUPER);
    expect_eq(take(3), HAK_NO_SUPER);
    expect(!hak__supers_extend(first, 3, 6, 12 * MIB));
    size_t second = take(2);
    expect(second != HAK_NO_SUPER);
    expect_op(mapped(), <=, 10 * MIB);
    /* What is free is unmapped before anything is refused, wherever it lies. */
    hak__supers_give(first, 3);
    expect(take(1) != HAK_NO_SUPER);
    size_t third = take(2);
    expect(third != HAK_NO_SUPER);
    hak__supers_give(second, 2);
    expect(take(2) != HAK_NO_SUPER);
    expect_op(mapped(), <=, 10 * MIB);
    set("limit", "0");
    expect(take(30) != HAK_NO_SUPER);
}

static unsigned calls;
static size_t told_mapped, told_limit;

static void pressed(size_t bytes, size_t limit, void *argument)
{
    calls++;
    told_mapped = bytes;
    told_limit = limit;
    expect_ptr(argument, &calls);
    take(1); /* more of the same does not call again */
}

FRESH_TEST(soft)
{
    (void)argument;
    start();
    set("soft_limit", "20M");
    hak__limit_set_callback(pressed, &calls);
    errno = 77;
    size_t first = take(8), second = take(4);
    expect_eq(errno, 77);
    expect_eq(calls, 1);
    expect_op(told_mapped, >, 20 * MIB);
    expect_eq(told_limit, 20 * MIB);
    take(1);
    expect_eq(calls, 1);
    hak__supers_give(second, 4);
    hak__arena_purge(fake.now, true);
    take(4);
    expect_eq(calls, 1); /* never below 7/8 in between */
    hak__supers_give(first, 8);
    hak__arena_purge(fake.now, true);
    expect_op(mapped(), <, 20 * MIB * 7 / 8);
    expect(take(8) != HAK_NO_SUPER);
    expect_eq(calls, 2);
    hak__limit_set_callback(NULL, NULL);
}

FRESH_TEST(system_defaults)
{
    (void)argument;
    start();
    fake.seen.memory_high = 64 * MIB;
    hak__limit_ask_room();
    expect_eq(fake.looks, 0);
    expect_eq(hak__option_origin(HAK_OPTION_dirty_limit), HAK_FROM_DEFAULT);
    hak__limit_ask_system();
    expect_eq(hak__option(HAK_OPTION_dirty_limit), 4 * MIB);
    expect_eq(hak__option_origin(HAK_OPTION_dirty_limit), HAK_FROM_SYSTEM);
    expect_eq(hak__option(HAK_OPTION_process_budget), 8 * MIB);
}

/* vm.overcommit_memory=2: what is mapped counts, unless the user says otherwise. */
FRESH_TEST(strict_system)
{
    (void)argument;
    start();
    fake.seen.strict = true;
    hak__limit_ask_system();
    expect_eq(hak__option(HAK_OPTION_unmap), 1);
    expect_eq(hak__option_origin(HAK_OPTION_unmap), HAK_FROM_SYSTEM);
    expect(hak__ahead_counts());
    set("unmap", "0");
    hak__limit_ask_system();
    expect_eq(hak__option(HAK_OPTION_unmap), 0);
}

FRESH_TEST(system_without_limits)
{
    (void)argument;
    start();
    hak__limit_ask_system();
    expect_eq(hak__option_origin(HAK_OPTION_dirty_limit), HAK_FROM_DEFAULT);
    expect_eq(hak__option(HAK_OPTION_process_budget), 0);
}

/* The real one: it may say anything, but it says something, and keeps errno. */
static void linux_seen(void **state)
{
    struct hak_os_seen seen = { 0 };
    (void)state;
    errno = 77;
    hak__os_linux.seen(&seen);
    expect_eq(errno, 77);
    expect(hak__os_linux.processors() >= 1 && seen.memory_max > 0 && seen.address_space > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hard),
        cmocka_unit_test(soft),
        cmocka_unit_test(system_defaults),
        cmocka_unit_test(strict_system),
        cmocka_unit_test(system_without_limits),
        cmocka_unit_test(linux_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
