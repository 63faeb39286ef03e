/* See guarded.h. */
#include "arena/guarded.h"

#include "os/os.h"

_Atomic size_t hak__guarded_bytes;

int hak__guarded_map(uintptr_t address, size_t bytes)
{
    int code = hak__os_map(address, bytes);
    if (code == 0)
        hak_fetch_add(&hak__guarded_bytes, bytes, HAK_RELAXED);
    return code;
}

bool hak__guarded_unmap(uintptr_t address, size_t bytes)
{
    bool done = hak__os_unmap(address, bytes) == 0;
    if (done)
        hak_fetch_sub(&hak__guarded_bytes, bytes, HAK_RELAXED);
    return done;
}
