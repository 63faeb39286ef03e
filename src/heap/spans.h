/* The spans of a heap: how they begin and end, the list of those with blocks to give, and the warm pool of those known to be good
 * for the next refill. For heap/, and for userheap/ and upkeep/, which end spans; always under the heap lock.
 *
 * For each class the warm pool has up to HAK_WARM_MAX listed spans; the newest serves a miss of the cache without a search. A span
 * is good while it can give `warm_need` blocks (computed in spans.c). Spans enter the pool
 *   - by prefill, when a refill finds the pool empty: listed spans with that many freed blocks, up to the budget;
 *   - when no listed span has that many: the last span of the search, if the blocks beyond its frontier make it good, as
 *     in a new span;
 *   - when a drain or a collection has given a span blocks back, and it now has that many freed ones.
 * A span leaves when it is no longer good, or unlisted. No span is made for the pool: it has only spans that exist anyway.
 *
 * Invariants (hak__warm_is_valid), for every class of a heap:
 *   1. warm_count <= HAK_WARM_MAX;  hak__warm_member(i)->warm == i + 1;  all other spans have warm == 0
 *   2. members are listed, of the class, and good */
#pragma once

#include "heap/heap.h"

/* Starts the layer once the arena runs. */
void hak__heap_init(void);

/* --- begin and end ------------------------------------------------------------------------------------------------------ */

/* Counts slabs that are to become a span, or no longer are one, against the limit of a share's heap (state.h). */
bool hak__span_admit(struct hak_heap *heap, unsigned slabs);
void hak__span_discount(struct hak_heap *heap, unsigned slabs);

/* Makes a span of admitted slabs, and lists it unless it is for a single block. NULL: the system refuses, and the slabs have been
 * given back. */
struct hak_span *hak__heap_begin_span(struct hak_heap *heap, uint32_t class, size_t slab, unsigned slabs, bool fresh);
struct hak_span *hak__heap_begin_single(struct hak_heap *heap, uint32_t class, size_t slab, unsigned slabs, bool fresh);

/* Ends a wholly free span, but leaves its slabs to the caller. */
void hak__heap_dissolve_span(struct hak_heap *heap, struct hak_span *span);

/* Takes over a span of another heap, whose lock the caller holds too. */
void hak__heap_adopt_span(struct hak_heap *heap, struct hak_heap *former, struct hak_span *span);

/* Ends a wholly free span, and gives its slabs to the pool. */
void hak__heap_end_span(struct hak_heap *heap, struct hak_span *span);

/* Ends a listed span without allocated blocks, even the last of its class. Its slabs have been idle for as long as their SuperSlab
 * has. */
hak_cold void hak__heap_end_idle(struct hak_heap *heap, struct hak_span *span);

/* For want of memory: ends the empty spans of other classes, and makes the rest give up memory ahead of need. HAK_CLASSES: of all
 * classes. */
hak_cold void hak__heap_spare(struct hak_heap *heap, uint32_t class);

/* --- new spans (take.c) --------------------------------------------------------------------------------------------------- */

/* A new span of the class with blocks to give, for a heap that has none listed; NULL if the system refuses. */
struct hak_span *hak__heap_new_span(struct hak_heap *heap, uint32_t class);

/* --- the list and the warm pool ----------------------------------------------------------------------------------------- */

/* Adds a span to the list of those with blocks to give, or removes it. */
void hak__heap_list(struct hak_heap *heap, struct hak_span *span);
void hak__heap_unlist(struct hak_heap *heap, struct hak_span *span);

/* All spans of a class leave the list and the warm pool. */
void hak__heap_unlist_all(struct hak_heap *heap, uint32_t class);

hak_inline struct hak_span *hak__warm_member(struct hak_heap *heap, uint32_t class, uint32_t place)
{
    return &hak__spans[heap->classes[class].warm[place]];
}

hak_inline struct hak_span *hak__warm_newest(struct hak_heap *heap, uint32_t class)
{
    return hak__warm_member(heap, class, heap->classes[class].warm_count - 1u);
}

hak_inline bool hak__warm_good(const struct hak_span *span, uint32_t need)
{
    return span->free_count + (uint32_t)(span->blocks - span->frontier) >= need;
}

void hak__warm_join(struct hak_heap *heap, struct hak_span *span);
void hak__warm_leave(struct hak_heap *heap, struct hak_span *span);

/* After a listed span has got blocks back. */
hak_inline void hak__warm_regained(struct hak_heap *heap, struct hak_span *span)
{
    const struct hak_heap_class *class = &heap->classes[span->class];
    bool enough = span->free_count > class->warm_need - 1u; /* never, if there is no pool */
    if (span->warm == 0 && enough && class->warm_count < HAK_WARM_MAX)
        hak__warm_join(heap, span);
}

/* After a span has lost blocks; it is unlisted if these were its last ones. */
hak_inline void hak__warm_lost(struct hak_heap *heap, struct hak_span *span)
{
    if (hak_unlikely(!hak__span_has_blocks(span)))
        hak__heap_unlist(heap, span);
    else if (span->warm != 0 && !hak__warm_good(span, heap->classes[span->class].warm_need))
        hak__warm_leave(heap, span);
}

/* After a refill has found the pool empty: updates the class's hit rate and its budget. */
void hak__warm_missed(struct hak_heap *heap, uint32_t class);

/* Called next: puts listed spans with enough freed blocks into the pool; returns whether it has any now. */
bool hak__warm_prefill(struct hak_heap *heap, uint32_t class);

/* Called after the search: the span that ended it joins the pool if it is good for the next refill. */
void hak__warm_keep(struct hak_heap *heap, struct hak_span *span);

hak_cold bool hak__warm_is_valid(struct hak_heap *heap, uint32_t class);

hak_cold bool hak__heap_is_valid(struct hak_heap *heap);
