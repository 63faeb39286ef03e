/* The shared pool of slabs. See pool.h. The one subtle pair of steps is clearing a hint and setting it. A thread that clears a hint
 * reads the SuperSlab's word again afterwards; a thread that releases slabs sets the hint afterwards. All four accesses are
 * seq_cst, so one of the two sees the other, and no free run is left without its hint. */
#include "span/pool.h"

#include "arena/limit.h"
#include "arena/mapping.h"
#include "arena/returned.h"
#include "arena/retained.h"
#include "arena/runs.h"
#include "arena/window.h"
#include "base/assert.h"
#include "diag/options.h"
#include "harden/mode.h"
#include "os/os.h"

/* --- the slabs of a SuperSlab ---------------------------------------------------------------------------------------- */

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
    hak_assert(count <= HAK_SUPER_SLABS, "slabs of one SuperSlab");
    uint32_t mine = hak_ones32(count);
    /* release: a claimer that sees the word sees the SuperSlab's other fields. */
    hak_store(&super->slabs, pack_state(~mine, fresh ? mine : ~0u), HAK_RELEASE);
}

/* Chooses where a run begins: among slabs used before, which are resident; else anywhere. */
static uint32_t choose_slab(uint64_t word, unsigned count)
{
    uint32_t unused = hak__slabs_unused(word);
    uint32_t starts = hak_run_starts(unused & hak__slabs_dirty(word), count);
    if (starts == 0)
        starts = hak_run_starts(unused, count);
    return starts == 0 ? HAK_NO_SLAB : hak_ctz32(starts);
}

/* Counts the clean slabs of a run just claimed, as far as pages of the SuperSlab went back. */
static void slabs_regret(struct hak_super *super, uint32_t clean)
{
    uint32_t purged = hak_load(&super->purged_mapped, HAK_RELAXED), bytes;
    if (hak_likely(purged == 0 || clean == 0))
        return;
    do
        bytes = (uint32_t)hak_min((size_t)hak_popcount32(clean) << HAK_SLAB_SHIFT, purged);
    while (!hak_cas_weak(&super->purged_mapped, &purged, purged - bytes, HAK_RELAXED, HAK_RELAXED));
    hak__return_regret(HAK_UNUSED_SLABS, bytes, hak__os->now_ms() - hak_load(&super->freed_ms, HAK_RELAXED));
}

uint32_t hak__slabs_claim(struct hak_super *super, unsigned count, bool *fresh, uint64_t *left)
{
    hak_assert(count != 0 && count <= HAK_SUPER_SLABS, "slabs of one SuperSlab");
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
            slabs_regret(super, run & ~hak__slabs_dirty(word));
            return at;
        }
    }
}

bool hak__slabs_claim_at(struct hak_super *super, unsigned first, unsigned count, uint64_t *left)
{
    hak_assert(count != 0, "a run has slabs");
    if (first + count > HAK_SUPER_SLABS)
        return false;
    uint32_t run = hak_ones32(count) << first;
    uint64_t word = hak_load(&super->slabs, HAK_RELAXED);
    while ((hak__slabs_unused(word) & run) == run) {
        uint64_t next = pack_state(hak__slabs_unused(word) & ~run, hak__slabs_dirty(word) | run);
        if (hak_cas_weak(&super->slabs, &word, next, HAK_SEQ_CST, HAK_RELAXED)) {
            slabs_regret(super, run & ~hak__slabs_dirty(word));
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
    hak_assert(count != 0 && first + count <= HAK_SUPER_SLABS, "slabs of one SuperSlab");
    uint64_t run = (uint64_t)hak_ones32(count) << first;
    /* The claim has set the dirty bits. release: pairs with the claim's acquire; seq_cst because the caller then sets hints, and a
     * claimer that clears a hint looks at this word afterwards. */
    uint64_t before = hak_fetch_or(&super->slabs, run, HAK_SEQ_CST);
    hak_assert((before & run) == 0, "a slab is released twice");
    return before | run;
}

uint64_t hak__slabs_release_clean(struct hak_super *super, unsigned first, unsigned count)
{
    hak_assert(count != 0 && first + count <= HAK_SUPER_SLABS, "slabs of one SuperSlab");
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

/* --- tiers -----------------------------------------------------------------------------------------------------------
 *
 * The tier of a SuperSlab is one bit, written only when it changes, since searches of all threads read it. A thread that sets the bit
 * reads the SuperSlab's word again afterwards; a thread that claims reads the bit afterwards. Both accesses, like those of the word,
 * are seq_cst, so one of the two sees the other, and no well-used SuperSlab stays DRAINING.
 * A SuperSlab that is not in slabs has no unused slab, and so counts as well used. */

struct hak_tier_figures hak__tier_counts;

static void tier_add(_Atomic uint64_t *count, uint64_t n) { hak_fetch_add(count, n, HAK_RELAXED); }
static void pieces_count(uint64_t slabs) { hak_fetch_add(&hak__pieces_missing, slabs << HAK_SLAB_SHIFT, HAK_RELAXED); }

static bool is_draining(size_t at) { return hak_load(&(hak__super_words - at / 64)->draining, HAK_SEQ_CST) >> at % 64 & 1; }

/* Writes the bit and counts it; returns whether that changed it. */
static bool set_draining(size_t super, bool value)
{
    _Atomic uint64_t *word = &(hak__super_words - super / 64)->draining;
    uint64_t bit = 1ull << super % 64;
    uint64_t before = value ? hak_fetch_or(word, bit, HAK_SEQ_CST) : hak_fetch_and(word, ~bit, HAK_SEQ_CST);
    if (((before & bit) != 0) == value)
        return false;
    tier_add(&hak__tier_counts.draining, value ? 1 : (uint64_t)-1);
    tier_add(&hak__tier_counts.hot, value ? (uint64_t)-1 : 1);
    return true;
}

void hak__tier_claimed(size_t super, uint64_t word, unsigned count)
{
    if (hak_unlikely(hak__super_is_bare(super)))
        pieces_count(count);
    if (hak_likely(!is_draining(super)) || hak__slabs_used(word) < HAK_TIER_HIGH)
        return;
    tier_add(&hak__tier_counts.to_hot, set_draining(super, false));
}

/* Looks again for a claim that came between the first look and the bit, and has seen no bit. */
static void begin_to_drain(size_t super)
{
    tier_add(&hak__tier_counts.to_draining, set_draining(super, true));
    hak__tier_claimed(super, hak_load(&hak__supers[super].slabs, HAK_SEQ_CST), 0);
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
    if (hak__option(HAK_OPTION_tiers) == 0 || !others_have_room())
        return;
    for (size_t super = hak__super_from(0); super < hak__arena_top(); super = hak__super_from(super + 1)) {
        uint64_t word = hak_load(&hak__supers[super].slabs, HAK_SEQ_CST);
        if (hak__slabs_used(word) <= HAK_TIER_LOW && !is_draining(super))
            begin_to_drain(super);
    }
}

/* A SuperSlab begins its life in slabs, as HOT; ends it, as EMPTY. */
static void tier_opened(size_t super)
{
    if (is_draining(super))
        set_draining(super, false);
    tier_add(&hak__tier_counts.hot, 1);
}

static void tier_emptied(size_t super)
{
    if (is_draining(super) && set_draining(super, false))
        tier_add(&hak__tier_counts.emptied, 1);
    tier_add(&hak__tier_counts.hot, (uint64_t)-1);
}

/* --- hints ----------------------------------------------------------------------------------------------------------- */

/* How many SuperSlabs with a single free slab are compared. For longer runs the hint's level suffices to tell how full they are. */
enum { CANDIDATES = 4 };

/* An assigned SuperSlab that got slabs back within this time is left to its heap; nor do threads search for one more often. */
enum { BUSY_MS = 20 };
static _Atomic uint64_t nothing_assigned_ms; /* when such a search last found nothing */
static _Atomic uint64_t waiting_ms = UINT64_MAX;
struct hak_pool_counts hak__pool_counts;

static bool is_assigned(size_t super) { return hak_load(&hak__supers[super].assigned_to, HAK_SEQ_CST) != 0; }

/* Sets the hints of a SuperSlab from its word; an assigned one has none. */
static void set_hints(size_t super, uint64_t slabs)
{
    if (is_assigned(super))
        return;
    struct hak_super_word *word = hak__super_words - super / 64;
    uint64_t bit = 1ull << super % 64;
    unsigned levels = hak__slabs_levels(hak__slabs_unused(slabs));
    for (unsigned level = 0; level < levels; level++)
        if ((hak_load(&word->partial[level], HAK_SEQ_CST) & bit) == 0)
            hak_fetch_or(&word->partial[level], bit, HAK_SEQ_CST);
}

static void clear_hints(size_t super, uint64_t slabs)
{
    struct hak_super_word *word = hak__super_words - super / 64;
    uint64_t bit = 1ull << super % 64;
    bool cleared = false;
    for (unsigned level = hak__slabs_levels(hak__slabs_unused(slabs)); level < HAK_LEVELS; level++) {
        if ((hak_load(&word->partial[level], HAK_RELAXED) & bit) != 0) {
            hak_fetch_and(&word->partial[level], ~bit, HAK_SEQ_CST);
            cleared = true;
        }
    }
    if (cleared)
        set_hints(super, hak_load(&hak__supers[super].slabs, HAK_SEQ_CST));
}

/* A claim leaves the hints, which all threads read all the time, as they are. A thread misled by one clears it. */
static size_t claim_in(size_t super, unsigned count, bool *fresh)
{
    uint64_t left;
    uint32_t at = hak__slabs_claim(&hak__supers[super], count, fresh, &left);
    if (at == HAK_NO_SLAB) {
        clear_hints(super, left);
        return HAK_NO_RUN;
    }
    hak__tier_claimed(super, left, count);
    return super * HAK_SUPER_SLABS + at;
}

/* --- search -------------------------------------------------------------------------------------------------------- */

/* BARE_ONES: the system or a limit has refused a whole one, and may refuse the next piece. Not in a thrifty process, where all are. */
enum which_supers { HOT_ONES, DRAINING_ONES, BARE_ONES };

static _Atomic bool has_bare;
static bool is_last(size_t super) { return hak_load(&has_bare, HAK_RELAXED) && hak__super_is_bare(super) && !hak__is_thrifty(); }

/* Of 64 SuperSlabs, those whose longest hinted run is of exactly this level: the shorter it is, the fuller they are. */
static uint64_t pool_candidates(enum which_supers which, size_t word, unsigned level)
{
    const struct hak_super_word *hints = hak__super_words - word;
    uint64_t bits = hak_load(&hints->partial[level], HAK_RELAXED);
    if (bits != 0 && level + 1 < HAK_LEVELS)
        bits &= ~hak_load(&hints->partial[level + 1], HAK_RELAXED);
    if (bits == 0 || which == BARE_ONES)
        return bits;
    uint64_t draining = hak_load(&hints->draining, HAK_RELAXED);
    return bits & (which == HOT_ONES ? ~draining : draining);
}

/* The fullest of a word's first candidates, as a bit. */
static uint64_t fullest_superslab(size_t word, uint64_t bits, unsigned *left)
{
    uint64_t best = 0;
    unsigned most = 0;
    for (; bits != 0 && *left > 0; bits &= bits - 1, --*left) {
        size_t super = word * 64 + hak_ctz64(bits);
        unsigned used = 1 + hak__slabs_used(hak_load(&hak__supers[super].slabs, HAK_RELAXED));
        if (used > most) {
            most = used;
            best = bits & -bits;
        }
    }
    return best;
}

/* Takes a single slab from the fullest of the first few SuperSlabs that offer one, a longer run from the lowest. */
static size_t search_word(enum which_supers which, size_t word, unsigned level, unsigned count, bool *fresh)
{
    uint64_t bits = pool_candidates(which, word, level), tried;
    for (unsigned left = count == 1 ? CANDIDATES : 0; bits != 0; bits &= ~tried) {
        bool only = (bits & (bits - 1)) == 0;
        tried = only || left == 0 ? bits & -bits : fullest_superslab(word, bits, &left);
        size_t super = word * 64 + hak_ctz64(tried);
        size_t found = is_last(super) == (which == BARE_ONES) ? claim_in(super, count, fresh) : HAK_NO_RUN;
        if (found != HAK_NO_RUN)
            return found;
    }
    return HAK_NO_RUN;
}

static size_t search_level(enum which_supers which, unsigned level, unsigned count, size_t top, bool *fresh)
{
    size_t found = HAK_NO_RUN;
    for (size_t word = hak__part_next(0, top); word * 64 < top && found == HAK_NO_RUN; word = hak__part_next(word + 1, top))
        found = search_word(which, word, level, count, fresh);
    return found;
}

static size_t pool_search(enum which_supers which, unsigned count, bool *fresh)
{
    unsigned level = hak__level_of(count);
    size_t found = HAK_NO_RUN, top = hak__arena_top();
    for (unsigned at = level; at < HAK_LEVELS && found == HAK_NO_RUN; at++)
        found = search_level(which, at, count, top, fresh);
    /* A run of 3 may also lie where the hints know only of one of 2: rare, so tried last. */
    if (found == HAK_NO_RUN && !hak_is_power_of_two(count))
        found = search_level(which, level - 1, count, top, fresh);
    return found;
}

/* --- runs ---------------------------------------------------------------------------------------------------------- */

static size_t pool_in_slabs(void)
{
    return hak_load(&hak__pool_counts.opened, HAK_RELAXED) - hak_load(&hak__pool_counts.closed, HAK_RELAXED);
}

size_t hak__pool_open(unsigned count, enum hak_opening opening, bool *fresh)
{
    hak_assert(count != 0 && count <= HAK_SPAN_SLABS_MAX, "a run of a span's length");
    size_t super = hak__supers_open(opening != HAK_OPEN_BARE && !hak__hardened.guards, fresh);
    if (super == HAK_NO_SUPER)
        return HAK_NO_RUN;
    if (opening == HAK_OPEN_SMALL && *fresh && !hak__super_is_bare(super))
        hak__prefault(super, pool_in_slabs());
    tier_opened(super);
    if (opening == HAK_OPEN_BARE && !hak__hardened.guards) /* with guards all are bare */
        hak_store(&has_bare, true, HAK_RELAXED);
    unsigned first = hak__super_is_bare(super) ? 0 : (unsigned)hak__layout_choice(super, HAK_SUPER_SLABS + 1 - count);
    hak__slabs_open(&hak__supers[super], first + count, *fresh);
    set_hints(super, first == 0 ? hak_load(&hak__supers[super].slabs, HAK_SEQ_CST)
                                : (*fresh ? hak__slabs_release_clean : hak__slabs_release)(&hak__supers[super], 0, first));
    hak_fetch_add(&hak__pool_counts.opened, 1, HAK_RELAXED);
    if (hak__super_is_bare(super))
        pieces_count(count);
    return super * HAK_SUPER_SLABS + first;
}

size_t hak__pool_take_near(size_t slab, unsigned count, bool *fresh)
{
    hak_assert(count != 0 && count <= HAK_SPAN_SLABS_MAX, "a run of a span's length");
    size_t super = slab / HAK_SUPER_SLABS;
    uint64_t left;
    bool may = super < hak__arena_top() && !hak__tier_draining(super) && !is_last(super);
    uint32_t at = may ? hak__slabs_claim(&hak__supers[super], count, fresh, &left) : HAK_NO_SLAB;
    if (at == HAK_NO_SLAB)
        return HAK_NO_RUN;
    hak__tier_claimed(super, left, count);
    return super * HAK_SUPER_SLABS + at;
}

size_t hak__pool_take(unsigned count, bool *fresh)
{
    hak_assert(count != 0 && count <= HAK_SPAN_SLABS_MAX, "a run of a span's length");
    size_t found = pool_search(HOT_ONES, count, fresh);
    if (found == HAK_NO_RUN && hak_load(&hak__tier_counts.draining, HAK_RELAXED) != 0) {
        found = pool_search(DRAINING_ONES, count, fresh);
        tier_add(&hak__tier_counts.drawn, found != HAK_NO_RUN);
    }
    return found != HAK_NO_RUN || !hak_load(&has_bare, HAK_RELAXED) ? found : pool_search(BARE_ONES, count, fresh);
}

bool hak__pool_extend(size_t slab, unsigned count, unsigned new_count)
{
    hak_assert(count < new_count, "a run grows");
    size_t super = slab / HAK_SUPER_SLABS;
    unsigned first = (unsigned)(slab % HAK_SUPER_SLABS) + count;
    uint64_t left;
    if (hak__super_is_bare(super) || !hak__slabs_claim_at(&hak__supers[super], first, new_count - count, &left))
        return false;
    hak__tier_claimed(super, left, new_count - count);
    return true;
}

/* After slabs were given back: an empty SuperSlab goes to the arena; otherwise its hints are updated. */
static void pool_released(size_t super, uint64_t word)
{
    if (hak__slabs_unused(word) == ~0u && hak__slabs_close(&hak__supers[super])) {
        clear_hints(super, 0);
        hak_store(&hak__supers[super].assigned_to, 0, HAK_RELAXED); /* before any other thread can have it */
        tier_emptied(super);
        hak_fetch_add(&hak__pool_counts.closed, 1, HAK_RELAXED);
        hak__supers_give(super, 1);
        return;
    }
    set_hints(super, word);
}

/* In a bare SuperSlab the slabs are unmapped, so they hold no old data. */
static uint64_t pool_release(size_t super, size_t slab, unsigned count)
{
    hak_assert(slab % HAK_SUPER_SLABS + count <= HAK_SUPER_SLABS, "a run lies in one SuperSlab");
    unsigned first = (unsigned)(slab % HAK_SUPER_SLABS);
    if (hak_likely(!hak__super_is_bare(super)))
        return hak__slabs_release(&hak__supers[super], first, count);
    pieces_count(0 - (uint64_t)count);
    return hak__slabs_release_clean(&hak__supers[super], first, count);
}

void hak__pool_give(size_t slab, unsigned count)
{
    size_t super = slab / HAK_SUPER_SLABS;
    hak_store(&hak__supers[super].freed_ms, hak__os->now_ms(), HAK_RELAXED);
    pool_released(super, pool_release(super, slab, count));
}

bool hak__pool_give_assigned(size_t slab, unsigned count, uint32_t id)
{
    hak_assert(id != 0, "a heap's id");
    size_t super = slab / HAK_SUPER_SLABS;
    if (hak_load(&hak__supers[super].assigned_to, HAK_RELAXED) != id) {
        hak__pool_give(slab, count);
        return false;
    }
    hak_store(&hak__supers[super].freed_ms, hak__os->now_ms(), HAK_RELAXED);
    uint64_t left = pool_release(super, slab, count);
    bool empty = hak__slabs_unused(left) == ~0u;
    if (!is_assigned(super)) /* no longer assigned: its hints are due */
        pool_released(super, left);
    return empty;
}

void hak__pool_give_inherited(size_t slab, unsigned count)
{
    size_t super = slab / HAK_SUPER_SLABS;
    bool clean = !hak__super_is_bare(super) && !hak__thp_must_stay(super)
              && hak__arena_purge_range(hak__slab_start(slab), (size_t)count << HAK_SLAB_SHIFT, HAK_UNUSED_SLABS);
    if (!clean)
        hak__pool_give(slab, count);
    else
        pool_released(super, hak__slabs_release_clean(&hak__supers[super], (unsigned)(slab % HAK_SUPER_SLABS), count));
}

void hak__pool_give_idle(size_t slab, unsigned count)
{
    pool_released(slab / HAK_SUPER_SLABS, pool_release(slab / HAK_SUPER_SLABS, slab, count));
}

bool hak__pool_assign(size_t super, uint32_t id)
{
    hak_assert(id != 0, "a heap's id");
    uint32_t none = 0;
    if (is_last(super) || !hak_cas_strong(&hak__supers[super].assigned_to, &none, id, HAK_SEQ_CST, HAK_RELAXED))
        return false;
    clear_hints(super, 0);
    return true;
}

/* A thread that gave slabs back meanwhile and saw the SuperSlab assigned has set no hints. */
void hak__pool_unassign(size_t super, uint32_t id)
{
    hak_assert(id != 0, "a heap's id");
    if (hak_cas_strong(&hak__supers[super].assigned_to, &id, 0, HAK_SEQ_CST, HAK_RELAXED))
        pool_released(super, hak_load(&hak__supers[super].slabs, HAK_SEQ_CST));
}

/* Here and in hak__pool_trim: before the first SuperSlab the clock is not read, for which alone a small program would touch its code. */
size_t hak__pool_take_assigned(unsigned count, bool active_too, bool *fresh)
{
    if (hak__arena_top() == 0)
        return HAK_NO_RUN;
    uint64_t now = hak__os->now_ms();
    if (!active_too && now - hak_load(&nothing_assigned_ms, HAK_RELAXED) < BUSY_MS)
        return HAK_NO_RUN;
    size_t found = HAK_NO_RUN;
    for (size_t super = hak__super_from(0); super < hak__arena_top() && found == HAK_NO_RUN; super = hak__super_from(super + 1)) {
        const struct hak_super *assigned = &hak__supers[super];
        bool idle = active_too || now - hak_load(&assigned->freed_ms, HAK_RELAXED) >= BUSY_MS;
        if (idle && hak_load(&assigned->assigned_to, HAK_RELAXED) != 0)
            found = hak__pool_take_near(super * HAK_SUPER_SLABS, count, fresh);
    }
    if (found == HAK_NO_RUN)
        hak_store(&nothing_assigned_ms, now, HAK_RELAXED);
    return found;
}

static size_t purge_super(size_t super, size_t most)
{
    unsigned first, count;
    uint64_t left;
    size_t bytes = 0;
    if (hak__thp_must_stay(super))
        return 0;
    while (bytes < most && hak__slabs_claim_dirty(&hak__supers[super], &first, &count, &left)) {
        size_t length = (size_t)count << HAK_SLAB_SHIFT;
        bool gone = hak__arena_purge_range(hak__slab_start(super * HAK_SUPER_SLABS + first), length, HAK_UNUSED_SLABS);
        pool_released(super, (gone ? hak__slabs_release_clean : hak__slabs_release)(&hak__supers[super], first, count));
        if (!gone)
            break;
        bytes += length;
    }
    return bytes;
}

/* Most SuperSlabs have none, and counting bits is a function call if the processor may lack the instruction. */
static size_t slabs_bytes(uint32_t slabs) { return hak_likely(slabs == 0) ? 0 : (size_t)hak_popcount32(slabs) << HAK_SLAB_SHIFT; }

static size_t idle_bytes(size_t super)
{
    uint64_t word = hak_load(&hak__supers[super].slabs, HAK_RELAXED);
    return slabs_bytes(hak__slabs_unused(word) & hak__slabs_dirty(word));
}

size_t hak__pool_purge(uint64_t before_ms, size_t most)
{
    hak__tiers_step();
    uint64_t waiting = UINT64_MAX;
    size_t bytes = 0;
    for (size_t super = hak__super_from(0); super < hak__arena_top(); super = hak__super_from(super + 1)) {
        if (hak_load(&hak__supers[super].kind, HAK_RELAXED) != HAK_SUPER_IN_SLABS)
            continue;
        uint64_t freed_ms = hak_load(&hak__supers[super].freed_ms, HAK_RELAXED);
        if (freed_ms <= before_ms && bytes < most)
            bytes += purge_super(super, most - bytes);
        else if (freed_ms < waiting && idle_bytes(super) != 0)
            waiting = freed_ms;
    }
    hak_store(&waiting_ms, waiting, HAK_RELAXED);
    return bytes;
}

uint64_t hak__pool_waiting_ms(void) { return hak_load(&waiting_ms, HAK_RELAXED); }

static size_t used_bytes(size_t super)
{
    uint32_t kind = hak_load(&hak__supers[super].kind, HAK_RELAXED);
    if (kind == HAK_SUPER_HUGE)
        return hak_load(&hak__supers[super].huge_bytes, HAK_RELAXED);
    uint32_t unused = hak__slabs_unused(hak_load(&hak__supers[super].slabs, HAK_RELAXED));
    return kind != HAK_SUPER_IN_SLABS ? 0 : HAK_SUPER_SIZE - slabs_bytes(unused);
}

size_t hak__pool_shed(size_t most)
{
    size_t bytes = 0, super = hak__arena_top();
    while (bytes < most && (super = hak__super_before(super)) != HAK_NO_SUPER)
        bytes += idle_bytes(super) != 0 ? purge_super(super, most - bytes) : 0;
    return bytes;
}

enum { SUPERS_PER_LOOK = 256 }; /* a look before each new one would make the growth of a very large heap quadratic */
size_t hak__pool_trim(void)
{
    static _Atomic uint32_t passed;
    size_t top = hak__arena_top(), idle = 0, used = 0;
    if (top == 0 || hak_fetch_add(&passed, 1, HAK_RELAXED) < top / SUPERS_PER_LOOK)
        return 0;
    hak_store(&passed, 0, HAK_RELAXED);
    hak__waiting_end(); /* a waiting run is not in use */
    for (size_t super = hak__super_from(0); super < top; super = hak__super_from(super + 1)) {
        idle += idle_bytes(super);
        used += used_bytes(super);
    }
    return hak__pool_shed(idle - hak_min(idle, hak__arena_room(idle, used, hak__os->now_ms())));
}
