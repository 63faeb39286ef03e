/* The slow half of malloc. */
#pragma once

#include "base/compiler.h"

/* A block for n bytes after the fast path found none; sets errno on failure. */
hak_noinline void *hak__malloc_slow(size_t n);
