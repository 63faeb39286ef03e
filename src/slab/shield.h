/* Blocks whose pages the program has made read-only or inaccessible. A free writes a mark into the block without asking whether it
 * may. Instead the call that takes rights away says so beforehand (protect.c): from then on, until the span ends, its blocks are
 * verified (freed.h), so their frees take the slow path, which restores the rights of the block's pages before it touches them. A huge
 * block is noted in the descriptor of its first slab.
 *
 * An owner that moves its frontier may write the old start_bound once more; so the program's call is noted before and after. */
#pragma once

#include "slab/span.h"

extern _Atomic bool hak__shields;   /* there have been any */

/* Notes that the rights of a range of addresses change: any range, in any thread, also in a signal handler. */
hak_cold void hak__shield_note(uintptr_t start, size_t bytes);

/* Whether the block at p may not be read or written. */
hak_cold bool hak__shield_covers_slow(const void *p);
hak_inline bool hak__shield_covers(const void *p)
{
    return hak_unlikely(hak_load(&hak__shields, HAK_RELAXED)) && hak__shield_covers_slow(p);
}

/* Makes all pages that hold a part of the block at p readable and writable again. False: the system refuses, and the block must not be
 * used again. */
hak_cold bool hak__shield_lift_slow(const void *p);
hak_inline bool hak__shield_lift(const void *p)
{
    return hak_likely(!hak_load(&hak__shields, HAK_RELAXED)) || hak__shield_lift_slow(p);
}
