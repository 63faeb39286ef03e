/* Blocks of a thread's heap above the mid classes: they grow into free neighbours, and release slabs to shrink. */
#include "base/assert.h"
#include "cache/large_cache.h"
#include "heap/heap.h"
#include "kinds/kind.h"
#include "process/request.h"

/* Counts the part cut off for upkeep, like any freed memory. */
static void *large_resize(void *p, size_t have, size_t n, enum hak_resize how)
{
    hak_assert(have > HAK_MID_MAX && have <= HAK_LARGE_MAX, "a large block");
    struct hak_heap *heap = hak__heap_mine();
    bool mine = hak__owner_id(hak__owner_of(p)) == heap->id;
    if (n <= HAK_MID_MAX && how == HAK_RESIZE_WASTEFUL)
        n = HAK_MID_MAX + 1;
    if (!mine || n <= HAK_MID_MAX || n > HAK_LARGE_MAX || !hak__heap_lock(heap))
        return NULL;
    bool done = hak__large_resize_owner(heap, p, hak__class_of(n));
    while (!done && hak__large_cache_clear_behind(heap, p)) /* the block behind was only cached */
        done = hak__large_resize_owner(heap, p, hak__class_of(n));
    hak__heap_unlock(heap);
    if (done && n < have)
        hak__poll_huge(have - n, 0);
    return done ? p : NULL;
}

const struct hak_kind hak__kind_large = {
    .free = hak__free_block,
    .usable = hak__block_usable,
    .check_size = hak__block_check_size,
    .resize = large_resize,
    .lift = hak__block_lift,
    .live = hak__block_live,
    .describe = hak__block_describe,
    .around = hak__block_start,
};
