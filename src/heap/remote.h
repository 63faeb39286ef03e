/* Frees by threads that are not the owner: remote bits and the owner's pending stack (remote.c). Called by cache/outbox.c and
 * heap.c. */
#pragma once

#include "heap/heap.h"

/* From any thread: publishes frees of blocks of one word of a span, and tells the owner. */
void hak__remote_publish(struct hak_span *span, uint32_t word, uint64_t bits, const char *function);

/* Takes the whole pending stack and calls collect for each span that is the heap's; others are sent on. */
void hak__remote_receive(struct hak_heap *heap, void (*collect)(struct hak_heap *, struct hak_span *));
