/* upkeep/nearness.h with made-up groups: the nearest limit is found, a change at run time is followed, the options of scarce memory
 * come and go with it, and near the limit memory goes back before the program's callback is called, once. */
#include "upkeep/nearness.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "arena/arena.h"
#include "arena/limit.h"
#include "arena/runs.h"
#include "base/lock.h"
#include "diag/options.h"
#include "profile/profile.h"
#include "support/fake_os.h"
#include "support/groups.h"
#include "support/heaps.h"

#define MIB (1ull << 20)

static unsigned calls;
static size_t called_used, called_limit;

static void on_pressure(size_t used, size_t limit, void *argument)
{
    (void)argument;
    calls++;
    called_used = used;
    called_limit = limit;
}

static void number(const char *file, uint64_t bytes)
{
    char text[32];
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)bytes);
    group_write(file, text);
}

static bool nothing_to_do(void) { return true; }
static _Atomic uint32_t *no_mark(void) { return NULL; }

/* As in a library that sees a filter come. */
const bool hak__is_interposed = true;

static void start_small(uint64_t limit)
{
    hak__fork_begin(nothing_to_do, nothing_to_do, no_mark, nothing_to_do);
    fake_install();
    groups_begin("0::/own\n");
    group_write("cgroup.controllers", "memory\n");
    group_make("own");
    number("own/memory.max", limit);
    number("own/memory.current", 10 * MIB);
    fake.seen.memory_max = limit;
    heaps_start();
    hak__near_await();
    hak__near_begin(NULL);
}

static void start(uint64_t limit)
{
    start_small(limit);
    hak__near_meet(false);
}

static void grow(size_t supers)
{
    bool fresh;
    expect(hak__supers_take(supers, 1, supers * HAK_SUPER_SIZE, HAK_SUPER_HUGE, &fresh) != HAK_NO_SUPER);
    hak__limit_deliver();
}

FRESH_TEST(a_small_process_asks_nothing)
{
    (void)argument;
    start_small(64 * MIB);
    grow(1);
    hak__near_poll(NULL, fake.now += 100000);
    expect_eq(fake.looks, 0);
    expect_eq(hak__option_origin(HAK_OPTION_dirty_limit), HAK_FROM_DEFAULT);
    grow(1);
    grow(3);
    expect_eq(fake.looks, 1);
    expect_eq(hak__option(HAK_OPTION_dirty_limit), 4 * MIB);
    number("own/memory.max", 32 * MIB);
    hak__near_poll(NULL, fake.now += 1000);
    expect_eq(hak__option(HAK_OPTION_dirty_limit), 2 * MIB);
    groups_end();
}

FRESH_TEST(nothing_is_asked_behind_a_filter)
{
    (void)argument;
    start_small(64 * MIB);
    hak__os_filter_comes(true);
    grow(8);
    hak__near_meet(false);
    expect_eq(fake.looks, 0);
    hak__os_filter_comes(false); /* it was refused */
    hak__near_meet(false);
    hak__near_meet(false);
    expect_eq(fake.looks, 1);
    groups_end();
}

static _Atomic bool entered, released, returned;

static void hold(void)
{
    atomic_store(&entered, true);
    while (!atomic_load(&released))
        sched_yield();
}

static void *announce(void *argument)
{
    hak__near_meet(true);
    atomic_store(&returned, true);
    return argument;
}

static void *meet(void *argument)
{
    hak__near_meet(false);
    return argument;
}

/* Behind it files may be forbidden, to the other thread too. */
FRESH_TEST(a_filter_waits_for_a_look)
{
    pthread_t looks, announces;
    (void)argument;
    start_small(64 * MIB);
    fake.on_look = hold;
    expect_eq(pthread_create(&looks, NULL, meet, NULL), 0);
    while (!atomic_load(&entered))
        sched_yield();
    hak__near_meet(false); /* growth waits for nobody */
    expect_eq(pthread_create(&announces, NULL, announce, NULL), 0);
    usleep(20000);
    expect(!atomic_load(&returned));
    atomic_store(&released, true);
    expect_eq(pthread_join(announces, NULL), 0);
    expect_eq(pthread_join(looks, NULL), 0);
    expect_eq(fake.looks, 1);
    groups_end();
}

/* No descriptor is free, for example. */
FRESH_TEST(what_cannot_be_read_is_tried_again)
{
    (void)argument;
    start_small(64 * MIB);
    fake.huge_setting = HAK_OS_HUGE_UNKNOWN;
    grow(3);
    grow(1);
    expect_eq(fake.looks, 1);
    fake.huge_setting = HAK_OS_HUGE_NEVER;
    grow(12);
    expect_eq(fake.looks, 2);
    grow(30);
    expect_eq(fake.looks, 2);
    groups_end();
}

FRESH_TEST(a_callback_asks_at_once)
{
    (void)argument;
    start_small(64 * MIB);
    hak__near_call(true);
    expect_eq(fake.looks, 1);
    expect_eq(hak__option(HAK_OPTION_dirty_limit), 4 * MIB);
    hak__near_call(false);
    groups_end();
}

FRESH_TEST(nearest_limit)
{
    struct hak_nearness now;
    (void)argument;
    start(100 * MIB);
    hak__near_look(&now);
    expect_eq(now.kind, HAK_NEAR_GROUP_MAX);
    expect_eq(now.limit, 100 * MIB);
    expect_eq(now.permille, 100);
    number("own/memory.high", 20 * MIB);
    hak__near_look(&now);
    expect_eq(now.kind, HAK_NEAR_GROUP_HIGH);
    expect_eq(now.permille, 500);
    group_write("own/memory.max", "max\n");
    group_write("own/memory.high", "max\n");
    hak__near_look(&now);
    expect_eq(now.kind, HAK_NEAR_NONE);
    groups_end();
}

FRESH_TEST(change_is_followed)
{
    (void)argument;
    start(64 * MIB);
    expect_eq(hak__option(HAK_OPTION_dirty_limit), 4 * MIB);
    expect_eq(hak__limit_room(), 56 * MIB);
    expect(!hak__limit_is_near());
    number("own/memory.max", 32 * MIB);
    hak__near_poll(NULL, fake.now); /* not yet: the last look was at the start */
    expect_eq(hak__option(HAK_OPTION_dirty_limit), 4 * MIB);
    hak__near_poll(NULL, fake.now += 1000);
    expect_eq(hak__option(HAK_OPTION_dirty_limit), 2 * MIB);
    expect_eq(hak__option(HAK_OPTION_process_budget), 4 * MIB);
    group_write("own/memory.max", "max\n");
    hak__near_poll(NULL, fake.now += 1000);
    expect_eq(hak__option(HAK_OPTION_dirty_limit), 16 * MIB);
    expect_eq(hak__option(HAK_OPTION_process_budget), 0);
    expect_eq(hak__limit_room(), 0);
    groups_end();
}

/* 2 MiB that were freed go back, and the thread's bin is empty, before the callback hears of it. */
FRESH_TEST(memory_goes_back_first)
{
    (void)argument;
    start(64 * MIB);
    hak__limit_set_callback(on_pressure, NULL);
    struct hak_heap *heap = heap_open(0);
    heap_free(heap, HAK_CLASS_64, heap_malloc(heap, HAK_CLASS_64));
    expect_op(hak__cache_count(heap, HAK_CLASS_64), >, 0);
    number("own/memory.current", 56 * MIB); /* 87 % */
    hak__near_poll(heap, fake.now += 1000);
    expect_eq(hak__cache_count(heap, HAK_CLASS_64), 0);
    expect(hak__limit_is_near());
    expect_eq(hak__option(HAK_OPTION_dirty_limit), 1 * MIB);
    hak__limit_deliver();
    expect_eq(calls, 0);
    number("own/memory.current", 60 * MIB); /* 93 % */
    hak__near_poll(NULL, fake.now += 1000); /* the background thread calls no function of the program */
    hak__limit_deliver();
    expect_eq(calls, 0);
    hak__near_poll(heap, fake.now += 1000);
    hak__near_poll(heap, fake.now += 1000);
    hak__limit_deliver();
    expect_eq(calls, 1);
    expect_eq(called_used, 60 * MIB);
    expect_eq(called_limit, 64 * MIB);
    number("own/memory.current", 30 * MIB);
    hak__near_poll(heap, fake.now += 1000);
    expect(!hak__limit_is_near());
    number("own/memory.current", 60 * MIB);
    hak__near_poll(heap, fake.now += 1000);
    hak__limit_deliver();
    expect_eq(calls, 2);
    groups_end();
}

/* Sets HAKMEM_LIMIT so that what is mapped is so many thousandths of it. */
static void option_limit(size_t permille)
{
    char text[32];
    snprintf(text, sizeof text, "%zu", (size_t)(hak_counted(&hak__arena_published.mapped) * 1000 / permille));
    expect_eq(hak__option_set("limit", text), 0);
}

/* The limits that are no control group's are looked at for the callback alone. */
FRESH_TEST(called_near_each_limit)
{
    (void)argument;
    start(HAK_OS_UNLIMITED);
    struct hak_heap *heap = heap_open(0);
    expect(heap_malloc(heap, HAK_CLASS_64) != NULL); /* keeps what is mapped */
    option_limit(930);
    hak__near_poll(heap, fake.now += 1000);
    hak__limit_deliver();
    expect_eq(calls, 0);
    hak__limit_set_callback(on_pressure, NULL);
    hak__near_call(true);
    option_limit(870);
    hak__near_poll(heap, fake.now += 1000);
    hak__limit_deliver();
    expect_eq(calls, 0);
    option_limit(930);
    for (unsigned i = 0; i < 3; i++)
        hak__near_poll(heap, fake.now += 1000);
    hak__limit_deliver();
    expect_eq(calls, 1);
    expect_op(called_used * 100 / called_limit, ==, 93);
    option_limit(500);
    hak__near_poll(heap, fake.now += 1000);
    hak__near_call(false);
    option_limit(930);
    hak__near_poll(heap, fake.now += 1000);
    hak__limit_deliver();
    expect_eq(calls, 1);
    groups_end();
}

/* HAKMEM_PROFILE=auto, also where a tracer had requests counted before. */
FRESH_TEST(a_profile_begins)
{
    (void)argument;
    start(64 * MIB);
    hak__options_read_from("profile:auto", NULL);
    hak_fetch_add(&hak__profile.session, 1, HAK_RELAXED);
    hak__near_poll(NULL, fake.now += 1000);
    expect(!hak__profile_is_asked());
    number("own/memory.current", 45 * MIB); /* 70 % */
    hak__near_poll(NULL, fake.now += 1000);
    expect(hak__profile_is_asked());
    groups_end();
}

/* A process without a limit is not followed, nor one that has forbidden itself system calls. */
FRESH_TEST(not_followed)
{
    (void)argument;
    start(HAK_OS_UNLIMITED);
    expect_eq(hak_load(&hak__near_next_ms, HAK_RELAXED), UINT64_MAX);
    groups_end();
}

FRESH_TEST(not_followed_behind_a_filter)
{
    (void)argument;
    start(64 * MIB);
    hak__os_filter_comes(true);
    number("own/memory.max", 32 * MIB);
    hak__near_poll(NULL, fake.now += 1000);
    expect_eq(hak__option(HAK_OPTION_dirty_limit), 4 * MIB);
    hak__os_filter_comes(false);
    groups_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_small_process_asks_nothing),
                                        cmocka_unit_test(nothing_is_asked_behind_a_filter),
                                        cmocka_unit_test(a_filter_waits_for_a_look),
                                        cmocka_unit_test(what_cannot_be_read_is_tried_again),
                                        cmocka_unit_test(a_callback_asks_at_once),
                                        cmocka_unit_test(nearest_limit),
                                        cmocka_unit_test(change_is_followed),
                                        cmocka_unit_test(memory_goes_back_first),
                                        cmocka_unit_test(called_near_each_limit),
                                        cmocka_unit_test(a_profile_begins),
                                        cmocka_unit_test(not_followed),
                                        cmocka_unit_test(not_followed_behind_a_filter) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
