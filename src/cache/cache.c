/* The bins of a heap: draining, and the sentinel that serves a thread before its first heap. The caller holds the heap
 * lock unless a function says otherwise. */
#include "cache/cache.h"

#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "cache/outbox.h"
#include "diag/options.h"
#include "harden/spans.h"

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
    void **top = hak_peek(&hak__heap_bin(heap, class_index)->top), **bottom = hak_peek(&class->bottom);
    /* To another thread the two words may date from different moments. */
    return bottom != NULL && top >= bottom && top <= bottom + class->ceiling ? (uint32_t)(top - bottom) : 0;
}
