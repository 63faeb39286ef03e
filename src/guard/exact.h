/* One dispatcher for each direction: decides under the heap lock where a block comes from and goes to. A class's bin may be
 * closed, so that every call takes the slow path; then the reasons decide (heap/state.h, enum hak_closed_reason). Called by
 * request.c, heap_malloc.c and kinds/. */
#pragma once

#include "cache/cache.h"
#include "harden/mode.h"

/* A block of the class, for n bytes; a hardened one holds exactly n. NULL when the system refuses. */
void *hak__closed_malloc(struct hak_heap *heap, uint32_t class, size_t n);
void hak__closed_free(struct hak_heap *heap, uint32_t class, void *block, const char *function);

/* The same for any class, closed or not. Heaps made before the options were readable have open bins even in a hardened process. */
hak_inline void *hak__heap_malloc(struct hak_heap *heap, uint32_t class, size_t n)
{
    if (heap->closed_reasons[class] != 0 || hak_unlikely(hak__hardened.on))
        return hak__closed_malloc(heap, class, n);
    void *block = hak__cache_pop(&heap->bins[class]);
    if (block == NULL)
        block = hak__cache_refill(heap, class);
    if (hak_likely(block != NULL))
        hak__mark_live(block);
    return block;
}

hak_inline void hak__heap_free(struct hak_heap *heap, uint32_t class, void *block, const char *function)
{
    if (heap->closed_reasons[class] != 0)
        hak__closed_free(heap, class, block, function);
    else if (!hak__cache_push(&heap->bins[class], block))
        hak__cache_overflow(heap, class, block, function);
}
