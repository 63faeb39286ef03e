/* Frees of other heaps' blocks, gathered by slab until a bucket is full.
 *
 * The owner appends to a bucket on its fast path, without `lock`. A sweeper that holds `lock` may publish waiting blocks meanwhile:
 *
 *   owner, appending                              sweeper
 *   1. slab and limit allow it                    a. limit := 0
 *   2. blocks[count] := p                         b. n := count (acquire)
 *   3. count := count + 1 (release)               c. publish blocks[taken .. n), then taken := n
 *
 * The owner alone writes `count`; the slots below it do not change while the owner is outside its slow path. Only the holder of
 * `lock` writes `taken`. So a block appended meanwhile is published now or in the next round, and none twice. After a., the
 * owner's next append takes the slow path and restarts the bucket: a slab that has ended and serves another class by then never
 * meets the old class's limit. An append already past 1. holds a block of the slab, which keeps the slab from ending. */
#pragma once

#include "heap/heap.h"

/* Adds a block of another heap to its slab's bucket. Returns false and changes nothing if the bucket is full or serves another
 * slab; then call hak__outbox_add_slow. */
hak_inline bool hak__outbox_add_at(struct hak_heap *heap, size_t slab, void *p)
{
    struct hak_outbox_bucket *bucket = &heap->outbox_buckets[slab % HAK_OUTBOX_BUCKETS];
    uint32_t count = hak_load(&bucket->count, HAK_RELAXED);
    if (hak_unlikely(bucket->slab != (uint32_t)slab + 1 || count >= hak_load(&bucket->limit, HAK_RELAXED)))
        return false;
    bucket->blocks[count] = p;
    hak_store(&bucket->count, (uint16_t)(count + 1), HAK_RELEASE);
    return true;
}
hak_inline bool hak__outbox_add(struct hak_heap *heap, void *p) { return hak__outbox_add_at(heap, hak__slab_of(p), p); }

/* The slow half: starts a bucket, publishes, reports misuse. `word` is the slab's owner word. */
void hak__outbox_add_slow(struct hak_heap *heap, void *p, uint32_t word, const char *function);

/* The same from a thread without a heap: publishes at once. */
void hak__outbox_bypass(void *p, uint32_t word, const char *function);
void hak__outbox_flush(struct hak_heap *heap, const char *function);

/* Publishes the waiting blocks; returns their number. Called by a sweeper that holds the heap lock. */
hak_cold uint32_t hak__outbox_sweep(struct hak_heap *heap);
