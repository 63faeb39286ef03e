/* How threads take steps of upkeep where no background thread does: slow paths poll the clock now and then, and a thread that only
 * hits is made to take slow paths.
 *
 * A thread that has given much memory back to its spans, and has not seen it go back to the system, closes all
 * bins of its heap, so that each call takes the slow path and every 64th looks at the clock: the heap polls. Such a call costs a
 * few nanoseconds more than the fast path's, so the heap polls for HAK_POLLING_CALLS calls that the bins could serve. Then
 * it depends on what the thread has done:
 *   - they went by within milliseconds, and blocks came by many batches as well as they went: polling would be felt, and
 *     slow paths come by themselves; the bins are opened. Slow paths look at the clock more often while memory waits, and
 *     close the bins again a quarter of the purge delay later, or when the thread only frees;
 *   - it freed only, or only hit, or is not in a hurry: the heap polls on, until the memory has had its time to go
 *     back, one and a half purge delays after it became much.
 * A heap that polls when its thread falls asleep still polls when that wakes, and then a step is due at once. */
#pragma once

#include "cache/cache.h"

enum { HAK_POLLING_CALLS = 4096, HAK_POLLING_PER_LOOK = 64 };
#define HAK_POLLING_MUCH ((size_t)8 << 20)

/* From a slow path of `heap`, without its lock: cheap unless a step is due. */
void hak__upkeep_poll(struct hak_heap *heap);

/* Makes the next one look at the clock, for a thread that has given much back at once. */
void hak__polling_hurry(struct hak_heap *heap);

/* The same when it is time to read the clock. */
hak_cold void hak__upkeep_poll_now(struct hak_heap *heap);

/* After HAK_POLLING_PER_LOOK more calls that the bins of a polling heap have served. */
hak_noinline void hak__polling_look(struct hak_heap *heap);

hak_inline void hak__polling_count(struct hak_heap *heap)
{
    if (hak_unlikely(--heap->polling.left % HAK_POLLING_PER_LOOK == 0))
        hak__polling_look(heap);
}

/* A pop from and a push to the bin behind the closed one; NULL, false: it has to be refilled, drained, or is closed
 * for another reason. */
hak_inline void *hak__polling_pop(struct hak_heap *heap, uint32_t class)
{
    void *block = heap->classes[class].capacity == 0 ? NULL : hak__cache_pop(hak__heap_bin(heap, class));
    if (hak_likely(block != NULL))
        hak__polling_count(heap);
    return block;
}
hak_inline bool hak__polling_push(struct hak_heap *heap, uint32_t class, void *block)
{
    if (heap->classes[class].capacity == 0 || !hak__cache_push(hak__heap_bin(heap, class), block))
        return false;
    hak__polling_count(heap);
    return true;
}
