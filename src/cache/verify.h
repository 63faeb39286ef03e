/* Looking for a block in the heaps' own state before a double free is reported (verify.c). Called by pointer.c. */
#pragma once

#include "cache/cache.h"

/* Whether the heap's own state says that the block of the class at p, which looks freed, is: it is in a stack, in an outbox, or free
 * in its span. `mine` is the calling thread's heap, not entered, or NULL; what that heap has had in hand is always found.
 * A block that another thread is moving just now may be missed: its double free is found when it is collected. */
bool hak__cache_has_freed(struct hak_heap *mine, uint32_t class, const void *p);

/* The same for a block that may have lost its key, which only blocks free in their spans do. */
bool hak__cache_has_purged(uint32_t class, const void *p);
