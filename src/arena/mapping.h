/* Mapping, unmapping and purging memory in runs of SuperSlabs. */
#pragma once

#include "arena/arena.h"
#include "base/retain.h"

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
