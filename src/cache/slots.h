/* Where the slots of the bins lie. Called by tune.c, under the heap lock. */
#pragma once

#include "heap/heap.h"

enum { HAK_SLOTS_LEAST = 16 };   /* in an area; each with a guard word below them */

/* Whether the class's slots are those in the heap's struct. */
bool hak__slots_are_local(uint32_t class);

/* Lays the slots of a new heap out. */
void hak__slots_open(struct hak_heap *heap);

/* Takes an area for so many slots and returns the first; NULL if the system refuses. And gives one back. */
void **hak__slots_take(struct hak_heap *heap, uint32_t slots);
void hak__slots_give(struct hak_heap *heap, void **bottom, uint32_t slots);
