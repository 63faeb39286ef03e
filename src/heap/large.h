/* Large blocks (L2.5, 56 KiB to 1 MiB) in a heap. Two things set them apart: a heap that has many has SuperSlabs assigned to it, and
 * the block of a single-block span can change size in place. Called by sources.c and realloc.c, and to release the heap's SuperSlabs;
 * always under the heap lock. */
#pragma once

#include "span/span.h"

enum { HAK_ASSIGNED_MAX = 16, HAK_ASSIGNED_SPARES = 1 };

struct hak_assigned {
    uint32_t supers[HAK_ASSIGNED_MAX], count;   /* in the order in which they serve */
    uint32_t spare[HAK_ASSIGNED_SPARES];        /* ... that emptied lately */
    uint32_t moves, moves_seen;                 /* requests for runs of them, modulo 2^32; when upkeep looked last */
};

struct hak_heap;

/* A run of slabs of a SuperSlab assigned to the heap, or HAK_NO_RUN. */
size_t hak__assigned_take(struct hak_heap *heap, unsigned count, bool *fresh);

/* Assigns the SuperSlab in which the slab lies to the heap, unless another has it, or the heap has little in large blocks. */
void hak__assigned_add(struct hak_heap *heap, size_t slab);

/* Notes that the SuperSlab of this slab, which is assigned to the heap, has emptied. */
void hak__assigned_emptied(struct hak_heap *heap, size_t slab);

void hak__assigned_let_go(struct hak_heap *heap);

/* Gives an allocated block of this heap at least the size of another large class in place: takes free slabs behind it, or releases
 * slabs. Its class is then that one, or if it has grown the largest that fits the slabs it has. False: unchanged, because the slabs behind are taken, or other
 * blocks share the span. */
bool hak__large_resize_owner(struct hak_heap *heap, void *block, uint32_t class);
