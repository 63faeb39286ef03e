/* Closed records: what malloc and free do when a class's visible record sends every call to the slow path, because
 * every call is to be counted (HAKMEM_STATS=exact) or because the class caches nothing. Called by malloc_slow.c and free_slow.c. */
#ifndef HAK_GUARD_EXACT_H
#define HAK_GUARD_EXACT_H

#include "cache/cache.h"

void *hak__closed_malloc(struct hak_heap *heap, uint32_t class);
void hak__closed_free(struct hak_heap *heap, uint32_t class, void *block, const char *function);

#endif
