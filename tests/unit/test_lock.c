/* base/lock.h: it excludes, it counts who had to wait, a forked child can reset it, and debug builds stop a thread
 * that takes locks against the order of their ranks. */
#include "base/lock.h"
#include "support/check.h"

enum { THREADS = 4, ROUNDS = 5000 };

static struct hak_lock lock = HAK_LOCK_INIT(HAK_RANK_ARENA);
static struct hak_lock lower = HAK_LOCK_INIT(HAK_RANK_INIT);
static uint64_t guarded;   /* not atomic on purpose: only the lock keeps it right */

static void *add(void *argument)
{
    (void)argument;
    for (unsigned i = 0; i < ROUNDS; i++) {
        hak__lock_acquire(&lock);
        guarded++;
        hak__lock_release(&lock);
    }
    return NULL;
}

static void excludes(void **state)
{
    (void)state;
    char none[THREADS];
    run_threads(THREADS, add, none, 1);
    expect_eq(guarded, THREADS * ROUNDS);
}

static void *take_once(void *argument)
{
    hak__lock_acquire(&lock);
    atomic_store((_Atomic int *)argument, 1);
    hak__lock_release(&lock);
    return NULL;
}

static void counts_waits(void **state)
{
    (void)state;
    _Atomic int taken = 0;
    pthread_t thread;
    uint64_t before = hak_load(&hak__lock_wait_count, HAK_RELAXED);
    hak__lock_acquire(&lock);
    expect_eq(hak_load(&hak__lock_wait_count, HAK_RELAXED), before);   /* nobody had to wait for this one */
    expect_eq(pthread_create(&thread, NULL, take_once, &taken), 0);
    while (hak_load(&hak__lock_wait_count, HAK_RELAXED) == before)
        sched_yield();
    expect_eq(atomic_load(&taken), 0);
    hak__lock_release(&lock);
    pthread_join(thread, NULL);
    expect_eq(atomic_load(&taken), 1);
    expect_eq(hak_load(&hak__lock_wait_count, HAK_RELAXED), before + 1);
}

static void *acquire_only(void *argument)
{
    hak__lock_acquire(argument);
    return NULL;
}

/* The situation of a forked child: the holder does not exist there. */
static void reset_frees(void **state)
{
    (void)state;
    struct hak_lock held = HAK_LOCK_INIT(HAK_RANK_ARENA);
    run_threads(1, acquire_only, &held, sizeof held);
    expect(hak__lock_is_held(&held) && hak__lock_word_is_left(&held.held));
    expect(hak__lock_fork_child(&held));
    hak__lock_acquire(&held);
    hak__lock_release(&held);
    expect_eq(atomic_load(&held.held), 0);
}

/* What the thread that has forked holds itself, it goes on holding. */
static void reset_keeps_the_own(void **state)
{
    (void)state;
    hak__lock_acquire(&lock);
    expect(!hak__lock_fork_child(&lock) && hak__lock_word_is_mine(&lock.held));
    hak__lock_release(&lock);
    expect(!hak__lock_fork_child(&lock) && !hak__lock_is_held(&lock));
}

/* A lock that is lost refuses, also to a thread that waits for it. */
static _Atomic uint32_t word;
static void *waits_in_vain(void *argument) { return hak__lock_word_take(&word, 0, HAK_RANK_HEAP) ? &lock : argument; }
static void lost_refuses(void **state)
{
    (void)state;
    pthread_t thread;
    void *taken;
    expect(hak__lock_word_try(&word, 0, HAK_RANK_HEAP) && !hak__lock_word_try(&word, 0, HAK_RANK_HEAP));
    expect_eq(pthread_create(&thread, NULL, waits_in_vain, NULL), 0);
    usleep(5000);
    hak_store(&word, HAK_LOCK_LOST, HAK_RELAXED);
    hak__lock_note(HAK_RANK_HEAP, -1);
    expect_eq(pthread_join(thread, &taken), 0);
    expect(taken == NULL && !hak__lock_word_take(&word, 0, HAK_RANK_HEAP));
}

/* Numbers name threads; the second one makes the process one of several threads. */
static void *number(void *argument) { return *(uint32_t *)argument = hak__lock_me(), NULL; }
static void numbers_differ(void **state)
{
    (void)state;
    uint32_t numbers[2] = { 0 }, mine = hak__lock_me();
    run_threads(2, number, numbers, sizeof *numbers);
    expect(mine != 0 && numbers[0] != 0 && numbers[1] != 0);
    expect(numbers[0] != numbers[1] && numbers[0] != mine && numbers[1] != mine);
    expect(!hak__fork_alone());
}

static void ascending(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        hak__lock_acquire(&lower);
        hak__lock_acquire(&lock);
        hak__lock_release(&lock);
        hak__lock_release(&lower);
    }
}

static void take_lower_later(void *argument)
{
    (void)argument;
    hak__lock_acquire(&lock);
    hak__lock_acquire(&lower);
}

static void take_twice(void *argument)
{
    (void)argument;
    hak__lock_acquire(&lock);
    hak__lock_acquire(&lock);
}

static void expect_order_report(check_body *body)
{
    char said[SAID_SIZE];
    int status = run_child(body, NULL, said);
    expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    expect(strstr(said, "hakmem: assertion failed: lock order") == said);
}

static void descending_stops(void **state)
{
    (void)state;
    expect_order_report(take_lower_later);
    expect_order_report(take_twice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(excludes),  cmocka_unit_test(counts_waits),     cmocka_unit_test(reset_frees), cmocka_unit_test(reset_keeps_the_own),
        cmocka_unit_test(lost_refuses), cmocka_unit_test(numbers_differ),
        cmocka_unit_test(ascending), cmocka_unit_test(descending_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
