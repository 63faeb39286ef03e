/* diag/report.h: the formatter (letters, widths, alignment, truncation), one line per report with its prefix, errno
 * kept, and the fixed messages of misuse. */
#include "diag/report.h"

#include "support/check.h"

#define expect_format(text, ...) \
    do { \
        char format_buffer[64]; \
        size_t format_length = hak__format(format_buffer, sizeof format_buffer, __VA_ARGS__); \
        expect_eq(strcmp(format_buffer, (text)), 0); \
        expect_eq(format_length, strlen(text)); \
    } while (0)

#define U(n) ((uint64_t)(n))

static void letters(void **state)
{
    (void)state;
    expect_format("plain", "plain");
    expect_format("", "%s", "");
    expect_format("[text]", "[%s]", "text");
    expect_format("0", "%u", U(0));
    expect_format("18446744073709551615", "%u", UINT64_MAX);
    expect_format("0x0", "%p", NULL);
    expect_format("0x7ffe12ab", "%p", (void *)0x7ffe12ab);
    expect_format("0xffffffffffffffff", "%p", (void *)UINTPTR_MAX);
    expect_format("0.00", "%f", U(0));
    expect_format("0.07", "%f", U(7));
    expect_format("1.00", "%f", U(100));
    expect_format("184467440737095516.15", "%f", UINT64_MAX);
    expect_format("a 1 b 0x2 c d", "%s %u b %p c %s", "a", U(1), (void *)2, "d");
    expect_format("100%", "%u%%", U(100));
}

static void widths(void **state)
{
    (void)state;
    expect_format("[    7]", "[%5u]", U(7));
    expect_format("[7    ]", "[%-5u]", U(7));
    expect_format("[123456]", "[%5u]", U(123456));
    expect_format("[  abc]", "[%5s]", "abc");
    expect_format("[abc  ]", "[%-5s]", "abc");
    expect_format("[abcdef]", "[%-5s]", "abcdef");
    expect_format("[   1.25]", "[%7f]", U(125));
    expect_format("[      0x10]", "[%10p]", (void *)16);
    expect_format("[0x10      ]", "[%-10p]", (void *)16);
    expect_format("[         abc]", "[%12s]", "abc");
}

/* Whatever the size, the text ends inside of the buffer and nothing behind it is touched. */
static void truncation(void **state)
{
    (void)state;
    static const char whole[] = "ab   12cd      0xff.";
    for (size_t size = 1; size <= sizeof whole; size++) {
        char buffer[64];
        memset(buffer, '#', sizeof buffer);
        size_t length = hak__format(buffer, size, "ab%5u%-8s%4p.", U(12), "cd", (void *)255);
        expect_eq(length, size - 1);
        expect_eq(memcmp(buffer, whole, size - 1), 0);
        expect_eq(buffer[size - 1], 0);
        expect_eq(buffer[size], '#');
    }
}

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
        cmocka_unit_test(letters), cmocka_unit_test(widths),     cmocka_unit_test(truncation),
        cmocka_unit_test(lines),   cmocka_unit_test(nobody_reads), cmocka_unit_test(long_lines),
        cmocka_unit_test(fatal_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
