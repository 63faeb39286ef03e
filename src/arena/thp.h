/* Huge pages of the kernel (HAKMEM_THP). Called by arena.c for what it maps, by shared/ and upkeep/ before they purge a
 * part of a SuperSlab, by prefault.c, and by upkeep/ to collapse.
 *
 *   auto     where the kernel's own setting is `always`, new memory is marked so that no page is huge by fault; SuperSlabs that a
 *            growing, dense heap opens are made huge pages at once (prefault.h), those that have long been full are collapsed
 *            by the background thread (upkeep/collapse.h)
 *   always   all memory for blocks is marked as wanting huge pages
 *   never    as auto, without either */
#pragma once

#include "arena/arena.h"

/* Reads the system's setting, a file, so that nobody needs to read it later. */
hak_noinline void hak__thp_look(void);

/* Marks memory that was just mapped as the option wants it. */
hak_noinline void hak__thp_mapped(uintptr_t start, size_t bytes);

/* Whether a part of a SuperSlab in slabs must not be purged: it is, or may be, one huge page, and more than half of its
 * slabs are in use. Otherwise it counts as split from now on. */
hak_cold bool hak__thp_must_stay(size_t super);

/* Whether nearly all pages of a SuperSlab that is wholly mapped are resident. */
hak_noinline bool hak__thp_is_dense(size_t super);

/* Makes a SuperSlab that is wholly mapped one huge page. False: the system refused. */
hak_cold bool hak__thp_collapse(size_t super);

/* Whether the option and the system allow that at all. */
hak_cold bool hak__thp_may_collapse(void);

/* Makes a SuperSlab of which nobody has touched a page resident as one huge page (prefault.h); false: the kernel had none. */
hak_noinline bool hak__thp_prefault(size_t super);
hak_noinline bool hak__thp_may_prefault(void);

extern struct hak_thp_counts {
    hak_line_aligned _Atomic uint64_t collapsed, prefaulted;
    _Atomic uint64_t refused, split;
} hak__thp_counts;
