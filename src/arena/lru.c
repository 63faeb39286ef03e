/* Emptied SuperSlabs: kept with their old pages, used again newest first, and returned to the system oldest first, when
 * they have been there for HAKMEM_PURGE_DELAY or are more than HAKMEM_DIRTY_LIMIT allows. Called by arena.c under the arena's lock.
 *
 * The list runs through the descriptors, so joining and leaving it takes a few stores. Which SuperSlabs are in it is
 * also a bitmap (`dirty`), where runs of adjacent ones are found, for huge blocks and for returning several by one call.
 *
 * Invariants: in the list <=> the bit in `dirty` is set;  freed_ms does not grow from the newest to the oldest;
 * state.dirty is the sum of their dirty bytes. */
#include "arena/lru.h"

#include "arena/crowd.h"
#include "arena/limit.h"
#include "arena/regions.h"
#include "arena/state.h"
#include "arena/tail.h"
#include "base/assert.h"
#include "diag/broken.h"
#include "diag/options.h"
#include "os/os.h"

/* Neighbours that were emptied so soon after one another go back by one call, although the order says otherwise. */
enum { TOGETHER_MS = 50, LOOKS_PER_AGE = 4 };

/* So many SuperSlabs, without pages, are unmapped in one step, which takes a millisecond or two. */
enum { THINNED_MOST = 2048 };

/* --- the list -------------------------------------------------------------------------------------------------------- */

static void lru_link(size_t super)
{
    uint32_t me = (uint32_t)super + 1;
    hak__supers[super].newer = 0;
    hak__supers[super].older = hak__arena_state.newest;
    if (hak__arena_state.newest != 0)
        hak__supers[hak__arena_state.newest - 1].newer = me;
    else
        hak__arena_state.oldest = me;
    hak__arena_state.newest = me;
    hak__arena_state.kept++;
}

void hak__lru_add(size_t super, uint32_t dirty, uint64_t now_ms)
{
    hak__supers[super].dirty = dirty;
    hak_store(&hak__supers[super].freed_ms, now_ms, HAK_RELAXED);
    if (dirty == 0)
        return;
    hak__arena_state.dirty += dirty;
    lru_link(super);
    hak__mark(&hak__super_words[super / 64].dirty, super, true);
}

void hak__lru_add_run(size_t first, size_t count, uint64_t now_ms)
{
    /* The lowest becomes the newest: a block that begins there may grow over the others. */
    for (size_t i = first + count; i-- > first;) {
        hak__tail_end(i);
        hak_store(&hak__supers[i].kind, HAK_SUPER_FREE, HAK_RELAXED);
        hak__lru_add(i, hak__supers[i].mapped, now_ms);
        hak__super_set_taken(i, false);
    }
    hak__arena_state.taken -= count;
}

void hak__lru_remove(size_t super)
{
    struct hak_super *me = &hak__supers[super];
    if (!hak__super_is_dirty(super))
        return;
    hak__mark(&hak__super_words[super / 64].dirty, super, false);
    hak__arena_state.dirty -= me->dirty;
    hak__arena_state.kept--;
    if (me->newer != 0)
        hak__supers[me->newer - 1].older = me->older;
    else
        hak__arena_state.newest = me->older;
    if (me->older != 0)
        hak__supers[me->older - 1].newer = me->newer;
    else
        hak__arena_state.oldest = me->newer;
    me->newer = me->older = 0;
}

void hak__lru_cut(size_t super, uint32_t dirty)
{
    if (dirty == 0)
        hak__lru_remove(super);
    else
        hak__arena_state.dirty -= hak__supers[super].dirty - dirty;
    hak_owner_store(&hak__supers[super].dirty, dirty);
}

size_t hak__lru_newest(void) { return hak__arena_state.newest != 0 ? hak__arena_state.newest - 1 : HAK_NO_SUPER; }

/* --- return ---------------------------------------------------------------------------------------------------------- */

/* The state changes before the memory is unmapped: a child forked in between may at worst take mapped memory for unmapped, which it
 * finds out when it maps there. */
bool hak__super_unmap(size_t super)
{
    struct hak_super *me = &hak__supers[super];
    uint32_t mapped = me->mapped;
    hak__lru_remove(super);
    hak__arena_state.mapped -= mapped;
    hak__super_set_mapped(super, 0);
    hak_owner_store(&me->dirty, 0);   /* later: what is mapped and not dirty is zero */
    if (mapped == 0 || hak__os_unmap((uintptr_t)hak__super_start(super), mapped) == 0) {
        hak__super_set_moved(super, 0);
        return true;
    }
    hak__super_set_mapped(super, mapped);
    hak__arena_state.mapped += mapped;
    hak__lru_add(super, mapped, hak__os->now_ms());
    return false;
}

/* Returns the pages of adjacent SuperSlabs; all but the last are wholly mapped. Unmaps them one by one if the kernel refuses (locked
 * pages), if pages came by mremap and keep mappings apart, or if mapped memory counts. */
static size_t purge_adjacent(size_t first, size_t count, bool moved)
{
    size_t length = ((count - 1) << HAK_SUPER_SHIFT) + hak__supers[first + count - 1].dirty, before = hak__arena_state.dirty;
    bool stay = !moved && !hak__limit_unmaps();
    bool purged = stay && hak__os_purge((uintptr_t)hak__super_start(first), length) == 0;
    for (size_t i = first; i < first + count; i++) {
        /* A SuperSlab that can't be unmapped, for want of mappings or by a prohibition, can still return its pages. */
        if (!purged
            && (hak__super_unmap(i) || hak__os_purge((uintptr_t)hak__super_start(i), hak__supers[i].mapped) != 0))
            continue;
        hak__lru_remove(i);
        hak__supers[i].dirty = 0;
    }
    return before - hak__arena_state.dirty;
}

/* Whether a SuperSlab may go back together with its neighbour. */
static bool goes_along(size_t super, uint64_t before_ms)
{
    const struct hak_super *me = &hak__supers[super];
    return hak__super_is_dirty(super) && !me->moved && hak_load(&me->freed_ms, HAK_RELAXED) <= before_ms;
}

/* Returns one SuperSlab and the neighbours that are due too, as far as `keep` allows. */
static size_t purge_group(size_t super, uint64_t before_ms, size_t keep)
{
    struct hak_super *me = &hak__supers[super];
    size_t first = super, last = super, bytes = me->dirty, room = hak__arena_state.dirty;
    if (me->moved)
        return purge_adjacent(super, 1, true);
    while (first > 0 && hak__supers[first - 1].mapped == HAK_SUPER_SIZE && goes_along(first - 1, before_ms)
           && room - bytes > keep)
        bytes += hak__supers[--first].dirty;
    while (hak__supers[last].mapped == HAK_SUPER_SIZE && last + 1 < hak__arena_top() && goes_along(last + 1, before_ms)
           && room - bytes > keep)
        bytes += hak__supers[++last].dirty;
    return purge_adjacent(first, last - first + 1, false);
}

size_t hak__lru_purge(uint64_t before_ms, size_t keep)
{
    size_t freed = 0;
    /* One that the system refuses becomes the newest; each is tried once. */
    for (size_t tries = hak__arena_state.kept; tries > 0 && hak__arena_state.dirty > keep && hak__arena_state.oldest != 0; tries--) {
        size_t oldest = hak__arena_state.oldest - 1;
        uint64_t age = hak_load(&hak__supers[oldest].freed_ms, HAK_RELAXED);
        if (age > before_ms)
            break;
        freed += purge_group(oldest, hak_min(before_ms, age + TOGETHER_MS), keep);
    }
    return freed;
}

/* So much may always stay: 5/4 of the dirty limit, which is 20 MiB by default (docs/decisions/0007). */
static size_t lru_always(void)
{
    size_t limit = hak__option(HAK_OPTION_dirty_limit);
    return limit + limit / 4;
}

/* The most mapped in taken SuperSlabs, lately; under the lock. */
static struct hak_recent lru_recent;

static size_t lru_taken(void) { return hak__arena_state.mapped - hak__arena_state.spare; }

static size_t lru_peak(uint64_t now_ms)
{
    return hak__recent_peak(&lru_recent, lru_taken(), now_ms, hak__option(HAK_OPTION_purge_delay));
}

void hak__lru_note(uint64_t now_ms) { lru_peak(now_ms); }

static size_t lru_unused(void) { return hak__arena_state.dirty + hak__arena_state.tails; }

static bool lru_pressure(void) { return hak__limit_is_near() || hak__ahead_counts(); }

/* How many bytes may be kept, with the tails. */
static size_t lru_limit(uint64_t now_ms)
{
    struct hak_retention state = {
        .used = lru_taken() - hak__arena_state.tails, .taken = lru_taken(), .recent_peak = lru_peak(now_ms),
        .dirty_limit = hak__option(HAK_OPTION_dirty_limit), .emptied_limit = lru_always(),
        .pressure = lru_pressure(),
    };
    return hak__retain(state).emptied;
}

bool hak__lru_has_room(size_t bytes, uint64_t now_ms)
{
    return !lru_pressure() && hak__option(HAK_OPTION_purge_delay) != 0 && lru_unused() + bytes <= lru_limit(now_ms);
}

void hak__lru_due(uint64_t now_ms)
{
    if (hak__arena_state.dirty == 0)
        return;
    uint64_t age = hak__option(HAK_OPTION_purge_delay);
    if (lru_unused() > lru_always()) {
        size_t limit = lru_limit(now_ms), tails = hak__arena_state.tails;
        if (lru_unused() > limit)
            hak__arena_state.returned_by_bytes += hak__lru_purge(now_ms, limit - hak_min(limit, tails));
    }
    if (hak__arena_state.dirty > 0 && now_ms - hak__arena_state.looked_ms > age / LOOKS_PER_AGE) {
        hak__arena_state.looked_ms = now_ms;
        if (now_ms >= age)
            hak__arena_state.returned_by_age += hak__lru_purge(now_ms - age, 0);
    }
}

/* Free SuperSlabs whose pages went back stay mapped for the next requests: a few for good, the others as long as pages do, since the
 * program may need their addresses, and a limit on these may have been set without a word to us. */
static void lru_thin(uint64_t before_ms)
{
    size_t keep = hak_max(hak__option(HAK_OPTION_dirty_limit), hak__option(HAK_OPTION_reserve) << HAK_SUPER_SHIFT);
    size_t super = hak__is_crowded() ? HAK_NO_SUPER : hak__super_before(hak__arena_top());
    for (unsigned left = THINNED_MOST; super != HAK_NO_SUPER && left > 0 && hak__arena_state.spare > keep + hak__arena_state.dirty;
         super = hak__super_before(super)) {
        bool clean = hak__supers[super].mapped != 0 && !hak__super_is_taken(super) && !hak__super_is_dirty(super);
        if (clean && hak_load(&hak__supers[super].freed_ms, HAK_RELAXED) <= before_ms) {
            hak__super_unmap(super);
            left--;
        }
    }
}

size_t hak__arena_purge(uint64_t now_ms, bool all)
{
    uint64_t age = all ? 0 : hak__option(HAK_OPTION_purge_delay);
    hak__arena_lock();
    uint64_t before = all ? UINT64_MAX : now_ms - age;
    size_t freed = now_ms >= age ? hak__lru_purge(before, 0) + hak__tails_purge(before) : 0;
    if (now_ms >= age)
        lru_thin(before);
    hak__arena_state.returned_by_age += freed;
    hak__arena_unlock();
    return freed;
}

size_t hak__lru_shorten(size_t keep)
{
    hak__arena_lock();
    hak__arena_state.returned_by_bytes += hak__lru_purge(UINT64_MAX, keep);
    size_t left = hak__arena_state.dirty;
    hak__arena_unlock();
    return left;
}

bool hak__lru_unmap_all(void)
{
    size_t before = hak__arena_state.mapped;
    hak__tails_purge(UINT64_MAX);
    for (size_t i = hak__super_from(0); i < hak__arena_top(); i = hak__super_from(i + 1))
        if (!hak__super_is_taken(i) && hak__supers[i].mapped != 0)
            hak__super_unmap(i);
    return hak__arena_state.mapped < before;
}

/* --- the rest of the contract -------------------------------------------------------------------------------------- */

/* Another thread may have held the lock and been changing the links, or a sum. Every free SuperSlab that may hold old data joins the
 * list; the order is lost, so all count as emptied now. */
void hak__lru_rebuild(void)
{
    uint64_t now = hak__os->now_ms();
    hak__arena_state.newest = hak__arena_state.oldest = 0;
    hak__arena_state.kept = hak__arena_state.dirty = hak__arena_state.tails = 0;
    for (size_t i = hak__super_from(0); i < hak__arena_top(); i = hak__super_from(i + 1)) {
        hak__arena_state.tails += hak__super_tail(i);
        hak__mark(&hak__super_words[i / 64].dirty, i, false);
        if (!hak__super_is_taken(i))
            hak__lru_add(i, (uint32_t)hak_min(hak__supers[i].dirty, hak__supers[i].mapped), now);
    }
}

bool hak__lru_is_valid(void)
{
    size_t count = 0, bits = 0;
    uint32_t newer = 0;
    uint64_t age = UINT64_MAX;
    bool valid = true;
    for (size_t word = hak__region_next(0); word * 64 < hak__arena_top(); word = hak__region_next(word + 1))
        bits += hak_popcount64(hak__super_words[word].dirty);
    for (uint32_t at = hak__arena_state.newest; at != 0 && count <= bits; at = hak__supers[at - 1].older, count++) {
        const struct hak_super *me = &hak__supers[at - 1];
        uint64_t freed = hak_load(&me->freed_ms, HAK_RELAXED);
        valid &= me->newer == newer && hak__super_is_dirty(at - 1) && me->dirty != 0 && freed <= age;
        newer = at;
        age = freed;
    }
    valid &= count == bits && count == hak__arena_state.kept && newer == hak__arena_state.oldest;
    return hak__holds(valid, "the list of emptied SuperSlabs is whole and in order", &hak__arena_state);
}
