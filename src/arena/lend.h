/* Emptied SuperSlabs lend their pages to huge blocks (lend.c). */
#pragma once

#include "arena/arena.h"

/* Moves pages of emptied SuperSlabs into a run just taken for a block of `bytes` bytes, where it has none; the block's content is then
 * undefined. False: a part of the run is no longer mapped, and the block can't be had. */
bool hak__supers_fill(size_t first, size_t bytes);
