/* The outbox: frees of other heaps' blocks, gathered by slab, so that one atomic operation publishes the blocks that
 * share a word of bits. A small direct-mapped table; a collision publishes the older bucket. Bounded in bytes.
 * Called by route.c; flushed every few refills
 * and before a heap is parked. */
#include "base/bits.h"
#include "cache/cache.h"
#include "diag/report.h"

/* The index of the block at p in its span; checked, because the pointer comes from the program. */
static uint32_t index_of(const struct hak_span *span, const struct hak_class *class, const void *p,
                         const char *function)
{
    struct hak_place place = hak__place_of(class->reciprocal, (size_t)((const char *)p - hak__span_start(span)));
    if (hak_unlikely(!hak__place_is_block(place, class->reciprocal, class->blocks)))
        hak__misuse_invalid(function, p, "not the start of a block");
    return (uint32_t)place.index;
}

static const struct hak_class *class_of(uint32_t word)
{
    return &hak__classes[hak__owner_code(word) / HAK_RECORD_SIZE];
}

/* Publishes blocks of one slab: consecutive ones that share a word with one operation. */
static void publish(size_t slab, void *const *blocks, uint32_t count, const char *function, hak_counter *operations)
{
    const struct hak_class *class = class_of(hak__owner_at(slab));
    struct hak_span *span = hak__span_at(slab);
    for (uint32_t n = 0; n < count;) {
        uint32_t index = index_of(span, class, blocks[n], function), word = index / 64;
        uint64_t bits = 0, bit = 1ull << index % 64;
        do {
            if (hak_unlikely(bits & bit))
                hak__misuse_double_free(function, blocks[n], class->size);
            bits |= bit;
            if (++n == count)
                break;
            index = index_of(span, class, blocks[n], function);
            bit = 1ull << index % 64;
        } while (index / 64 == word);
        hak_count(operations, 1);
        hak__remote_publish(span, word, bits, function);
    }
}

static void publish_bucket(struct hak_heap *heap, struct hak_outbox_bucket *bucket, const char *function)
{
    uint32_t count = bucket->count;
    size_t slab = bucket->slab - 1;
    hak_count(&heap->remote_frees, count);
    hak_owner_store(&bucket->count, 0);
    publish(slab, bucket->blocks, count, function, &heap->remote_published);
}

void hak__outbox_bypass(void *p, uint32_t word, const char *function)
{
    if (hak__span_is_lone(hak__slab_of(p), hak__owner_code(word) / HAK_RECORD_SIZE)) {
        hak__heap_end_foreign(NULL, p, word, function);
        return;
    }
    struct hak_span *span = hak__span_at(hak__slab_of(p));
    uint32_t index = index_of(span, class_of(word), p, function);
    hak__remote_publish(span, index / 64, 1ull << index % 64, function);
}

/* A block of the large pool does not wait for its owner's next miss. One that is alone ends with its span; for others
 * their owner is collected at once, unless it is in a slow path just now and will look itself. */
static void free_large(struct hak_heap *heap, void *p, uint32_t word, const char *function)
{
    if (hak__span_is_lone(hak__slab_of(p), hak__owner_code(word) / HAK_RECORD_SIZE)) {
        hak__heap_end_foreign(heap, p, word, function);
        return;
    }
    hak_count(&heap->remote_frees, 1);
    hak_count(&heap->remote_published, 1);
    hak__outbox_bypass(p, word, function);
    hak__heap_sweep(hak__heap_by_id(hak__owner_id(word)));
}

void hak__outbox_add_slow(struct hak_heap *heap, void *p, uint32_t word, const char *function)
{
    if (hak__owner_code(word) >= HAK_CLASS_FIRST_LARGE * HAK_RECORD_SIZE) {
        free_large(heap, p, word, function);
        return;
    }
    size_t slab = hak__slab_of(p), fits = HAK_OUTBOX_BYTES / class_of(word)->size;
    struct hak_outbox_bucket *bucket = &heap->outbox[slab % HAK_OUTBOX_BUCKETS];
    if (bucket->count != 0)
        publish_bucket(heap, bucket, function);
    bucket->slab = (uint32_t)slab + 1;
    bucket->limit = (uint16_t)hak_min(fits, HAK_OUTBOX_BLOCKS);
    heap->outbox_used |= 1u << slab % HAK_OUTBOX_BUCKETS;
    bucket->blocks[0] = p;
    hak_owner_store(&bucket->count, 1);
    if (fits <= 1)
        publish_bucket(heap, bucket, function);
}

void hak__outbox_flush(struct hak_heap *heap, const char *function)
{
    for (; heap->outbox_used != 0; heap->outbox_used &= heap->outbox_used - 1) {
        struct hak_outbox_bucket *bucket = &heap->outbox[hak_ctz32(heap->outbox_used)];
        if (bucket->count != 0)
            publish_bucket(heap, bucket, function);
        bucket->slab = 0;
    }
}
