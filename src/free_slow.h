/* The slow half of free: everything that is not one push. */
#pragma once

#include "thread.h"

/* The three frees that are not one push: into a full or closed bin of the thread's own heap; of a block that is not
 * the thread's, or of what is no block (owner_diff is its slab's owner word ^ the heap's tag, `slab` the map's entry, which a build
 * without checks does not pass on); outside of the window, or NULL. */
hak_noinline void hak__free_full(void *p, size_t class_offset, struct hak_heap *heap);
hak_noinline void hak__free_foreign(void *p, size_t owner_diff, struct hak_heap *heap, const struct hak_slab *slab);
hak_noinline void hak__free_outside(void *p);

/* A free into the thread's own heap of what is no block, or looks freed. */
hak_cold void hak__free_verify(void *p, size_t class_offset, struct hak_heap *heap);
