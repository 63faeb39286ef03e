/* Looking for a free block in the heaps' own state, before anybody is told that it was freed twice: the key in its first word
 * may be the program's own (span/span.h). Called by heap.c when blocks are collected, and by cache/verify.c.
 *
 * The search locks one heap at a time, so no batch, slot area or span of it moves. Meanwhile the owner may do what it does without
 * the lock: pop, push, and add to its outbox.
 *
 * Finding a block is proof. A thread that frees a block in use was handed that block, and the hand-over orders the pop of the
 * block, the publication of its bucket or the clearing of its bits before the search. The top of the stack and the count of the
 * bucket are read with acquire, before what lies below them: an older pointer there was overwritten before the top moved over it
 * again. The search skips stale pointers: those above the top, and in the part of a bucket that a sweeper has published.
 *
 * Not finding it proves nothing: it may be on its way from one heap to another. */
#include "heap/find.h"

static hak_cold bool is_in_bin(struct hak_heap *heap, uint32_t class, const void *p)
{
    void **bottom = heap->classes[class].bottom, **slot = hak_peek(&hak__heap_bin(heap, class)->top);
    while (slot > bottom)
        if (hak_peek(--slot) == p)
            return true;
    return false;
}

static hak_cold bool is_in_outbox(const struct hak_heap *heap, const void *p)
{
    const struct hak_outbox_bucket *bucket = &heap->outbox_buckets[hak__slab_of(p) % HAK_OUTBOX_BUCKETS];
    uint32_t taken = hak_load(&bucket->taken, HAK_RELAXED);
    for (uint32_t i = hak_load(&bucket->count, HAK_ACQUIRE); i > taken; i--)
        if (bucket->blocks[i - 1] == p)
            return true;
    return false;
}

/* A span changes hands only under the locks of both heaps, so the word is stable during the search. */
hak_cold bool hak__heap_has_in_span(const struct hak_heap *heap, uint32_t class, const void *p)
{
    uint32_t index;
    if (hak__owner_of(p) != hak__owner_tagged(heap->tag, class))
        return false;
    struct hak_span *span = hak__span_at(hak__slab_of(p));
    if (hak__span_index(span, p, &index) != HAK_SPAN_OK)
        return false;
    uint64_t taken = span->free[index / 64] | hak_load(&span->remote[index / 64], HAK_RELAXED);
    return index >= span->frontier || (taken >> index % 64 & 1) != 0;
}

hak_cold bool hak__heap_has_free(struct hak_heap *heap, uint32_t class, const void *p)
{
    return is_in_bin(heap, class, p) || is_in_outbox(heap, p) || hak__heap_has_in_span(heap, class, p);
}

hak_cold bool hak__heap_ask(struct hak_heap *heap, hak_heap_question *question, uint32_t class, const void *p,
                            unsigned tries)
{
    if (!hak__enter_foreign(heap, tries))
        return false;
    bool found = question(heap, class, p);
    hak__heap_unlock(heap);
    return found;
}

hak_cold bool hak__heaps_ask(const struct hak_heap *except, hak_heap_question *question, uint32_t class, const void *p,
                             unsigned tries)
{
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++)
        if (hak__heap_by_id(id) != except && hak__heap_ask(hak__heap_by_id(id), question, class, p, tries))
            return true;
    return false;
}
