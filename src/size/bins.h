/* The table by which malloc's fast path finds a request's bin: that of size.h, but for the time of a profile, when all of them meet
 * a bin that is always empty (profile/switch.c). It lies where the loader writes once and then forbids
 * writing, so it costs no page of its own; a change has to allow writing first. */
#pragma once

#include "base/assert.h"
#include "base/atomic.h"
#include "size/size.h"

enum { HAK_TINY_BINS = HAK_TINY_MAX / HAK_ALIGN + 1, HAK_MID_BINS = HAK_MID_MAX / HAK_TABLE_STEP + 1,
       HAK_BINS_FOUND = HAK_TINY_BINS + HAK_MID_BINS };

struct hak_bins {
    uint16_t tiny[HAK_TINY_BINS], mid[HAK_MID_BINS];
};
extern struct hak_bins hak__bins;

/* The bin of the last large class is closed for good: a pop finds it empty. A profile lets all requests of the table meet
 * it. */
enum { HAK_EMPTY_BIN = (HAK_CLASSES - 1) * HAK_BIN_SIZE };

hak_inline struct hak_class_offset hak__bin_of_tiny(size_t n)
{
    return (struct hak_class_offset){ hak_read_mostly(&hak__bins.tiny[(n + HAK_ALIGN - 1) / HAK_ALIGN]) };
}
hak_inline struct hak_class_offset hak__bin_of_mid(size_t n)   /* up to HAK_MID_MAX */
{
    hak_assert(n <= HAK_MID_MAX, "the table of bins ends at the mid pool");
    return (struct hak_class_offset){ hak_read_mostly(&hak__bins.mid[(n + HAK_TABLE_STEP - 1) / HAK_TABLE_STEP]) };
}
