/* The common heaps, which belong to no thread and serve the first blocks of small classes (common.c). Called by thread.c and
 * cache/, under the lock of the thread's heap. */
#pragma once

#include "heap/heap.h"

/* Makes a new heap a common one, if the process has so many heaps that it needs one more. */
bool hak__common_add(struct hak_heap *heap);

/* How many blocks of the class they may give to a new heap. */
uint32_t hak__common_first(uint32_t class);

/* Takes a few blocks of a class with common_left, at most its capacity, into out[0..], like hak__heap_take; returns 0 if there are none
 * now. */
uint32_t hak__common_take(struct hak_heap *heap, uint32_t class, void **out);

/* In a forked child, before hak__heaps_fork_child: makes them heaps of threads that do not exist. */
void hak__common_fork_child(void);
