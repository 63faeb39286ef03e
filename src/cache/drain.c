/* The way back: full bins, flushing, and the numbers that others may read. Called by free_slow.c, guard/, thread.c. */
#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "cache/cache.h"
#include "cache/quarantine.h"
#include "slab/hardened.h"

/* What a thread that ends leaves of a class for the next one: blocks, and bytes of them (docs/decisions/0057). */
enum { LEFT_BLOCKS = 16, LEFT_BYTES = 4 << 10 };

/* Blocks that may be other heaps': those go out as the frees that they are. */
static void give_mixed(struct hak_heap *heap, void *const *blocks, uint32_t count, const char *function)
{
    for (uint32_t n = 0; n < count;) {
        uint32_t own = 0, word = 0;
        while (n + own < count && (hak__owner_of(blocks[n + own]) ^ heap->tag) < HAK_CLASS_OFFSET_LIMIT)
            own++;
        if (own != 0) {
            hak__heap_give(heap, blocks + n, own, function);
            n += own;
            continue;
        }
        word = hak__owner_of(blocks[n]);
        if (!hak__hardened_at(hak__slab_of(blocks[n])))
            hak__mark_live(blocks[n]);   /* until its owner marks it */
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

void hak__cache_overflow(struct hak_heap *heap, uint32_t class_index, void *block, const char *function)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    heap->overflows++;
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
    hak_assert(pushed, "a drained record has room");
    (void)pushed;
}

/* Of what may be another heap's nothing stays: others wait for it, and it would be another's block for ever. */
static uint32_t may_be_left(const struct hak_heap *heap, uint32_t class)
{
    if (heap->foreign[class] || heap->classes[class].marks != 0)
        return 0;
    return (uint32_t)hak_min(LEFT_BLOCKS, LEFT_BYTES / hak__classes[class].size);
}

static void empty(struct hak_heap *heap, bool leave)
{
    bool left = false;
    if (heap->quarantine != NULL)
        hak__quarantine_flush(heap, "free");
    for (uint32_t class = 0; class < HAK_CLASS_FIRST_LARGE; class++) {
        const struct hak_bin *bin = hak__heap_bin(heap, class);
        uint32_t held = (uint32_t)(bin->top - heap->classes[class].bottom);
        uint32_t keep = leave ? may_be_left(heap, class) : 0;
        if (held > keep)
            hak__cache_drain(heap, class, held - keep, "free");
        left |= bin->top != heap->classes[class].bottom;
        heap->classes[class].ramp = 0;
    }
    hak_owner_store(&heap->left, left ? HAK_LEFT_NOW : HAK_LEFT_NOTHING);
    hak__large_cache_flush(heap);
    hak__outbox_flush(heap, "free");
}

void hak__cache_flush(struct hak_heap *heap) { empty(heap, false); }
void hak__cache_leave(struct hak_heap *heap) { empty(heap, true); }

/* The thread that left it has not touched a bin since, and the next one takes back the word before it does; all three
 * have entered the heap. */
void hak__cache_age_left(struct hak_heap *heap, bool all)
{
    if (heap->left == HAK_LEFT_NOTHING)
        return;
    if (all || heap->left == HAK_LEFT_BEFORE)
        hak__cache_flush(heap);
    else
        hak_owner_store(&heap->left, HAK_LEFT_BEFORE);
}

/* Comes after a step that is emptying the bins; a later one finds nothing left. */
void hak__cache_take_up(struct hak_heap *heap)
{
    hak__heap_lock(heap);
    hak_owner_store(&heap->left, HAK_LEFT_NOTHING);
}

uint32_t hak__cache_count(struct hak_heap *heap, uint32_t class_index)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    void **top = hak_peek(&hak__heap_bin(heap, class_index)->top), **bottom = hak_peek(&class->bottom);
    /* Seen from another thread the two words may be of different moments. */
    return bottom != NULL && top >= bottom && top <= bottom + class->ceiling ? (uint32_t)(top - bottom) : 0;
}
