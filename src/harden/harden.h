/* Hardened mode, block by block: what malloc and free do in a process with HAKMEM_HARDEN=1 (span/hardened.h has what it
 * changes below). Called by kinds/ and the check of the heap.
 *
 *   | n bytes asked for | 0 | fill ............ | seal |     a block in use; room = class size, or less by a guard page
 *                         n                     room - 8
 *
 * The seal is a word made of the block's address, its slack and secret numbers, its lowest byte 0; it says what n is. From
 * the end of the request on, as far as SLACK_CHECKED bytes reach, slack has a secret pattern; its first byte is 0, so that a
 * text without its end is read no further. (An overflow by just a byte 0 is not noticed.) A freed block has a mark in its place
 * (span/hardened.h) and is zero before that: a seal proves that the block is in use, and without one the heap is asked what the
 * pointer is.
 *
 * A huge block ends with two words: n, disguised, and a seal of it; or directly with its guard, if n bytes are whole pages. */
#pragma once

#include "cache/quarantine.h"
#include "span/hardened.h"

/* Slack is filled and checked so far. Bits 8 to 39 of a seal are its check, those above the slack, disguised. */
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

/* The word in which slack begins, of which the program has the bytes below. */
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

/* Whether there is a seal, and what size it says. */
hak_inline bool hak__is_sealed(const void *p, uint32_t class, size_t *n)
{
    size_t end = hak__hardened.room[class] - HAK_SEAL;
    uint64_t secret = hak__secret_of(p), found = *hak__hard_word(p, end), slack = (found ^ secret) >> HAK_SLACK_SHIFT;
    *n = end - slack;
    return found == hak__seal_of(secret, slack) && slack <= end;
}

/* Whether a free block is as it was left. */
hak_inline bool hak__is_clear(const void *p, uint32_t class)
{
    return hak__hardened_is_mark(*hak__hardened_mark(p, class)) && hak__hardened_is_clear(p, hak__hardened.room[class] - 8);
}

/* The same of one in a span, of which pages may have gone back. */
hak_inline bool hak__harden_is_left(const void *p, uint32_t class)
{
    uint64_t mark = *hak__hardened_mark(p, class);
    return (mark == 0 || hak__hardened_is_mark(mark)) && hak__hardened_is_clear(p, hak__hardened.room[class] - 8);
}

hak_cold hak_noreturn void hak__harden_written(const void *p, uint32_t class);

/* A free block becomes one of n bytes. The heap is the calling thread's, here and below. */
hak_inline void hak__harden_begin_block(struct hak_heap *heap, void *p, uint32_t class, size_t n)
{
    if (hak__hardened.zero && hak_unlikely(!hak__is_clear(p, class)))
        hak__harden_written(p, class);
    const void *before = hak__quarantine_at(heap, p);
    *hak__hardened_mark(p, class) = 0;
    hak__seal(p, class, n);
    hak__quarantine_at_end(heap, before);
}

/* Whether a block in use begins at p, an address in a slab of the class, as far as its canary says; false also where there
 * are none. */
hak_inline bool hak__harden_is_block(const void *p, uint32_t class)
{
    const struct hak_slab *slab = &hak__window.map[hak__slab_of(p)];
    size_t n;
    return hak__begins_below(hak__hardened.bound[class], slab, &hak__classes[class], p) && hak__hardened.canary
        && hak__is_sealed(p, class, &n) && hak__slack_is_whole(p, n, hak__hardened.room[class] - HAK_SEAL);
}

/* The mark takes the place of the seal: who checks the heap meanwhile finds either. */
hak_inline void hak__harden_clear(struct hak_heap *heap, void *p, uint32_t class)
{
    const void *before = hak__quarantine_at(heap, p);
    *hak__hardened_mark(p, class) = hak__freed_key;
    if (hak__hardened.zero)
        hak__hardened_clear(p, hak__hardened.room[class] - 8);
    hak__quarantine_at_end(heap, before);
}

/* --- whole calls ------------------------------------------------------------------------------------------------------- */

/* The smallest class with room for n bytes whose blocks all lie at multiples of `align`; HAK_CLASSES if there is none. */
hak_aside uint32_t hak__harden_class(size_t align, size_t n);

/* A block of n bytes of that class, zeroed if the part zero is on; NULL when the system refuses. Caller holds the heap lock. */
hak_aside void *hak__harden_take(struct hak_heap *heap, uint32_t class, size_t n);

/* The bytes asked for of the block in use that begins at p, an address in a hardened span; otherwise ends the program.
 * `why_freed`: what to report of a free one; NULL: a double free. Caller holds no heap lock. */
hak_aside size_t hak__harden_size(const void *p, uint32_t word, const char *function, const char *why_freed);

/* The same of a block that bears a canary; else, for the free that follows to judge, `otherwise`. */
hak_aside size_t hak__harden_asked(const void *p, uint32_t class, size_t otherwise);

/* Whether a block in use begins at p, in a hardened span; nothing is reported. */
hak_aside bool hak__harden_is_live(const void *p, uint32_t class);

/* A block in use, by hak__harden_size, is freed: cleared, and put into quarantine. The heap is the freeing thread's. */
hak_aside void hak__harden_free(struct hak_heap *heap, void *p, uint32_t word, const char *function);

/* The block in use of `have` bytes becomes one of n where it stands, if it fits and, unless `wasteful`, not half of it is
 * wasted. */
hak_aside bool hak__harden_resize(struct hak_heap *heap, void *p, uint32_t class, size_t have, size_t n, bool wasteful);

/* Huge blocks: the bytes to ask for instead of n; seals; checks and gives n. */
hak_aside size_t hak__harden_huge_room(size_t n);
hak_aside void hak__harden_huge_seal(void *p, size_t n);
hak_aside size_t hak__harden_huge_size(const void *p, const char *function);
hak_aside bool hak__harden_huge_fit(void *p, size_t have,
                                    size_t n); /* it has n bytes where it stands, if there is room; it keeps that */
hak_aside bool hak__harden_huge_unseal(void *p, size_t have); /* before it changes its size; whether it bore a seal */

/* For the checks of the heap. What is wrong with a block that has been handed out, at this moment, or NULL: it is sealed, or
 * freed and clear; of a huge one. The former looks often, and notes what stays wrong. */
enum hak_wrong { HAK_WRONG_NOTHING, HAK_WRONG_SLACK, HAK_WRONG_SEAL };
hak_cold bool hak__harden_check(const void *p, uint32_t class);
hak_cold enum hak_wrong hak__harden_wrong(const void *p, uint32_t class);
hak_cold enum hak_wrong hak__harden_huge_wrong(const void *p, size_t whole);
