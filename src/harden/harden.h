/* Hardened mode, block by block: what malloc and free do in a process with HAKMEM_HARDEN=1 (harden/mode.h covers the lower
 * layers). Called by kinds/ and the heap check.
 *
 *   | n bytes asked for | 0 | fill ............ | seal |     a block in use; room = class size, or less by a guard page
 *                         n                     room - 8
 *
 * The seal is a word made of the block's address, its slack and secret numbers, with a lowest byte of 0; it encodes n. The slack
 * from the end of the request on, up to SLACK_CHECKED bytes, holds a secret pattern whose first byte is 0, so an unterminated
 * text is read no further. (An overflow by a single 0 byte is missed.) A freed block has a mark in the seal's place
 * (harden/mode.h) and is zero before it: a seal proves that the block is in use; without one the heap is asked about the
 * pointer.
 *
 * A huge block ends with two words, n, disguised, and its seal; or directly at its guard, if n bytes are whole pages. */
#pragma once

#include "harden/quarantine.h"
#include "harden/spans.h"
#include "span/shield.h"

/* Slack is filled and checked up to this. Bits 8 to 39 of a seal are its check; the bits above hold the slack, disguised. */
enum { HAK_SLACK_CHECKED = 128, HAK_SEAL = 8, HAK_SLACK_SHIFT = 40, HAK_HUGE_SEAL = 16 };

hak_inline hak_key *hak__hard_word(const void *p, size_t offset) { return (hak_key *)((uintptr_t)p + offset); }

/* --- seals ---------------------------------------------------------------------------------------------------------------- */

hak_inline uint64_t hak__secret_of(const void *p)
{
    uint64_t x = ((uintptr_t)p ^ hak__hardened.keys[0]) * hak__hardened.keys[1];
    return x ^ x >> 32;
}

hak_inline uint64_t hak__seal_of(uint64_t secret, uint64_t slack)
{
    uint64_t check = (secret ^ hak__hardened.keys[2] ^ slack) * hak__hardened.keys[1];
    return (slack ^ secret >> HAK_SLACK_SHIFT) << HAK_SLACK_SHIFT | (check >> 32) << 8;
}

/* The word in which slack begins; the bytes below it are the program's. */
hak_inline uint64_t hak__first_slack(size_t n, uint64_t *programs)
{
    unsigned shift = 8 * (n % 8);
    *programs = (1ull << shift) - 1;
    return hak__hardened.fill << shift << 8;
}

hak_inline size_t hak__slack_end(size_t from, size_t end)
{
    return end - from < HAK_SLACK_CHECKED ? end : from + HAK_SLACK_CHECKED;
}

hak_inline void hak__fill_slack(void *p, size_t n, size_t end)
{
    if (n == end)
        return;
    uint64_t programs, first = hak__first_slack(n, &programs);
    size_t at = n & ~(size_t)7, stop = hak__slack_end(at, end);
    *hak__hard_word(p, at) = (*hak__hard_word(p, at) & programs) | first;
    for (at += 8; at < stop; at += 8)
        *hak__hard_word(p, at) = hak__hardened.fill;
}

hak_inline bool hak__slack_is_whole(const void *p, size_t n, size_t end)
{
    if (n == end)
        return true;
    uint64_t programs, wrong, first = hak__first_slack(n, &programs);
    size_t at = n & ~(size_t)7, stop = hak__slack_end(at, end);
    wrong = (*hak__hard_word(p, at) & ~programs) ^ first;
    for (at += 8; at < stop; at += 8)
        wrong |= *hak__hard_word(p, at) ^ hak__hardened.fill;
    return wrong == 0;
}

hak_inline void hak__seal(void *p, uint32_t class, size_t n)
{
    size_t end = hak__hardened.room[class] - HAK_SEAL;
    if (!hak__hardened.canary)
        return;
    hak__fill_slack(p, n, end);
    *hak__hard_word(p, end) = hak__seal_of(hak__secret_of(p), end - n);
}

/* Whether there is a seal; gives the size that it encodes. */
hak_inline bool hak__is_sealed(const void *p, uint32_t class, size_t *n)
{
    size_t end = hak__hardened.room[class] - HAK_SEAL;
    uint64_t secret = hak__secret_of(p), found = *hak__hard_word(p, end), slack = (found ^ secret) >> HAK_SLACK_SHIFT;
    *n = end - slack;
    return found == hak__seal_of(secret, slack) && slack <= end;
}

/* Whether a free block is unchanged since it was cleared. */
hak_inline bool hak__is_clear(const void *p, uint32_t class)
{
    return hak__hardened_is_mark(*hak__hardened_mark(p, class)) && hak__hardened_is_clear(p, hak__hardened.room[class] - 8);
}

/* The same for a block in a span, whose pages may have been purged. */
hak_inline bool hak__harden_is_left(const void *p, uint32_t class)
{
    uint64_t mark = *hak__hardened_mark(p, class);
    return (mark == 0 || hak__hardened_is_mark(mark)) && hak__hardened_is_clear(p, hak__hardened.room[class] - 8);
}

hak_cold void hak__harden_written(const void *p, uint32_t class);

/* Turns a free block into one of n bytes. Here and below `quarantine` and `heap` are the calling thread's. False: it had been written
 * to, and is to be left alone. */
hak_inline bool hak__harden_begin_block(struct hak_quarantine *quarantine, void *p, uint32_t class, size_t n)
{
    bool clear = !hak__hardened.zero || hak__is_clear(p, class);
    if (hak_unlikely(!clear))
        hak__harden_written(p, class);
    const void *before = hak__quarantine_at(quarantine, p);
    *hak__hardened_mark(p, class) = 0;
    hak__seal(p, class, n);
    hak__quarantine_at_end(quarantine, before);
    return clear;
}

/* Whether a block in use begins at p, an address in a slab of the class, as its canary says; without canaries, as the lack of a mark
 * says. False: hak__harden_size judges. The program has not changed the rights of the block's pages. */
hak_inline bool hak__harden_is_in_use(const void *p, uint32_t class)
{
    const struct hak_slab *slab = &hak__window.map[hak__slab_of(p)];
    size_t n;
    if (hak_unlikely(!hak__begins_below(hak__hardened.bound[class], slab, p)))
        return false;
    if (hak_unlikely(!hak__hardened.canary))
        return !hak__shield_covers(p) && !hak__hardened_is_mark(*hak__hardened_mark(p, class));
    return hak__is_sealed(p, class, &n) && hak__slack_is_whole(p, n, hak__hardened.room[class] - HAK_SEAL);
}

/* Puts the mark where the seal was: a concurrent check of the heap finds one or the other. */
hak_inline void hak__harden_clear(struct hak_quarantine *quarantine, void *p, uint32_t class)
{
    const void *before = hak__quarantine_at(quarantine, p);
    *hak__hardened_mark(p, class) = hak__freed_key;
    if (hak__hardened.zero)
        hak__hardened_clear(p, hak__hardened.room[class] - 8);
    hak__quarantine_at_end(quarantine, before);
}

/* --- whole calls ------------------------------------------------------------------------------------------------------- */

/* The smallest class with room for n bytes whose blocks are all multiples of `align`; HAK_CLASSES if there is none. */
hak_aside uint32_t hak__harden_class(size_t align, size_t n);

/* A block of n bytes of that class, zeroed if the option's part zero is on; NULL when the system refuses. Caller holds the heap
 * lock. */
hak_aside void *hak__harden_take(struct hak_heap *heap, uint32_t class, size_t n);

/* The bytes asked for of the block in use that begins at p, an address in a hardened span; HAK_NO_BLOCK: reported. `why_freed`: the
 * message for a free block; NULL: a double free, and a block with an overflow is none, to be left alone. Caller holds no heap lock. */
hak_aside size_t hak__harden_size(const void *p, uint32_t word, const char *function, const char *why_freed);

/* The same for a block with a canary; otherwise `otherwise`, and the following free judges the block. */
hak_aside size_t hak__harden_asked(const void *p, uint32_t class, size_t otherwise);

/* Whether a block in use begins at p, in a hardened span; reports nothing. */
hak_aside bool hak__harden_is_live(const void *p, uint32_t class);

/* Frees a block that hak__harden_size found in use: clears it and puts it into quarantine. `heap` is the freeing thread's. */
hak_aside void hak__harden_free(struct hak_heap *heap, void *p, uint32_t word, const char *function);

/* Resizes the block in place from `have` to n bytes, if it fits and, unless `wasteful`, wastes less than half of it. */
hak_aside bool hak__harden_resize(struct hak_heap *heap, void *p, uint32_t class, size_t have, size_t n, bool wasteful);

/* Huge blocks: the bytes to request instead of n; seals; checks and returns n. */
hak_aside size_t hak__harden_huge_room(size_t n);
hak_aside void hak__harden_huge_seal(void *p, size_t n);
hak_aside size_t hak__harden_huge_size(const void *p, const char *function, bool freeing);
hak_aside bool hak__harden_huge_fit(void *p, size_t have, size_t n); /* gives it n bytes in place, if there is room for them */
hak_aside bool hak__harden_huge_unseal(void *p, size_t have); /* before a resize; returns whether it bore a seal */

/* For the heap checks: what is wrong now with a block that was handed out (sealed, or freed and clear), or with a huge one.
 * hak__harden_check looks repeatedly and notes only what stays wrong. */
enum hak_wrong { HAK_WRONG_NOTHING, HAK_WRONG_SLACK, HAK_WRONG_SEAL };
hak_cold bool hak__harden_check(const void *p, uint32_t class);
hak_cold enum hak_wrong hak__harden_wrong(const void *p, uint32_t class);
hak_cold enum hak_wrong hak__harden_huge_wrong(const void *p, size_t whole);

/* --- blocks of no bytes (zero_size.c) -----------------------------------------------------------------------------------------
 *
 * The results of malloc(0) in hardened mode: addresses 16 bytes apart in a range where nothing is ever mapped (arena/window.h).
 * One bit for each says whether it is in use, another whether it ever was; handing them out in turn delays reuse. Lock-free, for
 * any thread. */

struct hak_zero_size {
    uintptr_t range; /* its first address; 0: there is none */
    _Atomic uint64_t *in_use, *ever_used; /* a bit for each address */
};
extern struct hak_zero_size hak__zero_size;

/* Once, when hardened mode has the part zero_size. */
hak_cold void hak__zero_size_begin(void);

hak_inline bool hak__zero_size_has(const void *p)
{
    return hak__zero_size.range != 0 && (uintptr_t)p - hak__zero_size.range < HAK_ZERO_SIZE_SIZE;
}

/* NULL when all addresses are in use, or there are none. */
hak_cold void *hak__zero_size_malloc(void);

/* For addresses in the range. Both report p and return false unless it is one in use. */
hak_cold bool hak__zero_size_free(void *p, const char *function);
hak_cold bool hak__zero_size_check(const void *p, const char *function);

/* --- at exit (ending.c) ------------------------------------------------------------------------------------------------------ */

/* Reports up to ENDING_SAID bad blocks, then ends the program. `alone`: no other thread has ever had a heap. */
hak_cold void hak__ending_check(bool alone);
