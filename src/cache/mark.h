/* Marks: NULLs among the blocks of a bin that send a request to the slow path, while HAKMEM_SAMPLE_GUARDS is on (mark.c). */
#pragma once

#include "cache/cache.h"

/* After a refill, one block of which is handed out at once: puts marks among the others, one in N. */
hak_cold void hak__cache_mark(struct hak_heap *heap, uint32_t class);

/* Makes the next request of the class meet a mark. */
hak_cold void hak__cache_mark_next(struct hak_heap *heap, uint32_t class);

/* Whether a request of the class that found no block has met a mark, or would meet one as the first of the next batch. Takes the mark
 * away. */
hak_cold bool hak__cache_unmark(struct hak_heap *heap, uint32_t class);
hak_cold void hak__cache_drop_marks(struct hak_heap *heap, uint32_t class);
