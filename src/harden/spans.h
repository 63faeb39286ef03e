/* Hardened spans. One
 *   - is never a single-block span, even with one block, which is given back by its bit like any other; so slabs that
 *     have served a class stay with it (`regions`: hardened spans do not end)
 *   - ends with an inaccessible page (`guards`); if large blocks fill the span, that page is the last one's, and none is longer
 *   - gives its blocks in random order (`random`): the frontier moves by EXTENT bytes at a time, and blocks below it are
 *     drawn from the bitmap
 *   - has free blocks that are zero (`zero`) but for their marks: the last word, the seal of a block in use, is the freed key, or
 *     the key of blocks never handed out. In a span, and nowhere else, it may be 0, if pages went back.
 *
 * A freed block of HAK_CLOSED_LEAST bytes or more is closed until it is taken again: its whole pages are inaccessible. Its bit in the
 * span is set before the pages go, and cleared after they are back. A thread that reads such a block without owning it
 * checks the bit first, behind the span's gate. */
#pragma once

#include <string.h>

#include "harden/mode.h"

/* Makes a new span, from which nothing has been taken, a hardened one. The second removes its guard before it ends. */
hak_cold void hak__span_harden(struct hak_span *span, uint32_t owner);
hak_cold void hak__span_end_guard(struct hak_span *span);
hak_inline void hak__span_unguard(struct hak_span *span)
{
    if (hak_unlikely(span->keys == HAK_SPAN_HARDENED))
        hak__span_end_guard(span);
}

/* Such a span without allocated blocks returns its memory, but keeps its slabs; it is then as new, until a block wakes it. The caller
 * holds the heap's lock. False: the system refuses. */
hak_cold bool hak__span_sleep(struct hak_span *span);
hak_cold bool hak__span_wake(struct hak_span *span);

/* hak__span_take for such a span, if it is awake. */
hak_aside uint32_t hak__span_take_hardened(struct hak_span *span, void **out, uint32_t want);

/* --- closed blocks ------------------------------------------------------------------------------------------------------- */

enum { HAK_CLOSED_LEAST = HAK_SLAB_SIZE, HAK_CLOSED_BLOCKS = 8 };
#define X(index, size, slabs, blocks, reciprocal, batch) _Static_assert((size) < HAK_CLOSED_LEAST || (blocks) <= HAK_CLOSED_BLOCKS, "a bit for each");
#include "size/classes.def"
#undef X

hak_inline bool hak__hardened_closes(uint32_t class)
{
    return hak__classes[class].size >= HAK_CLOSED_LEAST && hak__hardened.zero && hak__hardened.quarantine != 0;
}

/* Whether the block that begins at p, an address in a hardened span of the class, is closed. */
hak_aside bool hak__hardened_is_closed(const void *p, uint32_t class);

/* Clears and closes a block that has just been freed. False: it is unchanged, because too many mappings would be split, or another
 * thread is looking at it. *again: it is closed already, so two threads have freed it. */
hak_aside bool hak__hardened_close(void *p, uint32_t class, bool *again);

/* Opens a closed block that is taken again; it is clear. False: the kernel refuses, and the block stays closed for ever. */
hak_aside bool hak__hardened_reopen(void *p, uint32_t class);

/* Between these two calls no thread closes a block of such a class. False: it is closed, or about to be, and must not be read. */
hak_cold bool hak__hardened_hold(const void *p, uint32_t class);
hak_cold void hak__hardened_let(const void *p, uint32_t class);

/* --- cleared memory -------------------------------------------------------------------------------------------------------- */

/* Longer blocks are cleared, and checked, only in resident pages: most pages may never have been touched, and touching one costs
 * more than clearing it. */
enum { HAK_LONG_BLOCK = 32 << 10 };
hak_aside void hak__hardened_clear_long(char *start, size_t bytes);
hak_aside bool hak__hardened_long_is_clear(const char *start, size_t bytes);

/* Four words at once, at any address that is a multiple of 8. */
typedef uint64_t hak_words __attribute__((vector_size(16), aligned(8), may_alias));

hak_inline bool hak__is_zero(const char *start, size_t bytes)
{
    const hak_words *at = (const hak_words *)start, *end = (const hak_words *)(start + bytes / 16 * 16);
    hak_words any = { 0, 0 };
    for (; end - at >= 4; at += 4) {
        any = (at[0] | at[1]) | (at[2] | at[3]);
        if (hak_unlikely((any[0] | any[1]) != 0))
            return false;
    }
    for (; at < end; at++)
        any |= *at;
    uint64_t rest = bytes % 16 != 0 ? *(const hak_key *)at : 0;
    return (any[0] | any[1] | rest) == 0;
}

hak_inline void hak__hardened_clear(char *start, size_t bytes)
{
    hak_assert(bytes >= 8 && bytes % 8 == 0, "at least the word before a mark");
    uint64_t zero = 0;
    __asm__("" : "+r"(zero)); /* or the compiler would call memset for a few words */
    const hak_words none = { zero, zero };
    if (hak_likely(bytes <= 128)) {
        for (size_t at = 0; at + 16 <= bytes; at += 16)
            *(hak_words *)(start + at) = none;
        *(hak_key *)(start + bytes - 8) = zero;
    } else if (hak_likely(bytes <= HAK_LONG_BLOCK)) {
        memset(start, 0, bytes);
    } else {
        hak__hardened_clear_long(start, bytes);
    }
}

hak_inline bool hak__hardened_is_clear(const char *start, size_t bytes)
{
    return hak_likely(bytes <= HAK_LONG_BLOCK) ? hak__is_zero(start, bytes) : hak__hardened_long_is_clear(start, bytes);
}
