/* The results of malloc(0) in hardened mode: addresses 16 bytes apart in a range where nothing is ever mapped (arena/window.h).
 * One bit for each says whether it is in use, another whether it ever was; handing them out in turn delays reuse. Lock-free, for
 * any thread. Called by kinds.c. */
#pragma once

#include "base/atomic.h"
#include "base/limits.h"

struct hak_zero_size {
    uintptr_t range; /* its first address; 0: there is none */
    _Atomic uint64_t *in_use, *ever_used; /* a bit for each address */
};
extern struct hak_zero_size hak__zero_size;

/* Once, when hardened mode has the part zero_size. */
hak_cold void hak__zero_size_begin(void);

hak_inline bool hak__zero_size_has(const void *p)
{
    return hak__zero_size.range != 0 && (uintptr_t)p - hak__zero_size.range < HAK_ZERO_SIZE_SIZE;
}

/* NULL when all addresses are in use, or there are none. */
hak_cold void *hak__zero_size_malloc(void);

/* For addresses in the range. Both end the program with a report unless p is one in use. */
hak_cold void hak__zero_size_free(void *p, const char *function);
hak_cold void hak__zero_size_check(const void *p, const char *function);
