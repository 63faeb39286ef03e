/* region/robust.h on Linux: threads exclude one another; a lock whose holder has died, or that a fork has left behind, says so to the next one
 * alone. What is subtle about its steps is race_robust's. */
#include "region/robust.h"

#include "support/check.h"

enum { ROUNDS = 20000, THREADS = 3 };

static struct hak_robust lock;
static unsigned guarded;

static void *work(void *argument)
{
    struct hak_robust_thread me = { 0 };
    (void)argument;
    for (unsigned i = 0; i < ROUNDS; i++) {
        expect(hak__robust_acquire(&lock, &me));
        guarded++;
        hak__robust_release(&lock, &me);
    }
    return NULL;
}

FRESH_TEST(threads_exclude_one_another)
{
    (void)argument;
    run_threads(THREADS, work, NULL, 0);
    expect_eq(guarded, THREADS * ROUNDS);
    expect_eq(atomic_load(&lock.word), 0);
}

static void *dies_with_it(void *argument)
{
    struct hak_robust_thread me = { 0 };
    hak__robust_acquire(&lock, &me);
    return argument;
}

FRESH_TEST(a_holder_that_has_died)
{
    (void)argument;
    struct hak_robust_thread me = { 0 };
    run_threads(1, dies_with_it, NULL, 0);
    expect(!hak__robust_acquire(&lock, &me));
    hak__robust_release(&lock, &me);
    expect(hak__robust_acquire(&lock, &me));
    hak__robust_release(&lock, &me);
}

FRESH_TEST(what_a_fork_leaves_behind)
{
    (void)argument;
    struct hak_robust_thread me = { 0 };
    hak__robust_orphan(&lock);
    expect_eq(atomic_load(&lock.word), 0);   /* it was free */
    expect(hak__robust_acquire(&lock, &me));
    uint32_t generation = me.generation;
    hak__robust_fork_child();
    hak__robust_orphan(&lock);
    expect(!hak__robust_acquire(&lock, &me));
    expect_eq(me.generation, generation + 1);
    hak__robust_release(&lock, &me);
}

static void release_twice(void *argument)
{
    struct hak_robust_thread me = { 0 };
    (void)argument;
    hak__robust_acquire(&lock, &me);
    hak__robust_release(&lock, &me);
    hak__robust_release(&lock, &me);
}

static void contracts(void **state)
{
    (void)state;
    expect_contract(release_twice, NULL, "a thread releases a lock that it has");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_exclude_one_another),
        cmocka_unit_test(a_holder_that_has_died),
        cmocka_unit_test(what_a_fork_leaves_behind),
        cmocka_unit_test(contracts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
