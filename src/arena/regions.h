/* Regions of the window: which parts of it are in use (regions.c). */
#pragma once

#include "arena/arena.h"

/* Walks of all SuperSlabs pass over regions that nobody has used (regions.c), where there is nothing to see:
 *   for (size_t super = hak__super_from(0); super < hak__arena_top(); super = hak__super_from(super + 1))
 * Elsewhere a walk may only begin in an open region, or where one of its 64 SuperSlabs begins. */
#define HAK_REGION_SUPERS 64
bool hak__region_is_open(size_t region);
size_t hak__region_next(size_t region);      /* the first open one from this one on; none: it begins at or above the top */
size_t hak__super_before(size_t super);      /* the other way: the next lower one in an open region; HAK_NO_SUPER */
bool hak__super_is_hole(size_t super);       /* below the top: somebody else's mapping was found there */

hak_inline size_t hak__super_from(size_t super)
{
    return super % HAK_REGION_SUPERS != 0 ? super : hak__region_next(super / HAK_REGION_SUPERS) * HAK_REGION_SUPERS;
}

/* --- for the arena, under its lock ------------------------------------------------------------------------------------ */

/* How many regions from this one on are alike, all free or all foreign, as far as one read tells; 1 if it is open. */
size_t hak__regions_alike(size_t region);

uint64_t hak__region_free(size_t region);   /* a bit for each free SuperSlab, by its place in it */
size_t hak__regions_foreign(void);          /* how many closed ones are foreign */

void hak__region_mark_open(size_t region);      /* once its descriptors are mapped; for good */
void hak__region_mark_foreign(size_t region);   /* of a closed one */
