/* Hardened mode (HAKMEM_HARDEN=1): its settings. What it does stands in this folder, from the bottom up:
 *
 *   mode.h         what the options ask
 *   spans.h        hardened spans, in the layer of span/
 *   quarantine.h   where freed blocks wait, in the layer of cache/
 *   harden.h       single blocks: seals, slack, whole calls; blocks of no bytes (zero_size.c); the check at exit (ending.c)
 *   kinds.c        the tables of kinds/, and malloc in a hardened process
 *
 * The fast paths ignore it. All bins are closed, so each malloc takes the slow path; a hardened span's start_bound is 0, so each
 * free does too (span/span.h). So the map also tells where an address belongs:
 *
 *   start_bound == 0, hardened mode   a hardened span's slab, or the first one of a huge block that bears a seal
 *   start_bound != 0                  a span from before the options were read, which serves no requests; or such a huge block */
#pragma once

#include "span/span.h"

struct hak_hardened {
    _Atomic bool open; /* it is on, or not known to be off; or blocks are sampled */
    _Atomic bool quick; /* it is on, and nothing else closes bins or checks every call; set after all else here */
    bool on, canary, zero, random, guards, regions, zero_size;
    size_t quarantine;
    uint64_t keys[3]; /* of the canaries; keys[1] is odd */
    uint64_t fill; /* the fill of slack bytes; no byte is 0 */
    uint64_t never_key; /* the mark of a block never handed out */
    uint32_t room[HAK_CLASSES]; /* bytes of a block, without its guard page */
    uint32_t bound[HAK_CLASSES]; /* the start_bound of a span once all blocks have been handed out (span.h) */
    uint16_t blocks[HAK_CLASSES]; /* in a span */
    uint8_t shift[HAK_CLASSES]; /* the largest power of two up to the size (trace/trace.h) */
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

/* Numbers that cannot be predicted without knowing the state. */
hak_inline uint64_t hak__random_next(uint64_t *state) { return hak_mix64(*state += 0x9e3779b97f4a7c15ull); }
