/* Parked heaps: those whose thread has ended, waiting for a new one. Called by thread.c and sources.c. */
#pragma once

#include "heap/heap.h"

void hak__heap_park(struct hak_heap *heap);
struct hak_heap *hak__heap_unpark(void);      /* NULL if none is parked */

/* The same for a new thread, which waits a little while one is borrowed: taken off the list by an adopter, who says so before
 * the first and after the last of those that he takes and parks again. */
struct hak_heap *hak__heap_take_up(void);
void hak__heaps_borrow(bool begin);

/* Whether one of the first few parked heaps is wanted, without taking any off the list; just now, and perhaps not any more. */
bool hak__heap_any_parked(bool (*wanted)(struct hak_heap *, uint32_t), uint32_t class, unsigned most);

/* In a forked child: the heaps of the threads that do not exist there are parked, or unusable if they were locked; `mine` and
 * `shared` (either may be NULL) stay in use. */
void hak__heaps_fork_child(const struct hak_heap *mine, const struct hak_heap *shared);

/* The same where nobody can tell which heap is still in use: only those in which a sweeper was become unusable. False if a thread may
 * still take one of them for its own. */
bool hak__heaps_fork_further(void);
