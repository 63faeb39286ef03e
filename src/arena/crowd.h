/* Few mappings, where the kernel allows the process no more (crowd.c). */
#pragma once

#include "arena/arena.h"

/* Whether there have ever been so many mappings that no more were to be made (crowd.c). */
bool hak__arena_crowded(void);

/* --- for the arena, under its lock ------------------------------------------------------------------------------------ */

/* Whether there are so many mappings that no more are to be made. */
bool hak__is_crowded(void);

void hak__crowd_publish(void);   /* notes it for hak__arena_crowded */

/* Of a run for `bytes` bytes, what to map: then the tail of its last SuperSlab too. */
size_t hak__crowd_bytes(size_t bytes);
