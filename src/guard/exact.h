/* Closed bins: what malloc and free do, under the heap lock, if a class's visible bin sends every call to the slow path; the reasons
 * decide (heap/state.h, enum hak_closed_reason). Called by alloc.c and kinds/. */
#pragma once

#include "cache/cache.h"

/* A block of the class, for n bytes; a hardened one has exactly n. NULL when the system refuses. */
void *hak__closed_malloc(struct hak_heap *heap, uint32_t class, size_t n);
void hak__closed_free(struct hak_heap *heap, uint32_t class, void *block, const char *function);
