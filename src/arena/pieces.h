/* Bare SuperSlabs, mapped in pieces (pieces.c). */
#pragma once

#include "arena/arena.h"

/* Opens a SuperSlab for slabs: wholly mapped, or bare. Refuses `whole` in a thrifty process; and if new memory turns out to be resident
 * at once, the SuperSlab is bare after all. */
size_t hak__supers_open(bool whole, bool *fresh);

/* Map and unmap a piece of a bare SuperSlab, in the caller's slabs. 0 or an errno code; false: the system refuses. */
int hak__piece_map(void *start, size_t bytes);
bool hak__piece_unmap(void *start, size_t bytes);
