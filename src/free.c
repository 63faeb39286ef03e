/* free's fast path, as a decision table on one XOR of the slab's owner word with the heap's tag:
 *
 *   x <  HAK_CODE_LIMIT   mine, and x is the offset of the class's record      push, or free_full when there is no room
 *   ... but no block begins at the address, or it looks freed                  free_doubtful
 *   x >= HAK_CODE_LIMIT   another heap's, huge, inner slab, or nothing's       free_foreign
 *   no word               NULL, or an address outside of the window            free_outside */
#include "free_slow.h"
#include "hakmem.h"

hak_export hak_fast_path void hak_free(void *p)
{
    size_t slab = hak__slab_of(p);
    if (hak_unlikely(slab >= hak_read_mostly(&hak__window.slabs))) {
        hak__free_outside(p);
        return;
    }
    struct hak_heap *heap = hak__heap_current();
    const struct hak_slab *entry = &hak__window.map[slab];
    size_t x = hak_load(&entry->owner, HAK_RELAXED) ^ heap->tag;
    if (hak_unlikely(x >= HAK_CODE_LIMIT)) {
        hak__free_foreign(p, x, heap, HAK_PROTECT ? entry : NULL);
        return;
    }
    bool block = hak__begins_block(entry, hak__class_of_code(x), p);
    if (hak_unlikely(!block || hak__looks_freed(p))) {
        hak__free_doubtful(p, x, heap);
        return;
    }
    hak__mark_freed(p);
    if (hak_unlikely(!hak__cache_push(hak__record_at(heap, (uint32_t)x), p)))
        hak__free_full(p, x, heap);
}
