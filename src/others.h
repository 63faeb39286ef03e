/* The blocks of the program's own malloc, in a process that has loaded this library late: libraries that are bound to its names
 * may yet be given blocks of the malloc that was there before, which go back to where they came from. In a process whose malloc
 * is this library's there are no such blocks, and a pointer from elsewhere is misuse. Called where one is found (free_slow.c, pointer.c). */
#pragma once

#include "base/compiler.h"

/* Whether the program's malloc is this library's, by itself or behind another one that wraps it: it was loaded before the C
 * library. */
hak_cold bool hak__is_programs_malloc(void);

/* Whether p lies in no memory of this library, and the program has another malloc, from which it must be then. */
hak_cold bool hak__is_others(const void *p);

/* What the program's malloc does with its block p. */
hak_cold void hak__others_free(void *p);
hak_cold void *hak__others_realloc(void *p, size_t n);
hak_cold size_t hak__others_usable(const void *p);
