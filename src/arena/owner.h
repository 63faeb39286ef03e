/* The owner map: one entry per 64 KiB slab of the window. Its word names the slab's heap and class; the other fields tell where
 * handed-out blocks begin (span/span.h). Every free reads it; the owner and huge/ write it when a span or block begins or ends.
 *
 *   word = generation, heap id << HAK_CLASS_OFFSET_BITS | a class offset (size/size.h), HAK_CLASS_OFFSET_INNER or ..._HUGE
 *   ... | HAK_CLASS_OFFSET_OWN                  the heap is a share of a user heap (userheap/userheap.h)
 *   word == 0                                   nothing of ours begins in this slab
 *   word ^ heap.tag < HAK_CLASS_OFFSET_LIMIT            the slab is this heap's and the result is the bin's offset
 *
 * The generation counts the forks that lead to this process. A heap's tag has the present one; a span keeps the one in which it began, so
 * in a forked child the spans that the fork has copied are no heap's own to the fast path of free: they are *inherited*
 * (docs/decisions/0094). Words of user heaps have generation 0.
 *
 * All accesses are relaxed: a thread frees a block that it was handed, and that hand-over (the program's own
 * synchronisation) orders the map's word before the free. */
#pragma once

#include "base/assert.h"
#include "base/atomic.h"
#include "base/limits.h"
#include "base/lock.h"
#include "size/size.h"

struct hak_slab {
    _Atomic uint32_t owner;
#if HAK_PROTECT
    uint32_t start_bound;
    uint32_t phase;
    uint32_t multiplier;
#endif
};

/* Read by the fast path of free, written when the window grows. */
struct hak_window {
    uintptr_t base; /* first address of user data, SuperSlab-aligned */
    struct hak_slab *map; /* indexed by slab */
    size_t slabs; /* high-water mark: slabs that have a mapped entry; atomic stores only */
    size_t sized_slabs; /* the same for sized frees; 0 if sizes are checked to the byte (harden/mode.h) */
    bool exact_sizes;
    uint32_t generation; /* this process's, in its place in a word */
};
extern struct hak_window hak__window;

/* Shows the bounds to free's fast path, after a change and in a child, in which they have been wiped. */
hak_inline void hak__window_show(void)
{
    hak_owner_store(&hak__wiped.slabs, hak__window.slabs);
    hak_owner_store(&hak__wiped.sized_slabs, hak__window.sized_slabs);
}

/* Words and their parts; no other file shifts or masks one. A word ^ a heap's tag keeps the class offset of the word. */
hak_inline uint32_t hak__owner_aged(uint32_t generation, uint32_t heap_id, uint32_t class)
{
    hak_assert(class < HAK_CLASS_LIMIT && heap_id < HAK_HEAPS_MAX, "a class and a heap's id have room in a word");
    return generation | heap_id << HAK_CLASS_OFFSET_BITS | class * HAK_BIN_SIZE;
}
hak_inline uint32_t hak__owner_word(uint32_t heap_id, uint32_t class)
{
    return hak__owner_aged(hak_read_mostly(&hak__window.generation), heap_id, class);
}
hak_inline uint32_t hak__owner_inner(uint32_t heap_id) { return heap_id << HAK_CLASS_OFFSET_BITS | HAK_CLASS_OFFSET_INNER; }
hak_inline uint32_t hak__owner_huge(void) { return HAK_HEAP_ID_HUGE << HAK_CLASS_OFFSET_BITS | HAK_CLASS_OFFSET_HUGE; }
hak_inline uint32_t hak__owner_id(uint32_t word) { return word >> HAK_CLASS_OFFSET_BITS & (HAK_HEAPS_MAX - 1); }
hak_inline uint32_t hak__owner_generation(uint32_t word) { return word >> HAK_GENERATION_SHIFT << HAK_GENERATION_SHIFT; }
hak_inline bool hak__owner_is_own(uint32_t word) { return (word & HAK_CLASS_OFFSET_OWN) != 0; }
hak_inline struct hak_class_offset hak__owner_offset(uint32_t word)
{
    return (struct hak_class_offset){ word & (HAK_CLASS_OFFSET_OWN - 1) };
}
hak_inline bool hak__owner_has_class(uint32_t word) { return hak__owner_offset(word).bytes < HAK_CLASS_OFFSET_LIMIT; }

/* Whether the word, which names a span, is that of a thread's span that a fork has copied and that has given no block since. */
hak_inline bool hak__owner_is_inherited(uint32_t word)
{
    return hak__owner_generation(word) != hak_read_mostly(&hak__window.generation) && !hak__owner_is_own(word);
}
hak_inline bool hak__owner_is_inner(uint32_t word) { return hak__owner_offset(word).bytes == HAK_CLASS_OFFSET_INNER; }

/* The class of a word that has one; for other words a number of HAK_CLASSES or more. */
hak_inline uint32_t hak__owner_class(uint32_t word) { return hak__class_of_offset(hak__owner_offset(word)); }
hak_inline const struct hak_class *hak__owner_sizes(uint32_t word) { return hak__class_at_offset(hak__owner_offset(word)); }

/* The slab of an address; meaningless, but harmless to compare, for addresses outside the window. */
hak_inline size_t hak__slab_of(const void *p) { return ((uintptr_t)p - hak__window.base) >> HAK_SLAB_SHIFT; }

hak_inline char *hak__slab_start(size_t slab) { return (char *)(hak__window.base + (slab << HAK_SLAB_SHIFT)); }

/* The word of a slab below the high-water mark. */
hak_inline uint32_t hak__owner_at(size_t slab)
{
    hak_assert(slab < hak_read_mostly(&hak__window.slabs), "the map ends at the high-water mark");
    return hak_load(&hak__window.map[slab].owner, HAK_RELAXED);
}

/* The word for any address at all; 0 if the address is not ours. */
hak_inline uint32_t hak__owner_of(const void *p)
{
    size_t slab = hak__slab_of(p);
    if (slab >= hak_read_mostly(&hak__window.slabs))
        return 0;
    return hak__owner_at(slab);
}

hak_inline void hak__owner_set(size_t slab, uint32_t word)
{
    hak_assert(slab < hak_read_mostly(&hak__window.slabs), "the map ends at the high-water mark");
    hak_store(&hak__window.map[slab].owner, word, HAK_RELAXED);
}
