/* How threads take upkeep steps without a background thread: slow paths poll the clock now and then, and a thread that only hits
 * is made to take slow paths.
 *
 * After a thread has given much memory back to its spans, and not seen it return to the system, it closes all bins of its heap,
 * so that each call takes the slow path and every 64th reads the clock: the heap polls. Such a call costs a few nanoseconds more
 * than the fast path, so the heap polls for HAK_POLLING_CALLS calls that its bins could serve. Then the thread's behaviour
 * decides:
 *   - If they passed within milliseconds, and blocks came in as many batches as they went, polling is too expensive and
 *     slow paths occur by themselves: the bins open. While memory waits, slow paths read the clock more often, and close
 *     the bins again after a quarter of the purge delay, or when the thread only frees.
 *   - If it only freed, only hit, or is in no hurry, the heap polls on until the memory has had time to go back, one and
 *     a half purge delays after it became much.
 * A heap that polls when its thread falls asleep still polls when the thread wakes, and then a step is due at once. */
#pragma once

#include "cache/cache.h"

enum { HAK_POLLING_CALLS = 4096, HAK_POLLING_PER_LOOK = 64 };
#define HAK_POLLING_MUCH ((size_t)8 << 20)

/* From a slow path of `heap`, without its lock: cheap unless a step is due. */
void hak__upkeep_poll(struct hak_heap *heap);

/* Makes the next poll read the clock, after a thread has given much back at once. */
void hak__polling_hurry(struct hak_heap *heap);

/* The same when it is time to read the clock. */
hak_cold void hak__upkeep_poll_now(struct hak_heap *heap);

/* After HAK_POLLING_PER_LOOK more calls served by a polling heap's bins. */
hak_noinline void hak__polling_look(struct hak_heap *heap);

hak_inline void hak__polling_count(struct hak_heap *heap)
{
    if (hak_unlikely(--heap->polling.left % HAK_POLLING_PER_LOOK == 0))
        hak__polling_look(heap);
}

/* Pop from and push to the bin behind the closed one; NULL, false: it needs a refill or a drain, or is closed for another
 * reason. */
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
