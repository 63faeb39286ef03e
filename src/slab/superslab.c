/* Claiming and releasing the slabs of a SuperSlab by compare-and-swap on one word. See superslab.h. */
#include "slab/superslab.h"

#include "base/assert.h"

static uint64_t pack_state(uint32_t unused, uint32_t dirty) { return (uint64_t)dirty << 32 | unused; }

unsigned hak__slabs_levels(uint32_t unused)
{
    unsigned levels = 0;
    while (levels < HAK_LEVELS && unused != 0) {
        unused &= unused >> (levels == 0 ? 0 : 1u << (levels - 1));
        levels += unused != 0;
    }
    return levels;
}

void hak__slabs_open(struct hak_super *super, unsigned count, bool fresh)
{
    uint32_t mine = hak_ones32(count);
    /* release: a claimer that sees the word sees the SuperSlab's other fields. */
    hak_store(&super->slabs, pack_state(~mine, fresh ? mine : ~0u), HAK_RELEASE);
}

/* Where a run begins: among used-before slabs first, whose pages are there already; else anywhere. */
static uint32_t choose_slab(uint64_t word, unsigned count)
{
    uint32_t unused = hak__slabs_unused(word);
    uint32_t starts = hak_run_starts(unused & hak__slabs_dirty(word), count);
    if (starts == 0)
        starts = hak_run_starts(unused, count);
    return starts == 0 ? HAK_NO_SLAB : hak_ctz32(starts);
}

uint32_t hak__slabs_claim(struct hak_super *super, unsigned count, bool *fresh, uint64_t *left)
{
    uint64_t word = hak_load(&super->slabs, HAK_RELAXED);
    for (;;) {
        uint32_t at = choose_slab(word, count);
        *left = word;
        if (at == HAK_NO_SLAB)
            return HAK_NO_SLAB;
        uint32_t run = hak_ones32(count) << at;
        uint64_t next = pack_state(hak__slabs_unused(word) & ~run, hak__slabs_dirty(word) | run);
        /* acquire: pairs with the release in hak__slabs_release. */
        if (hak_cas_weak(&super->slabs, &word, next, HAK_SEQ_CST, HAK_RELAXED)) {
            *fresh = (hak__slabs_dirty(word) & run) == 0;
            *left = next;
            return at;
        }
    }
}

bool hak__slabs_claim_at(struct hak_super *super, unsigned first, unsigned count, uint64_t *left)
{
    if (first + count > HAK_SUPER_SLABS)
        return false;
    uint32_t run = hak_ones32(count) << first;
    uint64_t word = hak_load(&super->slabs, HAK_RELAXED);
    while ((hak__slabs_unused(word) & run) == run) {
        uint64_t next = pack_state(hak__slabs_unused(word) & ~run, hak__slabs_dirty(word) | run);
        if (hak_cas_weak(&super->slabs, &word, next, HAK_SEQ_CST, HAK_RELAXED)) {
            *left = next;
            return true;
        }
    }
    return false;
}

bool hak__slabs_claim_dirty(struct hak_super *super, unsigned *first, unsigned *count, uint64_t *left)
{
    uint64_t word = hak_load(&super->slabs, HAK_RELAXED);
    uint32_t idle;
    while ((idle = hak__slabs_unused(word) & hak__slabs_dirty(word)) != 0) {
        *first = hak_ctz32(idle);
        idle = ~(idle >> *first);
        *count = idle == 0 ? HAK_SUPER_SLABS : hak_ctz32(idle);
        uint32_t run = hak_ones32(*count) << *first;
        uint64_t next = pack_state(hak__slabs_unused(word) & ~run, hak__slabs_dirty(word));
        if (hak_cas_weak(&super->slabs, &word, next, HAK_SEQ_CST, HAK_RELAXED)) {
            *left = next;
            return true;
        }
    }
    return false;
}

uint64_t hak__slabs_release(struct hak_super *super, unsigned first, unsigned count)
{
    uint64_t run = (uint64_t)hak_ones32(count) << first;
    /* The dirty bits were set by the claim. release: pairs with the claim's acquire; seq_cst because the caller goes
     * on to set hints, and a claimer that clears a hint looks at this word afterwards (shared/pool.c). */
    uint64_t before = hak_fetch_or(&super->slabs, run, HAK_SEQ_CST);
    hak_assert((before & run) == 0, "a slab is released twice");
    return before | run;
}

uint64_t hak__slabs_release_clean(struct hak_super *super, unsigned first, unsigned count)
{
    uint32_t run = hak_ones32(count) << first;
    uint64_t word = hak_load(&super->slabs, HAK_RELAXED), next;
    do
        next = pack_state(hak__slabs_unused(word) | run, hak__slabs_dirty(word) & ~run);
    while (!hak_cas_weak(&super->slabs, &word, next, HAK_SEQ_CST, HAK_RELAXED));
    return next;
}

bool hak__slabs_close(struct hak_super *super)
{
    uint64_t word = hak_load(&super->slabs, HAK_RELAXED);
    while (hak__slabs_unused(word) == ~0u)
        if (hak_cas_weak(&super->slabs, &word, pack_state(0, hak__slabs_dirty(word)), HAK_SEQ_CST, HAK_RELAXED))
            return true;
    return false;
}
