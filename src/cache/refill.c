/* On a miss the heap refills a bin with a batch; an overflow returns its older half. Called by request.c, kinds/ and guard/, under
 * the heap lock. */
#include "base/assert.h"
#include "base/bits.h"
#include "cache/cache.h"
#include "cache/outbox.h"
#include "cache/tune.h"
#include "diag/options.h"
#include "span/experiments.h"

/* --- a miss ---------------------------------------------------------------------------------------------------------- */

enum { OUTBOX_MISSES = 32 };

/* A class that has missed DRY times in a row without getting blocks back is building up: it takes BURST times as much. In mixed
 * traffic larger batches would only spread over more lines. */
enum { DRY = 4, BURST = 4 };

/* A new thread takes 4, 8, 16, 32, ... blocks of a class: many threads need only a few, and must return the rest when they end
 * (docs/decisions/0036). */
enum { RAMP_BATCH = 4, RAMP_END = 6 };

/* Blocks per refill: the option for small classes, fewer for those whose batch is limited by bytes. */
static uint32_t batch_of(uint32_t class_index, struct hak_heap_class *class)
{
    size_t batch = hak_min(hak__refill_count(), class->capacity);
    if (hak_unlikely(class->ramp < RAMP_END))
        batch = hak_min(batch, (size_t)RAMP_BATCH << class->ramp++);
    size_t by_bytes = hak__classes[class_index].batch;
    /* Where bytes do not limit it, the table's batch is 32; only then may the option or a burst raise it. */
    if (by_bytes < 32)
        return (uint32_t)hak_min(batch, by_bytes);
    return (uint32_t)(class->dry > DRY ? hak_min(batch * BURST, class->capacity) : batch);
}

/* A class's first blocks in a process with many threads. */
static hak_noinline uint32_t take_common(struct hak_heap *heap, uint32_t class_index)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    uint32_t count = hak__common_take(heap, class_index, class->bottom);
    if (class->common_left == 0)
        hak__cache_absorb_begin(heap, class_index); /* from now on as many as any class */
    return count != 0 ? count : hak__heap_take(heap, class_index, class->bottom, batch_of(class_index, class));
}

/* Counts a miss; now and then flushes the outbox, for a thread that only allocates. */
hak_inline void note_miss(struct hak_heap *heap, struct hak_heap_class *class)
{
    hak_count(&class->misses, 1);
    if (++heap->outbox.misses >= OUTBOX_MISSES) {
        heap->outbox.misses = 0;
        hak__outbox_flush(heap, "free");
    }
    heap->polling.refills++;
    class->moves++;
    class->missed_lately = true;
    class->dry = (uint8_t)(class->dry + (class->dry != UINT8_MAX));
}

/* Moves a batch into the bin and pops its last block. */
hak_inline void *refill_bin(struct hak_heap *heap, uint32_t class_index)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    hak__cache_grow(heap, class_index);
    uint32_t count = hak_unlikely(class->common_left != 0)
                       ? take_common(heap, class_index)
                       : hak__heap_take(heap, class_index, class->bottom, batch_of(class_index, class));
    if (count == 0)
        return NULL;
    if (heap->absorb[class_index] == NULL)
        hak__cache_absorb_begin(heap, class_index);
    void *block = class->bottom[count - 1];
    hak_owner_store(&hak__heap_bin(heap, class_index)->top, class->bottom + (count - 1));
    return block;
}

void *hak__cache_refill(struct hak_heap *heap, uint32_t class_index)
{
    hak_assert(class_index < HAK_CLASSES, "a class");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    struct hak_heap_class *class = &heap->classes[class_index];
    void *block = NULL;
    if (hak_unlikely(class->marks != 0)) {
        hak__cache_drop_marks(heap, class_index);
        if ((block = hak__cache_pop(hak__heap_bin(heap, class_index))) != NULL)
            return block;
    }
    note_miss(heap, class);
    bool cached = class->capacity != 0;
    if (cached)
        block = refill_bin(heap, class_index);
    else
        hak__heap_take(heap, class_index, &block, 1);
    bool sampled = hak__option(HAK_OPTION_sample_guards) != 0 && class_index <= HAK_CLASS_MID_LAST;
    if (hak_unlikely(sampled) && (block != NULL || !cached))
        hak__cache_mark(heap, class_index);
    return block;
}

/* --- an overflow ------------------------------------------------------------------------------------------------ */

void hak__cache_overflow(struct hak_heap *heap, uint32_t class_index, void *block, const char *function)
{
    hak_assert(class_index <= HAK_CLASS_MID_LAST && block != NULL, "a block of the tiny or mid pool");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    struct hak_heap_class *class = &heap->classes[class_index];
    heap->polling.overflows++;
    class->moves++;
    class->returned_lately = true;
    class->dry = 0;
    bool grown = hak__cache_grow(heap, class_index);
    if (class->capacity == 0) {
        hak__heap_give(heap, &block, 1, function);
        return;
    }
    if (!grown)
        hak__cache_drain(heap, class_index, (class->capacity + 1u) / 2, function);
    bool pushed = hak__cache_push(hak__heap_bin(heap, class_index), block);
    hak_assert(pushed, "a drained bin has room");
    (void)pushed;
}
