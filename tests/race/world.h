/* The world in which the race cases run: a few SuperSlabs and heaps in ordinary memory, instead of arena/ and what lies
 * below it. Each race program links the real sources of the layers it looks at, and this. */
#ifndef HAK_TESTS_RACE_WORLD_H
#define HAK_TESTS_RACE_WORLD_H

#include "heap/heap.h"
#include "support/explore.h"

enum { WORLD_SUPERS = 2, WORLD_HEAPS = 3 };

/* Everything as at the library's start: no spans, no SuperSlab in use, heaps 1 to WORLD_HEAPS active. */
void world_reset(void);

/* SuperSlabs that the pool has given back to the arena minus those it has taken. */
bool world_super_is_free(size_t super);

/* Takes the SuperSlab away from the arena, as hak__supers_take would. */
void world_take_super(size_t super);

/* A case may define it: the pages of these slabs go back to the system. */
void world_purged(size_t slab, size_t count);

/* A case may define it: a thread is about to wait for another. */
void world_waits(void);

/* A case may define it: a double free is reported. If it returns, the schedule is wrong. */
void world_double_free(void);

/* For those that collect: nothing is free where the heaps' own state is not linked. */
bool world_is_not_free(const struct hak_span *span, const void *block);

#endif
