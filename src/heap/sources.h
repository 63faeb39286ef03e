/* Where new spans come from, and how a span begins and ends. Called by heap.c and upkeep/, under the heap lock. */
#pragma once

#include "span/span.h"

enum { HAK_BITMAP_UNIT = 128, HAK_BITMAP_SIZES = 8 };

/* Where slabs for a new span are looked for, cheapest first (sources.c). */
enum hak_stage {
    HAK_STAGE_OWN_HINT, HAK_STAGE_OWN_EMPTY, HAK_STAGE_ADOPTED, HAK_STAGE_CLAIMED, HAK_STAGE_LOCKED, HAK_STAGES
};

/* A heap's memory of its sources. */
struct hak_sources {
    void *bitmaps[HAK_BITMAP_SIZES];    /* given back, by size */
    uint64_t idle_classes;              /* bit c: the only listed span of class c may be empty */
    size_t home;                        /* the single slab that was taken last, plus one; 0: none yet */
    uint32_t swept;                     /* the heap that was looked at last, by id (hak__heaps_sweep) */
    uint32_t clean_slabs;               /* claimed since memory was trimmed, that were not resident */
    bool no_new_span;                   /* no SuperSlab is to be opened now */
};

struct hak_heap;

/* A span of the class with blocks to give, for a heap that has none listed; NULL when the system refuses. */
struct hak_span *hak__heap_new_span(struct hak_heap *heap, uint32_t class);

/* A block of a class of single-block spans, which are never listed; NULL when the system refuses. */
void *hak__heap_take_single(struct hak_heap *heap, uint32_t class);

/* Adopts the spans of a class that have free blocks from parked heaps; returns whether there were any. */
bool hak__heap_adopt(struct hak_heap *heap, uint32_t class);

/* Ends a span that is wholly free, and gives its slabs to the pool. */
void hak__heap_end_span(struct hak_heap *heap, struct hak_span *span);

/* Ends a listed span without allocated blocks, whether or not it is the last of its class; its slabs count as idle for as long as their
 * SuperSlab has been. */
hak_cold void hak__heap_end_idle(struct hak_heap *heap, struct hak_span *span);

/* Bitmaps of a span that has ended, for the next one. */
void hak__bitmaps_give(struct hak_heap *heap, void *memory, size_t bytes);

/* Leaves all that a heap has for others, before it is given back. */
void hak__bitmaps_leave(struct hak_heap *heap);

/* For want of memory: ends the empty spans of other classes, and has the rest give up what they have ahead of need. HAK_CLASSES:
 * of all. */
hak_cold void hak__heap_spare(struct hak_heap *heap, uint32_t class);

/* A span of large blocks in a run of a SuperSlab assigned to the heap: listed unless it is for one block; or NULL. */
struct hak_span *hak__heap_assigned_span(struct hak_heap *heap, uint32_t class);
