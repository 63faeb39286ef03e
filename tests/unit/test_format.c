/* diag/format.c: every letter, widths on both sides, and texts that do not fit. */
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

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(letters), cmocka_unit_test(widths), cmocka_unit_test(truncation) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
