/* The same stack discipline as the fast path, on the hidden record, with a count per call. */
#include "guard/exact.h"

void *hak__closed_malloc(struct hak_heap *heap, uint32_t index)
{
    struct hak_heap_class *class = &heap->classes[index];
    hak_count(&class->mallocs, 1);
    if (hak__is_kept(index))
        return hak__kept_refill(heap, index);
    void *block = class->capacity == 0 ? NULL : hak__cache_pop(&class->hidden);
    return block != NULL ? block : hak__cache_refill(heap, index);
}

void hak__closed_free(struct hak_heap *heap, uint32_t index, void *block, const char *function)
{
    struct hak_heap_class *class = &heap->classes[index];
    hak_count(&class->frees, 1);
    if (hak__is_kept(index))
        hak__kept_push(heap, index, block, function);
    else if (class->capacity == 0 || !hak__cache_push(&class->hidden, block))
        hak__cache_overflow(heap, index, block, function);
}
