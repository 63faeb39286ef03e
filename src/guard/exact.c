/* See exact.h. */
#include "guard/exact.h"

#include "cache/large_cache.h"
#include "cache/tune.h"
#include "harden/harden.h"

/* Opens the class if nothing has used it so far; returns whether its bin is open now. */
hak_inline bool is_open_now(struct hak_heap *heap, uint32_t index)
{
    if ((heap->closed_reasons[index] & HAK_CLOSED_UNCACHED) != 0 && heap->classes[index].bottom == NULL)
        hak__cache_open_class(heap, index);
    return heap->closed_reasons[index] == 0;
}

void *hak__closed_malloc(struct hak_heap *heap, uint32_t index, size_t n)
{
    if (is_open_now(heap, index) && !hak__hardened.on)
        return hak__heap_malloc(heap, index, n);
    struct hak_heap_class *class = &heap->classes[index];
    uint32_t reasons = heap->closed_reasons[index] | (hak__hardened.on ? HAK_CLOSED_HARDENED : 0);
    if ((reasons & (HAK_CLOSED_EXACT | HAK_CLOSED_HARDENED)) != HAK_CLOSED_HARDENED)
        hak_count(&class->mallocs, 1);
    if ((reasons & HAK_CLOSED_HARDENED) != 0)
        return hak__harden_take(heap, index, n);
    void *block = NULL;
    if ((reasons & HAK_CLOSED_LARGE) != 0)
        block = hak__large_cache_refill(heap, index);
    else if ((reasons & HAK_CLOSED_UNCACHED) != 0 || (block = hak__cache_pop(&class->hidden)) == NULL)
        block = hak__cache_refill(heap, index);
    if (block != NULL)
        hak__mark_live(block);
    return block;
}

void hak__closed_free(struct hak_heap *heap, uint32_t index, void *block, const char *function)
{
    if (is_open_now(heap, index)) {
        hak__heap_free(heap, index, block, function);
        return;
    }
    struct hak_heap_class *class = &heap->classes[index];
    uint32_t reasons = heap->closed_reasons[index];
    hak_count(&class->frees, 1);
    if ((reasons & HAK_CLOSED_LARGE) != 0)
        hak__large_cache_push(heap, index, block, function);
    else if ((reasons & HAK_CLOSED_UNCACHED) != 0 || !hak__cache_push(&class->hidden, block))
        hak__cache_overflow(heap, index, block, function);
}
