/* Looking for a block in the heaps' own state before a double free is reported (verify.c). Called by kinds/block.c. */
#pragma once

#include "cache/cache.h"

/* Whether the block of the class at p, which looks freed, really is free: in a bin, in an outbox, or in its span. `mine` is the calling
 * thread's heap, not locked, or NULL; a block in that heap's hands is always found. A block that another thread is moving may be
 * missed: its double free is found when it is collected. */
bool hak__cache_has_freed(struct hak_heap *mine, uint32_t class, const void *p);

/* The same for a block that may have lost its key, which only blocks free in their spans do. */
bool hak__cache_has_purged(uint32_t class, const void *p);
