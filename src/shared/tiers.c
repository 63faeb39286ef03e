/* The tier of a SuperSlab is one bit, written when it changes and not otherwise: searches of all threads read it. Who
 * writes the bit looks at the SuperSlab's word again afterwards, because others may have claimed or released in between;
 * both accesses, like those of the word, are seq_cst, so of two that meet the later one sees both changes and has the
 * last say. A SuperSlab that is not in slabs has no unused slab, and so counts as well used. */
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

/* Moves the SuperSlab over a mark that its word is beyond, until it is beyond none. */
static void settle(size_t super, uint64_t word)
{
    for (;; word = hak_load(&hak__supers[super].slabs, HAK_SEQ_CST)) {
        unsigned used = hak__slabs_used(word);
        bool draining = is_draining(super);
        if (draining ? used < HAK_TIER_HIGH : used > HAK_TIER_LOW)
            return;
        if (set_draining(super, !draining))
            hak_fetch_add(draining ? &tier_to_hot : &tier_to_draining, 1, HAK_RELAXED);
    }
}

/* Only a release makes a SuperSlab DRAINING: one that has just been opened has few used slabs, too. */
void hak__tier_claimed(size_t super, uint64_t word)
{
    if (hak_unlikely(is_draining(super)) && hak__slabs_used(word) >= HAK_TIER_HIGH)
        settle(super, word);
}

void hak__tier_released(size_t super, uint64_t word)
{
    if (hak__slabs_used(word) <= HAK_TIER_LOW && !is_draining(super))
        settle(super, word);
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
