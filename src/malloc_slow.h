/* The slow half of malloc: everything that is not one pop. */
#ifndef HAK_MALLOC_SLOW_H
#define HAK_MALLOC_SLOW_H

#include "base/compiler.h"

/* A block for n bytes when the fast path found none; sets errno on failure. */
hak_noinline void *hak__malloc_slow(size_t n);

/* One block of a class for the calling thread, whatever its state. NULL without errno when the system refuses. */
void *hak__alloc_class(uint32_t class);

/* A block of a class above the tiny pool, of which *zero says whether its bytes are known to be 0. */
void *hak__alloc_class_zeroed(uint32_t class, bool *zero);

#endif
