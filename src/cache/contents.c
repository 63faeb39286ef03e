/* Whole-heap operations on bins, quarantine, large cache and outbox: empty them, leave blocks for the next thread, check them,
 * and search them for a block that looks freed before a double free is reported (span/span.h). */
#include "base/assert.h"
#include "base/bits.h"
#include "cache/cache.h"
#include "cache/large_cache.h"
#include "harden/quarantine.h"

/* The most that is left of a class: blocks (docs/decisions/0057). */
enum { LEFT_BLOCKS = 16 };

/* Leaves only the heap's own blocks: another heap waits for its blocks and would never get them back. */
static uint32_t may_be_left(const struct hak_heap *heap, uint32_t class, size_t bytes)
{
    if (heap->foreign[class])
        return 0;
    return (uint32_t)hak_min(LEFT_BLOCKS, bytes / hak__classes[class].size);
}

void hak__cache_leave(struct hak_heap *heap, size_t bytes)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    bool left = false;
    if (heap->quarantine != NULL)
        hak__quarantine_flush(heap, "free");
    uint64_t used = (heap->mode & HAK_MODE_SHARE) != 0 ? heap->share.classes : ~0ull;
    for (used &= hak_ones64(HAK_CLASS_FIRST_LARGE); used != 0; used &= used - 1) {
        uint32_t class = hak_ctz64(used);
        const struct hak_bin *bin = hak__heap_bin(heap, class);
        uint32_t held = (uint32_t)(bin->top - heap->classes[class].bottom);
        uint32_t keep = held == 0 ? 0 : may_be_left(heap, class, bytes);
        if (held > keep)
            hak__cache_drain(heap, class, held - keep, "free");
        left |= bin->top != heap->classes[class].bottom;
        if (heap->classes[class].ramp != 0)
            heap->classes[class].ramp = 0;
    }
    hak_owner_store(&heap->left, left ? HAK_LEFT_NOW : HAK_LEFT_NOTHING);
    hak__large_cache_flush(heap);
    hak__outbox_flush(heap, "free");
}

void hak__cache_flush(struct hak_heap *heap) { hak__cache_leave(heap, 0); }

size_t hak__cache_bytes(struct hak_heap *heap)
{
    size_t bytes = heap->quarantine == NULL ? 0 : heap->quarantine->bytes;
    for (uint32_t class = 0; class < HAK_CLASSES; class++)
        bytes += hak__cache_count(heap, class) * (size_t)hak__classes[class].size;
    return bytes;
}

/* No thread has touched a bin since the blocks were left; the next one clears the word before it does. All three hold the heap
 * lock. */
void hak__cache_age_left(struct hak_heap *heap, bool all)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    if (heap->left == HAK_LEFT_NOTHING)
        return;
    if (all || heap->left == HAK_LEFT_BEFORE)
        hak__cache_flush(heap);
    else
        hak_owner_store(&heap->left, HAK_LEFT_BEFORE);
}

/* The heap lock waits for a step that is emptying the bins; a later step finds nothing left. */
void hak__cache_take_up(struct hak_heap *heap)
{
    hak_assert(hak__lock_word_is_mine(&heap->lock), "a heap that is taken up is locked");
    hak_owner_store(&heap->left, HAK_LEFT_NOTHING);
}

/* Caller holds the heap lock; the owner may pop and push meanwhile. */
static bool slot_is_valid(const struct hak_heap *heap, uint32_t index, void *const *slot)
{
    const void *block = hak_peek(slot);
    uint32_t word = hak__owner_of(block);
    return block != NULL && hak__owner_class(word) == index && (heap->foreign[index] || hak__owner_id(word) == heap->id);
}

bool hak__cache_is_valid(struct hak_heap *heap)
{
    bool valid = true;
    for (uint32_t index = 0; index < HAK_CLASSES; index++) {
        const struct hak_heap_class *class = &heap->classes[index];
        const struct hak_bin *bin = hak__heap_bin(heap, index);
        void **top = hak_peek(&bin->top);
        if (class->bottom == NULL)
            continue; /* not opened */
        if (!hak__holds(class->bottom[-1] == NULL && bin->end == class->bottom + class->capacity,
                        "a bin has its bottom and its capacity", bin)
            || !hak__holds(top >= class->bottom && top <= bin->end && class->capacity <= class->ceiling, "a bin's top is within it",
                           bin)
            || !hak__holds((heap->mode & HAK_MODE_SHARE) == 0 || top == class->bottom || (heap->share.classes >> index & 1) != 0,
                           "only classes of which a share has had spans have blocks in bins", bin))
            return false;
        for (void **slot = class->bottom; slot < top; slot++)
            valid &= hak__holds(slot_is_valid(heap, index, slot), "a bin has blocks of its class and heap", slot);
    }
    return valid && hak__large_cache_is_valid(heap);
}

/* --- the search for a free block -------------------------------------------------------------------------------- */

static hak_cold bool has_freed(struct hak_heap *heap, uint32_t class, const void *p)
{
    return hak__heap_has_free(heap, class, p) || hak__quarantine_has(heap, p);
}

/* Searches the span alone. */
static hak_cold bool has_in_span(struct hak_heap *heap, uint32_t class, const void *p)
{
    return hak__heap_has_in_span(heap, class, p);
}

/* Repeats the search if the span changed hands before it. */
static hak_cold bool owner_has(hak_heap_question *question, uint32_t class, const void *p)
{
    for (;;) {
        uint32_t word = hak__owner_of(p), id = hak__owner_id(word);
        if (id == 0 || hak__owner_class(word) != class)
            return true; /* the span has ended, so none of its blocks is in use */
        if (hak__heap_ask(hak__heap_by_id(id), question, class, p, HAK_HEAP_ASK_TRIES))
            return true;
        if (hak__owner_of(p) == word)
            return false;
    }
}

hak_cold bool hak__cache_has_freed(struct hak_heap *mine, uint32_t class, const void *p)
{
    return (mine != NULL && hak__heap_ask(mine, has_freed, class, p, HAK_HEAP_ASK_TRIES)) || owner_has(has_freed, class, p)
        || hak__heaps_ask(mine, has_freed, class, p, HAK_HEAP_ASK_TRIES);
}

hak_cold bool hak__cache_has_purged(uint32_t class, const void *p) { return owner_has(has_in_span, class, p); }
