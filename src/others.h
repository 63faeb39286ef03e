/* Blocks of the program's own malloc, in a process that has loaded this library late: libraries that are bound to this one's names
 * may pass it blocks of the malloc that was there before, and get them freed there. In a process whose malloc is this library's, a
 * pointer from elsewhere is misuse. Called by free_slow.c and pointer.c. */
#pragma once

#include "base/compiler.h"

/* Whether the program's malloc is this library's, by itself or behind another one that wraps it: it was loaded before the C
 * library. */
hak_cold bool hak__is_programs_malloc(void);

/* Whether p lies outside of this library's memory in a program that has another malloc. */
hak_cold bool hak__is_others(const void *p);

/* Pass p on to the program's malloc. */
hak_cold void hak__others_free(void *p);
hak_cold void *hak__others_realloc(void *p, size_t n);
hak_cold size_t hak__others_usable(const void *p);
