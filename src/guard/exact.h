/* Closed bins: what malloc and free do with the heap entered when a class's visible bin sends every call to the slow path,
 * by the reasons for which it does (heap.h, enum hak_closed_reason). Called by alloc.c and free_slow.c. */
#pragma once

#include "cache/cache.h"

/* A block of the class, for n bytes: in a hardened heap it has just as many. NULL when the system refuses. */
void *hak__closed_malloc(struct hak_heap *heap, uint32_t class, size_t n);
void hak__closed_free(struct hak_heap *heap, uint32_t class, void *block, const char *function);
