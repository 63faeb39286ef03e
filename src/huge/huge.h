/* Huge blocks (> 1 MiB, or aligned to more than a slab): runs of SuperSlabs that map only the block's pages. Free runs stay
 * dirty in the arena for a while, open to every request. Called by malloc.c and kinds/. */
#pragma once

#include "heap/heap.h"

/* The counters behind the statistics, without the pairs that no lock has seen: the heaps count those. stats/live.c says where
 * they lie. */
struct hak_huge_counts {
    hak_line_aligned _Atomic uint64_t allocated;
    _Atomic uint64_t freed, live_bytes, grown_in_place, moved;
};
extern struct hak_huge_counts hak__huge_counts;

/* A block of at least n bytes at a multiple of `align` (a power of two). *zero: all its bytes are 0; a run used only in part
 * before has had that part cleared. With NULL the content does not matter, and unused pages from elsewhere may be moved there. */
void *hak__huge_alloc(size_t n, size_t align, bool *zero);

/* Frees the block that begins at p; aborts if there is none. */
void hak__huge_free(void *p, const char *function);

/* Both for the calling thread's heap, or its sentinel, through its waiting runs (arena/retained.h): a block of exactly n bytes
 * in whole pages, not known to be zero; a free of a block with the huge owner word. NULL, false: use the slow path. */
void *hak__huge_alloc_quickly(struct hak_heap *heap, size_t n);
bool hak__huge_free_quickly(struct hak_heap *heap, void *p);

/* The usable bytes of the huge block that begins at p; 0 if none does. */
size_t hak__huge_usable(const void *p);

/* Notes that the block that begins at p has no seal for now (harden/mode.h). */
void hak__huge_unsealed(const void *p, bool whole);
enum { HAK_HUGE_UNSEALED = 1, HAK_HUGE_WHOLE = 2 }; /* the map's start bound of an unsealed block: its pages are the request */

/* Resizes a block without copying, in place or by moving its pages. NULL: unchanged. */
void *hak__huge_resize(void *p, size_t n);
