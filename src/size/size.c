/* The tables behind size.h, built from classes.def at compile time. */
#include "size/size.h"

#define X(index, size, slabs, blocks, reciprocal, batch) { reciprocal, size, blocks, slabs, batch },
const struct hak_class hak__classes[HAK_CLASSES] = {
#include "size/classes.def"
};
#undef X
const struct hak_class_place hak__class_places[HAK_CLASSES] = { HAK_CLASS_PLACES };
extern const struct hak_class hak__class_rows[HAK_CLASSES] HAK_ALIAS(hak__classes);

const uint16_t hak__tiny_class_offset[HAK_TINY_MAX / HAK_ALIGN + 1] = { HAK_TINY_OFFSETS };
const uint16_t hak__mid_class_offset[HAK_MID_MAX / HAK_TABLE_STEP + 1] = { HAK_MID_OFFSETS };

__attribute__((section(".data.rel.ro.bins"))) struct hak_bins hak__bins = { { HAK_TINY_OFFSETS }, { HAK_MID_OFFSETS } };

uint32_t hak__aligned_class(size_t align, size_t n)
{
    hak_assert(hak_is_power_of_two(align), "alignments are powers of two");
    if (align > HAK_SLAB_SIZE || n > HAK_LARGE_MAX)
        return HAK_CLASSES;
    uint32_t class = hak__class_of(hak_max(n, hak_min(align, HAK_MID_MAX + 1)));
    while (hak__classes[class].size % align != 0) /* the last class is a multiple of every such alignment */
        class++;
    hak_assert(class < HAK_CLASSES && hak__classes[class].size >= n, "the block has room for the request");
    return class;
}
