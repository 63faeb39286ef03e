/* The slow half of malloc. */
#pragma once

#include "base/compiler.h"

/* A block for n bytes when the fast path found none; sets errno on failure. */
hak_noinline void *hak__malloc_slow(size_t n);

/* While a profile counts: counts down the bytes of a request of up to the mid pool. Gives a sampled block, aligned as asked, when
 * they are used up, else NULL. */
hak_cold void *hak__malloc_counted_down(size_t align, size_t n);
