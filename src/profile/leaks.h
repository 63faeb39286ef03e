/* The search for leaks, at exit and on request (HAKMEM_PROFILE=leaks). Internal to profile/. */
#pragma once

#include "profile/places.h"

/* Counts, at its site, each live sample that no readable word points to: in the program's data, its stacks, its own mappings,
 * and blocks that are reached or were never sampled. False: the system does not let the process read its memory. */
hak_cold bool hak__leaks_search(void);
hak_cold bool hak__leaks_were_searched(void);
