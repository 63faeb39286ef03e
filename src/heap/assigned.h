/* The SuperSlabs assigned to a heap with many large blocks (assigned.c says why). Called by sources.c and by
 * whoever has the heap let go of them, with the heap entered. */
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
