/* The huge pool (> 1 MiB, or aligned to more than a slab): runs of SuperSlabs of which just the pages of the block are
 * mapped. Free runs stay dirty in the arena for a while, where any request finds them. Called by malloc_slow.c and kinds/. */
#pragma once

#include "heap/heap.h"

struct hak_huge_figures {
    uint64_t live, live_bytes, allocated, freed, grown_in_place, moved;
};

/* The counters behind them, but for the pairs that no lock has seen, which the heaps count; stats/live.c says where they lie. */
struct hak_huge_counts {
    hak_line_aligned _Atomic uint64_t allocated;
    _Atomic uint64_t freed, live_bytes, grown_in_place, moved;
};
extern struct hak_huge_counts hak__huge_counts;

/* A block of at least n bytes at a multiple of `align` (a power of two). *zero: its bytes are known to be 0; where only a part of
 * the run was used before, that part has been cleared. With NULL the content does not matter, and unused pages from elsewhere may
 * be moved there. */
void *hak__huge_alloc(size_t n, size_t align, bool *zero);

/* Frees the block that begins at p; aborts when there is none. */
void hak__huge_free(void *p, const char *function);

/* The same two for the calling thread's heap, or its sentinel, by way of the runs that wait for it (arena/recycled.h): a block of just
 * n bytes in whole pages, not known to be zero; a free whose owner word was that of a huge block. NULL, false: there is more to do. */
void *hak__huge_alloc_quickly(struct hak_heap *heap, size_t n);
bool hak__huge_free_quickly(struct hak_heap *heap, void *p);

/* The bytes usable at p, which begins a huge block; 0 when it does not. */
size_t hak__huge_usable(const void *p);

/* Notes that the block that begins at p has no seal for now (span/hardened.h). */
void hak__huge_unsealed(const void *p, bool whole);
enum { HAK_HUGE_UNSEALED = 1, HAK_HUGE_WHOLE = 2 }; /* the map's start bound of a block without a seal: its pages are the request */

/* Changes the size of a block without copying, in place or by moving its pages. NULL: unchanged. */
void *hak__huge_resize(void *p, size_t n);

void hak__huge_figures(struct hak_huge_figures *out);
