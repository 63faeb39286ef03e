/* SuperSlabs that are resident as one huge page from the moment they are opened, so that a growing heap has one page fault instead of
 * 512 (docs/decisions/0081). Only where that costs next to no memory: the heap is not small, and the SuperSlab that was opened last
 * and left to fault page by page has had nearly all of its pages touched since. One in eight is left so, to be looked at when the
 * next one is opened. Those opened for large blocks are left alone: each of many threads may have one of its own that is never full.
 *
 * The memory asks for huge pages only while it is touched for the first time. What is purged later comes back page by page, and no
 * kernel thread makes it whole again. Called by shared/ for a SuperSlab that is the caller's alone; takes no lock. */
#pragma once

#include "arena/arena.h"

/* Makes a new SuperSlab resident, or notes that it is not. So many others are in slabs. */
void hak__prefault(size_t super, size_t others);

/* Makes the run's memory one mapping where only some of its SuperSlabs have been here: the kernel moves one mapping at a time. Caller
 * holds the arena's lock. */
void hak__prefault_even(size_t first, size_t count);
