/* The bins of a heap: draining, marks, and the sentinel that serves a thread before its first heap. The caller holds the heap
 * lock unless a function says otherwise. */
#include "cache/cache.h"

#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "cache/outbox.h"
#include "diag/options.h"
#include "os/os.h"
#include "span/hardened.h"

void *const hak__closed_slots[2] = { NULL, NULL };

#define CLOSED { HAK_CLOSED_TOP, HAK_CLOSED_TOP }

/* Never written. Only thread.c changes the thread's word that leads from the sentinel to its heap. */
struct hak_heap_front hak__sentinel = {
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

hak_inline void give_stack(struct hak_heap *heap, uint32_t class, void *const *blocks, uint32_t count, const char *function)
{
    if (hak_unlikely(heap->foreign[class]))
        give_mixed(heap, blocks, count, function);
    else
        hak__heap_give(heap, blocks, count, function);
}

void hak__cache_give(struct hak_heap *heap, uint32_t class, void *const *blocks, uint32_t count, const char *function)
{
    give_stack(heap, class, blocks, count, function);
}

void hak__cache_drain(struct hak_heap *heap, uint32_t class_index, uint32_t count, const char *function)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    struct hak_heap_class *class = &heap->classes[class_index];
    struct hak_bin *bin = hak__heap_bin(heap, class_index);
    hak_assert(!hak__is_large(class_index), "large blocks are drained by large_cache.c");
    if (hak_unlikely(class->marks != 0))
        hak__cache_drop_marks(heap, class_index);
    uint32_t held = (uint32_t)(bin->top - class->bottom);
    count = (uint32_t)hak_min(count, held);
    if (count == 0)
        return;
    give_stack(heap, class_index, class->bottom, count, function);
    heap->foreign[class_index] &= count != held;
    memmove(class->bottom, class->bottom + count, (held - count) * sizeof(void *));
    hak_owner_store(&bin->top, class->bottom + (held - count));
}

uint32_t hak__cache_count(struct hak_heap *heap, uint32_t class_index)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    void **top = hak_peek(&hak__heap_bin(heap, class_index)->top), **bottom = hak_peek(&class->bottom);
    /* To another thread the two words may date from different moments. */
    return bottom != NULL && top >= bottom && top <= bottom + class->ceiling ? (uint32_t)(top - bottom) : 0;
}

uint32_t hak__cache_blocks(struct hak_heap *heap, uint32_t class_index)
{
    uint32_t count = hak__cache_count(heap, class_index), marks = hak_peek(&heap->classes[class_index].marks);
    return count - hak_min(marks, count);
}

/* --- marks ------------------------------------------------------------------------------------------------------ */

enum { MARKS_MOST = 250 };

/* Requests until the next sample: uniform in 1 .. 2N - 1, so N on average and out of step with the program's loops. */
static uint64_t draw_mark(void)
{
    uint64_t n = hak__option(HAK_OPTION_sample_guards);
    return n == 0 ? 0 : 1 + hak__os->random() % (2 * n - 1);
}

static void put_mark(struct hak_heap *heap, struct hak_bin *bin, uint32_t index, void **at)
{
    memmove(at + 1, at, (size_t)(bin->top - at) * sizeof *at);
    *at = NULL;
    hak_owner_store(&bin->top, bin->top + 1);
    hak_slot_store(&heap->classes[index].marks, (uint8_t)(heap->classes[index].marks + 1));
}

static bool has_room(struct hak_heap *heap, const struct hak_bin *bin, uint32_t index)
{
    return bin->top < bin->end && heap->classes[index].marks < MARKS_MOST;
}

void hak__cache_mark(struct hak_heap *heap, uint32_t index)
{
    hak_assert(!hak__is_large(index), "large bins have no marks");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    struct hak_heap_class *class = &heap->classes[index];
    struct hak_bin *bin = hak__heap_bin(heap, index);
    uint64_t below = class->capacity == 0 ? 0 : (uint64_t)(bin->top - class->bottom);
    uint64_t left = heap->sample.left == 0 ? draw_mark() : heap->sample.left;
    left -= left > 1; /* the block handed out now */
    hak_count(&heap->sample.seen, below + 1);
    while (left <= below && left != 0 && has_room(heap, bin, index)) {
        below -= left - 1;
        put_mark(heap, bin, index, class->bottom + below);
        left = draw_mark();
    }
    heap->sample.left = left > below ? left - below : left != 0;
}

void hak__cache_mark_next(struct hak_heap *heap, uint32_t index)
{
    struct hak_bin *bin = hak__heap_bin(heap, index);
    if (heap->classes[index].capacity != 0 && has_room(heap, bin, index))
        put_mark(heap, bin, index, bin->top);
}

bool hak__cache_unmark(struct hak_heap *heap, uint32_t index)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    struct hak_heap_class *class = &heap->classes[index];
    struct hak_bin *bin = hak__heap_bin(heap, index);
    if (class->capacity != 0 && bin->top != class->bottom) {
        bool mark = bin->top[-1] == NULL;
        if (mark) {
            hak_owner_store(&bin->top, bin->top - 1);
            hak_slot_store(&class->marks, (uint8_t)(class->marks - 1));
        }
        return mark;
    }
    if (heap->sample.left == 0)
        heap->sample.left = draw_mark();
    bool now = heap->sample.left == 1;
    if (now) {
        heap->sample.left = draw_mark();
        hak_count(&heap->sample.seen, 1);
    }
    return now;
}

void hak__cache_drop_marks(struct hak_heap *heap, uint32_t index)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    struct hak_heap_class *class = &heap->classes[index];
    struct hak_bin *bin = hak__heap_bin(heap, index);
    void **to = class->bottom;
    for (void **from = class->bottom; from < bin->top; from++)
        if (*from != NULL)
            *to++ = *from;
    hak_owner_store(&bin->top, to);
    hak_slot_store(&class->marks, 0);
}
