/* Parked heaps: those whose thread has ended, waiting for a new one. Called by thread.c and sources.c. */
#pragma once

#include "heap/heap.h"

void hak__heap_park(struct hak_heap *heap);
struct hak_heap *hak__heap_unpark(void);      /* NULL if none is parked */

/* take_up: the same for a new thread, which waits a little while a heap is borrowed. An adopter says so before it takes heaps off the
 * list, and again when it has parked them all. */
struct hak_heap *hak__heap_take_up(void);
void hak__heaps_borrow(bool begin);

/* Whether one of the first few parked heaps is wanted at this moment. Takes none off the list. */
bool hak__heap_any_parked(bool (*wanted)(struct hak_heap *, uint32_t), uint32_t class, unsigned most);

/* In a forked child: parks the heaps of threads that do not exist there, or makes them unusable if they were locked. `mine` and
 * `shared` (either may be NULL) stay in use. */
void hak__heaps_fork_child(const struct hak_heap *mine, const struct hak_heap *shared);

/* The same if it is not known which heap is still in use: only those that a sweeper had locked become unusable. False if a thread
 * may still take one of these for its own. */
bool hak__heaps_fork_further(void);
