/* Marks: NULLs between the blocks of a stack. The fast path takes one for an empty stack and calls the slow path, which
 * knows the size asked for and serves this one request elsewhere (HAKMEM_SAMPLE_GUARDS). So one in N of the blocks that refills bring
 * is sampled, and the fast path counts nothing. Called by cache.c and guard/. */
#include "cache/mark.h"

#include <string.h>

#include "cache/cache.h"
#include "diag/options.h"
#include "os/os.h"

enum { MARKS_MOST = 250 };

/* How many requests from now the next sample comes: evenly 1 .. 2N - 1, so N on average, and out of step with the program's
 * loops. */
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
    struct hak_heap_class *class = &heap->classes[index];
    struct hak_bin *bin = hak__heap_bin(heap, index);
    uint64_t below = class->capacity == 0 ? 0 : (uint64_t)(bin->top - class->bottom);
    uint64_t left = heap->sample.left == 0 ? draw_mark() : heap->sample.left;
    left -= left > 1;   /* the block that goes out now */
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
    struct hak_heap_class *class = &heap->classes[index];
    struct hak_bin *bin = hak__heap_bin(heap, index);
    void **to = class->bottom;
    for (void **from = class->bottom; from < bin->top; from++)
        if (*from != NULL)
            *to++ = *from;
    hak_owner_store(&bin->top, to);
    hak_slot_store(&class->marks, 0);
}
