/* Size classes: maps a request to a class and a class to its block. The list is generated (classes.def). Called by every path;
 * pure, no state.
 *
 * Invariants, checked by the unit test for every request up to HAK_LARGE_MAX:
 *   1. hak__class_of(n) is the smallest class with size >= n
 *   2. hak__place_is_block is true just for the offsets i * size, 0 <= i < blocks, and gives that i */
#pragma once

#include "base/assert.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "base/limits.h"

#define X(index, size, slabs, blocks, reciprocal, batch)
#include "size/classes.def"
#undef X

struct hak_class {
    uint64_t reciprocal; /* the first number above 2^64 / size */
    uint32_t size; /* bytes of a block */
    uint16_t blocks; /* blocks in a span */
    uint8_t slabs; /* slabs in a span */
    uint8_t batch; /* blocks moved by one refill, before HAKMEM_REFILL_COUNT */
};

extern const struct hak_class hak__classes[HAK_CLASSES];
extern __attribute__((visibility("default"))) const struct hak_class hak__class_rows[HAK_CLASSES]; /* the same for libhakmem-region */

/* A class as the owner map and the request tables store it: as the byte offset of its bin, which is also that of its row in
 * hak__classes, so the fast paths need no shift. Everywhere else a class is its index, a plain number. */
struct hak_class_offset {
    size_t bytes;
};
hak_inline struct hak_class_offset hak__offset_of_class(uint32_t class)
{
    return (struct hak_class_offset){ class * HAK_BIN_SIZE };
}
hak_inline uint32_t hak__class_of_offset(struct hak_class_offset offset) { return (uint32_t)(offset.bytes / HAK_BIN_SIZE); }
hak_inline const struct hak_class *hak__class_at_offset(struct hak_class_offset offset)
{
    hak_assert(offset.bytes % HAK_BIN_SIZE == 0, "an offset is one of a bin");
    return (const struct hak_class *)((const char *)hak__classes + offset.bytes);
}
_Static_assert(sizeof(struct hak_class) == HAK_BIN_SIZE, "a bin's offset is its class's too");

/* From a request to its class's offset: in units of 16 bytes for tiny requests, of 128 bytes up to the mid pool's end, where every
 * class is a multiple of 128. */
#define HAK_TABLE_STEP 128u
extern const uint16_t hak__tiny_class_offset[HAK_TINY_MAX / HAK_ALIGN + 1];
extern const uint16_t hak__mid_class_offset[HAK_MID_MAX / HAK_TABLE_STEP + 1];

_Static_assert(HAK_CLASSES <= HAK_CLASS_LIMIT, "more classes than bins: take one out in tools/gen_classes.py");
_Static_assert(sizeof(struct hak_class) == 16, "four classes in a cache line");

enum { HAK_LARGE_CLASSES = HAK_CLASSES - HAK_CLASS_FIRST_LARGE };

hak_inline struct hak_class_offset hak__offset_of_tiny(size_t n)
{
    hak_assert(n <= HAK_TINY_MAX, "the table of tiny requests ends");
    return (struct hak_class_offset){ hak__tiny_class_offset[(n + HAK_ALIGN - 1) / HAK_ALIGN] };
}
hak_inline struct hak_class_offset hak__offset_of_mid(size_t n) /* up to HAK_MID_MAX */
{
    hak_assert(n <= HAK_MID_MAX, "the table of requests ends at the mid pool");
    return (struct hak_class_offset){ hak__mid_class_offset[(n + HAK_TABLE_STEP - 1) / HAK_TABLE_STEP] };
}

/* Above the table each doubling has four classes; the first of them is the last one below 64 KiB. */
hak_inline struct hak_class_offset hak__offset_of_large(size_t n)
{
    hak_assert(n > HAK_MID_MAX && n <= HAK_LARGE_MAX, "larger requests have no class");
    size_t last = n - 1;
    size_t msb = hak_msb64(last);
    return hak__offset_of_class((uint32_t)((msb - 16) * 4 + (last >> (msb - 2)) - 4 + HAK_CLASS_FIRST_LARGE + 1));
}

/* For requests from 1025 bytes up to HAK_LARGE_MAX. */
hak_inline struct hak_class_offset hak__offset_above_tiny(size_t n)
{
    return hak_likely(n <= HAK_MID_MAX) ? hak__offset_of_mid(n) : hak__offset_of_large(n);
}

hak_inline uint32_t hak__class_above_tiny(size_t n) { return hak__class_of_offset(hak__offset_above_tiny(n)); }

/* The class of a request, n <= HAK_LARGE_MAX. */
hak_inline uint32_t hak__class_of(size_t n)
{
    return hak__class_of_offset(hak_likely(n <= HAK_TINY_MAX) ? hak__offset_of_tiny(n) : hak__offset_above_tiny(n));
}

hak_inline bool hak__is_large(uint32_t class) { return class >= HAK_CLASS_FIRST_LARGE; }

/* The smallest class for n bytes whose blocks all lie at multiples of `align`, a power of two; HAK_CLASSES: there is none. */
hak_for_region uint32_t hak__aligned_class(size_t align, size_t n);

/* An offset from a span's start in units of blocks, by one multiplication with the class's reciprocal. The product is a fixed-point
 * number: above the point is offset / size; the fraction below it is less than the reciprocal only for whole multiples of the size:
 * for i * size it is i * excess, where excess = reciprocal * size - 2^64 lies between 1 and size. The generator has checked both
 * for every offset inside a span; for any other offset, however wild, the index is beyond every span's last block. */
struct hak_place {
    uint64_t index;
    uint64_t fraction;
};

hak_inline struct hak_place hak__place_of(uint64_t reciprocal, size_t offset)
{
    unsigned __int128 product = (unsigned __int128)offset * reciprocal;
    return (struct hak_place){ (uint64_t)(product >> 64), (uint64_t)product };
}

/* What free asks in fewer instructions: where blocks begin, not which they are. Modulo 2^32, offset * multiplier is i * step for the
 * start of block i, and at least blocks * step for any other offset in a span: the generator has checked each. Blocks of the large
 * pool begin in different slabs; there the product tells those inside one slab (span/span.c, hak__span_map_places). */
struct hak_class_place {
    uint32_t multiplier;
    uint32_t step;
};
extern const struct hak_class_place hak__class_places[HAK_CLASSES];

/* Whether the place is the start of one of the first `blocks` blocks. */
hak_inline bool hak__place_is_block(struct hak_place place, uint64_t reciprocal, uint64_t blocks)
{
    return place.index < blocks && place.fraction < reciprocal;
}

/* The slabs of a span that holds a single block of a class of the large pool. */
hak_inline uint32_t hak__class_single_slabs(uint32_t class_index)
{
    return (uint32_t)hak_div_up(hak__classes[class_index].size, HAK_SLAB_SIZE);
}

/* The slabs of a class's shortest span: it has one block of a large class, or two of any other, or all blocks of a full span if
 * those are fewer. */
hak_inline uint32_t hak__class_short_slabs(uint32_t class_index)
{
    const struct hak_class *class = &hak__classes[class_index];
    if (class_index >= HAK_CLASS_FIRST_LARGE)
        return hak__class_single_slabs(class_index);
    return (uint32_t)hak_min(hak_div_up(2 * class->size, HAK_SLAB_SIZE), class->slabs);
}

/* The band C0..C7 of a tiny class: <= 8, 16, 32, 64, 128, 256, 512, 1024 B. */
hak_inline uint32_t hak__band_of(uint32_t class_index) { return hak_msb64(hak__classes[class_index].size - 1) - 2; }

/* --- the table by which malloc's fast path finds a request's bin -------------------------------------------------------- */

/* The table above, except while a profile redirects its classes to a bin that is always empty (profile/switch.c). The loader writes
 * it once and then write-protects it, so it takes no page of its own; a change first has to allow writing. */

enum {
    HAK_TINY_BINS = HAK_TINY_MAX / HAK_ALIGN + 1,
    HAK_MID_BINS = HAK_MID_MAX / HAK_TABLE_STEP + 1,
    HAK_BINS_FOUND = HAK_TINY_BINS + HAK_MID_BINS
};

struct hak_bins {
    uint16_t tiny[HAK_TINY_BINS], mid[HAK_MID_BINS];
};
extern struct hak_bins hak__bins;

/* The bin of the last large class is closed for good: a pop finds it empty. A profile redirects all requests of the table to it. */
enum { HAK_EMPTY_BIN = (HAK_CLASSES - 1) * HAK_BIN_SIZE };

hak_inline struct hak_class_offset hak__bin_of_tiny(size_t n)
{
    hak_assert(n <= HAK_TINY_MAX, "the table of bins ends at the tiny pool");
    return (struct hak_class_offset){ hak_read_mostly(&hak__bins.tiny[(n + HAK_ALIGN - 1) / HAK_ALIGN]) };
}
hak_inline struct hak_class_offset hak__bin_of_mid(size_t n) /* up to HAK_MID_MAX */
{
    hak_assert(n <= HAK_MID_MAX, "the table of bins ends at the mid pool");
    return (struct hak_class_offset){ hak_read_mostly(&hak__bins.mid[(n + HAK_TABLE_STEP - 1) / HAK_TABLE_STEP]) };
}
