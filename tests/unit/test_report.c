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

/* --- printing through a buffer ---------------------------------------------------------------------------------------- */

/* diag/report.h: what is emitted arrives whole and in order, however it falls on the buffer; errors stop it. */

static int file;
static struct hak_emitter out;

static void expect_written(const char *text, size_t length)
{
    static char written[1 << 20];
    ssize_t got = pread(file, written, sizeof written, 0);
    expect_eq(got, length);
    expect_eq(memcmp(written, text, length), 0);
}

static int open_file(void **state)
{
    (void)state;
    file = memfd_create("out", 0);
    hak__emit_open(&out, file);
    return 0;
}

static int close_file(void **state)
{
    (void)state;
    return close(file);
}

static void nothing_before_the_end(void **state)
{
    (void)state;
    hak__emit(&out, "%s=%u\n", "a", (uint64_t)1);
    expect_written("", 0);
    expect_eq(hak__emit_close(&out), 0);
    expect_written("a=1\n", 4);
}

static void pieces_of_every_length(void **state)
{
    static char piece[HAK_EMIT_ONCE], all[HAK_EMIT_ONCE * HAK_EMIT_ONCE];
    size_t length = 0;
    (void)state;
    for (size_t n = 0; n < HAK_EMIT_ONCE; n++) {
        memset(piece, 'a' + (int)(n % 26), n);
        piece[n] = 0;
        hak__emit(&out, "%s", piece);
        memcpy(all + length, piece, n);
        length += n;
    }
    expect_eq(hak__emit_close(&out), 0);
    expect_written(all, length);
}

static void padding(void **state)
{
    (void)state;
    hak__emit_padded(&out, 42, 6);
    hak__emit_padded(&out, UINT64_MAX, 3);
    expect_eq(hak__emit_close(&out), 0);
    expect_written("    4218446744073709551615", 26);
}

static void an_error_is_kept(void **state)
{
    struct hak_emitter broken;
    (void)state;
    hak__emit_open(&broken, -1);
    errno = 0;
    for (unsigned i = 0; i < 1000; i++)
        hak__emit(&broken, "some text");
    expect_eq(hak__emit_close(&broken), EBADF);
    expect_eq(errno, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines),
        cmocka_unit_test(nobody_reads),
        cmocka_unit_test(long_lines),
        cmocka_unit_test(fatal_messages),
        cmocka_unit_test_setup_teardown(nothing_before_the_end, open_file, close_file),
        cmocka_unit_test_setup_teardown(pieces_of_every_length, open_file, close_file),
        cmocka_unit_test_setup_teardown(padding, open_file, close_file),
        cmocka_unit_test_setup_teardown(an_error_is_kept, open_file, close_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
