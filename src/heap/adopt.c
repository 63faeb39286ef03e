/* Adoption: before a heap asks for new slabs it takes over spans with free blocks from heaps whose threads have ended.
 * Called by heap.c, with the adopter's heap entered.
 *
 * A parked heap is taken off the parked list first, so nobody else works in it; it is entered like any other because a
 * sweeper may be inside, and parked again afterwards. Rewriting the owner words is then safe: no thread matches the old
 * tag any more, and only the adopter matches the new one. A thread that has read the old word frees as a stranger,
 * which is right for either owner; a span that it queues on the former owner's stack is sent on (remote.c). */
#include "heap/adopt.h"

#include "heap/heap.h"
#include "heap/park.h"

enum { HEAPS_PER_CALL = 4 };

/* Whether a look inside may be worth it, judged without entering. */
static bool promising(struct hak_heap *heap, uint32_t class)
{
    return hak_peek(&heap->classes[class].spans) != NULL || hak_load(&heap->pending, HAK_RELAXED) != NULL;
}

/* The few blocks that a thread left for the next one go with their spans. */
static void give_what_is_left(struct hak_heap *heap, uint32_t index)
{
    struct hak_bin *bin = hak__heap_bin(heap, index);
    void **bottom = heap->classes[index].bottom;
    if (heap->left == HAK_LEFT_NOTHING || bin->top == bottom)
        return;
    hak__heap_give(heap, bottom, (uint32_t)(bin->top - bottom), "free");
    hak_owner_store(&bin->top, bottom);
}

/* A heap that a forked child has parked is as the fork found it: the blocks in its bin may lie in the spans that go, and are
 * drained as another heap's from then on. */
static bool caches_blocks(struct hak_heap *heap, uint32_t index)
{
    return hak__heap_bin(heap, index)->top != heap->classes[index].bottom;
}

static void take_over(struct hak_heap *heap, struct hak_heap *former, uint32_t class)
{
    struct hak_span *span;
    give_what_is_left(former, class);
    former->foreign[class] |= former->classes[class].spans != NULL && caches_blocks(former, class);
    while ((span = former->classes[class].spans) != NULL) {
        hak__heap_unlist(former, span);
        hak__span_change_owner(span, heap->id);
        hak__heap_list(heap, span);
        hak__heap_large_moved(former, class, 0 - (size_t)hak__span_allocated(span));
        hak__heap_large_moved(heap, class, hak__span_allocated(span));
        hak_count(&former->classes[class].span_count, (uint64_t)-1);
        hak_count(&heap->classes[class].span_count, 1);
        hak_count(&former->counts.slabs, 0 - (uint64_t)span->slabs);
        hak_count(&heap->counts.slabs, span->slabs);
        hak_count(&heap->counts.adopted, 1);
    }
}

bool hak__heap_adopt(struct hak_heap *heap, uint32_t class)
{
    struct hak_heap *seen[HEAPS_PER_CALL];
    uint32_t count = 0;
    if (!hak__heap_any_parked(promising, class, HEAPS_PER_CALL))
        return false;
    hak__heaps_borrow(true);
    while (count < HEAPS_PER_CALL && heap->classes[class].spans == NULL) {
        struct hak_heap *former = hak__heap_unpark();
        if (former == NULL)
            break;
        seen[count++] = former;
        if (!promising(former, class))
            continue;
        hak__heap_lock(former);
        hak__heap_collect(former);
        take_over(heap, former, class);
        hak__heap_unlock(former);
    }
    while (count > 0)
        hak__heap_park(seen[--count]);
    hak__heaps_borrow(false);
    return heap->classes[class].spans != NULL;
}
