/* Bare SuperSlabs, mapped in pieces (pieces.c). */
#pragma once

#include "arena/arena.h"

/* A SuperSlab for slabs: wholly mapped, or bare. `whole` is refused where the process is to be thrifty; and where new memory
 * turns out to be there at once, the SuperSlab is bare after all. */
size_t hak__supers_open(bool whole, bool *fresh);

/* Maps, or unmaps, a piece of a bare SuperSlab, in slabs that the caller has. 0 or an errno code; false: the system refuses. */
int hak__piece_map(void *start, size_t bytes);
bool hak__piece_unmap(void *start, size_t bytes);
