/* Hardened mode (HAKMEM_HARDEN=1): its settings, and its effects on spans. Its effects on single blocks are in harden/harden.h.
 *
 * The fast paths ignore it. All bins are closed, so each malloc takes the slow path; a hardened span's start_bound is 0, so each
 * free does too (span/span.h). So the map also tells where an address belongs:
 *
 *   start_bound == 0, hardened mode   a hardened span's slab, or the first one of a huge block that bears a seal
 *   start_bound != 0                  a span from before the options were read, which serves no requests; or such a huge block
 *
 * A hardened span
 *   - is never a single-block span, even with one block, which is given back by its bit like any other; so slabs that
 *     have served a class stay with it (`regions`: hardened spans do not end)
 *   - ends with an inaccessible page (`guards`); if one block fills the span, that page is the block's last
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

#include "span/span.h"

struct hak_hardened {
    _Atomic bool open; /* it is on, or not known to be off; or blocks are sampled */
    bool on, quick /* nothing else closes bins or checks every call */, canary, zero, random, guards, regions, zero_size;
    size_t quarantine;
    uint64_t keys[3]; /* of the canaries; keys[1] is odd */
    uint64_t fill; /* the fill of slack bytes; no byte is 0 */
    uint64_t never_key; /* the mark of a block never handed out */
    uint32_t room[HAK_CLASSES]; /* bytes of a block, without its guard page */
    uint32_t bound[HAK_CLASSES]; /* the start_bound of a span once all blocks have been handed out (span.h) */
    uint16_t blocks[HAK_CLASSES]; /* in a span */
};
extern struct hak_hardened hak__hardened;

/* The mark of a free block of a hardened span. */
hak_inline hak_key *hak__hardened_mark(const void *p, uint32_t class)
{
    return (hak_key *)((uintptr_t)p + hak__hardened.room[class] - 8);
}
hak_inline bool hak__hardened_is_mark(uint64_t word) { return word == hak__freed_key || word == hak__hardened.never_key; }

/* Called once the options have been read and the arena runs. */
hak_noinline void hak__hardened_begin(void);

/* Whether the slab, which has blocks by the map, belongs to a hardened span. */
hak_inline bool hak__hardened_at(size_t slab)
{
    return hak__hardened.on && hak__start_bound_is_lost(hak__start_bound(&hak__window.map[slab]));
}

/* Makes a new span, from which nothing has been taken, a hardened one. The second removes its guard before it ends. */
hak_cold void hak__span_harden(struct hak_span *span, uint32_t owner);
hak_cold void hak__span_end_guard(struct hak_span *span);
hak_inline void hak__span_unguard(struct hak_span *span)
{
    if (hak_unlikely(span->keys == HAK_SPAN_HARDENED))
        hak__span_end_guard(span);
}

/* For want of memory or addresses: such a span without allocated blocks returns its memory, but keeps its slabs; it is then as new.
 * Caller holds the heap's lock; a share's span ends instead. Its next block maps it again; false: the system refuses. */
hak_cold bool hak__span_sleep(struct hak_span *span);
hak_inline bool hak__span_sleeps(const struct hak_span *span) { return span->keys == HAK_SPAN_HARDENED && span->reach == 0; }

/* hak__span_take for such a span. */
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
    if (hak_likely(bytes <= 128))
        for (hak_key *at = (hak_key *)start, *end = (hak_key *)(start + bytes); at < end; at++)
            *at = 0;
    else if (hak_likely(bytes <= HAK_LONG_BLOCK))
        memset(start, 0, bytes);
    else
        hak__hardened_clear_long(start, bytes);
}

hak_inline bool hak__hardened_is_clear(const char *start, size_t bytes)
{
    return hak_likely(bytes <= HAK_LONG_BLOCK) ? hak__is_zero(start, bytes) : hak__hardened_long_is_clear(start, bytes);
}

/* Numbers that cannot be predicted without knowing the state. */
hak_inline uint64_t hak__random_next(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}
