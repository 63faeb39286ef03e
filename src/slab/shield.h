/* Blocks whose pages the program has made read-only or inaccessible. A free marks a block by writing into it; no look at that
 * path asks whether it may. Instead whoever takes rights away says so beforehand (protect.c): the span's blocks are verified
 * from then on (freed.h), so that their frees come to the slow path, which gives the block's pages their rights back before
 * it touches them. A span stays so until it ends. A huge block is noted in the descriptor of its first slab.
 *
 * An owner that moves its frontier may write the limit that says otherwise just once more; so the program's call is noted
 * before and after. */
#pragma once

#include "slab/span.h"

extern _Atomic bool hak__shields;   /* there have been any */

/* The rights of a range of addresses change: any range, in any thread, also in a signal handler. */
hak_cold void hak__shield_note(uintptr_t start, size_t bytes);

/* Whether the block at p may not be read or written. */
hak_cold bool hak__shield_covers_slow(const void *p);
hak_inline bool hak__shield_covers(const void *p)
{
    return hak_unlikely(hak_load(&hak__shields, HAK_RELAXED)) && hak__shield_covers_slow(p);
}

/* Lets the block at p be read and written again; all pages with a part of it. False: the system refuses, and the block must
 * not be used again. */
hak_cold bool hak__shield_lift_slow(const void *p);
hak_inline bool hak__shield_lift(const void *p)
{
    return hak_likely(!hak_load(&hak__shields, HAK_RELAXED)) || hak__shield_lift_slow(p);
}
