/* The large pool (L2.5, 56 KiB to 1 MiB): one block per span of 1 to 16 slabs. Blocks are taken and given back through
 * the heap like all others; what is special about them is that they can change size where they stand.
 * Called by realloc.c. */
#ifndef HAK_LARGE_LARGE_H
#define HAK_LARGE_LARGE_H

#include "heap/heap.h"

/* Gives the block, which is outside, the size of another large class without moving it: into free slabs behind it, or
 * by letting slabs go. Only for a block of this heap. False: unchanged. */
bool hak__large_resize_owner(struct hak_heap *heap, void *block, uint32_t class);

#endif
