/* All that a heap caches, at once, in bins, quarantine, large cache and outbox: emptied, left for the next thread, checked. Called
 * by thread.c, api.c and upkeep/, with the heap entered. */
#pragma once

#include "cache/cache.h"

/* Empties all bins and the outbox; at a thread's end all but a few small blocks, which the next thread finds. */
void hak__cache_flush(struct hak_heap *heap);
void hak__cache_leave(struct hak_heap *heap);

/* Of a heap that a step of upkeep has entered: what was left there before the last step goes back, or all. And the new thread's
 * side, to come before it touches a bin: it enters the heap. */
void hak__cache_age_left(struct hak_heap *heap, bool all);
void hak__cache_take_up(struct hak_heap *heap);

hak_cold bool hak__cache_is_valid(struct hak_heap *heap);
