/* Emptied SuperSlabs lend their pages to huge blocks (lend.c). */
#pragma once

#include "arena/arena.h"

/* Moves pages of emptied SuperSlabs to where a run that has just been taken, for a block of `bytes` bytes, has none; the block
 * reads as anything then. False: a part of the run is not mapped any more, and the block can't be had. */
bool hak__supers_fill(size_t first, size_t bytes);
