/* The questions about a pointer: whether a block in use begins there, how much of it the program may use, and whether the size of a
 * sized free can be right. */
#pragma once

#include "span/hardened.h"

/* Whether the owner map's word names a span. */
hak_inline bool hak__names_span(uint32_t word)
{
    return hak__owner_id(word) - 1 < HAK_HEAPS_MAX && hak__owner_has_class(word);
}

/* Why no block begins at p, for a report; `word` is what the owner map has there. */
const char *hak__why_invalid(const void *p, uint32_t word);

/* Ends the program unless a block in use begins at p, an address in a span. The program itself may
 * have stored the key of freed blocks there, so the heap's own state decides. `why_freed`: what to report of a free block; NULL: a
 * double free. */
hak_cold void hak__check_block(const void *p, uint32_t word, const char *function, const char *why_freed);

/* Whether a block in use begins at p, an address in a span that the word names. */
hak_cold bool hak__is_live(const void *p, uint32_t word);

/* The size class of the block that begins at p; NULL when p is the start of none, or of one that looks freed. */
hak_inline const struct hak_class *hak__class_at(const void *p)
{
    size_t distance = (uintptr_t)p - hak__window.base, slab = distance / HAK_SLAB_SIZE;
    if (hak_unlikely(slab >= hak_read_mostly(&hak__window.slabs)))
        return NULL;
    uint32_t word = hak__owner_at(slab);
    if (hak_unlikely(word == 0 || !hak__owner_has_class(word)))   /* only spans' words and 0 have a class */
        return NULL;
    const struct hak_class *class = hak__owner_sizes(word);
    if (HAK_PROTECT)
        return hak_likely(hak__begins_block(&hak__window.map[slab], class, p) && !hak__looks_freed(p)) ? class : NULL;
    size_t before = (size_t)hak_load(&hak__spans[slab].back, HAK_RELAXED) * HAK_SLAB_SIZE;
    struct hak_place place = hak__place_of(class->reciprocal, before + distance % HAK_SLAB_SIZE);
    return hak_likely(hak__place_is_block(place, class->reciprocal, class->blocks)) ? class : NULL;
}

/* The usable bytes of any block that begins at p; aborts with a report when none does. */
size_t hak__usable(const void *p, const char *function);

/* --- sized frees ------------------------------------------------------------------------------------------------- */

/* Whether n bytes may have been asked for where there is a block of `have`: just those of the class, or down to half
 * of it, since realloc leaves a block that shrinks no further where it is, and gives one that grows some room. */
hak_inline bool hak__size_fits(size_t have, size_t n)
{
    return n - have / 2 <= have / 2 || (have == HAK_ALIGN && n < have);
}

/* From now on a block may be longer than the size that a sized free names, because it could not become shorter. */
hak_cold void hak__allow_longer(void);

/* The rest of hak__check_size: huge blocks, aligned ones, reports. */
hak_cold void hak__check_size_slow(const void *p, size_t align, size_t n, const char *function);

#if HAK_PROTECT
/* Ends the program if the block that begins at p cannot have been asked for with n bytes and the alignment. Leaves what is no
 * block to the free that follows. Class 0, which the map's word of no block seems to name, is the
 * smallest; huge blocks' words name none. */
hak_inline void hak__check_size(const void *p, size_t align, size_t n, const char *function)
{
    size_t slab = hak__slab_of(p);
    struct hak_class_offset offset = { HAK_CLASS_OFFSET_LIMIT };
    if (hak_likely(slab < hak_read_mostly(&hak__window.sized_slabs)))
        offset = hak__owner_offset(hak__owner_at(slab));
    if (hak_unlikely(offset.bytes >= HAK_CLASSES * HAK_BIN_SIZE || !hak__size_fits(hak__class_at_offset(offset)->size, n)))
        hak__check_size_slow(p, align, n, function);
}
#else
hak_inline void hak__check_size(const void *p, size_t align, size_t n, const char *function)
{
    (void)p, (void)align, (void)n, (void)function;
}
#endif

/* C++'s sized delete (free.c), whose arguments come in this order. */
void hak__delete_sized(void *p, size_t n, size_t align);
