/* See retained.h. Called by recycled.c and runs.c under the arena's lock, and by upkeep/ and huge/. */
#include "arena/retained.h"

#include "arena/limit.h"
#include "arena/mapping.h"
#include "arena/returned.h"
#include "arena/window.h"
#include "diag/options.h"

/* Neighbours that were emptied within this time are returned by one call, even out of order. */
enum { TOGETHER_MS = 50 };

/* SuperSlabs without pages that one step unmaps, which takes a millisecond or two. */
enum { THINNED_MOST = 2048 };

/* --- the list -------------------------------------------------------------------------------------------------------- */

static void retained_link(size_t super)
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

void hak__retained_add(size_t super, size_t dirty, uint64_t now_ms)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    hak_assert(!hak__super_is_dirty(super) && dirty <= HAK_SUPER_SIZE, "it joins once");
    hak__supers[super].dirty = (uint32_t)dirty;
    hak_store(&hak__supers[super].freed_ms, now_ms, HAK_RELAXED);
    if (dirty == 0)
        return;
    hak__arena_state.dirty += dirty;
    retained_link(super);
    hak__mark(&(hak__super_words - super / 64)->dirty, super, true);
}

void hak__retained_add_run(size_t first, size_t count, uint64_t now_ms)
{
    hak_assert(count <= hak__arena_state.taken, "the run is the caller's");
    /* The lowest becomes the newest, since a block that begins there may grow over the others. */
    for (size_t i = first + count; i-- > first;) {
        hak_assert(hak__super_is_taken(i), "the run is the caller's");
        hak__tail_end(i);
        hak_store(&hak__supers[i].kind, HAK_SUPER_FREE, HAK_RELAXED);
        hak_store(&hak__supers[i].returned, 0, HAK_RELAXED);
        hak__retained_add(i, hak__supers[i].mapped, now_ms);
        hak__super_set_taken(i, false);
    }
    hak__arena_state.taken -= count;
}

void hak__retained_remove(size_t super)
{
    struct hak_super *me = &hak__supers[super];
    if (!hak__super_is_dirty(super))
        return;
    hak_assert(hak__arena_state.kept != 0 && hak__arena_state.dirty >= me->dirty, "sums do not fall below 0");
    hak__mark(&(hak__super_words - super / 64)->dirty, super, false);
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

void hak__retained_cut(size_t super, size_t dirty)
{
    hak_assert(hak__super_is_dirty(super) && dirty <= hak__supers[super].dirty, "old data only becomes less");
    if (dirty == 0)
        hak__retained_remove(super);
    else
        hak__arena_state.dirty -= hak__supers[super].dirty - dirty;
    hak_owner_store(&hak__supers[super].dirty, (uint32_t)dirty);
}

size_t hak__retained_newest(void) { return hak__arena_state.newest != 0 ? hak__arena_state.newest - 1 : HAK_NO_SUPER; }

/* --- return ---------------------------------------------------------------------------------------------------------- */

/* The state changes before the memory is unmapped: a child forked in between may at worst take mapped memory for unmapped, and
 * finds that out when it maps there. */
bool hak__super_unmap(size_t super)
{
    struct hak_super *me = &hak__supers[super];
    size_t mapped = me->mapped;
    hak_assert(!hak__super_is_taken(super), "no block lies there");
    hak__retained_remove(super);
    hak__super_count_mapped(super, 0);
    hak_owner_store(&me->dirty, 0); /* later: mapped memory that is not dirty is zero */
    if (mapped == 0 || hak__os_unmap((uintptr_t)hak__super_start(super), mapped) == 0) {
        hak__super_set_moved(super, 0);
        return true;
    }
    hak__retained_add(super, mapped, hak__os->now_ms());
    hak__super_count_mapped(super, mapped); /* not before: as above */
    return false;
}

/* Returns the pages of adjacent SuperSlabs; all but the last are wholly mapped. Unmaps them one by one if the kernel refuses
 * (locked pages), if pages that came by mremap keep mappings apart, or if mapped memory counts. */
static size_t purge_adjacent(size_t first, size_t count, bool moved)
{
    size_t length = ((count - 1) << HAK_SUPER_SHIFT) + hak__supers[first + count - 1].dirty, before = hak__arena_state.dirty;
    bool stay = !moved && !hak__limit_unmaps();
    uint64_t began = hak__return_begin();
    bool purged = stay && hak__os_purge((uintptr_t)hak__super_start(first), length) == 0;
    for (size_t i = first; i < first + count; i++) {
        size_t dirty = hak__supers[i].dirty;
        /* A SuperSlab that cannot be unmapped, for want of mappings or because that is forbidden, can still return its pages. */
        bool kept = !purged && !hak__super_unmap(i) && hak__os_purge((uintptr_t)hak__super_start(i), hak__supers[i].mapped) != 0;
        if (kept)
            continue;
        hak__retained_remove(i);
        hak__supers[i].dirty = 0;
        hak_store(&hak__supers[i].returned, dirty, HAK_RELAXED);
    }
    hak__return_end(HAK_UNUSED_SUPERS, before - hak__arena_state.dirty, began);
    return before - hak__arena_state.dirty;
}

/* Whether a SuperSlab may be returned together with its neighbour. */
static bool goes_along(size_t super, uint64_t before_ms)
{
    const struct hak_super *me = &hak__supers[super];
    return hak__super_is_dirty(super) && !me->moved && hak_load(&me->freed_ms, HAK_RELAXED) <= before_ms;
}

/* Returns one SuperSlab and its neighbours that are due too, as far as `keep` allows. */
static size_t purge_group(size_t super, uint64_t before_ms, size_t keep)
{
    struct hak_super *me = &hak__supers[super];
    size_t first = super, last = super, bytes = me->dirty, room = hak__arena_state.dirty;
    if (me->moved)
        return purge_adjacent(super, 1, true);
    while (first > 0 && hak__supers[first - 1].mapped == HAK_SUPER_SIZE && goes_along(first - 1, before_ms) && room - bytes > keep)
        bytes += hak__supers[--first].dirty;
    while (hak__supers[last].mapped == HAK_SUPER_SIZE && last + 1 < hak__arena_top() && goes_along(last + 1, before_ms)
           && room - bytes > keep)
        bytes += hak__supers[++last].dirty;
    return purge_adjacent(first, last - first + 1, false);
}

/* Returns the pages of SuperSlabs emptied at or before `before_ms`, oldest first, until `keep` dirty bytes are left. Gives the
 * bytes returned. */
static size_t retained_purge(uint64_t before_ms, size_t keep)
{
    size_t freed = 0;
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    /* If the system refuses one, it becomes the newest; each is tried once. */
    for (size_t tries = hak__arena_state.kept; tries > 0 && hak__arena_state.dirty > keep && hak__arena_state.oldest != 0;
         tries--) {
        size_t oldest = hak__arena_state.oldest - 1;
        uint64_t age = hak_load(&hak__supers[oldest].freed_ms, HAK_RELAXED);
        if (age > before_ms)
            break;
        freed += purge_group(oldest, hak_min(before_ms, age + TOGETHER_MS), keep);
    }
    return freed;
}

/* The peak of the bytes mapped in taken SuperSlabs; under the lock. */
static struct hak_recent retained_recent;

static size_t retained_taken(void) { return hak__arena_state.mapped - hak__arena_state.spare; }

static size_t retained_peak(uint64_t now_ms)
{
    return hak__recent_peak(&retained_recent, retained_taken(), now_ms, hak__return_period(now_ms));
}

void hak__retained_note(uint64_t now_ms) { retained_peak(now_ms); }

static size_t retained_unused(void) { return hak__arena_state.dirty + hak__arena_state.tails; }

/* `tail`: bytes of a taken SuperSlab that are about to become unused. */
static struct hak_retained retained_ask(size_t tail, uint64_t now_ms)
{
    hak_assert(hak__arena_state.tails + tail <= retained_taken(), "tails are taken memory");
    return hak__return_ask((struct hak_retention){ .used = retained_taken() - hak__arena_state.tails - tail,
                                                   .taken = retained_taken(),
                                                   .recent_peak = retained_peak(now_ms),
                                                   .unused = retained_unused() + tail,
                                                   .pressure = hak__limit_is_near() || hak__ahead_counts() },
                           now_ms);
}

/* Returns what is old enough, as far as the policy allows. */
static size_t purge_aged(const struct hak_retained *may, uint64_t now_ms)
{
    uint64_t age = may->delay_ms[HAK_UNUSED_SUPERS];
    return now_ms < age ? 0 : retained_purge(now_ms - age, hak__arena_state.dirty - hak_min(hak__arena_state.dirty, may->may_go));
}

/* Whether so many bytes of a taken SuperSlab may stay unused. */
static bool retained_has_room(size_t bytes, uint64_t now_ms)
{
    struct hak_retained may = retained_ask(bytes, now_ms);
    return may.waiting != 0 && may.delay_ms[HAK_UNUSED_SUPERS] != 0 && retained_unused() + bytes <= may.emptied;
}

/* --- tails ------------------------------------------------------------------------------------------------------------ */

static void set_tail(size_t super, size_t bytes)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    hak_assert(bytes <= hak__supers[super].mapped, "a tail is mapped");
    hak__arena_state.tails += bytes - hak__supers[super].tail;
    hak__supers[super].tail = (uint32_t)bytes;
}

/* The state changes first: a child forked in between may at worst take mapped memory for unmapped. */
static void unmap_tail(size_t super)
{
    uint64_t began = hak__return_begin();
    size_t bytes = hak__supers[super].tail, mapped = hak__supers[super].mapped;
    hak__super_count_mapped(super, mapped - bytes);
    set_tail(super, 0);
    if (hak__os_unmap((uintptr_t)hak__super_start(super) + mapped - bytes, bytes) == 0) {
        hak__return_end(HAK_UNUSED_SUPERS, bytes, began);
        return;
    }
    hak__super_count_mapped(super, mapped);
    set_tail(super, bytes);
}

/* Keeps a tail where the block in a taken run ends, after `need` bytes of this SuperSlab. With 0 the block does not reach into it:
 * the caller gives it back, so that its pages stay. False: it is not worth it, or not allowed. */
static bool tail_keep(size_t super, size_t need)
{
    hak_assert(hak__super_is_taken(super) && hak__super_tail(super) == 0, "a tail lies behind a block, which has one");
    struct hak_super *me = &hak__supers[super];
    size_t bytes = me->mapped - hak_min(need, me->mapped);
    uint64_t now = hak__os->now_ms();
    if (bytes == 0 || me->dirty != me->mapped || !retained_has_room(bytes, now))
        return false;
    if (need == 0)
        return true;
    set_tail(super, bytes);
    hak_store(&me->freed_ms, now, HAK_RELAXED);
    return true;
}

void hak__tail_end(size_t super)
{
    if (hak__super_tail(super) != 0)
        set_tail(super, 0);
}

/* Unmaps the tails that have been kept since `before_ms` or longer. Gives their bytes. */
static size_t tails_purge(uint64_t before_ms)
{
    size_t before = hak__arena_state.tails;
    if (before == 0)
        return 0;
    for (size_t i = hak__super_from(0); i < hak__arena_top(); i = hak__super_from(i + 1))
        if (hak__super_tail(i) != 0 && hak_load(&hak__supers[i].freed_ms, HAK_RELAXED) <= before_ms)
            unmap_tail(i);
    return before - hak__arena_state.tails;
}

static void end_tails(size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hak__tail_end(first + i);
}

bool hak__supers_trim(size_t first, size_t count, size_t bytes)
{
    hak__arena_lock();
    end_tails(first, count);
    bool done = hak__run_trim(first, count, bytes);
    hak__arena_unlock();
    return done;
}

static bool purge_tail(size_t first, size_t count, size_t bytes)
{
    bool done = true;
    for (size_t i = bytes >> HAK_SUPER_SHIFT; i < count; i++) {
        size_t need = hak__super_need(i, bytes), have = hak__supers[first + i].mapped;
        done &= have <= need || hak__os_purge((uintptr_t)hak__super_start(first + i) + need, have - need) == 0;
    }
    return done;
}

bool hak__supers_shorten(size_t first, size_t count, size_t bytes, bool tail)
{
    size_t last = bytes >> HAK_SUPER_SHIFT, end = bytes;
    hak_assert(bytes != 0 && bytes <= count << HAK_SUPER_SHIFT, "the block stays in its run");
    hak__arena_lock();
    end_tails(first, count);
    bool stay = hak__arena_is_crowded() && purge_tail(first, count, bytes);
    if (tail && !stay && last < count && tail_keep(first + last, hak__super_need(last, bytes)))
        end = (last + 1) << HAK_SUPER_SHIFT;
    bool gone = !stay && hak__run_trim(first, count, end);
    if (!stay && !gone)
        purge_tail(first, count, end);
    if (hak__arena_state.dirty > 0) /* the block has what it needs of it */
        hak__retained_due(hak__os->now_ms());
    hak__arena_unlock();
    return gone && end == bytes;
}

/* --- by age and amount ------------------------------------------------------------------------------------------------- */

void hak__retained_due(uint64_t now_ms)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    size_t slack = hak__option(HAK_OPTION_dirty_limit);
    if (hak__arena_state.dirty == 0 || (retained_unused() <= slack + slack / 4 && now_ms < hak__arena_state.look_ms))
        return;
    struct hak_retained may = retained_ask(0, now_ms);
    if (retained_unused() > may.emptied)
        hak__arena_state.returned_by_bytes += retained_purge(now_ms, may.emptied - hak_min(may.emptied, hak__arena_state.tails));
    if (hak__arena_state.dirty > 0 && now_ms >= hak__arena_state.look_ms) {
        hak__arena_state.look_ms = now_ms + may.look_ms;
        hak__arena_state.returned_by_age += purge_aged(&may, now_ms);
    }
}

/* Unmaps free SuperSlabs whose pages went back: a few stay mapped for good, the others as long as pages do, since the program may
 * need their addresses, and may have limited these without our notice. */
static void retained_thin(uint64_t before_ms)
{
    size_t keep = hak_max(hak__option(HAK_OPTION_dirty_limit), hak__option(HAK_OPTION_reserve) << HAK_SUPER_SHIFT);
    size_t super = hak__arena_is_crowded() ? HAK_NO_SUPER : hak__super_before(hak__arena_top());
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
    hak__arena_lock();
    struct hak_retained may = retained_ask(0, now_ms);
    uint64_t age = all ? 0 : may.delay_ms[HAK_UNUSED_SUPERS], before = all ? UINT64_MAX : now_ms - hak_min(now_ms, age);
    size_t freed = 0;
    if (now_ms >= age) {
        freed = (all ? retained_purge(before, 0) : purge_aged(&may, now_ms)) + tails_purge(before);
        retained_thin(before);
    }
    hak__arena_state.returned_by_age += freed;
    hak__arena_unlock();
    return freed;
}

size_t hak__retained_shorten(size_t keep)
{
    hak__arena_lock();
    hak__arena_state.returned_by_bytes += retained_purge(UINT64_MAX, keep);
    size_t left = hak__arena_state.dirty;
    hak__arena_unlock();
    return left;
}

size_t hak__arena_room(size_t idle, size_t used, uint64_t now_ms)
{
    static struct hak_recent recent;
    size_t kept = hak_counted(&hak__arena_published.dirty),
           peak = hak__recent_peak(&recent, used, now_ms, hak__return_period(now_ms));
    struct hak_retention state = { .used = used, .taken = used, .recent_peak = peak, .unused = idle + kept };
    size_t limit = hak__return_ask(state, now_ms).opening;
    if (kept != 0 && idle + kept > limit)
        kept = hak__retained_shorten(limit > idle ? limit - idle : 0);
    return limit > kept ? limit - kept : 0;
}

bool hak__retained_unmap_all(void)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    size_t before = hak__arena_state.mapped;
    tails_purge(UINT64_MAX);
    for (size_t i = hak__super_from(0); i < hak__arena_top(); i = hak__super_from(i + 1))
        if (!hak__super_is_taken(i) && hak__supers[i].mapped != 0)
            hak__super_unmap(i);
    return hak__arena_state.mapped < before;
}

/* --- the rest of the contract -------------------------------------------------------------------------------------- */

/* Another thread may have held the lock and been changing the links or a sum. Every free SuperSlab that may hold old data joins the
 * list; the order is lost, so all count as emptied now. */
void hak__retained_rebuild(void)
{
    hak_assert(hak__arena_is_mine(), "the child has taken over the arena's lock");
    uint64_t now = hak__os->now_ms();
    hak__arena_state.newest = hak__arena_state.oldest = 0;
    hak__arena_state.kept = hak__arena_state.dirty = hak__arena_state.tails = 0;
    for (size_t i = hak__super_from(0); i < hak__arena_top(); i = hak__super_from(i + 1)) {
        hak__arena_state.tails += hak__super_tail(i);
        hak__mark(&(hak__super_words - i / 64)->dirty, i, false);
        if (!hak__super_is_taken(i))
            hak__retained_add(i, (uint32_t)hak_min(hak__supers[i].dirty, hak__supers[i].mapped), now);
    }
}

bool hak__retained_is_valid(void)
{
    size_t count = 0, bits = 0;
    uint32_t newer = 0;
    uint64_t age = UINT64_MAX;
    bool valid = true;
    size_t top = hak__arena_top();
    for (size_t word = hak__part_next(0, top); word * 64 < top; word = hak__part_next(word + 1, top))
        bits += hak_popcount64((hak__super_words - word)->dirty);
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
