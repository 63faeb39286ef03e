/* free's fast path, as a decision table on one XOR of the slab's owner word with the heap's tag:
 *
 *   x <  HAK_CODE_LIMIT   mine, and x is the offset of the class's record      push (full: free_slow drains)
 *   x >= HAK_CODE_LIMIT   another heap's, huge, inner slab, or nothing's       free_slow
 *   no word               NULL, or an address outside of the window            free_slow */
#include "hakmem.h"
#include "route.h"

hak_export void hak_free(void *p)
{
    size_t slab = hak__slab_of(p);
    if (hak_likely(slab < hak_read_mostly(&hak__window.slabs))) {
        struct hak_heap *heap = hak__heap_current();
        uint32_t x = hak__owner_at(slab) ^ heap->tag;
        if (hak_likely(x < HAK_CODE_LIMIT) && hak_likely(hak__cache_push(hak__record_at(heap, x), p)))
            return;
    }
    hak__free_slow(p, "free");
}
