/* The large blocks that a thread has freed, ready for its next requests: closed bins, whose hidden ones are used under the heap lock
 * (large_cache.c). Called by malloc_slow.c, free_slow.c, realloc.c, guard/ and upkeep/. */
#pragma once

#include "cache/cache.h"

/* Pops a cached block of the class, or NULL; the second also one of the next classes, for a request without alignment. */
void *hak__large_cache_pop(struct hak_heap *heap, uint32_t class);
void *hak__large_cache_pop_near(struct hak_heap *heap, uint32_t class);

/* A block of the class, cached or new; NULL when the system refuses. */
void *hak__large_cache_refill(struct hak_heap *heap, uint32_t class);

/* Caches the block, or gives it back if it is larger than the limit. quickly: returns false instead of taking the slow path. */
bool hak__large_cache_push_quickly(struct hak_heap *heap, uint32_t class, void *block);
void hak__large_cache_push(struct hak_heap *heap, uint32_t class, void *block, const char *function);

/* Gives back the oldest `count` blocks of the class; all that were there at the last aging; all. */
void hak__large_cache_drain(struct hak_heap *heap, uint32_t class, uint32_t count, const char *function);
hak_cold void hak__large_cache_age(struct hak_heap *heap);
hak_cold void hak__large_cache_flush(struct hak_heap *heap);

/* Releases the cached large block directly after `block`; false if there is none. */
bool hak__large_cache_clear_behind(struct hak_heap *heap, const void *block);

hak_cold bool hak__large_cache_is_valid(const struct hak_heap *heap);
