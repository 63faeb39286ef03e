/* Checks for programs that are linked in every way there is, also fully static, where no test library can come along.
 * A failing check says where and ends the program. */
#ifndef HAK_TESTS_OVERRIDE_EXPECT_H
#define HAK_TESTS_OVERRIDE_EXPECT_H

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static inline void expect_failed(const char *file, int line, const char *what)
{
    char text[300];
    int length = snprintf(text, sizeof text, "%s:%d: %s\n", file, line, what);
    if (write(2, text, (size_t)length) < 0)
        _exit(3);
    _exit(1);
}
#define expect(condition) ((condition) ? (void)0 : expect_failed(__FILE__, __LINE__, #condition))

/* Whether an emulator runs the program that has no `what`; says so. The case ends there, or the test with LEFT_OUT. */
enum { LEFT_OUT = 77 };

static inline bool not_emulated(const char *what)
{
    if (getenv("HAK_TEST_EMULATOR") == NULL)
        return false;
    printf("left out, because the emulator has no %s\n", what);
    return fflush(stdout) == 0;
}

/* Whether an emulator runs the program that accepts MADV_WIPEONFORK and does nothing, as qemu before 8.0: the library takes a child for
 * its parent. */
static inline bool not_told_of_children(void)
{
    int status = 0;
    char *page = (char *)mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (getenv("HAK_TEST_EMULATOR") == NULL || page == MAP_FAILED)
        return false;
    *page = madvise(page, (size_t)sysconf(_SC_PAGESIZE), MADV_WIPEONFORK) == 0;
    pid_t child = fork();
    if (child == 0)
        _exit(*page);
    expect(waitpid(child, &status, 0) == child);
    return status != 0 && not_emulated("MADV_WIPEONFORK");
}

/* A block of `n` bytes, written to its last one and checked. */
static inline void expect_block(void *p, size_t n)
{
    expect(p != NULL && (uintptr_t)p % 16 == 0);
    memset(p, 0x5a, n);
    expect(n == 0 || ((unsigned char *)p)[n - 1] == 0x5a);
}

/* Bytes of the process that are resident. */
static inline size_t resident_bytes(void)
{
    unsigned long total, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    expect(file != NULL && fscanf(file, "%lu %lu", &total, &resident) == 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

#endif
