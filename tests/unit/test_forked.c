/* base/lock.h on kernels that refuse MADV_WIPEONFORK: a child is put in order once, and never after it has made threads. */
#include "base/lock.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/check.h"

enum { TIME_TO_PASS = 2000 }; /* naps */

static unsigned repairs;
static _Atomic bool held_before, held_in_repair; /* the first thread waits for the second, which does its best to go on */
static _Atomic bool waits, goes_on;

static void wait_for_second(bool surely)
{
    hak_store(&waits, true, HAK_RELEASE);
    for (unsigned i = 0; !hak_load(&goes_on, HAK_ACQUIRE) && (surely || i < TIME_TO_PASS); i++)
        hak__nap(HAK_WAIT_SPINS);
}

static bool count_repair(void)
{
    repairs++;
    if (hak_exchange(&held_in_repair, false, HAK_RELAXED))
        wait_for_second(false);
    expect(!hak_load(&goes_on, HAK_ACQUIRE)); /* the second thread may hold locks by now */
    return true;
}

static bool nobody_arrives(void) { return false; }
static _Atomic uint32_t *no_mark(void) { return NULL; }

/* What forked children are told, but not those of vfork: the memory is a copy. */
static bool copied;
static bool is_copy(void)
{
    bool copy = copied;
    copied = false;
    if (hak_exchange(&held_before, false, HAK_RELAXED))
        wait_for_second(true);
    return copy;
}

static void start(void)
{
    hak_owner_store(&hak__forked.mark, NULL);
    hak__fork_begin(count_repair, nobody_arrives, no_mark, is_copy);
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
        copied = true;
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
    hak__fork_unwatched(); /* as when the first thread waits for a lock */
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

/* It runs in its parent's memory, where other threads go on. */
FRESH_TEST(a_child_of_vfork_repairs_nothing)
{
    int status;
    (void)argument;
    start();
    for (unsigned threads = 0; threads < 2; threads++) {
        pid_t child = vfork();
        if (child == 0) {
            hak__fork_unwatched();
            _exit(0);
        }
        expect_eq(waitpid(child, &status, 0), child);
        expect_eq(repairs, 0);
        expect(hak__fork_is_home());
        if (threads == 0)
            have_a_thread();
    }
}

FRESH_TEST(a_child_of_several_threads_is_repaired_once)
{
    (void)argument;
    start();
    have_a_thread();
    in_child(was_repaired);
}

static void *follows(void *argument)
{
    while (!hak_load(&waits, HAK_ACQUIRE))
        hak__nap(HAK_WAIT_SPINS);
    hak__fork_watch();
    hak_store(&goes_on, true, HAK_RELEASE);
    return argument;
}

/* The child's first thread is about to make the background thread, for instance, and its second to take its first lock. */
static void two_at_once(_Atomic bool *held, unsigned repaired)
{
    pthread_t thread;
    expect_eq(pthread_create(&thread, NULL, follows, NULL), 0);
    hak_store(held, true, HAK_RELAXED);
    hak__fork_watch();
    expect_eq(pthread_join(thread, NULL), 0);
    expect_eq(repairs, repaired);
    hak__fork_unwatched();
    expect_eq(repairs, repaired);
    expect(hak__fork_is_home());
}

static void second_is_first(void) { two_at_once(&held_before, 0); }
static void second_is_late(void) { two_at_once(&held_in_repair, 1); }

FRESH_TEST(no_repair_begins_beside_a_second_thread)
{
    (void)argument;
    start();
    in_child(second_is_first);
}

FRESH_TEST(a_second_thread_waits_for_a_repair)
{
    (void)argument;
    start();
    in_child(second_is_late);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_of_the_only_thread_has_nothing_to_repair),
        cmocka_unit_test(a_child_that_waits_is_repaired),
        cmocka_unit_test(a_child_of_several_threads_is_repaired_once),
        cmocka_unit_test(a_child_of_vfork_repairs_nothing),
        cmocka_unit_test(no_repair_begins_beside_a_second_thread),
        cmocka_unit_test(a_second_thread_waits_for_a_repair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
