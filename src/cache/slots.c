/* Slot areas: carved from the memory behind the heap's struct only as bins grow, so that a thread touches no more of it than
 * it uses. See slots.h. */
#include "cache/slots.h"

#include <string.h>

#include "arena/limit.h"
#include "arena/meta.h"
#include "base/bits.h"
#include "diag/options.h"

/* Areas have 16, 32, 64, ... slots and the guard word below them, and are kept apart by size when given back. A capacity between two
 * sizes gets the larger area and never touches the rest. */
static unsigned slots_order(uint32_t slots)
{
    return slots <= HAK_SLOTS_LEAST ? 0 : hak_msb64((slots - 1) / HAK_SLOTS_LEAST) + 1;
}

_Static_assert(HAK_OPTION_tiny_c6_local_cache == HAK_OPTION_tiny_c2_local_cache + 4, "the bands' options are adjacent");

bool hak__slots_are_local(uint32_t class)
{
    uint32_t band = class < HAK_CLASS_LOCAL_FIRST || class > HAK_CLASS_LOCAL_LAST ? 0 : hak__band_of(class);
    return band != 0 && hak__option((enum hak_option)(HAK_OPTION_tiny_c2_local_cache + band - 2)) != 0;
}

/* The slot area begins with the slots in the struct unless classes have them as their local slots, and goes on behind the struct. */
void hak__slots_open(struct hak_heap *heap)
{
    bool any_local = false;
    for (uint32_t class = HAK_CLASS_LOCAL_FIRST; class <= HAK_CLASS_LOCAL_LAST; class++)
        any_local |= hak__slots_are_local(class);
    heap->slots.next = heap->slots.local[0];
    heap->slots.end = any_local ? heap->slots.next : heap->slots.next + sizeof heap->slots.local / sizeof(void *);
    memset(heap->slots.free, 0, sizeof heap->slots.free);
}

static void **slots_end(struct hak_heap *heap) { return (void **)((char *)heap + heap->slots.mapped); }

/* Maps more of the heap's stride: as much again, or in a thrifty process what is needed. */
static bool slots_extend(struct hak_heap *heap, size_t need)
{
    size_t left = HAK_HEAP_STRIDE - heap->slots.mapped, bytes = hak_align_up(need * sizeof(void *), hak__page_size());
    if (bytes > left)
        return false;
    if (!hak__is_thrifty())
        bytes = hak_min(hak_max(bytes, heap->slots.mapped), left);
    if (!hak__heap_extend(heap->id, heap->slots.mapped, bytes))
        return false;
    heap->slots.mapped += bytes;
    return true;
}

static bool slots_find(struct hak_heap *heap, size_t need)
{
    void **behind = (void **)hak_align_up((uintptr_t)(heap + 1), 64);
    bool first = heap->slots.end < behind;   /* they were those in the struct until now */
    void **next = first ? behind : heap->slots.next;
    if ((size_t)(slots_end(heap) - next) < need && !slots_extend(heap, need))
        return false;
    heap->slots.next = next;
    heap->slots.end = slots_end(heap);
    return true;
}

void **hak__slots_take(struct hak_heap *heap, uint32_t slots)
{
    unsigned order = slots_order(slots);
    size_t need = ((size_t)HAK_SLOTS_LEAST << order) + 1;
    void **area = heap->slots.free[order];
    if (area != NULL) {
        heap->slots.free[order] = *area;
    } else {
        if ((size_t)(heap->slots.end - heap->slots.next) < need && !slots_find(heap, need))
            return NULL;
        area = heap->slots.next;
        heap->slots.next = area + need;
    }
    if (*area != NULL)   /* fresh memory is zero and need not be touched */
        *area = NULL;
    return area + 1;
}

void hak__slots_give(struct hak_heap *heap, void **bottom, uint32_t slots)
{
    unsigned order = slots_order(slots);
    bottom[-1] = heap->slots.free[order];
    heap->slots.free[order] = bottom - 1;
}
