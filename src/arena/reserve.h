/* SuperSlabs mapped ahead of need (reserve.c). */
#pragma once

#include "arena/arena.h"

/* Maps SuperSlabs ahead of need until HAKMEM_RESERVE of them are free and mapped, but no more than a quarter of those
 * in use, and nothing that a limit would count. Gives how many. For upkeep. */
size_t hak__reserve_refill(void);

/* --- for the arena, under its lock ------------------------------------------------------------------------------------ */

/* The lowest SuperSlab that is free and wholly mapped; HAK_NO_SUPER if there is none. */
size_t hak__reserve_find(void);

/* Notes that a run was mapped ahead. If its pages are resident at once, unmaps it, and hak__ahead_counts from now on. */
void hak__ahead_mapped(size_t first, size_t count);
