/* The tier of a SuperSlab is one bit, written when it changes and not otherwise: searches of all threads read it. Who
 * sets the bit looks at the SuperSlab's word again afterwards; who claims looks at the bit afterwards. Both accesses,
 * like those of the word, are seq_cst, so one of the two sees the other, and no well-used SuperSlab stays DRAINING.
 * A SuperSlab that is not in slabs has no unused slab, and so counts as well used. */
#include "shared/tiers.h"

static _Atomic uint64_t tier_to_draining, tier_to_hot, tier_emptied, tier_drawn;

static bool is_draining(size_t super)
{
    return hak_load(&hak__super_words[super / 64].draining, HAK_SEQ_CST) >> super % 64 & 1;
}

/* Writes the bit; whether that changed it. */
static bool set_draining(size_t super, bool value)
{
    _Atomic uint64_t *word = &hak__super_words[super / 64].draining;
    uint64_t bit = 1ull << super % 64;
    uint64_t before = value ? hak_fetch_or(word, bit, HAK_SEQ_CST) : hak_fetch_and(word, ~bit, HAK_SEQ_CST);
    return ((before & bit) != 0) != value;
}

void hak__tier_claimed(size_t super, uint64_t word)
{
    if (hak_likely(!is_draining(super)) || hak__slabs_used(word) < HAK_TIER_HIGH)
        return;
    if (set_draining(super, false))
        hak_fetch_add(&tier_to_hot, 1, HAK_RELAXED);
}

/* The second look is for a claim that came between the first one and the bit, and has seen no bit. */
static void begin_to_drain(size_t super)
{
    if (set_draining(super, true))
        hak_fetch_add(&tier_to_draining, 1, HAK_RELAXED);
    hak__tier_claimed(super, hak_load(&hak__supers[super].slabs, HAK_SEQ_CST));
}

/* Whether SuperSlabs that stay HOT have unused slabs, to take over what others are not to serve. */
static bool others_have_room(void)
{
    for (size_t super = 0; super < hak__arena_top(); super++) {
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
    for (size_t super = 0; super < hak__arena_top(); super++) {
        uint64_t word = hak_load(&hak__supers[super].slabs, HAK_SEQ_CST);
        if (hak__slabs_used(word) <= HAK_TIER_LOW && !is_draining(super))
            begin_to_drain(super);
    }
}

void hak__tier_opened(size_t super)
{
    if (is_draining(super))
        set_draining(super, false);
}

void hak__tier_emptied(size_t super)
{
    if (is_draining(super) && set_draining(super, false))
        hak_fetch_add(&tier_emptied, 1, HAK_RELAXED);
}

void hak__tier_drawn(void) { hak_fetch_add(&tier_drawn, 1, HAK_RELAXED); }

void hak__tier_figures(struct hak_tier_figures *out)
{
    *out = (struct hak_tier_figures){
        .to_draining = hak_load(&tier_to_draining, HAK_RELAXED), .to_hot = hak_load(&tier_to_hot, HAK_RELAXED),
        .emptied = hak_load(&tier_emptied, HAK_RELAXED), .drawn = hak_load(&tier_drawn, HAK_RELAXED),
    };
    for (size_t super = 0; super < hak__arena_top(); super++)
        if (hak_load(&hak__supers[super].kind, HAK_RELAXED) == HAK_SUPER_IN_SLABS)
            *(hak__tier_draining(super) ? &out->draining : &out->hot) += 1;
}
