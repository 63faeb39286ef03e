/* A block for the calling thread from the heap layer or the arena, whatever the thread's state: every request that its cache
 * did not serve ends here. */
#pragma once

#include "base/compiler.h"

/* One block of a class, for n bytes: in a hardened process it has just as many. NULL without errno when the system refuses. */
void *hak__alloc_class(uint32_t class, size_t n);

/* A block of a class above the tiny pool, of which *zero says whether its bytes are known to be 0. */
void *hak__alloc_class_zeroed(uint32_t class, bool *zero);

/* A huge block at a multiple of `align`; zero: NULL, or as above. NULL without errno. */
hak_noinline void *hak__alloc_huge(size_t n, size_t align, bool *zero);
