/* Contracts. hak_assert works in debug builds only: it names the violated contract and aborts. hak__holds works in all builds, for
 * the layers' _is_valid functions, which check data: it notes the first invariant found broken, and guard/check.c reports it. It
 * takes no lock: a race between two failing checks mixes two true findings. */
#pragma once

#include "base/compiler.h"

#if !defined(HAK_DEBUG)
#define HAK_DEBUG 0
#endif
#if !defined(HAK_TESTING)
#define HAK_TESTING 0
#endif

#if HAK_DEBUG
hak_noreturn void hak__assert_failed(const char *condition, const char *what, const char *file, int line);
#define hak_assert(condition, what) \
    ((condition) ? (void)0 : hak__assert_failed(#condition, (what), __FILE__, __LINE__))
#else
#define hak_assert(condition, what) ((void)sizeof((condition) ? 1 : 0))   /* compiled, not evaluated */
#endif

struct hak_broken {
    const char *what; /* NULL: nothing found since it was last cleared */
    const void *where;
};
extern struct hak_broken hak__broken;

/* Returns `condition`. If it is false and nothing has been noted yet, notes the invariant and the object it was checked on. */
hak_cold bool hak__holds(bool condition, const char *what, const void *where);
