/* free's fast path, as a decision table on one XOR of the slab's owner word with the heap's tag:
 *
 *   owner_diff <  HAK_CLASS_OFFSET_LIMIT   mine, and this is its class offset: push; free_full if there is no room
 *   ... but no block begins there, or it looks freed                             free_verify
 *   owner_diff >= HAK_CLASS_OFFSET_LIMIT   another heap's, huge, an inner slab's, unowned: free_foreign
 *   no word                                NULL, or outside the window; a new forked child, which takes all for that: free_outside
 *
 * A sized free also asks whether a request of n bytes can have got this class. hak__check_size_slow judges the other cases, and
 * the block is then freed like any other. */
#include "cache/cache.h"
#include "hakmem.h"
#include "kinds/kind.h"

hak_inline struct hak_class_offset own_offset(size_t owner_diff) { return (struct hak_class_offset){ owner_diff }; }

hak_export hak_fast_path void hak_free(void *p)
{
    size_t slab = hak__slab_of(p);
    if (hak_unlikely(slab >= hak_read_mostly(&hak__wiped.slabs))) {
        hak__free_outside(p);
        return;
    }
    struct hak_heap *heap = hak__heap_current();
    const struct hak_slab *entry = &hak__window.map[slab];
    size_t owner_diff = hak_load(&entry->owner, HAK_RELAXED) ^ heap->tag;
    if (hak_unlikely(owner_diff >= HAK_CLASS_OFFSET_LIMIT)) {
        hak__free_foreign(p, owner_diff, heap, HAK_PROTECT ? entry : NULL);
        return;
    }
    if (hak_unlikely(!hak__begins_block(entry, p) || hak__looks_freed(p))) {
        hak__free_verify(p, owner_diff, heap);
        return;
    }
    hak__mark_freed(p);
    struct hak_class_offset offset = own_offset(owner_diff);
    if (hak_unlikely(!hak__cache_push_at(heap, &offset, p)))
        hak__free_full(p, offset.bytes, heap);
}

static hak_noinline void free_known_slow(void *p, size_t align, size_t n, const char *function)
{
    hak__check_size(p, align, n, function);
    hak_free(p);
}

hak_inline void free_known(void *p, size_t align, size_t n, const char *function)
{
    size_t slab = hak__slab_of(p);
    if (hak_unlikely(!HAK_PROTECT || slab >= hak_read_mostly(&hak__wiped.sized_slabs))) {
        free_known_slow(p, align, n, function);
        return;
    }
    struct hak_heap *heap = hak__heap_current();
    const struct hak_slab *entry = &hak__window.map[slab];
    size_t owner_diff = hak_load(&entry->owner, HAK_RELAXED) ^ heap->tag;
    struct hak_class_offset offset = own_offset(owner_diff);
    if (hak_unlikely(owner_diff >= HAK_CLASS_OFFSET_LIMIT || !hak__begins_block(entry, p) || hak__looks_freed(p)
                     || !hak__size_fits(hak__class_at_offset(offset)->size, n))) {
        free_known_slow(p, align, n, function);
        return;
    }
    hak__mark_freed(p);
    if (hak_unlikely(!hak__cache_push_at(heap, &offset, p)))
        hak__free_full(p, offset.bytes, heap);
}

hak_export void hak_free_sized(void *p, size_t n) { free_known(p, HAK_ALIGN, n, "free_sized"); }

hak_export void hak_free_aligned_sized(void *p, size_t align, size_t n) { free_known(p, align, n, "free_aligned_sized"); }

void hak__delete_sized(void *p, size_t n, size_t align) { free_known(p, align, n, "operator delete"); }
