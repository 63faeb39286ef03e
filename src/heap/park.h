/* Parked heaps: those whose thread has ended, waiting for a new one. Called by thread.c and sources.c. */
#pragma once

#include "heap/heap.h"

/* The caller has unlocked the heap, which nobody else can want. */
void hak__heap_park(struct hak_heap *heap);

/* A heap off the list, locked by the caller; NULL if none is parked. A heap in somebody's hands is locked until it is parked again or a
 * thread's own, so a fork at any moment finds each heap in one place. */
struct hak_heap *hak__heap_unpark(void);

/* take_up: the same for a new thread, which waits a little while a heap is borrowed. An adopter borrows: the heap still counts as
 * parked. It says so before it takes heaps off the list, and again when it has parked them all. */
struct hak_heap *hak__heap_take_up(void);
struct hak_heap *hak__heap_borrow(void);
void hak__heaps_borrow(bool begin);

/* Whether one of the first few parked heaps is wanted at this moment. Takes none off the list. */
bool hak__heap_any_parked(bool (*wanted)(struct hak_heap *, uint32_t), uint32_t class, unsigned most);

/* In a forked child: parks the heaps of threads that do not exist there, or makes them unusable if they were locked. `mine` and
 * `shared` (either may be NULL) stay in use. */
void hak__heaps_fork_child(const struct hak_heap *mine, const struct hak_heap *shared);

/* The same if it is not known which heap is still in use: only those that a sweeper had locked become unusable. False if a thread
 * may still take one of these for its own. */
bool hak__heaps_fork_further(void);
