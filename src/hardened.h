/* malloc and free of a hardened process (harden/harden.h). */
#pragma once

#include "slab/hardened.h"
#include "start.h"

/* Whether the process is hardened, which is open until the options have been read. */
hak_inline bool hak__is_hardened(void)
{
    return hak_unlikely(hak_load(&hak__hardened.open, HAK_RELAXED)) && hak__start() && hak__hardened.on;
}

/* A block for n bytes; the same at multiples of `align`, where *zero says whether its bytes are known to be 0. They set errno
 * on failure. */
hak_aside void *hak__malloc_hardened(size_t n);
hak_aside void *hak__memalign_hardened(size_t align, size_t n, bool *zero);

/* Of a block in a hardened span, whosever it is, whose slab's word is `word`. */
hak_aside void hak__free_hardened(void *p, uint32_t word);

/* Notes who frees one that is elsewhere: a huge one, or one of no bytes. */
hak_cold void hak__freed_hardened(const void *p);
