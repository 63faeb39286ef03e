/* Few mappings, where the kernel allows the process no more (crowd.c). */
#pragma once

#include "arena/arena.h"

/* Whether there have ever been so many mappings that no more were to be made (crowd.c). */
bool hak__arena_crowded(void);

/* Gives back the pages beyond `bytes` of a taken run of `count` SuperSlabs: unmapped, unless mappings are few or the system
 * refuses. Whether nothing is mapped there afterwards. */
bool hak__supers_shorten(size_t first, size_t count, size_t bytes);

/* --- for the arena, under its lock ------------------------------------------------------------------------------------ */

/* Says how many bytes of a SuperSlab are mapped, from its start; state.mapped is the caller's. */
void hak__super_set_mapped(size_t super, uint32_t bytes);
size_t hak__crowd_count(void);   /* what state.ends is to be */

/* Whether there are so many mappings that no more are to be made. */
bool hak__is_crowded(void);

void hak__crowd_publish(void);   /* notes it for hak__arena_crowded */

/* Of a run for `bytes` bytes, what to map: then the tail of its last SuperSlab too. */
size_t hak__crowd_bytes(size_t bytes);

/* Maps `length` bytes behind what is mapped of a SuperSlab, and with it the gap below if mappings are few. The caller says in
 * the state what he has asked for. 0 or an errno code. */
int hak__crowd_map(size_t super, size_t length);
