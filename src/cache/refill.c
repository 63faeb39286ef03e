/* A miss: the bin of a class is empty and gets a batch from the heap. Called by malloc_slow.c and guard/. */
#include "base/bits.h"
#include "cache/cache.h"
#include "diag/options.h"

/* Blocks of others do not stay in the outbox of a thread that goes on allocating: it is flushed now and then. */
enum { OUTBOX_MISSES = 32 };

/* A class that has missed DRY times in a row without getting blocks back is being built up: it takes BURST times as much
 * at once. In mixed traffic larger batches would only spread over more lines than are used. */
enum { DRY = 4, BURST = 4 };

/* A thread that has just begun takes 4, 8, 16, 32, ... blocks of a class: many threads need only a few of each, and what is
 * taken has to be given back when they end (docs/decisions/0036). */
enum { RAMP_BATCH = 4, RAMP_END = 6 };

/* Blocks per refill: the option for small classes, fewer for those whose batch is limited by bytes. */
static uint32_t batch_of(uint32_t class_index, struct hak_heap_class *class)
{
    size_t batch = hak_min(hak__option(HAK_OPTION_refill_count), class->capacity);
    if (hak_unlikely(class->ramp < RAMP_END))
        batch = hak_min(batch, (size_t)RAMP_BATCH << class->ramp++);
    size_t by_bytes = hak__classes[class_index].batch;
    /* The table's batch is 32 where bytes do not limit it; only then may the option or a burst ask for more. */
    if (by_bytes < 32)
        return (uint32_t)hak_min(batch, by_bytes);
    return (uint32_t)(class->dry > DRY ? hak_min(batch * BURST, class->capacity) : batch);
}

/* The first blocks of a class in a process of many threads. */
static hak_noinline uint32_t take_common(struct hak_heap *heap, uint32_t class_index)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    uint32_t count = hak__common_take(heap, class_index, class->bottom);
    if (class->common_left == 0)
        hak__cache_absorb_begin(heap, class_index);   /* anew: as much as any class, from now on */
    return count != 0 ? count : hak__heap_take(heap, class_index, class->bottom, batch_of(class_index, class));
}

void *hak__cache_refill(struct hak_heap *heap, uint32_t class_index)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    if (hak_unlikely(class->marks != 0)) {
        hak__cache_drop_marks(heap, class_index);
        void *block = hak__cache_pop(hak__heap_bin(heap, class_index));
        if (block != NULL)
            return block;
    }
    hak_count(&class->misses, 1);
    if (++heap->outbox_misses >= OUTBOX_MISSES) {
        heap->outbox_misses = 0;
        hak__outbox_flush(heap, "free");
    }
    heap->refills++;
    class->moves++;
    class->missed_lately = true;
    class->dry = (uint8_t)(class->dry + (class->dry != UINT8_MAX));
    bool sampled = hak__option(HAK_OPTION_sample_guards) != 0 && class_index <= HAK_CLASS_MID_LAST;
    if (class->capacity == 0) {
        void *block = NULL;
        hak__heap_take(heap, class_index, &block, 1);
        if (hak_unlikely(sampled))
            hak__cache_mark(heap, class_index);
        return block;
    }
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
    if (hak_unlikely(sampled))
        hak__cache_mark(heap, class_index);
    return block;
}
