/* Marks: NULLs in a stack at which a request goes the slow way, while HAKMEM_SAMPLE_GUARDS is on (mark.c). */
#pragma once

#include "cache/cache.h"

/* After a refill, of which one block goes out at once: marks among the others, one in N of them. */
hak_cold void hak__cache_mark(struct hak_heap *heap, uint32_t class);

/* The next request of the class is to meet a mark. */
hak_cold void hak__cache_mark_next(struct hak_heap *heap, uint32_t class);

/* Whether a request of the class, for which the bin has no block, has met a mark, or would as the first one of the next
 * batch. The mark is gone then. */
hak_cold bool hak__cache_unmark(struct hak_heap *heap, uint32_t class);
hak_cold void hak__cache_drop_marks(struct hak_heap *heap, uint32_t class);
