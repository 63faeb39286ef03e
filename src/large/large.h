/* The large pool (L2.5, 56 KiB to 1 MiB). Blocks are taken and given back through the heap like all others; what is
 * special about those that are alone in their span, as all are whose size is a whole number of slabs, is that they can
 * change size where they stand. Called by realloc.c. */
#pragma once

#include "heap/heap.h"

/* Gives the block, which is outside, at least the size of another large class without moving it: into free slabs behind
 * it, or by letting slabs go. Its class is then the largest that needs no more slabs, since they are its own. Only for a
 * block of this heap. False: unchanged, because what is behind is taken, or other blocks share the span. */
bool hak__large_resize_owner(struct hak_heap *heap, void *block, uint32_t class);
