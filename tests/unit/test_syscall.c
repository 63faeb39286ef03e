/* base/syscall.h: results and errno codes of system calls with none to six arguments; errno stays as it is. */
#include "base/syscall.h"

#include "support/check.h"

static void results_and_codes(void **state)
{
    (void)state;
    errno = 77;
    expect_eq(hak__syscall(SYS_getpid), getpid());
    long bad = hak__syscall(SYS_close, -1);
    expect_eq(bad, -EBADF);
    expect_eq(hak__syscall_code(bad), EBADF);
    expect_eq(hak__syscall_code(0), 0);
    long got = hak__syscall(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);   /* an address is no code */
    expect_eq(hak__syscall_code(got), 0);
    expect_eq(*(const volatile char *)got, 0);
    expect_eq(hak__syscall(SYS_munmap, got, 4096), 0);
    expect_eq(errno, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(results_and_codes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
