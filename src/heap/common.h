/* The common heaps: they belong to no thread and serve the first blocks of small classes (common.c). Called by thread.c and
 * cache/, with the thread's heap entered. */
#pragma once

#include "heap/heap.h"

/* Makes a heap that has just been opened a common one, if the process has so many that there should be one more. */
bool hak__common_add(struct hak_heap *heap);

/* Blocks of the class that they may give to a heap that is opened now. */
uint32_t hak__common_first(uint32_t class);

/* A few blocks of a class with common_left, no more than its capacity, into out[0..], as hak__heap_take gives them; 0 when
 * there are none just now. */
uint32_t hak__common_take(struct hak_heap *heap, uint32_t class, void **out);

/* In a forked child, before hak__heaps_fork_child: they are heaps of threads that do not exist, like others. */
void hak__common_fork_child(void);
