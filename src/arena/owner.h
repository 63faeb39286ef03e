/* The owner map: one entry per 64 KiB slab of the window. Its word says whose the slab is and of which class, the rest
 * at which addresses blocks begin that have been handed out (slab/freed.h).
 * Read by every free; written by whoever creates or destroys a span (the owner) and by huge/.
 *
 *   word = heap id << HAK_CLASS_OFFSET_BITS | code      code = class * HAK_BIN_SIZE, HAK_CLASS_OFFSET_INNER or HAK_CLASS_OFFSET_HUGE
 *   ... | HAK_CLASS_OFFSET_OWN                  the heap is a share of one that the program has made (own/own.h)
 *   word == 0                                   nothing of ours begins in this slab
 *   word ^ heap.tag < HAK_CLASS_OFFSET_LIMIT            the slab is this heap's and the result is the bin's offset
 *
 * All accesses are relaxed: a thread frees a block that it was handed, and that hand-over (the program's own
 * synchronisation) orders the map's word before the free. */
#ifndef HAK_ARENA_OWNER_H
#define HAK_ARENA_OWNER_H

#include "base/atomic.h"
#include "base/limits.h"

struct hak_slab {
    _Atomic uint32_t owner;
#if HAK_PROTECT
    uint32_t start_bound;
    uint64_t phase;
#endif
};

/* What the fast path of free reads; written when the window grows. */
struct hak_window {
    uintptr_t base;                     /* first address of user data, SuperSlab-aligned */
    struct hak_slab *map;               /* by slab */
    size_t slabs;                       /* high-water mark: slabs that have a mapped entry; atomic stores only */
    size_t sized_slabs;                 /* the same for sized frees; 0 where those are held to the byte (slab/hardened.h) */
    bool exact_sizes;
};
extern struct hak_window hak__window;

hak_inline uint32_t hak__owner_word(uint32_t heap_id, uint32_t code) { return heap_id << HAK_CLASS_OFFSET_BITS | code; }
hak_inline uint32_t hak__owner_id(uint32_t word) { return word >> HAK_CLASS_OFFSET_BITS; }
hak_inline uint32_t hak__owner_class_offset(uint32_t word) { return word & (HAK_CLASS_OFFSET_OWN - 1); }
hak_inline bool hak__owner_is_own(uint32_t word) { return (word & HAK_CLASS_OFFSET_OWN) != 0; }

/* The slab of an address; meaningless (but harmless to compare) for addresses outside the window. */
hak_inline size_t hak__slab_of(const void *p) { return ((uintptr_t)p - hak__window.base) >> HAK_SLAB_SHIFT; }

hak_inline char *hak__slab_start(size_t slab) { return (char *)(hak__window.base + (slab << HAK_SLAB_SHIFT)); }

/* The word of a slab below the high-water mark. */
hak_inline uint32_t hak__owner_at(size_t slab)
{
    return hak_load(&hak__window.map[slab].owner, HAK_RELAXED);
}

/* The word for any address at all: 0 for those that are not ours. */
hak_inline uint32_t hak__owner_of(const void *p)
{
    size_t slab = hak__slab_of(p);
    if (slab >= hak_read_mostly(&hak__window.slabs))
        return 0;
    return hak__owner_at(slab);
}

hak_inline void hak__owner_set(size_t slab, uint32_t word)
{
    hak_store(&hak__window.map[slab].owner, word, HAK_RELAXED);
}

#endif
