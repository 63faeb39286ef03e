/* Warm requests: the block of the calling thread that serves one, or NULL, when the slow path has to. Called first by every
 * function that allocates; a closed bin makes them give NULL. */
#ifndef HAK_POP_H
#define HAK_POP_H

#include "base/bits.h"
#include "size/bins.h"
#include "thread.h"

hak_inline void *hak__pop(size_t n)
{
    uint32_t code;
    if (hak_likely(n <= HAK_TINY_MAX))
        code = hak__bin_of_tiny((n + HAK_ALIGN - 1) / HAK_ALIGN);
    else if (hak_likely(n <= HAK_LARGE_MAX))
        code = hak_likely(n <= HAK_TABLE_MAX) ? hak__bin_of_mid((n + HAK_TABLE_STEP - 1) / HAK_TABLE_STEP) : hak__class_offset_above_table(n);
    else
        return NULL;
    void *block = hak__cache_pop(hak__bin_at(hak__heap_current(), code));
    if (hak_likely(block != NULL))
        hak__mark_live(block);
    return block;
}

/* Nearly every request ends here: with a block of the class of n rounded up, which is the smallest that is aligned if it is
 * aligned at all. */
hak_inline void *hak__aligned_pop(size_t align, size_t n)
{
    if (hak_unlikely(n > HAK_MID_MAX || align > HAK_MID_MAX))
        return NULL;
    size_t need = hak_align_up(n, align);
    uint32_t code = need <= HAK_TINY_MAX ? hak__bin_of_tiny(hak_div_up(need, HAK_ALIGN)) : hak__bin_of_mid(hak_div_up(need, HAK_TABLE_STEP));
    if (hak_unlikely((hak__class_at_offset(code)->size & (align - 1)) != 0))
        return NULL;
    void *block = hak__cache_pop(hak__bin_at(hak__heap_current(), code));
    if (hak_likely(block != NULL))
        hak__mark_live(block);
    return block;
}

#endif
