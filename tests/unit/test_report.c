/* diag/report.h: one line per report with its prefix, errno kept, and the fixed messages of misuse. */
#include "diag/report.h"

#include "support/check.h"

#define U(n) ((uint64_t)(n))

static void say_lines(void *argument)
{
    (void)argument;
    errno = 77;
    hak__warn("one %u", U(1));
    expect_eq(errno, 77);
}

static void lines(void **state)
{
    (void)state;
    expect_said(say_lines, NULL, "hakmem: one 1\n");
}

/* A reader who is gone must not change errno either. */
static void say_to_nobody(void *argument)
{
    (void)argument;
    errno = 77;
    expect_eq(hak__write_all(-1, "lost", 4), EBADF);
    expect_eq(errno, 77);
}

static void nobody_reads(void **state)
{
    (void)state;
    expect_said(say_to_nobody, NULL, "");
}

static void say_long_line(void *argument)
{
    char text[2000];
    (void)argument;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    hak__warn("%s", text);
    hak__warn("next");
}

/* A line that is too long loses its end, but not its newline. */
static void long_lines(void **state)
{
    char said[SAID_SIZE];
    (void)state;
    expect_eq(run_child(say_long_line, NULL, said), 0);
    size_t length = strcspn(said, "\n");
    expect_op(length, >, 400);
    expect_op(length, <, 600);
    expect_eq(strspn(said + strlen("hakmem: "), "x"), length - strlen("hakmem: "));
    expect_eq(strcmp(said + length, "\nhakmem: next\n"), 0);
}

static void end_fatally(void *argument) { hak__fatal("%s %u", (const char *)argument, U(5)); }
static void report_double_free(void *argument) { hak__misuse_double_free("free", argument, 48); }
static void report_invalid(void *argument) { hak__misuse_invalid("realloc", argument, "reason"); }

static void fatal_messages(void **state)
{
    (void)state;
    expect_abort(end_fatally, "the end", "hakmem: the end 5");
    expect_abort(report_double_free, (void *)0xabc0, "hakmem: free(): double free of 0xabc0 (48-byte block)");
    expect_abort(report_invalid, (void *)0x1230, "hakmem: realloc(): invalid pointer 0x1230: reason");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines),   cmocka_unit_test(nobody_reads), cmocka_unit_test(long_lines),
        cmocka_unit_test(fatal_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
