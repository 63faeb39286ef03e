/* Questions about memory that tests ask: whether an address is mapped, whether a range is zero, whether a block still
 * holds what was written into it. */
#ifndef HAK_TESTS_SUPPORT_MEMORY_H
#define HAK_TESTS_SUPPORT_MEMORY_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Resident bytes of the process, by the kernel's account; 0: it does not say. */
static inline size_t resident_bytes(void)
{
    unsigned long all = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    bool read = file != NULL && fscanf(file, "%lu %lu", &all, &pages) == 2;
    if (file != NULL)
        fclose(file);
    size_t page = getenv("HAK_TEST_EMULATED") != NULL ? 4096 : (size_t)sysconf(_SC_PAGESIZE);   /* the machine's */
    return read ? pages * page : 0;
}

/* Whether the page of an address is mapped; it need not be resident. Keeps errno. */
static inline bool is_mapped(const void *p)
{
    unsigned char resident;
    int saved = errno;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    bool mapped = mincore((void *)((uintptr_t)p & ~(page - 1)), 1, &resident) == 0;
    errno = saved;
    return mapped;
}

static inline bool is_zero(const char *p, size_t n)
{
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* Fills a block with bytes that depend on a tag; short blocks wholly, long ones in both ends and one word per page. */
static inline uint64_t memory_pattern(uint64_t tag, size_t at) { return (tag ^ at) * 0x9e3779b97f4a7c15ull; }

enum { MEMORY_WHOLE = 16384, MEMORY_STEP = 4096 };

static inline size_t memory_step(size_t at, size_t n)
{
    bool dense = at < MEMORY_WHOLE || at + 8 > n - n % 8 - 64;
    return dense ? 8 : MEMORY_STEP;
}

static inline void memory_fill(void *block, size_t n, uint64_t tag)
{
    char *p = block;
    for (size_t at = 0; at + 8 <= n; at += memory_step(at, n)) {
        uint64_t word = memory_pattern(tag, at);
        memcpy(p + at, &word, 8);
    }
    memset(p + n - n % 8, (int)(tag & 0xff), n % 8);
}

/* Whether the first n bytes are as memory_fill(block, filled, tag) left them. */
static inline bool memory_holds(const void *block, size_t n, size_t filled, uint64_t tag)
{
    const char *p = block;
    for (size_t at = 0; at + 8 <= n && at + 8 <= filled; at += memory_step(at, filled)) {
        uint64_t word = memory_pattern(tag, at);
        if (memcmp(p + at, &word, 8) != 0)
            return false;
    }
    for (size_t at = filled - filled % 8; at < filled && at < n; at++)
        if (p[at] != (char)(tag & 0xff))
            return false;
    return true;
}

#endif
