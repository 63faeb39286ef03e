/* What is mapped of runs of SuperSlabs that somebody has taken (mapping.c). */
#pragma once

#include "arena/arena.h"

/* Unmaps the pages beyond `bytes` of a taken run of `count` SuperSlabs. False: the system refuses a part of that. */
bool hak__supers_trim(size_t first, size_t count, size_t bytes);

/* Gives back the pages beyond `bytes` of a taken run of `count` SuperSlabs: unmapped, unless mappings are few or the system
 * refuses. Whether nothing is mapped there afterwards. */
bool hak__supers_shorten(size_t first, size_t count, size_t bytes);

/* --- for the arena, under its lock ------------------------------------------------------------------------------------ */

/* Maps what is missing of a run in open regions with as few calls as there are gaps. 0, or an errno code, and *at is the
 * SuperSlab that failed; what has been mapped before it stays mapped and is accounted for. */
int hak__run_map(size_t first, size_t count, size_t bytes, size_t *at);

/* After a move to a mapped place was refused: kernels before 6.17 have unmapped it by then, and it is mapped anew. False: that
 * was refused too. */
bool hak__place_stays(uintptr_t place, size_t bytes);

/* Unmaps what of a taken run is mapped beyond the first `bytes` bytes; false if the system refuses. */
bool hak__run_trim(size_t first, size_t count, size_t bytes);
