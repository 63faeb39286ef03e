/* Keeping the number of mappings small when the kernel allows the process few more (crowd.c). */
#pragma once

#include "arena/arena.h"

/* Whether the process has ever had so many mappings that the arena stopped making more. */
bool hak__arena_crowded(void);

/* --- for the arena, under its lock ------------------------------------------------------------------------------------ */

/* Whether there are so many mappings that the arena makes no more. */
bool hak__is_crowded(void);

void hak__crowd_publish(void);   /* notes it for hak__arena_crowded */

/* How much of a run for `bytes` bytes to map: then the tail of its last SuperSlab too. */
size_t hak__crowd_bytes(size_t bytes);
