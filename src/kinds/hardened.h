/* malloc of a hardened process, and what its kinds of block have in common (harden/harden.h). */
#pragma once

#include "span/hardened.h"
#include "start.h"

/* Whether the process is hardened. Starts the library to find out. */
hak_inline bool hak__is_hardened(void)
{
    return hak_unlikely(hak_load(&hak__hardened.open, HAK_RELAXED)) && hak__start() && hak__hardened.on;
}

/* A block for n bytes; one at a multiple of `align`, and *zero says whether its bytes are known to be 0. They set errno on
 * failure. */
hak_aside void *hak__malloc_hardened(size_t n);
hak_aside void *hak__memalign_hardened(size_t align, size_t n, bool *zero);

/* Notes the call that frees a huge block, or one of no bytes. */
hak_cold void hak__freed_hardened(const void *p);
