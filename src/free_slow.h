/* The slow half of free. */
#pragma once

#include "thread.h"

/* The frees that are not one push. full: the bin of the thread's own heap is full or closed. foreign: another heap's block, or no
 * block; owner_diff is the slab's owner word ^ the heap's tag, `slab` the map's entry, unused in a build without checks. outside:
 * NULL, or an address outside of the window. */
hak_noinline void hak__free_full(void *p, size_t class_offset, struct hak_heap *heap);
hak_noinline void hak__free_foreign(void *p, size_t owner_diff, struct hak_heap *heap, const struct hak_slab *slab);
hak_noinline void hak__free_outside(void *p);

/* The thread's own heap has the slab, but no block begins at p, or it looks freed. */
hak_cold void hak__free_verify(void *p, size_t class_offset, struct hak_heap *heap);
