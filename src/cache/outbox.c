/* The outbox: gathers frees of other heaps' blocks by slab, so that one atomic operation publishes all blocks that share a word
 * of bits. A small direct-mapped table, bounded in bytes; a collision publishes the older bucket. Called by kinds/plain.c;
 * flushed every few refills and before a heap is parked; swept by upkeep/ (protocol in cache.h). */
#include "base/assert.h"
#include "base/bits.h"
#include "cache/cache.h"
#include "diag/report.h"
#include "heap/heap.h"

enum { NO_INDEX = HAK_SPAN_BLOCKS_MAX };

/* The index of the block at p in its span, which begins at `start`; checked, because the pointer comes from the program. NO_INDEX:
 * reported, it is none. */
static uint32_t index_of(const char *start, const struct hak_class *class, const void *p, const char *function)
{
    struct hak_place place = hak__place_of(class->reciprocal, (size_t)((const char *)p - start));
    if (hak_likely(hak__place_is_block(place, class->reciprocal, class->blocks)))
        return (uint32_t)place.index;
    hak__misuse_invalid(function, p, "not the start of a block");
    return NO_INDEX;
}

/* Publishes blocks of one slab, consecutive ones that share a word with one operation. */
static void outbox_publish(size_t slab, void *const *blocks, uint32_t count, const char *function, hak_counter *operations)
{
    hak_assert(count != 0, "there is something to publish");
    const struct hak_class *class = hak__owner_sizes(hak__owner_at(slab));
    struct hak_span *span = hak__span_at(slab);
    const char *start = hak__span_start(span);
    for (uint32_t n = 0; n < count;) {
        uint32_t index = index_of(start, class, blocks[n], function), word = index / 64;
        uint64_t bits = 0, bit = 1ull << index % 64;
        do {
            if (hak_unlikely((bits & bit) != 0 && index != NO_INDEX))
                hak__misuse_double_free(function, blocks[n], class->size);
            bits |= bit;
            if (++n == count)
                break;
            index = index_of(start, class, blocks[n], function);
            bit = 1ull << index % 64;
        } while (index / 64 == word);
        hak_count(operations, 1);
        if (hak_likely(word != NO_INDEX / 64))
            hak__remote_publish(span, word, bits, function);
    }
}

/* Publishes a bucket's remaining blocks and empties it. Called by the owner, under its heap lock. */
static void publish_bucket(struct hak_heap *heap, struct hak_outbox_bucket *bucket, const char *function)
{
    hak_assert(bucket->slab != 0, "the bucket has a slab");
    uint32_t count = hak_load(&bucket->count, HAK_RELAXED), taken = hak_load(&bucket->taken, HAK_RELAXED);
    size_t slab = bucket->slab - 1;
    hak_count(&heap->counts.remote_frees, count - taken);
    hak_store(&bucket->count, 0, HAK_RELAXED);
    hak_store(&bucket->taken, 0, HAK_RELAXED);
    hak_store(&bucket->limit, 0, HAK_RELAXED); /* by next time the slab may serve another class */
    if (count != taken)
        outbox_publish(slab, bucket->blocks + taken, count - taken, function, &heap->counts.remote_published);
}

uint32_t hak__outbox_sweep(struct hak_heap *heap)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    uint32_t sum = 0;
    for (uint32_t used = hak_load(&heap->outbox.used, HAK_RELAXED); used != 0; used &= used - 1) {
        struct hak_outbox_bucket *bucket = &heap->outbox_buckets[hak_ctz32(used)];
        uint32_t taken = hak_load(&bucket->taken, HAK_RELAXED);
        if (hak_load(&bucket->count, HAK_RELAXED) == taken)
            continue;
        hak_store(&bucket->limit, 0, HAK_RELAXED);
        /* acquire: pairs with the append's release; the slots are written, and the blocks' users are done with them. */
        uint32_t count = hak_load(&bucket->count, HAK_ACQUIRE);
        hak_count(&heap->counts.remote_frees, count - taken);
        outbox_publish(bucket->slab - 1, bucket->blocks + taken, count - taken, "free", &heap->counts.remote_published);
        hak_store(&bucket->taken, (uint16_t)count, HAK_RELAXED);
        sum += count - taken;
    }
    return sum;
}

void hak__outbox_bypass(void *p, uint32_t word, const char *function)
{
    if (hak__span_is_single(hak__slab_of(p), hak__owner_class(word))) {
        hak__heap_end_foreign(NULL, p, word, function);
        return;
    }
    struct hak_span *span = hak__span_at(hak__slab_of(p));
    uint32_t index = index_of(hak__span_start(span), hak__owner_sizes(word), p, function);
    if (hak_likely(index != NO_INDEX))
        hak__remote_publish(span, index / 64, 1ull << index % 64, function);
}

/* Publishes one block without gathering. */
static void free_at_once(struct hak_heap *heap, void *p, uint32_t word, const char *function)
{
    hak_count(&heap->counts.remote_frees, 1);
    hak_count(&heap->counts.remote_published, 1);
    hak__outbox_bypass(p, word, function);
}

/* A large block does not wait for its owner's next miss: a single-block span ends at once, and other blocks are collected for
 * their owner, unless it is in a slow path and will collect them itself. */
static void free_large(struct hak_heap *heap, void *p, uint32_t word, const char *function)
{
    if (hak__span_is_single(hak__slab_of(p), hak__owner_class(word))) {
        hak__heap_end_foreign(heap, p, word, function);
        return;
    }
    free_at_once(heap, p, word, function);
    hak__heap_sweep(hak__heap_by_id(hak__owner_id(word)));
}

/* Where misuse is survived, nothing waits here. A thread that has used little of a class publishes its blocks directly, so that
 * processes with many threads spend no buckets on them. In a thread that only frees, common_left stays above 0; `single` counts
 * its frees to recognise it. */
enum { SINGLE_MOST = 64 };

static bool uses_little(struct hak_heap *heap, uint32_t class)
{
    uint32_t left = heap->classes[class].bottom != NULL ? heap->classes[class].common_left : hak__common_first(heap, class);
    if (left == 0 || heap->outbox.single == SINGLE_MOST)
        return false;
    heap->outbox.single++;
    return true;
}

void hak__outbox_add_slow(struct hak_heap *heap, void *p, uint32_t word, const char *function)
{
    uint32_t class = hak__owner_class(word);
    hak_assert(class < HAK_CLASSES, "the word names a class");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    if (class >= HAK_CLASS_FIRST_LARGE) {
        free_large(heap, p, word, function);
        return;
    }
    if (hak__misuse_is_survived() || uses_little(heap, class)) {
        free_at_once(heap, p, word, function);
        return;
    }
    size_t slab = hak__slab_of(p), fits = HAK_OUTBOX_BYTES / hak__classes[class].size;
    struct hak_outbox_bucket *bucket = &heap->outbox_buckets[slab % HAK_OUTBOX_BUCKETS];
    if (hak_load(&bucket->count, HAK_RELAXED) != 0)
        publish_bucket(heap, bucket, function);
    bucket->slab = (uint32_t)slab + 1;
    hak_store(&bucket->limit, (uint16_t)hak_min(fits, HAK_OUTBOX_BLOCKS), HAK_RELAXED);
    uint32_t used = hak_load(&heap->outbox.used, HAK_RELAXED);
    hak_store(&heap->outbox.used, used | 1u << slab % HAK_OUTBOX_BUCKETS, HAK_RELAXED);
    bucket->blocks[0] = p;
    hak_store(&bucket->count, 1, HAK_RELEASE);
    if (fits <= 1)
        publish_bucket(heap, bucket, function);
}

void hak__outbox_flush(struct hak_heap *heap, const char *function)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    uint32_t used = hak_load(&heap->outbox.used, HAK_RELAXED);
    for (; used != 0; used &= used - 1) {
        struct hak_outbox_bucket *bucket = &heap->outbox_buckets[hak_ctz32(used)];
        if (hak_load(&bucket->count, HAK_RELAXED) != 0)
            publish_bucket(heap, bucket, function);
        bucket->slab = 0;
    }
    hak_store(&heap->outbox.used, 0, HAK_RELAXED);
}
