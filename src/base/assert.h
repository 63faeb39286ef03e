/* Assertions of debug builds. They name what was violated and stop; release builds contain nothing of them. */
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
#define hak_assert(condition, what) ((void)0)
#endif
