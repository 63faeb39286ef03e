/* The search for leaks, at exit and on request (HAKMEM_PROFILE=leaks). Internal to profile/. */
#pragma once

#include "profile/places.h"

/* Counts, at its site, each live sample to which no word leads that the program can still read: of its data, its stacks, its own
 * mappings, and of blocks that are reached or that were never sampled. False: the system does not let the process look. */
hak_cold bool hak__leaks_search(void);
hak_cold bool hak__leaks_were_searched(void);
