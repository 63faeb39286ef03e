/* Frees of other heaps' blocks, gathered by slab until a bucket is full.
 *
 * The owner appends to a bucket on its fast path, without `lock`. A sweeper, which holds `lock`, may publish what waits
 * there all the same:
 *
 *   owner, appending                              sweeper
 *   1. slab and limit allow it                    a. limit := 0
 *   2. blocks[count] := p                         b. n := count (acquire)
 *   3. count := count + 1 (release)               c. publish blocks[taken .. n), then taken := n
 *
 * `count` has one writer, the owner; below it nothing changes while the owner is outside of its slow path; `taken` has
 * none but the holder of `lock`. So a block that is appended at the same time is published now or stays for the next
 * round, and none is published twice. From a. on the owner's next append takes the slow path, which begins the bucket
 * anew: a slab that has ended and serves another class by then is not met with the old class's limit. An append that
 * was past 1. already holds a block of the slab, which keeps it from ending. */
#pragma once

#include "heap/heap.h"

/* Adds a block of another heap to the bucket of its slab. Returns false, with nothing done, if that has no room or serves another
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

/* The rest of it: a new bucket, publication, a report of misuse. `word` is the slab's owner word. */
void hak__outbox_add_slow(struct hak_heap *heap, void *p, uint32_t word, const char *function);

/* The same from a thread that has no heap: publishes at once. */
void hak__outbox_bypass(void *p, uint32_t word, const char *function);
void hak__outbox_flush(struct hak_heap *heap, const char *function);

/* Publishes what waits in the outbox, for a sweeper that holds the heap lock; returns the number of blocks. */
hak_cold uint32_t hak__outbox_sweep(struct hak_heap *heap);
