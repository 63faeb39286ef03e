/* free's fast path, as a decision table on one XOR of the slab's owner word with the heap's tag:
 *
 *   x <  HAK_CODE_LIMIT   mine, and x is the offset of the class's record      push, or free_full when there is no room
 *   x >= HAK_CODE_LIMIT   another heap's, huge, inner slab, or nothing's       free_foreign
 *   no word               NULL, or an address outside of the window            free_outside */
#include "hakmem.h"
#include "route.h"

hak_export hak_fast_path void hak_free(void *p)
{
    size_t slab = hak__slab_of(p);
    if (hak_unlikely(slab >= hak_read_mostly(&hak__window.slabs))) {
        hak__free_outside(p);
        return;
    }
    struct hak_heap *heap = hak__heap_current();
    size_t x = hak__owner_at(slab) ^ heap->tag;
    if (hak_unlikely(x >= HAK_CODE_LIMIT))
        hak__free_foreign(p, x, heap);
    else if (hak_unlikely(!hak__cache_push(hak__record_at(heap, (uint32_t)x), p)))
        hak__free_full(p, x, heap);
}
