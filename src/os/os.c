/* Counts every call to the system by kind and passes it to the current table. */
#include "os/os.h"

#if HAK_TESTING
const struct hak_os *hak__os = &hak__os_linux;
#endif

/* On a cache line apart from words that fast paths only read. */
hak_line_aligned _Atomic uint64_t hak__os_calls[HAK_OS_CALLS];
_Atomic uint64_t hak__os_failures;

static int os_counted(enum hak_os_call kind, int code)
{
    hak_assert(code >= 0, "results are errno codes");
    hak_fetch_add(&hak__os_calls[kind], 1, HAK_RELAXED);
    if (code != 0)
        hak_fetch_add(&hak__os_failures, 1, HAK_RELAXED);
    return code;
}

int hak__os_map(uintptr_t address, size_t size) { return os_counted(HAK_OS_MAP, hak__os->map(address, size)); }
int hak__os_extend(uintptr_t address, size_t size) { return os_counted(HAK_OS_MAP, hak__os->extend(address, size)); }
int hak__os_unmap(uintptr_t address, size_t size) { return os_counted(HAK_OS_UNMAP, hak__os->unmap(address, size)); }
int hak__os_purge(uintptr_t address, size_t size) { return os_counted(HAK_OS_PURGE, hak__os->purge(address, size)); }

int hak__os_move(uintptr_t from, size_t size, uintptr_t to, size_t new_size)
{
    return os_counted(HAK_OS_MOVE, hak__os->move(from, size, to, new_size));
}

int hak__os_advise(uintptr_t address, size_t size, enum hak_os_advice what)
{
    return os_counted(HAK_OS_PURGE, hak__os->advise(address, size, what));
}

uintptr_t hak__os_probe(size_t size)
{
    hak_assert(size != 0, "addresses for something");
    uintptr_t found = hak__os->probe(size);
    os_counted(HAK_OS_PROBE, found == 0);
    return found;
}
