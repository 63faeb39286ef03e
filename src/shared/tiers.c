/* The tier of a SuperSlab is one bit, written only when it changes, since searches of all threads read it. A thread that sets the bit
 * reads the SuperSlab's word again afterwards; a thread that claims reads the bit afterwards. Both accesses, like those of the word,
 * are seq_cst, so one of the two sees the other, and no well-used SuperSlab stays DRAINING.
 * A SuperSlab that is not in slabs has no unused slab, and so counts as well used. */
#include "shared/tiers.h"

#include "arena/window.h"

struct hak_tier_figures hak__tier_counts;

static void tier_add(_Atomic uint64_t *count, uint64_t n) { hak_fetch_add(count, n, HAK_RELAXED); }

static bool is_draining(size_t super)
{
    return hak_load(&hak__super_words[super / 64].draining, HAK_SEQ_CST) >> super % 64 & 1;
}

/* Writes the bit and counts it; returns whether that changed it. */
static bool set_draining(size_t super, bool value)
{
    _Atomic uint64_t *word = &hak__super_words[super / 64].draining;
    uint64_t bit = 1ull << super % 64;
    uint64_t before = value ? hak_fetch_or(word, bit, HAK_SEQ_CST) : hak_fetch_and(word, ~bit, HAK_SEQ_CST);
    if (((before & bit) != 0) == value)
        return false;
    tier_add(&hak__tier_counts.draining, value ? 1 : (uint64_t)-1);
    tier_add(&hak__tier_counts.hot, value ? (uint64_t)-1 : 1);
    return true;
}

void hak__tier_claimed(size_t super, uint64_t word)
{
    if (hak_likely(!is_draining(super)) || hak__slabs_used(word) < HAK_TIER_HIGH)
        return;
    if (set_draining(super, false))
        tier_add(&hak__tier_counts.to_hot, 1);
}

/* The second look is for a claim that came between the first one and the bit, and has seen no bit. */
static void begin_to_drain(size_t super)
{
    if (set_draining(super, true))
        tier_add(&hak__tier_counts.to_draining, 1);
    hak__tier_claimed(super, hak_load(&hak__supers[super].slabs, HAK_SEQ_CST));
}

/* Whether SuperSlabs that stay HOT have unused slabs to serve in place of DRAINING ones. */
static bool others_have_room(void)
{
    for (size_t super = hak__super_from(0); super < hak__arena_top(); super = hak__super_from(super + 1)) {
        unsigned used = hak__slabs_used(hak_load(&hak__supers[super].slabs, HAK_RELAXED));
        if (used > HAK_TIER_LOW && used < HAK_SUPER_SLABS)
            return true;
    }
    return false;
}

void hak__tiers_step(void)
{
    if (!hak__tiers_on() || !others_have_room())
        return;
    for (size_t super = hak__super_from(0); super < hak__arena_top(); super = hak__super_from(super + 1)) {
        uint64_t word = hak_load(&hak__supers[super].slabs, HAK_SEQ_CST);
        if (hak__slabs_used(word) <= HAK_TIER_LOW && !is_draining(super))
            begin_to_drain(super);
    }
}

void hak__tier_opened(size_t super)
{
    if (is_draining(super))
        set_draining(super, false);
    tier_add(&hak__tier_counts.hot, 1);
}

void hak__tier_emptied(size_t super)
{
    if (is_draining(super) && set_draining(super, false))
        tier_add(&hak__tier_counts.emptied, 1);
    tier_add(&hak__tier_counts.hot, (uint64_t)-1);
}

void hak__tier_drawn(void) { tier_add(&hak__tier_counts.drawn, 1); }
