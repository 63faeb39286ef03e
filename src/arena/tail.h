/* Tails: pages between a huge block's guard and the end of its last SuperSlab (tail.c). */
#pragma once

#include "arena/arena.h"

/* --- for the arena, under its lock ------------------------------------------------------------------------------------ */

/* The block in a taken run ends after `need` bytes of this SuperSlab: makes the next page a guard and lets what is mapped behind it
 * stay. False: there is nothing worth it, it may not stay, or the system refuses; nothing has changed. */
bool hak__tail_keep(size_t super, size_t need);

/* The SuperSlab has no guard in it from now on: its tail, if it has one, can be used. Any SuperSlab of a taken run may be given. */
void hak__tail_end(size_t super);

/* Unmaps the tails that have been kept since `before_ms` or longer. Gives their bytes. */
size_t hak__tails_purge(uint64_t before_ms);
