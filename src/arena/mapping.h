/* Mapping, unmapping and purging memory in runs of SuperSlabs, and the kernel's huge pages for it. */
#pragma once

#include "arena/arena.h"
#include "arena/returned.h"

/* Returns the pages of a range in one SuperSlab in slabs, which only the caller uses; it then reads as zeros. Counts it as of `kind`.
 * False: the system refused, or under HAKMEM_UNMAP too much would be mapped without being resident. */
bool hak__arena_purge_range(void *start, size_t bytes, enum hak_unused kind);

/* Makes whole pages of the caller's run fault when touched, or new again (HAK_OS_GUARD, HAK_OS_UNGUARD); or forbids and allows
 * access, which keeps their content. 0 or an errno code: EINVAL if the kernel has no guards. */
int hak__arena_advise(void *start, size_t bytes, enum hak_os_advice advice);

/* --- for the arena, under its lock ------------------------------------------------------------------------------------ */

/* Maps the gaps of a run in open parts, one call each. 0, or an errno code with the SuperSlab that failed in *at; memory mapped
 * before it stays mapped and is accounted for. */
int hak__run_map(size_t first, size_t count, size_t bytes, size_t *at);

/* Called after the kernel has refused to move a mapping over `place`. Kernels before 6.17 have unmapped `place` by then, so this
 * maps it again. False: that was refused too. */
bool hak__place_stays(uintptr_t place, size_t bytes);

/* Unmaps a taken run beyond its first `bytes` bytes; false if the system refuses. */
bool hak__run_trim(size_t first, size_t count, size_t bytes);

void hak__super_set_purged(size_t super, uint32_t bytes); /* hak_super.purged_mapped */

/* --- huge pages ------------------------------------------------------------------------------------------------------- */

/* HAKMEM_THP. Called for new memory, by span/ and upkeep/ before they purge a part of a SuperSlab, by span/ when it opens one, and
 * by upkeep/ to collapse. None of these takes a lock.
 *
 *   auto     where the kernel's own setting is `always` or not known yet, new memory is marked so that no page is huge by
 *            fault; SuperSlabs opened by a growing, dense heap are prefaulted, those that have long been full are collapsed by
 *            the background thread (upkeep/upkeep.h)
 *   always   all memory for blocks is marked as wanting huge pages
 *   never    as auto, without either
 *
 * Prefaulting: a SuperSlab is resident as one huge page from the moment it is opened, so that a growing heap takes one page fault
 * instead of 512 (docs/decisions/0081). Only where that costs next to no memory: the heap is not small, and the SuperSlab that was
 * opened last and left to fault page by page, the probe, has had nearly all of its pages touched since. One in eight is left as a
 * probe. SuperSlabs opened for large blocks are left alone: each of many threads may have one that is never full. The memory asks
 * for huge pages only while it is touched for the first time. Purged pages come back one by one, and no kernel thread makes it
 * whole again. */

/* Reads the system's setting, a file. Until it is known, memory is marked as under `always`, and no page made huge. False: the file
 * cannot be read. */
hak_cold bool hak__thp_look(void);

/* Marks newly mapped memory according to the option. */
hak_noinline void hak__thp_mapped(uintptr_t start, size_t bytes);

/* Whether a part of a SuperSlab in slabs must not be purged: the SuperSlab is, or may be, one huge page, and more than half of its
 * slabs are in use. Otherwise it counts as split from now on. */
hak_cold bool hak__thp_must_stay(size_t super);

/* Whether nearly all pages of a SuperSlab that is wholly mapped are resident. */
hak_noinline bool hak__thp_is_dense(size_t super);

/* Makes a SuperSlab that is wholly mapped one huge page. False: the system refused. */
hak_cold bool hak__thp_collapse(size_t super);

/* Whether the option and the system allow collapsing at all. */
hak_cold bool hak__thp_may_collapse(void);

/* Prefaults a new SuperSlab that only the caller uses, or makes it the probe. `others`: the number of other SuperSlabs in slabs. */
void hak__prefault(size_t super, size_t others);

/* Makes the run's memory one mapping if only some of its SuperSlabs were prefaulted, since the kernel moves one mapping at a time.
 * Caller holds the arena's lock. */
void hak__prefault_even(size_t first, size_t count);

extern struct hak_thp_counts {
    hak_line_aligned _Atomic uint64_t collapsed, prefaulted;
    _Atomic uint64_t refused, split;
} hak__thp_counts;
