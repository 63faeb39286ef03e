/* In-place growth and shrinkage of one-block spans. See large.h. */
#include "large/large.h"

#include "base/assert.h"
#include "shared/pool.h"

/* The slabs that a span of one block has gained or keeps say that they are inside of it. */
static void describe(struct hak_span *span, uint32_t heap_id, uint32_t class, unsigned slabs)
{
    size_t slab = hak__span_slab(span);
    for (unsigned i = span->slabs; i < slabs; i++)
        hak__owner_set(slab + i, hak__owner_inner(heap_id));
    for (unsigned i = slabs; i < span->slabs; i++)
        hak__owner_set(slab + i, 0);
    hak__owner_set(slab, hak__owner_word(heap_id, class));
    span->slabs = (uint8_t)slabs;
    span->class = (uint16_t)class;
    hak__span_map_places(span);
}

bool hak__large_resize_owner(struct hak_heap *heap, void *block, uint32_t class)
{
    size_t slab = hak__slab_of(block);
    struct hak_span *span = hak__span_at(slab);
    unsigned have = span->slabs, want = hak__class_single_slabs(class);
    uint32_t former = span->class;
    hak_assert(former >= HAK_CLASS_FIRST_LARGE && class >= HAK_CLASS_FIRST_LARGE, "only large blocks resize in place");
    if (span->blocks != 1 || hak__super_is_bare(slab / HAK_SUPER_SLABS))
        return false;
    while (class + 1 < HAK_CLASSES && hak__class_single_slabs(class + 1) == want)
        class++;
    hak_assert(!span->listed && hak__span_allocated(span) == 1, "the block is in the program's hands");
    if (want > have && !hak__pool_extend(slab, have, want))
        return false;
    describe(span, heap->id, class, want);
    if (want < have)
        hak__pool_give(slab + want, have - want);
    hak__heap_large_moved(heap, former, (size_t)-1);
    hak__heap_large_moved(heap, class, 1);
    hak_count(&heap->classes[former].drained, 1);
    hak_count(&heap->classes[former].span_count, (uint64_t)-1);
    hak_count(&heap->classes[class].refilled, 1);
    hak_count(&heap->classes[class].span_count, 1);
    hak_count(&heap->counts.slabs, (uint64_t)want - have);
    return true;
}
