/* Opening the window's regions, for the arena under its lock (opening.c). */
#pragma once

#include "base/atomic.h"

/* Opens the regions of a run, and raises the frontier above it: the metadata of its SuperSlabs exists afterwards. 0; ENOMEM; or EAGAIN:
 * one of the regions can't be used, since another's mapping lies in place of its descriptors, and was marked so. */
int hak__run_open(size_t first, size_t count);

/* Marks a SuperSlab in which somebody else's mapping lies as never to be used, and those behind it as far as the mapping goes on. */
void hak__hole_make(size_t super);
