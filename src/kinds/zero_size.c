/* Blocks of no bytes in hardened mode (harden/zero_size.h). */
#include "harden/zero_size.h"

#include "diag/report.h"
#include "kinds/kind.h"

static bool zero_size_has(const void *p) { return hak__zero_size_has(p); }

static void zero_size_free(void *p, uint32_t word, const char *function)
{
    (void)word;
    hak__zero_size_free(p, function);
    hak__freed_hardened(p);
}

static size_t zero_size_usable(const void *p, const char *function)
{
    hak__zero_size_check(p, function);
    return 0;
}

static void zero_size_check_size(const void *p, size_t align, size_t n, const char *function)
{
    (void)align;
    if (n != 0)
        hak__misuse_size(function, p, n, 0);
}

static void zero_size_describe(uintptr_t address, char *text, size_t size)
{
    (void)address;
    hak__format(text, size, "in the range of blocks of no bytes, which nothing may read or write");
}

const struct hak_kind hak__kind_zero_size = {
    .has = zero_size_has,
    .free = zero_size_free,
    .usable = zero_size_usable,
    .check_size = zero_size_check_size,
    .describe = zero_size_describe,
};
