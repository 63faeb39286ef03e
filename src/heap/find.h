/* Looking for a free block in the heaps' own state (find.c). Called by heap.c when blocks are collected, by cache/verify.c and
 * kinds/late.c. */
#pragma once

#include "heap/heap.h"

/* Whether p, a block of the class, is free in a bin, the outbox or a span of the heap; the second: in a span. Caller holds the heap
 * lock. */
hak_cold bool hak__heap_has_free(struct hak_heap *heap, uint32_t class, const void *p);
hak_cold bool hak__heap_has_in_span(const struct hak_heap *heap, uint32_t class, const void *p);

/* Asks a heap that the caller has not locked; false if it is locked at each of so many tries. Then all heaps but one, until one says
 * yes. A caller that holds a heap lock tries once: others may wait for it. */
enum { HAK_HEAP_ASK_TRIES = 1000 };
typedef bool hak_heap_question(struct hak_heap *heap, uint32_t class, const void *p);
hak_cold bool hak__heap_ask(struct hak_heap *heap, hak_heap_question *question, uint32_t class, const void *p,
                            unsigned tries);
hak_cold bool hak__heaps_ask(const struct hak_heap *except, hak_heap_question *question, uint32_t class, const void *p,
                             unsigned tries);
