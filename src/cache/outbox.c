/* The outbox: frees of other heaps' blocks, gathered as bits of their remote words before they are published, so that
 * one atomic operation serves up to 64 blocks. A small direct-mapped table; a collision publishes the older entry.
 * Bounded in bytes; large blocks do not wait. Called by route.c; flushed in slow paths and before a heap is parked. */
#include "base/bits.h"
#include "cache/cache.h"
#include "diag/report.h"

/* Which block of which span: checked, because the pointer comes from the program. */
static struct hak_span *locate(const void *block, uint32_t word, uint32_t *index, const char *function)
{
    uint32_t class_index = hak__owner_code(word) / HAK_RECORD_SIZE;
    if (hak_unlikely(class_index >= HAK_CLASSES))
        hak__misuse_invalid(function, block, "inside a block");
    const struct hak_class *class = &hak__classes[class_index];
    struct hak_span *span = hak__span_at(hak__slab_of(block));
    size_t offset = (size_t)((const char *)block - hak__span_start(span));
    *index = hak__index_of(class, offset);
    if (hak_unlikely((size_t)*index * class->size != offset || *index >= class->blocks))
        hak__misuse_invalid(function, block, "not the start of a block");
    return span;
}

static void publish(struct hak_heap *heap, struct hak_outbox_entry *entry, const char *function)
{
    uint64_t key = entry->key - 1, bits = entry->bits;
    entry->key = entry->bits = 0;
    hak_count(&heap->remote_published, 1);
    hak__remote_publish(&hak__spans[key / 64], key % 64, bits, function);
}

static struct hak_outbox_entry *entry_of(struct hak_heap *heap, uint64_t key)
{
    return &heap->outbox[key * 0x9e3779b97f4a7c15ull >> 59];
}
_Static_assert(HAK_OUTBOX_ENTRIES == 32, "the hash gives five bits");

void hak__outbox_free(struct hak_heap *heap, void *block, uint32_t word, const char *function)
{
    uint32_t index;
    struct hak_span *span = locate(block, word, &index, function);
    size_t size = hak__classes[hak__owner_code(word) / HAK_RECORD_SIZE].size;
    uint64_t bit = 1ull << index % 64, key = ((uint64_t)hak__span_slab(span) << 6 | index / 64) + 1;
    if (heap != NULL)
        hak_count(&heap->remote_frees, 1);
    if (heap == NULL || size > HAK_OUTBOX_BLOCK_MAX) {
        if (heap != NULL)
            hak_count(&heap->remote_direct, 1);
        hak__remote_publish(span, index / 64, bit, function);
        return;
    }
    struct hak_outbox_entry *entry = entry_of(heap, key);
    if (entry->key != key) {
        if (entry->key != 0)
            publish(heap, entry, function);
        entry->key = key;
    }
    if (hak_unlikely(entry->bits & bit))
        hak__misuse_double_free(function, block, size);
    entry->bits |= bit;
    heap->outbox_bytes += size;
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
