/* Large blocks (L2.5, 56 KiB to 1 MiB) in a heap, which takes and gives them like all others. Special are the SuperSlabs assigned
 * to a heap that has many, and that blocks which are alone in their span, as all are whose size is a whole number of slabs, can
 * change size where they stand. Called by sources.c, realloc.c, and by whoever has the heap let go of its SuperSlabs; always with
 * the heap entered. */
#pragma once

#include "slab/span.h"

enum { HAK_ASSIGNED_MAX = 16, HAK_ASSIGNED_SPARES = 1 };

struct hak_assigned {
    uint32_t supers[HAK_ASSIGNED_MAX], count;   /* in the order in which they serve */
    uint32_t spare[HAK_ASSIGNED_SPARES];        /* that emptied lately; any numbers before */
    uint32_t moves, moves_seen;                 /* requests for runs of them, modulo 2^32; when upkeep looked last */
};

struct hak_heap;

/* A run of slabs of a SuperSlab assigned to the heap, or HAK_NO_RUN. */
size_t hak__assigned_take(struct hak_heap *heap, unsigned count, bool *fresh);

/* Assigns the SuperSlab in which the slab lies to the heap, unless another has it, or the heap has little in large blocks. */
void hak__assigned_add(struct hak_heap *heap, size_t slab);

/* The SuperSlab of this slab, which is assigned to the heap, has emptied. */
void hak__assigned_emptied(struct hak_heap *heap, size_t slab);

void hak__assigned_let_go(struct hak_heap *heap);

/* Gives the block, which is outside, at least the size of another large class without moving it: into free slabs behind
 * it, or by letting slabs go. Its class is then the largest that needs no more slabs, since they are its own. Only for a
 * block of this heap. False: unchanged, because what is behind is taken, or other blocks share the span. */
bool hak__large_resize_owner(struct hak_heap *heap, void *block, uint32_t class);
