/* Batches between the bins and the heap: on a miss the heap refills a bin with one; an overflow returns its older half. And the
 * sentinel that serves a thread before its first heap. Called by request.c, kinds/ and upkeep/, under the heap lock. */
#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "cache/cache.h"
#include "diag/options.h"
#include "harden/spans.h"
#include "os/os.h"

void *const hak__closed_slots[2] = { NULL, NULL };

#define CLOSED { HAK_CLOSED_TOP, HAK_CLOSED_TOP }

/* Never written. Only process/thread.c and userheap/defaults.c change the word that leads from it to a thread's heap. */
hak_heap_aligned struct hak_heap_front hak__sentinel = {
    .tag = HAK_HEAP_ID_NONE << HAK_CLASS_OFFSET_BITS,
    .mode = HAK_MODE_SENTINEL,
    .bins = { [0 ... HAK_CLASS_LIMIT - 1] = CLOSED },
    .closed_reasons = { [0 ... HAK_CLASS_LIMIT - 1] = HAK_CLOSED_NO_HEAP },
};

__thread intptr_t hak__thread_word __attribute__((tls_model("initial-exec")));

/* --- out of the bins -------------------------------------------------------------------------------------------- */

/* Gives back blocks, some of them other heaps': those are published as remote frees. */
static void give_mixed(struct hak_heap *heap, void *const *blocks, uint32_t count, const char *function)
{
    for (uint32_t n = 0; n < count;) {
        uint32_t own = 0, word = 0;
        while (n + own < count && hak__owner_id(hak__owner_of(blocks[n + own])) == heap->id)
            own++;
        if (own != 0) {
            hak__heap_give(heap, blocks + n, own, function);
            n += own;
            continue;
        }
        word = hak__owner_of(blocks[n]);
        if (!hak__hardened_at(hak__slab_of(blocks[n])))
            hak__mark_live(blocks[n]); /* until its owner marks it */
        if (!hak__outbox_add(heap, blocks[n]))
            hak__outbox_add_slow(heap, blocks[n], word, function);
        n++;
    }
}

void hak__cache_give(struct hak_heap *heap, uint32_t class, void *const *blocks, uint32_t count, const char *function)
{
    if (hak_unlikely(heap->foreign[class]))
        give_mixed(heap, blocks, count, function);
    else
        hak__heap_give(heap, blocks, count, function);
}

void hak__cache_drain(struct hak_heap *heap, uint32_t class_index, uint32_t count, const char *function)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    struct hak_heap_class *class = &heap->classes[class_index];
    struct hak_bin *bin = hak__heap_bin(heap, class_index);
    hak_assert(!hak__is_large(class_index), "large blocks are drained by large_cache.c");
    uint32_t held = (uint32_t)(bin->top - class->bottom);
    count = (uint32_t)hak_min(count, held);
    if (count == 0)
        return;
    hak__cache_give(heap, class_index, class->bottom, count, function);
    heap->foreign[class_index] &= count != held;
    memmove(class->bottom, class->bottom + count, (held - count) * sizeof(void *));
    hak_owner_store(&bin->top, class->bottom + (held - count));
}

uint32_t hak__cache_count(struct hak_heap *heap, uint32_t class_index)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    struct hak_bin *bin = hak_peek(&heap->closed_reasons[class_index]) != 0 ? &class->hidden : &heap->bins[class_index];
    void **top = hak_peek(&bin->top), **bottom = hak_peek(&class->bottom);
    /* To another thread the two words may date from different moments. */
    return bottom != NULL && top >= bottom && top <= bottom + class->ceiling ? (uint32_t)(top - bottom) : 0;
}

/* --- a miss ---------------------------------------------------------------------------------------------------------- */

enum { OUTBOX_MISSES = 32 };

/* A class that has missed DRY times in a row without getting blocks back is building up: it takes BURST times as much. In mixed
 * traffic larger batches would only spread over more lines. */
enum { DRY = 4, BURST = 4 };

/* A new thread takes 4, 8, 16, 32, ... blocks of a class: many threads need only a few, and must return the rest when they end
 * (docs/decisions/0036). */
enum { RAMP_BATCH = 4, RAMP_END = 6 };

/* Blocks per refill: refill_count for small classes, fewer for those whose batch is limited by bytes. */
static uint32_t batch_of(struct hak_heap *heap, uint32_t class_index)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    size_t batch = hak_min(heap->refill_count, class->capacity);
    if (hak_unlikely(class->ramp < RAMP_END))
        batch = hak_min(batch, (size_t)RAMP_BATCH << class->ramp++);
    size_t by_bytes = hak__classes[class_index].batch;
    /* Where bytes do not limit it, the table's batch is 32; only then may a burst raise it. */
    if (by_bytes < 32)
        return (uint32_t)hak_min(batch, by_bytes);
    return (uint32_t)(class->dry > DRY ? hak_min(batch * BURST, class->capacity) : batch);
}

/* --- guarded samples -------------------------------------------------------------------------------------------------- */

/* Requests up to the next sample: uniform in 1 .. 2N - 1, so N on average and out of step with the program's loops. */
static uint64_t draw_sample(void)
{
    uint64_t n = hak__option(HAK_OPTION_sample_guards);
    return n == 0 ? 0 : 1 + hak__os->random() % (2 * n - 1);
}

/* Requests before the next sample: the one that misses, at least, and those after it. */
static uint64_t before_sample(struct hak_heap *heap)
{
    if (heap->sample_left == 0)
        heap->sample_left = draw_sample();
    return hak_max(heap->sample_left, 2) - 1;
}

static hak_cold void count_refilled(struct hak_heap *heap, uint32_t class_index, uint32_t count)
{
    bool next = count >= before_sample(heap);
    heap->classes[class_index].sample_next |= next;
    heap->sample_left = next ? draw_sample() : heap->sample_left - count;
}

bool hak__cache_sample_due(struct hak_heap *heap, uint32_t class_index)
{
    hak_assert(class_index <= HAK_CLASS_MID_LAST, "larger blocks are not sampled by refills");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    struct hak_heap_class *class = &heap->classes[class_index];
    if (class->capacity != 0 && hak__heap_bin(heap, class_index)->top != class->bottom)
        return false;
    if (class->sample_next) {
        class->sample_next = false;
        return true;
    }
    before_sample(heap);
    if (heap->sample_left != 1)
        return false;
    heap->sample_left = draw_sample();
    return true;
}

/* --- a refill ----------------------------------------------------------------------------------------------------------- */

static hak_cold uint32_t take_before_sample(struct hak_heap *heap, uint32_t class_index, void **out, uint32_t want)
{
    uint32_t count = hak__heap_take(heap, class_index, out, (uint32_t)hak_min(want, before_sample(heap)));
    count_refilled(heap, class_index, count);
    return count;
}

hak_inline uint32_t take_blocks(struct hak_heap *heap, uint32_t class_index, void **out, uint32_t want)
{
    if (hak_unlikely(hak__option(HAK_OPTION_sample_guards) != 0) && class_index <= HAK_CLASS_MID_LAST)
        return take_before_sample(heap, class_index, out, want);
    return hak__heap_take(heap, class_index, out, want);
}

/* A class's first blocks in a process with many threads. */
static hak_noinline uint32_t take_common(struct hak_heap *heap, uint32_t class_index)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    uint32_t count = hak__common_take(heap, class_index, class->bottom);
    if (class->common_left == 0)
        hak__cache_first_end(heap, class_index);
    if (count == 0)
        return take_blocks(heap, class_index, class->bottom, batch_of(heap, class_index));
    if (hak__option(HAK_OPTION_sample_guards) != 0)
        count_refilled(heap, class_index, count);
    return count;
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
                       : take_blocks(heap, class_index, class->bottom, batch_of(heap, class_index));
    if (count == 0)
        return NULL;
    if (heap->absorb[class_index] == 0)
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
    note_miss(heap, class);
    if (class->capacity != 0)
        return refill_bin(heap, class_index);
    take_blocks(heap, class_index, &block, 1);
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
