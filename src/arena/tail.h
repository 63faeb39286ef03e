/* Tails: pages between a huge block's end and that of its last SuperSlab (tail.c). */
#pragma once

#include "arena/arena.h"

/* --- for the arena, under its lock ------------------------------------------------------------------------------------ */

/* The block in a taken run ends after `need` bytes of this SuperSlab: lets what is mapped behind it stay. False: there is nothing worth
 * it, or it may not stay. */
bool hak__tail_keep(size_t super, size_t need);

/* What is mapped in the SuperSlab is no tail from now on, but free, or the block's. Any SuperSlab of a taken run may be given. */
void hak__tail_end(size_t super);

/* Unmaps the tails that have been kept since `before_ms` or longer. Gives their bytes. */
size_t hak__tails_purge(uint64_t before_ms);
