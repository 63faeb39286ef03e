/* All that a heap caches, at once, in bins, quarantine, large cache and outbox: emptied, left for the next thread, checked. Called
 * by thread.c, api.c and upkeep/, under the heap lock. */
#pragma once

#include "cache/cache.h"

/* Empties all bins and the outbox; at a thread's end all but a few small blocks, which the next thread finds. */
void hak__cache_flush(struct hak_heap *heap);
void hak__cache_leave(struct hak_heap *heap);

/* Drains the blocks that an exited thread left before the last step of upkeep, or all. The caller holds the heap's lock. The second is
 * the new thread's side, before it touches a bin. */
void hak__cache_age_left(struct hak_heap *heap, bool all);
void hak__cache_take_up(struct hak_heap *heap);

hak_cold bool hak__cache_is_valid(struct hak_heap *heap);
