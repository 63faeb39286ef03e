/* The fast path of every allocating function: pops a block of the calling thread, or returns NULL for the slow path. A closed
 * bin always gives NULL. */
#pragma once

#include "base/bits.h"
#include "process/thread.h"
#include "size/size.h"

/* A block for n bytes after the fast path found none; sets errno on failure (malloc.c). */
hak_noinline void *hak__malloc_slow(size_t n);

hak_inline void *hak__pop_from(struct hak_heap *heap, struct hak_class_offset offset)
{
    void *block = hak__cache_pop(hak__bin_at(heap, offset));
    if (hak_likely(block != NULL))
        hak__mark_live(block);
    return block;
}

/* Requests above the mid classes find no bin: large blocks' bins are always closed. */
hak_inline void *hak__pop(size_t n)
{
    if (hak_likely(n <= HAK_TINY_MAX))
        return hak__pop_from(hak__heap_current(), hak__bin_of_tiny(n));
    return hak_likely(n <= HAK_MID_MAX) ? hak__pop_from(hak__heap_current(), hak__bin_of_mid(n)) : NULL;
}

/* Rounds n up to the alignment: if that class's blocks are aligned, no smaller class's are. Else NULL. */
hak_inline void *hak__aligned_pop(size_t align, size_t n)
{
    size_t need = hak_align_up(n, align);
    if (hak_unlikely(n > HAK_MID_MAX || need > HAK_MID_MAX))
        return NULL;
    struct hak_class_offset offset = need <= HAK_TINY_MAX ? hak__bin_of_tiny(need) : hak__bin_of_mid(need);
    if (hak_unlikely((hak__class_at_offset(offset)->size & (align - 1)) != 0))
        return NULL;
    return hak__pop_from(hak__heap_current(), offset);
}
