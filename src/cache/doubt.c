/* Looking for a block in the books before a double free is reported: see slab/freed.h. Called by route.c. */
#include "cache/cache.h"

/* Seen from another thread than the owner's: a block that a thread has in its hands has left the stack before it was
 * handed over, and whatever was pushed there since has overwritten its slot; so to find it below the top is proof. */
static bool in_stack(struct hak_heap *heap, uint32_t class, const void *p)
{
    void **bottom = hak_peek(&heap->classes[class].bottom), **slot = bottom + hak__cache_count(heap, class);
    while (slot > bottom)
        if (hak_peek(--slot) == p)
            return true;
    return false;
}

static bool in_outbox(const struct hak_heap *heap, const void *p)
{
    const struct hak_outbox_bucket *bucket = &heap->outbox[hak__slab_of(p) % HAK_OUTBOX_BUCKETS];
    for (uint32_t i = 0; i < bucket->count; i++)
        if (bucket->blocks[i] == p)
            return true;
    return false;
}

/* The bitmaps may be read by who has entered the owner's heap. */
static bool in_span(struct hak_heap *owner, const struct hak_span *span, uint32_t index)
{
    uint64_t bit = 1ull << index % 64;
    if ((hak_load(&span->remote[index / 64], HAK_RELAXED) & bit) != 0)
        return true;
    if (!hak__heap_try_enter(owner, HAK_SWEEPER))
        return false;
    bool is_free = index >= span->frontier || (span->free[index / 64] & bit) != 0;
    hak__leave(owner);
    return is_free;
}

bool hak__cache_has_freed(struct hak_heap *mine, const void *p)
{
    struct hak_span *span = hak__span_at(hak__slab_of(p));
    uint32_t index, id = hak__owner_id(hak__owner_of(p));
    if (id - 1 >= HAK_HEAPS_MAX || hak__span_index(span, p, &index) != HAK_SPAN_OK)
        return true;   /* the span has ended under the caller's hands */
    struct hak_heap *owner = hak__heap_by_id(id);
    if (mine != NULL && (in_stack(mine, span->class, p) || (mine != owner && in_outbox(mine, p))))
        return true;
    return (mine != owner && in_stack(owner, span->class, p)) || in_span(owner, span, index);
}
