/* Memory goes back by itself with the options that users have: nine tenths of a burst within two seconds of the process becoming idle, with
 * the background thread and without it where a thread still calls; and the statistics say what that was and what it cost. */
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "hakmem.h"
#include "hakmem_stats.h"
#include "base/compiler.h"
#include "support/check.h"
#include "support/memory.h"

#define MIB ((size_t)1 << 20)
enum { BURST = 64, SMALL = 1000, IDLE_MS = 2000, TICK_MS = 10 };

static void rest(void) { nanosleep(&(struct timespec){ 0, TICK_MS * 1000000 }, NULL); }

static void burst(size_t size)
{
    size_t count = BURST * MIB / size;
    void **blocks = calloc(count, sizeof *blocks);
    for (size_t i = 0; i < count; i++)
        memset(blocks[i] = hak_malloc(size), 1, size);
    for (size_t i = 0; i < count; i++)
        hak_free(blocks[i]);
    free(blocks);
}

/* A machine that does other things at the same time gets ten times as long. */
static void expect_back(size_t before, bool calls)
{
    unsigned waited = 0, most = 10 * IDLE_MS * limit_factor();
    while (resident_bytes() > before + BURST * MIB / 10 && waited < most) {
        rest();
        waited += TICK_MS;
        if (calls)
            hak_free(hak_malloc(100));
    }
    print_message("%u ms\n", waited);
    expect_op(waited, <, most);
    struct hak_stats stats;
    do { /* what a thread returns at the moment it counts afterwards */
        rest();
        expect_eq(hak_stats_snapshot(&stats, sizeof stats), 0);
        waited += TICK_MS;
    } while (stats.returns_supers + stats.returns_slabs + stats.returns_pages < BURST * MIB / 2 && waited < most);
    expect_op(waited, <, most);
    expect_op(stats.returns_cost, >, 0);
}

static void a_thread_that_calls(void *size)
{
    expect_eq(hak_option_set("background", "0"), 0);
    hak_free(hak_malloc(100));
    size_t before = resident_bytes();
    burst(*(size_t *)size);
    expect_back(before, true);
}

static void burst_of_heap(size_t size, void end(hak_heap_t *))
{
    hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options) });
    size_t count = BURST * MIB / size;
    void **blocks = calloc(count, sizeof *blocks);
    for (size_t i = 0; i < count; i++)
        memset(blocks[i] = hak_heap_malloc(heap, size), 1, size);
    for (size_t i = 0; i < count && end == NULL; i++)
        hak_free(blocks[i]);
    free(blocks);
    if (end != NULL)
        end(heap);
}

/* Every 300th block stays, so one in five slabs is partly used. */
static void leave_some(hak_heap_t *heap)
{
    static void *blocks[BURST * MIB / SMALL];
    size_t count = sizeof blocks / sizeof *blocks;
    for (size_t i = 0; i < count; i++)
        memset(blocks[i] = hak_heap_malloc(heap, SMALL), 1, SMALL);
    for (size_t i = 0; i < count; i++)
        if (i % 300 != 0)
            hak_free(blocks[i]);
}

static void a_heap_keeps_some(void *unused)
{
    (void)unused;
    expect_eq(hak_option_set("background", "0"), 0);
    hak_free(hak_malloc(100));
    size_t before = resident_bytes();
    leave_some(hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options) }));
    expect_back(before, true);
    expect_eq(hak_check_heap(), 1);
}

static void a_heap_ends(void *how)
{
    expect_eq(hak_option_set("background", "0"), 0);
    hak_free(hak_malloc(100));
    size_t before = resident_bytes();
    burst_of_heap(SMALL, *(void (**)(hak_heap_t *))how);
    expect_back(before, true);
}

static void *sleeps(void *argument)
{
    hak_free(hak_malloc(100));
    sleep(1000);
    return argument;
}

static void threads_that_sleep(void *size)
{
    pthread_t thread;
    expect_eq(hak_option_set("background", "1"), 0);   /* root's processes have it only where the library sees credentials change */
    expect_eq(pthread_create(&thread, NULL, sleeps, NULL), 0);
    hak_free(hak_malloc(100));
    rest();
    size_t before = resident_bytes();
    burst(*(size_t *)size);
    expect_back(before, false);
}

static void in_a_child(check_body *body, void *argument)
{
    char said[SAID_SIZE];
    int status = run_child(body, argument, said);
    print_message("%s", said);
    expect_eq(status, 0);
}

static void small_blocks_while_a_thread_calls(void **state) { (void)state, in_a_child(a_thread_that_calls, &(size_t){ SMALL }); }
static void huge_blocks_while_a_thread_calls(void **state) { (void)state, in_a_child(a_thread_that_calls, &(size_t){ 8 * MIB }); }
static void small_blocks_while_all_sleep(void **state) { (void)state, in_a_child(threads_that_sleep, &(size_t){ SMALL }); }
static void huge_blocks_while_all_sleep(void **state) { (void)state, in_a_child(threads_that_sleep, &(size_t){ 8 * MIB }); }

/* Of these the thread's own heap sees no free. */
static void user_heap_while_its_thread_calls(void **state)
{
    void (*ends[])(hak_heap_t *) = { hak_heap_destroy, hak_heap_reset, NULL };
    (void)state;
    for (unsigned i = 0; i < 3; i++)
        in_a_child(a_heap_ends, &ends[i]);
}

static void partly_used_slabs_of_a_user_heap(void **state) { (void)state, in_a_child(a_heap_keeps_some, NULL); }

static void bad_shares_are_refused(void **state)
{
    (void)state;
    uint64_t share = 0;
    expect_eq(hak_option_set("return", "0%"), EINVAL);
    expect_eq(hak_option_set("return", "51%"), EINVAL);
    expect_eq(hak_option_set("return", "1ms"), EINVAL);
    expect_eq(hak_option_set("return", "5%"), 0);
    expect_eq(hak_option_get("return", &share), 0);
    expect_eq(share, 5);
    expect_eq(hak_option_set("return", "1"), 0);
}

int main(void)
{
    if (HAK_TSAN)
        return 77; /* its shadow memory counts as resident, and stays */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_blocks_while_a_thread_calls),
        cmocka_unit_test(huge_blocks_while_a_thread_calls),
        cmocka_unit_test(small_blocks_while_all_sleep),
        cmocka_unit_test(huge_blocks_while_all_sleep),
        cmocka_unit_test(user_heap_while_its_thread_calls),
        cmocka_unit_test(partly_used_slabs_of_a_user_heap),
        cmocka_unit_test(bad_shares_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
