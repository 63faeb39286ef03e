/* os/thread.c: the library's own thread runs, sleeps until it is woken, and is gone when its word is 0; the next one runs in the same
 * place, and one in a forked child too. (src/process/thread.c, the life of a program's threads, has its tests in api and stress.) */
#include "os/os.h"

#include "support/check.h"

/* ThreadSanitizer would end the forked child when it starts the thread. */
#if HAK_TSAN
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }
#endif

static _Atomic uint32_t alive, runs, go;

static void body(void)
{
    while (hak_load(&go, HAK_ACQUIRE) == 0)
        hak__os_sleep(&go, 0, HAK_OS_UNLIMITED);
    hak_store(&runs, hak_load(&runs, HAK_RELAXED) + 1, HAK_RELAXED);
}

static bool start_thread(void)
{
    static bool known;
    if (!known)
        hak__os_thread_init(hak__os_thread_pointer());
    known = true;
    uint64_t before = hak__os_block_signals();
    bool made = hak__os_thread_start(body, &alive);
    hak__os_restore_signals(before);
    return made;
}

static void run_once(uint32_t before)
{
    hak_store(&go, 0, HAK_RELAXED);
    expect(start_thread());
    expect(hak_load(&alive, HAK_RELAXED) != 0);
    expect_eq(hak_load(&runs, HAK_RELAXED), before);
    hak_store(&go, 1, HAK_RELEASE);
    hak__os_wake(&go);
    hak__os_thread_wait(&alive);
    expect_eq(hak_load(&alive, HAK_RELAXED), 0);
    expect_eq(hak_load(&runs, HAK_RELAXED), before + 1);
}

static void in_a_child(void *argument)
{
    (void)argument;
    run_once(hak_load(&runs, HAK_RELAXED));
}

FRESH_TEST(it_runs_and_ends_and_runs_again)
{
    (void)argument;
    for (uint32_t i = 0; i < 20; i++)
        run_once(i);
    if (!HAK_ASAN) /* a thread of its own that is about to end may hold the sanitizer's locks over a fork */
        run_fresh(in_a_child, NULL);
}

FRESH_TEST(a_sleep_has_an_end)
{
    _Atomic uint32_t word = 1;
    (void)argument;
    hak__os_sleep(&word, 0, HAK_OS_UNLIMITED);   /* the word is not 0 */
    hak__os_sleep(&word, 1, 5);
}

static void start_two(void *argument)
{
    (void)argument;
    start_thread();
    start_thread();
}

static void contracts(void **state)
{
    (void)state;
    expect_contract(start_two, NULL, "one thread at a time");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_runs_and_ends_and_runs_again),
        cmocka_unit_test(a_sleep_has_an_end),
        cmocka_unit_test(contracts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
