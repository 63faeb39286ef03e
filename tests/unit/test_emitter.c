/* diag/emitter.h: what is emitted arrives whole and in order, however it falls on the buffer; errors stop it. */
#include "diag/emitter.h"

#include "support/check.h"

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
        cmocka_unit_test_setup_teardown(nothing_before_the_end, open_file, close_file),
        cmocka_unit_test_setup_teardown(pieces_of_every_length, open_file, close_file),
        cmocka_unit_test_setup_teardown(padding, open_file, close_file),
        cmocka_unit_test_setup_teardown(an_error_is_kept, open_file, close_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
