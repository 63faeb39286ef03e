/* A block for the calling thread from the heap layer or the arena, whatever the thread's state. Every request that its cache
 * does not serve ends here. */
#pragma once

#include "base/compiler.h"

/* One block of a class, for n bytes; a hardened one has exactly n. NULL without errno when the system refuses. */
void *hak__alloc_class(uint32_t class, size_t n);

/* The same for a class above the tiny pool; *zero says whether the block's bytes are known to be 0. */
void *hak__alloc_class_zeroed(uint32_t class, bool *zero);

/* A huge block at a multiple of `align`; zero: NULL, or as above. NULL without errno. */
hak_noinline void *hak__alloc_huge(size_t n, size_t align, bool *zero);
