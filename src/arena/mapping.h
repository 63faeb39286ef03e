/* Mapping and unmapping parts of taken runs of SuperSlabs (mapping.c). */
#pragma once

#include "arena/arena.h"

/* Unmaps the pages beyond `bytes` of a taken run of `count` SuperSlabs. False: the system refuses a part of that. */
bool hak__supers_trim(size_t first, size_t count, size_t bytes);

/* Returns the pages beyond `bytes` of a taken run of `count` SuperSlabs: unmaps them, unless mappings are few or the system refuses;
 * with `tail`, all but a tail that is worth keeping (tail.h). Returns whether nothing is mapped there afterwards. */
bool hak__supers_shorten(size_t first, size_t count, size_t bytes, bool tail);

/* --- for the arena, under its lock ------------------------------------------------------------------------------------ */

/* Maps the gaps of a run in open regions, one call each. 0, or an errno code, and *at is the SuperSlab that failed; what was mapped
 * before it stays mapped and is accounted for. */
int hak__run_map(size_t first, size_t count, size_t bytes, size_t *at);

/* After the kernel has refused a move to a mapped place: kernels before 6.17 have unmapped the place by then, so this maps it again.
 * False: that is refused too. */
bool hak__place_stays(uintptr_t place, size_t bytes);

/* Unmaps a taken run beyond its first `bytes` bytes; false if the system refuses. */
bool hak__run_trim(size_t first, size_t count, size_t bytes);
