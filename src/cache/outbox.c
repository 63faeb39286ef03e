/* The outbox: frees of other heaps' blocks, gathered as bits of their remote words before they are published, so that
 * one atomic operation serves up to 64 blocks. A small direct-mapped table; a collision publishes the older entry.
 * Bounded in bytes; large blocks do not wait. Called by route.c; flushed in slow paths and before a heap is parked. */
#include "base/bits.h"
#include "cache/cache.h"
#include "diag/report.h"

/* Where the remote bit of the block at p is; checked, because the pointer comes from the program. */
static bool locate(const void *p, uint32_t word, struct hak_span **span, uint32_t *index)
{
    const struct hak_class *class = &hak__classes[hak__owner_code(word) / HAK_RECORD_SIZE];
    *span = hak__span_at(hak__slab_of(p));
    struct hak_place place = hak__place_of(class->reciprocal, (size_t)((const char *)p - hak__span_start(*span)));
    *index = (uint32_t)place.index;
    return hak__place_is_block(place, class->reciprocal, class->blocks);
}

void hak__outbox_bypass(void *p, uint32_t word, const char *function)
{
    struct hak_span *span;
    uint32_t index;
    if (!locate(p, word, &span, &index))
        hak__misuse_invalid(function, p, "not the start of a block");
    hak__remote_publish(span, index / 64, 1ull << index % 64, function);
}

static void publish(struct hak_heap *heap, struct hak_outbox_entry *entry, const char *function)
{
    uint64_t key = entry->key - 1, bits = entry->bits;
    entry->key = entry->bits = 0;
    hak_count(&heap->remote_frees, hak_popcount64(bits));
    hak_count(&heap->remote_published, 1);
    hak__remote_publish(&hak__spans[key / 64], key % 64, bits, function);
}

void hak__outbox_add_slow(struct hak_heap *heap, void *p, uint32_t word, const char *function)
{
    struct hak_span *span;
    uint32_t index;
    if (!locate(p, word, &span, &index))
        hak__misuse_invalid(function, p, "not the start of a block");
    size_t size = hak__classes[hak__owner_code(word) / HAK_RECORD_SIZE].size;
    uint64_t bit = 1ull << index % 64, key = hak__outbox_key(hak__span_slab(span), index);
    struct hak_outbox_entry *entry = hak__outbox_entry(heap, key);
    if (entry->key != key && entry->key != 0)
        publish(heap, entry, function);
    if (entry->bits & bit)
        hak__misuse_double_free(function, p, size);
    entry->key = key;
    entry->bits |= bit;
    heap->outbox_bytes += size;
    if (size > HAK_OUTBOX_BLOCK_MAX)
        publish(heap, entry, function);
    if (heap->outbox_bytes >= HAK_OUTBOX_BYTES)
        hak__outbox_flush(heap, function);
}

void hak__outbox_flush(struct hak_heap *heap, const char *function)
{
    if (heap->outbox_bytes == 0)
        return;
    for (unsigned i = 0; i < HAK_OUTBOX_ENTRIES; i++)
        if (heap->outbox[i].key != 0)
            publish(heap, &heap->outbox[i], function);
    heap->outbox_bytes = 0;
}
