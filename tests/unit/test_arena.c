/* arena/arena.h: each change of a SuperSlab goes into the sums, which are published when the lock is released; a refusal unmaps what is
 * unused by the function that is registered; a child takes over the lock of a thread that it does not have. */
#include "arena/arena.h"

#include "arena/limit.h"
#include "arena/runs.h"
#include "support/fake_os.h"

static void start(size_t taken)
{
    bool fresh;
    fake_install();
    expect_eq(hak__arena_init(), 0);
    expect_eq(hak__supers_take(taken, 1, taken << HAK_SUPER_SHIFT, HAK_SUPER_HUGE, &fresh), 0);
}

FRESH_TEST(sums_follow)
{
    (void)argument;
    start(4);
    size_t page = hak__page_size(), mapped = hak__arena_state.mapped, ends = hak__arena_state.ends;
    hak__arena_lock();
    hak__super_count_mapped(2, page);
    expect_eq(hak__arena_state.mapped, mapped - HAK_SUPER_SIZE + page);
    expect_eq(hak__arena_state.ends, ends + 1);
    expect(hak__super_is_end(2) && hak__super_is_end(3) && !hak__super_is_end(1));
    hak__super_count_mapped(2, 0);
    expect(hak__super_is_end(1) && !hak__super_is_end(2));
    expect_eq(hak__arena_state.spare, 0);
    hak__super_set_taken(3, false);
    hak__super_set_taken(3, false);
    expect_eq(hak__arena_state.spare, HAK_SUPER_SIZE);
    hak__super_set_mapped(3, page);
    expect_eq(hak__arena_state.spare, page);
    hak__super_set_taken(3, true);
    expect_eq(hak__arena_state.spare, 0);
    hak__super_set_moved(1, 5);
    hak__super_set_moved(1, 2);
    expect_eq(hak__arena_state.moved, 2);
    hak__super_set_moved(1, 0);
    hak__super_set_mapped(3, HAK_SUPER_SIZE);
    expect_eq(hak_counted(&hak__arena_published.mapped), mapped);
    hak__arena_unlock();
    expect_eq(hak_counted(&hak__arena_published.mapped), mapped - HAK_SUPER_SIZE);
}

FRESH_TEST(bytes_of_a_run_by_superslab)
{
    (void)argument;
    size_t bytes = 2 * HAK_SUPER_SIZE + 4096;
    expect_eq(hak__super_need(0, bytes), HAK_SUPER_SIZE);
    expect_eq(hak__super_need(1, bytes), HAK_SUPER_SIZE);
    expect_eq(hak__super_need(2, bytes), 4096);
    expect_eq(hak__super_need(3, bytes), 0);
    expect_eq(hak__super_need(0, 0), 0);
}

static unsigned refusals;
static bool unmap_some(void) { return ++refusals == 1; }

FRESH_TEST(a_refusal_is_worth_a_second_try_once)
{
    (void)argument;
    start(1);
    hak__arena_lock();
    hak__arena_on_refusal(unmap_some);
    expect(!hak__arena_gives_up(0) && !hak__arena_gives_up(EEXIST) && !hak__arena_gives_up(-1));
    expect_eq(refusals, 0);
    expect(!hak__limit_unmaps());
    expect(hak__arena_gives_up(ENOMEM) && !hak__arena_gives_up(ENOMEM));
    expect(hak__limit_unmaps());   /* it is known how much may be mapped */
    hak__arena_unlock();
}

static void *locks_for_ever(void *argument)
{
    hak__arena_lock();
    return argument;
}

FRESH_TEST(a_lock_is_inherited)
{
    (void)argument;
    start(1);
    expect(!hak__arena_inherit());   /* no thread has it */
    run_threads(1, locks_for_ever, NULL, 0);
    expect(hak__arena_is_locked() && !hak__arena_is_mine());
    expect(hak__arena_inherit());
    expect(hak__arena_is_mine());
    hak__arena_unlock();
    expect(!hak__arena_is_locked());
}

/* --- contracts --------------------------------------------------------------------------------------------------------- */

static void change_unlocked(void *argument)
{
    (void)argument;
    start(1);
    hak__super_set_taken(0, false);
}

static void change_above_the_frontier(void *argument)
{
    (void)argument;
    start(1);
    hak__arena_lock();
    hak__super_set_mapped(hak__arena_top(), 0);
}

static void map_half_a_page(void *argument)
{
    (void)argument;
    start(1);
    hak__arena_lock();
    hak__super_set_mapped(0, hak__page_size() / 2);
}

static void lose_a_sum(void *argument)
{
    (void)argument;
    start(1);
    hak__arena_lock();
    hak__arena_state.tails = hak__arena_state.mapped + 1;
    hak__arena_unlock();
}

static void contracts(void **state)
{
    (void)state;
    expect_contract(change_unlocked, NULL, "a SuperSlab changes under the lock, below the frontier");
    expect_contract(change_above_the_frontier, NULL, "a SuperSlab changes under the lock, below the frontier");
    expect_contract(map_half_a_page, NULL, "whole pages of one SuperSlab are mapped");
    expect_contract(lose_a_sum, NULL, "parts of the mapped memory are no larger than all of it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_follow),
        cmocka_unit_test(bytes_of_a_run_by_superslab),
        cmocka_unit_test(a_refusal_is_worth_a_second_try_once),
        cmocka_unit_test(a_lock_is_inherited),
        cmocka_unit_test(contracts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
