/* Contracts. hak_assert is for debug builds: it names the violated contract and stops; release builds contain nothing of it.
 * hak__holds is in all builds, for the _is_valid functions of the layers, which check data that is there: it notes the first invariant
 * that was found broken, and guard/check.c reports it. There is no lock: a race between two failing checks mixes two true findings. */
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
    const char *what; /* NULL: nothing was found since this was last cleared */
    const void *where;
};
extern struct hak_broken hak__broken;

/* Gives `condition`; when it is false and nothing has been noted before, notes what should have held, and of what. */
hak_cold bool hak__holds(bool condition, const char *what, const void *where);
