/* Adoption: the spans of heaps whose threads have ended (adopt.c). Called by sources.c. */
#ifndef HAK_HEAP_ADOPT_H
#define HAK_HEAP_ADOPT_H

#include "heap/heap.h"

/* Takes over the spans of a class that have free blocks from parked heaps; whether there were any (adopt.c). */
bool hak__heap_adopt(struct hak_heap *heap, uint32_t class);

#endif
