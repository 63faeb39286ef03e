/* Looking for a block in the heap's own state before a double free is reported: see slab/freed.h. Called by pointer.c.
 *
 * A look goes into one heap at a time, which it has entered: so no batch moves there, no slot area, no span of it. What
 * may go on meanwhile is what the owner does without entering: it pops, pushes, and adds to its outbox.
 *
 * To find a block is proof. Whoever frees a block in use had it handed to him; that hand-over orders the pop of the
 * block, the publication of its bucket or the clearing of its bits before the look. The top of the stack and the count
 * of the bucket are read with acquire, before what lies below them: an older pointer there has been overwritten before
 * the top went over it again. The stale ones, above the top and in the part of a bucket that a sweeper has published, are
 * not looked at.
 *
 * Not to find it is no proof: it may be on its way from one heap to another. */
#include "cache/cache.h"
#include "cache/quarantine.h"

/* How often a heap that is busy is asked again. Who asks holds nothing, so all that is waited for goes on, except in a
 * signal handler or a child made by _Fork, which have interrupted it. */
enum { PATIENCE = 1000 };

static hak_cold bool in_stack(struct hak_heap *heap, uint32_t class, const void *p)
{
    void **bottom = heap->classes[class].bottom, **slot = hak_peek(&hak__heap_bin(heap, class)->top);
    while (slot > bottom)
        if (hak_peek(--slot) == p)
            return true;
    return false;
}

static hak_cold bool in_outbox(const struct hak_heap *heap, const void *p)
{
    const struct hak_outbox_bucket *bucket = &heap->outbox[hak__slab_of(p) % HAK_OUTBOX_BUCKETS];
    uint32_t taken = hak_load(&bucket->taken, HAK_RELAXED);
    for (uint32_t i = hak_load(&bucket->count, HAK_ACQUIRE); i > taken; i--)
        if (bucket->blocks[i - 1] == p)
            return true;
    return false;
}

/* Spans change hands only while both their heaps are entered, so the word stays what it is for the time of the look. */
static hak_cold bool in_span(const struct hak_heap *heap, uint32_t class, const void *p)
{
    uint32_t index;
    if (hak__owner_of(p) != (heap->tag | class * HAK_BIN_SIZE))
        return false;
    struct hak_span *span = hak__span_at(hak__slab_of(p));
    if (hak__span_index(span, p, &index) != HAK_SPAN_OK)
        return false;
    uint64_t taken = span->free[index / 64] | hak_load(&span->remote[index / 64], HAK_RELAXED);
    return index >= span->frontier || (taken >> index % 64 & 1) != 0;
}

static hak_cold bool heap_has(struct hak_heap *heap, uint32_t class, const void *p)
{
    if (!hak__enter_foreign(heap, PATIENCE))
        return false;
    bool found = in_stack(heap, class, p) || in_outbox(heap, p) || in_span(heap, class, p)
        || hak__quarantine_has(heap, p);
    hak__heap_unlock(heap);
    return found;
}

/* A look that takes in no more than the span. */
static hak_cold bool span_has(struct hak_heap *heap, uint32_t class, const void *p)
{
    if (!hak__enter_foreign(heap, PATIENCE))
        return false;
    bool found = in_span(heap, class, p);
    hak__heap_unlock(heap);
    return found;
}

/* The span may change hands before the look, which is then repeated. */
static hak_cold bool owner_has(bool look(struct hak_heap *, uint32_t, const void *), uint32_t class, const void *p)
{
    for (;;) {
        uint32_t word = hak__owner_of(p), id = hak__owner_id(word);
        if (id - 1 >= HAK_HEAPS_MAX || hak__owner_class_offset(word) != class * HAK_BIN_SIZE)
            return true;   /* the span has ended, which no block in use lets happen */
        if (look(hak__heap_by_id(id), class, p))
            return true;
        if (hak__owner_of(p) == word)
            return false;
    }
}

hak_cold bool hak__cache_has_freed(struct hak_heap *mine, uint32_t class, const void *p)
{
    if ((mine != NULL && heap_has(mine, class, p)) || owner_has(heap_has, class, p))
        return true;
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++)
        if (hak__heap_by_id(id) != mine && heap_has(hak__heap_by_id(id), class, p))
            return true;
    return false;
}

hak_cold bool hak__cache_has_purged(uint32_t class, const void *p) { return owner_has(span_has, class, p); }
