/* The slow half of malloc: everything that is not one pop. */
#pragma once

#include "base/compiler.h"

/* A block for n bytes when the fast path found none; sets errno on failure. */
hak_noinline void *hak__malloc_slow(size_t n);

/* While a profile counts: counts a request of up to the mid pool down. A sampled block, whose class is aligned as is asked, or
 * NULL when it is not its turn. */
hak_cold void *hak__malloc_counted_down(size_t align, size_t n);
