/* Page rights that the program has changed in its blocks: read-only, inaccessible, of another key, absent in children. Only this
 * module knows the pages, and every way by which memory comes back into use asks it first: hak__shield_lift before a freed block is
 * touched, hak__shield_lift_range for samples and for blocks that end with their heap.
 *
 * A free writes a mark into the block without asking. Instead the rights are noted beforehand, and the frees of a span with a noted
 * slab are verified (span.h), so they take the slow path. Two things are noted:
 *   - rights that mprotect takes away, in blocks of every size (shield.c); before and after the call, because an owner that
 *     moves its frontier meanwhile may write the old start_bound once more
 *   - every block of more than 56 KiB that was requested at a multiple of a page. Such memory gets guard pages, keys and advice
 *     by calls that the library cannot see (system calls past the C library), so its rights count as changed from the beginning.
 *
 * A note is in the descriptor of its slab; a huge block's is in its first SuperSlab's. Beside the window a note is a bit that
 * several places share: it may cause a needless system call, but none is missed. */
#pragma once

#include "span/span.h"

extern _Atomic bool hak__shields; /* notes exist or have existed */

/* Notes that the rights of any range of addresses change. Any thread, also in a signal handler. */
hak_cold void hak__shield_note(uintptr_t start, size_t bytes);

/* The same for a new block of n bytes at a multiple of `align`, if its rights may change unseen. Returns the block. */
hak_cold void *hak__shield_note_aligned(void *block, size_t align, size_t n);

/* Also takes notes of a second range beside the window, where a profile's samples lie; called once. */
hak_cold void hak__shield_watch(uintptr_t start, size_t bytes);

/* Whether the block at p must not be read. */
hak_cold bool hak__shield_covers_slow(const void *p);
hak_inline bool hak__shield_covers(const void *p)
{
    return hak_unlikely(hak_load(&hak__shields, HAK_RELAXED)) && hak__shield_covers_slow(p);
}

/* Restores all pages that hold a part of the block at p, or of a range, to the state in which they were mapped, but keeps their
 * content. False: the system refuses, and the memory must not be used again. */
hak_cold bool hak__shield_lift_slow(const void *p);
hak_inline bool hak__shield_lift(const void *p)
{
    return hak_likely(!hak_load(&hak__shields, HAK_RELAXED)) || hak__shield_lift_slow(p);
}
hak_cold bool hak__shield_lift_range_slow(uintptr_t start, size_t bytes);
hak_inline bool hak__shield_lift_range(const void *start, size_t bytes)
{
    return hak_likely(!hak_load(&hak__shields, HAK_RELAXED)) || hak__shield_lift_range_slow((uintptr_t)start, bytes);
}

/* Whether the huge block that begins with the SuperSlab is noted. */
hak_inline bool hak__shield_has_huge(size_t super) { return hak_load(&hak__supers[super].shielded, HAK_RELAXED) != 0; }
