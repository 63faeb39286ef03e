/* base/forked.h on kernels that refuse MADV_WIPEONFORK: a child is put in order once, and never after it has made threads. */
#include "base/forked.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/check.h"

static unsigned repairs;

static bool count_repair(void)
{
    repairs++;
    return true;
}

static bool nobody_arrives(void) { return false; }
static _Atomic uint32_t *no_mark(void) { return NULL; }

static void start(void)
{
    hak_owner_store(&hak__forked.mark, NULL);
    hak__fork_begin(count_repair, nobody_arrives, no_mark);
    expect(hak__fork_alone());
}

static void *get_a_heap(void *argument)
{
    hak__fork_watch();
    return argument;
}

/* A thread that comes to have a heap, as far as forks are concerned. */
static void have_a_thread(void)
{
    pthread_t thread;
    expect_eq(pthread_create(&thread, NULL, get_a_heap, NULL), 0);
    expect_eq(pthread_join(thread, NULL), 0);
    expect(!hak__fork_alone());
}

static void in_child(void check(void))
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        check();
        _exit(0);
    }
    expect_eq(waitpid(child, &status, 0), child);
    expect_eq(status, 0);
    expect_eq(repairs, 0);
}

static void makes_a_thread(void)
{
    have_a_thread();
    hak__fork_unwatched();   /* as when the first thread waits for a lock */
    expect_eq(repairs, 0);
    expect(hak__fork_is_home());
}

FRESH_TEST(a_child_of_the_only_thread_has_nothing_to_repair)
{
    (void)argument;
    start();
    in_child(makes_a_thread);
}

static void waits_first(void)
{
    hak__fork_unwatched();
    expect_eq(repairs, 1);
    have_a_thread();
    hak__fork_unwatched();
    expect_eq(repairs, 1);
}

FRESH_TEST(a_child_that_waits_is_repaired)
{
    (void)argument;
    start();
    in_child(waits_first);
}

static void was_repaired(void)
{
    expect_eq(repairs, 1);
    have_a_thread();
    hak__fork_unwatched();
    expect_eq(repairs, 1);
}

FRESH_TEST(a_child_of_several_threads_is_repaired_once)
{
    (void)argument;
    start();
    have_a_thread();
    in_child(was_repaired);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_of_the_only_thread_has_nothing_to_repair),
        cmocka_unit_test(a_child_that_waits_is_repaired),
        cmocka_unit_test(a_child_of_several_threads_is_repaired_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
