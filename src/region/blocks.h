/* Blocks of a region (units.h): small ones in slabs by the library's size classes, others as single runs; its repair after a death.
 * The lock is held. */
#pragma once

#include "region/units.h"

void hak__region_plan_slabs(struct hak_region *region);
void *hak__region_take(struct hak_region *region, size_t align, size_t n);

/* The result of looking for a block at p: why_not is NULL if one begins there. */
struct hak_region_block {
    uint32_t unit, index, class; /* class: HAK_CLASSES for a large one */
    size_t size;
    const char *why_not;
    bool freed; /* a free block of a slab */
};
struct hak_region_block hak__region_find(const struct hak_region *region, const void *p);
void hak__region_give(struct hak_region *region, const struct hak_region_block *block);
bool hak__region_resize(struct hak_region *region, const struct hak_region_block *block, size_t n);
int hak__region_visit_blocks(struct hak_region *region, hak_heap_visitor *visit, void *argument);
uint32_t hak__region_slab_words(const struct hak_region_class *class);
hak_inline uint64_t hak__region_no_blocks(const struct hak_region_class *class) /* the last word's bits beyond the last block */
{
    return class->blocks % 64 == 0 ? 0 : ~hak_ones64(class->blocks % 64);
}

/* Rebuilds what follows from the chain and the bits (repair.c). False: the chain is broken. */
hak_cold bool hak__region_repair(struct hak_region *region);
hak_cold bool hak__region_is_valid(const struct hak_region *region);
