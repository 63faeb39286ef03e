/* Opening the window's regions, for the arena under its lock (opening.c). */
#pragma once

#include "base/atomic.h"

/* Opens the regions of a run, and raises the frontier above it: the metadata of its SuperSlabs exists afterwards. 0, an errno code other
 * than EEXIST, or HAK_PASSED: another's mapping lies in place of the descriptors of a region, which was marked so. */
enum { HAK_PASSED = -1 };
int hak__run_open(size_t first, size_t count);

/* Marks a SuperSlab in which somebody else's mapping lies as never to be used, and those behind it as far as the mapping goes on. */
void hak__hole_make(size_t super);
