/* Tiers: how well used each SuperSlab in slabs is, so that requests fill the well-used ones and let the others empty.
 * Called by pool.c for every change of a SuperSlab's word, asked by pool.c and heap/.
 *
 *   HOT        serves first, the fullest before others
 *   DRAINING   few of its slabs are used: serves only before a new SuperSlab is opened
 *   EMPTY      no slab is used: it goes back to the arena, which keeps it for a while (arena/lru.c)
 *
 *   HOT -> DRAINING    a step of upkeep finds HAK_TIER_LOW slabs used, or fewer, and others with room
 *   DRAINING -> HOT    a claim makes it HAK_TIER_HIGH or more
 * Between the two marks a SuperSlab stays what it is, and it begins to drain by the clock only, so one near a mark does
 * not change back and forth, and a release of slabs costs nothing more. */
#pragma once

#include "diag/options.h"
#include "slab/superslab.h"

enum { HAK_TIER_LOW = 8, HAK_TIER_HIGH = 12 };   /* used slabs of 32 */
_Static_assert(HAK_TIER_LOW < HAK_TIER_HIGH, "the marks lie apart");

/* The counters of tiers; stats/live.c says where they lie. hot + draining: the SuperSlabs in slabs. */
struct hak_tier_figures {
    hak_line_aligned _Atomic uint64_t hot;  /* now, as the next */
    _Atomic uint64_t draining;
    _Atomic uint64_t to_draining, to_hot;   /* changes so far */
    _Atomic uint64_t emptied;               /* DRAINING ones that have become EMPTY */
    _Atomic uint64_t drawn;                 /* claims that DRAINING ones served, because nothing else could */
};
extern struct hak_tier_figures hak__tier_counts;

hak_inline bool hak__tiers_on(void) { return hak__option(HAK_OPTION_tiers) != 0; }
hak_inline unsigned hak__slabs_used(uint64_t word) { return HAK_SUPER_SLABS - hak_popcount32(hak__slabs_unused(word)); }

/* Whether the SuperSlab is DRAINING; never while the option tiers is 0. */
hak_inline bool hak__tier_draining(size_t super)
{
    return (hak_load(&hak__super_words[super / 64].draining, HAK_RELAXED) >> super % 64 & 1) != 0 && hak__tiers_on();
}

/* A SuperSlab's word has become `word` by a claim. From any thread, after the change. */
void hak__tier_claimed(size_t super, uint64_t word);

/* Has little-used SuperSlabs drain. For upkeep; any thread, at any time. */
void hak__tiers_step(void);

/* A SuperSlab begins its life in slabs: HOT; ends it: EMPTY. */
void hak__tier_opened(size_t super);
void hak__tier_emptied(size_t super);

void hak__tier_drawn(void);   /* a DRAINING SuperSlab has served a claim */
