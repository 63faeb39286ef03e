/* kinds/canary.c: misuse that is survived is counted always, reported once per place and not too often, to a callback that may make
 * mistakes itself, and leaves errno alone. What is left of the memory is tested on whole programs (misuse/canary). */
#include "kinds/kind.h"

#include <errno.h>
#include <pthread.h>

#include "diag/options.h"
#include "diag/report.h"
#include "hakmem.h"
#include "support/fake_os.h"
#include "support/heaps.h"

enum { A_MINUTE = 30, MINUTE_MS = 60000, MANY = 1200, WORD = 8 };

static uint64_t clock_ms = 1000;
static uint64_t a_clock(void) { return clock_ms; }

static unsigned reports;
static char last[4096];
static int last_kind;
static void *nested; /* freed by the callback */

static void note(const char *report, int kind, const char *function, const void *block, void *argument)
{
    (void)function;
    expect(argument == &reports && strstr(report, "survived (HAKMEM_MISUSE=report): ") != NULL);
    expect(nested == NULL || nested == block);
    reports++;
    last_kind = kind;
    snprintf(last, sizeof last, "%s", report);
    if (nested != NULL)
        hak_free(nested);
    errno = EIO;
}

static void begin(void)
{
    static struct hak_os system;
    system = *hak__os;
    system.now_ms = a_clock;
    hak__os = &system;
    expect(hak_malloc(1) != NULL);
    hak__options_read_from("misuse:report", NULL);
    hak__canary_begin();
    hak_set_misuse_callback(note, &reports);
}

static uint64_t counted(enum hak_misuse_kind kind) { return hak_load(&hak__misuse_counts.kinds[kind], HAK_RELAXED); }

/* In a function of its own for each number, without digits. */
static void mistake(unsigned number)
{
    char function[WORD + 1] = "";
    for (unsigned i = 0; i < WORD; i++, number /= 20)
        function[i] = (char)('A' + number % 20);
    hak__misuse_invalid(function, &reports, "not the start of a block");
}

FRESH_TEST(once_per_place)
{
    (void)argument;
    begin();
    char *p = hak_malloc(100);
    errno = EDOM;
    volatile unsigned frees = 5; /* one call of free: a compiler that knew the number could make five */
    for (unsigned i = 0; i < frees; i++)
        hak_free(p + 16 * (i + 1));
    expect_eq(errno, EDOM);
    expect_eq(reports, 1);
    expect_eq(last_kind, HAK_MISUSE_OF_POINTER);
    expect(strstr(last, "hakmem: free(): invalid pointer 0x") == last
           && strstr(last, "hakmem:   it is inside a live block of ") != NULL);
    expect_eq(counted(HAK_MISUSE_INVALID), 5);
    hak_free(p);
    hak_free(p);
    expect_eq(reports, 2);
    expect_eq(last_kind, HAK_MISUSE_OF_FREED);
    expect_eq(counted(HAK_MISUSE_DOUBLE_FREE), 1);
    expect(hak_realloc(p, 5) == NULL && errno == EINVAL && hak_usable_size(p) == 0);
    expect_eq(counted(HAK_MISUSE_INVALID), 7);
    p = hak_malloc(100);
    hak_free_sized(p, 7000); /* is freed */
    expect_eq(last_kind, HAK_MISUSE_OF_SIZE);
    hak_free(p);
    expect_eq(counted(HAK_MISUSE_DOUBLE_FREE), 2);
    expect_eq(hak_load(&hak__misuse_counts.reported, HAK_RELAXED), reports);
    expect(hak_check_heap());
}

FRESH_TEST(thirty_a_minute)
{
    (void)argument;
    begin();
    for (unsigned i = 0; i < 2 * A_MINUTE; i++)
        mistake(i);
    expect_eq(reports, A_MINUTE);
    clock_ms += MINUTE_MS;
    for (unsigned i = 0; i < 2 * A_MINUTE; i++) /* what was not reported is now */
        mistake(i);
    expect_eq(reports, 2 * A_MINUTE);
    expect_eq(counted(HAK_MISUSE_INVALID), 4 * A_MINUTE);
}

/* Of any minute, not of those of the clock. */
FRESH_TEST(thirty_in_any_minute)
{
    (void)argument;
    clock_ms = 10 * MINUTE_MS - 1000;
    begin();
    for (unsigned i = 0; i < A_MINUTE; i++)
        mistake(i);
    clock_ms += 2000;
    mistake(A_MINUTE);
    expect_eq(reports, A_MINUTE);
    clock_ms += MINUTE_MS - 2000;
    mistake(A_MINUTE);
    expect_eq(reports, A_MINUTE + 1);
}

/* Beyond what the table holds nothing is reported, and nothing lost of what matters. */
FRESH_TEST(more_places_than_fit)
{
    (void)argument;
    begin();
    for (unsigned i = 0; i < MANY; i++, clock_ms += MINUTE_MS)
        mistake(i);
    expect(reports > 900 && reports <= 1024);
    expect_eq(counted(HAK_MISUSE_INVALID), MANY);
}

FRESH_TEST(mistakes_of_the_callback)
{
    (void)argument;
    begin();
    nested = (char *)hak_malloc(100) + 8;
    hak_free(nested);
    expect_eq(reports, 1);
    expect_eq(counted(HAK_MISUSE_INVALID), 2);
}

/* A cancelled thread leaves no report locked: malloc and free are no cancellation points, whatever the callback does. */
static void cancellation_point(const char *report, int kind, const char *function, const void *block, void *argument)
{
    (void)report, (void)kind, (void)function, (void)block;
    ++*(unsigned *)argument;
    pthread_testcancel();
}

static void *cancelled(void *arrived)
{
    pthread_cancel(pthread_self());
    hak_free((char *)arrived + 8);
    *(bool *)arrived = true;
    pthread_testcancel();
    return NULL;
}

FRESH_TEST(a_cancelled_thread)
{
    (void)argument;
    begin();
    hak_set_misuse_callback(cancellation_point, &reports);
    pthread_t thread;
    void *result;
    bool *arrived = hak_malloc(100);
    *arrived = false;
    expect(pthread_create(&thread, NULL, cancelled, arrived) == 0 && pthread_join(thread, &result) == 0);
    expect(*arrived && result == PTHREAD_CANCELED);
    hak_free((char *)arrived + 8); /* another place */
    expect_eq(reports, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(once_per_place),
        cmocka_unit_test(thirty_a_minute),
        cmocka_unit_test(thirty_in_any_minute),
        cmocka_unit_test(more_places_than_fit),
        cmocka_unit_test(mistakes_of_the_callback),
        cmocka_unit_test(a_cancelled_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
