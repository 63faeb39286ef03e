/* Runs of SuperSlabs: search, growth, giving back. mapping.c maps them; emptied ones are kept and returned by lru.c, some are
 * mapped ahead of need by reserve.c; the window's choice is in window.c, metadata in meta.c.
 * Called by shared/ (single SuperSlabs) and huge/ (runs), by upkeep/ to purge. Everything runs under one lock, whose
 * sections keep the data valid at each step (see arena.h). */
#include "arena/arena.h"

#include <errno.h>

#include "arena/crowd.h"
#include "arena/limit.h"
#include "arena/lru.h"
#include "arena/mapping.h"
#include "arena/meta.h"
#include "arena/opening.h"
#include "arena/prefault.h"
#include "arena/regions.h"
#include "arena/reserve.h"
#include "arena/state.h"
#include "arena/tail.h"
#include "arena/waiting.h"
#include "arena/window.h"
#include "base/assert.h"
#include "diag/broken.h"
#include "diag/options.h"
#include "os/os.h"

static _Atomic size_t purged_mapped;     /* the sum of all SuperSlabs' */

enum { HOLES_PER_CALL = 4096, PURGED_MAPPED_MOST = 16 << 20 };

/* --- bits of SuperSlabs -------------------------------------------------------------------------------------- */

enum which { WHICH_FREE, WHICH_DIRTY };

static uint64_t arena_eligible(enum which which, size_t word)
{
    if (which == WHICH_FREE)
        return hak__region_free(word);
    return hak__region_is_open(word) ? hak__super_words[word].dirty : 0;
}

/* The first SuperSlab at or after `from`, below the top, whose eligibility is `value`; the top if there is none. */
static size_t next_superslab(enum which which, size_t from, bool value)
{
    size_t end = hak__arena_top();
    for (size_t word = from / 64; word * 64 < end; word += hak__regions_alike(word)) {
        uint64_t bits = arena_eligible(which, word) ^ (value ? 0 : ~0ull);
        if (word == from / 64)
            bits &= ~0ull << from % 64;
        if (bits != 0)
            return hak_min(word * 64 + hak_ctz64(bits), end);
    }
    return end;
}

/* Maps a few SuperSlabs above a new one, an eighth of what there is, so that growth takes few system calls. */
static void map_ahead(void)
{
    size_t from = hak__arena_top(), at;
    size_t count = hak_min(hak__arena_state.mapped / 8, HAK_GROW_MAX) >> HAK_SUPER_SHIFT;
    if (count == 0 || hak__ahead_counts() || hak__run_open(from, count) != 0)
        return;
    if (hak__run_map(from, count, count << HAK_SUPER_SHIFT, &at) == 0)
        hak__ahead_mapped(from, count);
}

static void set_purged_mapped(size_t super, uint32_t bytes)
{
    uint32_t before = hak_exchange(&hak__supers[super].purged_mapped, bytes, HAK_RELAXED);
    hak_fetch_add(&purged_mapped, (size_t)bytes - before, HAK_RELAXED);
}

/* --- search ------------------------------------------------------------------------------------------------------- */

/* The first SuperSlab at or after `super` whose address is a multiple of `align` SuperSlabs; the window's base is one of
 * a single SuperSlab only. */
static size_t aligned_from(size_t super, size_t align)
{
    size_t skew = (hak__window.base >> HAK_SUPER_SHIFT) % align;
    return hak_align_up(super + skew, align) - skew;
}

/* The tightest run among the eligible ones, the lowest of equals; HAK_NO_SUPER if none is long enough. */
static size_t find_run(enum which which, size_t count, size_t align)
{
    size_t best = HAK_NO_SUPER, best_length = (size_t)-1, end = hak__arena_top();
    for (size_t start = next_superslab(which, 0, true); start < end;) {
        size_t stop = next_superslab(which, start, false), at = aligned_from(start, align);
        if (at + count <= stop && stop - start < best_length) {
            best = at;
            best_length = stop - start;
            if (best_length == count)
                break;
        }
        start = stop < end ? next_superslab(which, stop, true) : end;
    }
    return best;
}

/* Where the free SuperSlabs just below the frontier begin. */
static size_t free_end(void)
{
    size_t at = hak__arena_top();
    while (at > 0) {
        uint64_t taken = ~arena_eligible(WHICH_FREE, (at - 1) / 64) & hak_ones64((unsigned)((at - 1) % 64 + 1));
        if (taken != 0)
            return hak_align_down(at - 1, 64) + hak_msb64(taken) + 1;
        at = hak_align_down(at - 1, 64);
    }
    return 0;
}

/* Prefers one whose pages are resident, or at least mapped. */
static size_t find_one(void)
{
    size_t newest = hak__lru_newest();
    return newest != HAK_NO_SUPER ? newest : hak__reserve_find();
}

/* Finds a run and maps it, but does not mark it as taken. Marks the holes it meets and passes over them. */
static int find_and_map(size_t count, size_t align, size_t bytes, bool ahead, size_t *first)
{
    for (unsigned holes = 0; holes < HOLES_PER_CALL;) {
        size_t at;
        int code = 0;
        bool grown = false;
        *first = count == 1 && align == 1 ? find_one() : find_run(WHICH_DIRTY, count, align);
        if (*first == HAK_NO_SUPER)
            *first = find_run(WHICH_FREE, count, align);
        if (*first == HAK_NO_SUPER) {   /* a run at the frontier, joined with what is free just below it */
            *first = aligned_from(free_end(), align);
            grown = true;
        }
        code = hak__run_open(*first, count);
        if (code == 0 && (code = hak__run_map(*first, count, bytes, &at)) == EEXIST) {
            hak__hole_make(at);
            code = HAK_PASSED;
        }
        if (code != HAK_PASSED) {
            if (code == 0 && grown && ahead)
                map_ahead();
            return code;
        }
        holes++;
    }
    return ENOMEM;
}

/* Marks a run as taken and says whether its first `bytes` bytes are zero. */
static bool claim_run(size_t first, size_t count, enum hak_super_kind kind, enum hak_super_kind tail)
{
    bool fresh = true;
    for (size_t i = first; i < first + count; i++) {
        struct hak_super *super = &hak__supers[i];
        fresh &= super->dirty == 0;
        if (super->dirty != HAK_SUPER_SIZE)
            hak_store(&super->collapsed, false, HAK_RELAXED);
        hak__lru_remove(i);
        hak_store(&super->kind, i == first ? kind : tail, HAK_RELAXED);
        hak__super_set_taken(i, true);
    }
    hak__arena_state.taken += count;
    return fresh;
}

size_t hak__supers_take(size_t count, size_t align, size_t bytes, enum hak_super_kind kind, bool *fresh)
{
    size_t first;
    hak__arena_lock();
    hak__waiting_end_locked();
    uint64_t now = hak__arena_state.dirty > 0 ? hak__os->now_ms() : 0;
    if (now != 0)
        hak__lru_due(now);
    /* SuperSlabs for slabs will be followed by more; a huge block says nothing of the next one's size. */
    bool ahead = kind == HAK_SUPER_IN_SLABS && bytes != 0;
    size_t mapped = hak__arena_state.mapped, whole = hak__crowd_bytes(bytes);
    int code = find_and_map(count, align, whole, ahead, &first);
    if (code != 0 && (hak__arena_gives_up(code) || whole != bytes))
        code = find_and_map(count, align, bytes, ahead, &first);
    hak__arena_state.waited += hak__arena_state.mapped != mapped;
    if (code == 0)
        *fresh = claim_run(first, count, kind, HAK_SUPER_HUGE_TAIL);
    if (code == 0 && kind == HAK_SUPER_HUGE)
        hak__prefault_even(first, count);
    if (hak__arena_state.dirty > 0)   /* more is in use, so less unused memory may stay */
        hak__lru_due(now);
    hak__arena_unlock();
    return code == 0 ? first : HAK_NO_SUPER;
}

/* The old end of the block may be followed by dirty SuperSlabs; their old data is of no concern to a realloc. */
static int run_extend(size_t first, size_t count, size_t new_count, size_t bytes)
{
    size_t at;
    int code = hak__run_open(first + count, new_count - count);
    return code == 0 ? hak__run_map(first, new_count, bytes, &at) : code;
}

bool hak__supers_extend(size_t first, size_t count, size_t new_count, size_t bytes)
{
    hak__arena_lock();
    hak__waiting_end_locked();
    hak__tail_end(first + count - 1);
    bool done = next_superslab(WHICH_FREE, first + count, false) >= hak_min(first + new_count, hak__arena_top());
    if (done) {
        size_t whole = hak__crowd_bytes(bytes);
        int code = run_extend(first, count, new_count, whole);
        if (hak__arena_gives_up(code) || (code == ENOMEM && whole != bytes))
            code = run_extend(first, count, new_count, bytes);
        done = code == 0;
    }
    if (done && new_count > count)
        claim_run(first + count, new_count - count, HAK_SUPER_HUGE_TAIL, HAK_SUPER_HUGE_TAIL);
    if (done)
        hak__prefault_even(first, new_count);
    hak__arena_unlock();
    return done;
}

void hak__supers_give(size_t first, size_t count)
{
    hak__arena_lock();
    uint64_t now = hak__os->now_ms();
    hak__lru_note(now);
    for (size_t i = first; i < first + count; i++)
        set_purged_mapped(i, 0);
    hak__lru_add_run(first, count, now);
    hak__lru_due(now);
    hak__arena_unlock();
}

/* The first `moved` bytes of a SuperSlab have moved elsewhere. What is mapped behind them is no prefix any more and goes too. If the
 * system refuses, the prefix is mapped again; if it refuses that as well, the next thread to map there finds a hole. */
static void move_away(size_t super, size_t moved)
{
    uintptr_t start = (uintptr_t)hak__super_start(super);
    uint32_t had = hak__supers[super].mapped;
    hak__super_set_mapped(super, 0);
    hak__arena_state.mapped -= had;
    hak__super_set_moved(super, 0);
    if (had == moved || hak__os_unmap(start + moved, had - moved) == 0 || hak__os_map(start, moved) != 0)
        return;
    hak__super_set_mapped(super, had);
    hak__arena_state.mapped += had;
}

bool hak__supers_move(size_t from, size_t size, size_t to, size_t new_size)
{
    hak__arena_lock();
    hak__tail_end(from + ((size - 1) >> HAK_SUPER_SHIFT));
    uintptr_t source = (uintptr_t)hak__super_start(from), place = (uintptr_t)hak__super_start(to);
    bool may = !hak__is_crowded(), done = may && hak__os_move(source, size, place, new_size) == 0;
    if (done) {
        for (size_t i = 0; hak__super_need(i, size) != 0; i++)
            move_away(from + i, hak__super_need(i, size));
        for (size_t i = 0; hak__super_need(i, new_size) != 0; i++)
            hak__super_set_moved(to + i, 1);
    } else if (may && !hak__place_stays(place, new_size)) {
        hak__run_trim(to, hak_div_up(new_size, HAK_SUPER_SIZE), 0);
    }
    hak__arena_unlock();
    return done;
}

/* --- the rest of the contract ------------------------------------------------------------------------------------- */

int hak__arena_init(void)
{
    hak__arena_lock();
    int code = hak__window.base != 0 ? 0 : hak__window_choose();
    hak__supers = (struct hak_super *)hak__meta_start(HAK_META_SUPERS);
    hak__super_words = (struct hak_super_word *)hak__meta_start(HAK_META_WORDS);
    hak__arena_unlock();
    return code;
}

/* The share of a limit for `idle` bytes and emptied SuperSlabs together that is left for the former. */
static size_t room_within(size_t limit, size_t idle)
{
    size_t kept = hak_counted(&hak__arena_published.dirty);
    if (kept != 0 && idle + kept > limit)
        kept = hak__lru_shorten(limit > idle ? limit - idle : 0);
    return limit > kept ? limit - kept : 0;
}

size_t hak__arena_dirty_room(size_t idle)
{
    size_t taken = hak_counted(&hak__arena_published.taken) << HAK_SUPER_SHIFT, used = taken > idle ? taken - idle : 0;
    struct hak_retention state = { .used = used, .dirty_limit = hak__option(HAK_OPTION_dirty_limit) };
    return room_within(hak__retain(state).unused, idle);
}

size_t hak__arena_growth_room(size_t idle, size_t used, uint64_t now_ms)
{
    static struct hak_recent recent;
    struct hak_retention state = { .taken = used, .dirty_limit = hak__option(HAK_OPTION_dirty_limit) };
    state.recent_peak = hak__recent_peak(&recent, used, now_ms, hak__option(HAK_OPTION_purge_delay));
    return room_within(hak__retain(state).growth, idle);
}

/* Under HAKMEM_UNMAP mapped memory has to stay near resident memory, but a part of a SuperSlab can't be unmapped. Pages that came back
 * meanwhile still count, so this is an upper bound. */
bool hak__arena_purge_range(void *start, size_t bytes)
{
    size_t super = ((uintptr_t)start - hak__window.base) >> HAK_SUPER_SHIFT;
    size_t before = hak_load(&hak__supers[super].purged_mapped, HAK_RELAXED), after = hak_min(before + bytes, HAK_SUPER_SIZE);
    bool counts = hak__option(HAK_OPTION_unmap) != 0;
    if (counts && hak_load(&purged_mapped, HAK_RELAXED) + (after - before) > PURGED_MAPPED_MOST)
        return false;
    if (hak__os_purge((uintptr_t)start, bytes) != 0)
        return false;
    if (counts)
        set_purged_mapped(super, (uint32_t)after);
    return true;
}

int hak__arena_advise(void *start, size_t bytes, enum hak_os_advice advice) { return hak__os_advise((uintptr_t)start, bytes, advice); }

/* A SuperSlab that a thread was taking or giving at the fork is free, and all of it may hold old data. */
static void arena_settle(size_t super)
{
    struct hak_super *at = &hak__supers[super];
    bool taken = hak__super_is_taken(super), hole = hak_load(&at->kind, HAK_RELAXED) == HAK_SUPER_HOLE;
    if (!hole && taken == (hak_load(&at->kind, HAK_RELAXED) != HAK_SUPER_FREE))
        return;
    hak_store(&at->kind, hole ? HAK_SUPER_HOLE : HAK_SUPER_FREE, HAK_RELAXED);
    at->dirty = hole ? 0 : at->mapped;
    set_purged_mapped(super, 0);
    hak__super_set_taken(super, hole);
}

static size_t count_ends(void)
{
    size_t ends = 0;
    for (size_t super = hak__super_from(0); super < hak__arena_top(); super = hak__super_from(super + 1))
        ends += hak__super_is_end(super);
    return ends;
}

/* Another thread may have been between a SuperSlab's state and the sums. */
static void sum_anew(void)
{
    hak__arena_state.ends = count_ends();
    hak__arena_state.taken = hak__arena_state.moved = hak__arena_state.spare = 0;
    hak__arena_state.holes = hak__regions_foreign() * HAK_REGION_SUPERS;
    hak__arena_state.mapped = hak__arena_state.pieces;
    for (size_t i = hak__super_from(0); i < hak__arena_top(); i = hak__super_from(i + 1)) {
        bool hole = hak_load(&hak__supers[i].kind, HAK_RELAXED) == HAK_SUPER_HOLE;
        hak__arena_state.mapped += hak__supers[i].mapped;
        hak__arena_state.moved += hak__supers[i].moved;
        hak__arena_state.spare += hak__super_is_taken(i) ? 0 : hak__supers[i].mapped;
        hak__arena_state.holes += hole;
        hak__arena_state.taken += hak__super_is_taken(i) && !hole;
    }
}

/* What a thread that does not exist here was about to say of its mapping. */
static void unmap_unsaid(void)
{
    uintptr_t offset = hak__arena_state.mapping - hak__window.base;
    if (hak__arena_state.mapping_bytes != 0 && hak__supers[offset >> HAK_SUPER_SHIFT].mapped <= offset % HAK_SUPER_SIZE)
        hak__os_unmap(hak__arena_state.mapping, hak__arena_state.mapping_bytes);
}

/* Unless another thread had the lock when the process forked, the state is sound, and repairing it would only copy the tables' pages. */
void hak__arena_fork_child(void)
{
    if (hak__arena_is_left()) {
        unmap_unsaid();
        for (size_t i = hak__super_from(0); i < hak__arena_top(); i = hak__super_from(i + 1))
            arena_settle(i);
        sum_anew();
        hak__lru_rebuild();
        hak__arena_lock_reset();
        hak__meta_fork_child();
    }
    hak__limit_fork_child();
}

bool hak__arena_is_valid(void)
{
    size_t mapped = 0, dirty = 0, moved = 0, spare = 0, tails = 0;
    hak__arena_lock();
    bool valid = true;
    for (size_t i = hak__super_from(0); i < hak__arena_top(); i = hak__super_from(i + 1)) {
        const struct hak_super *super = &hak__supers[i];
        bool taken = hak__super_is_taken(i);
        bool is_dirty = hak__super_is_dirty(i);
        mapped += super->mapped;
        moved += super->moved;
        tails += hak__super_tail(i);
        spare += taken ? 0 : super->mapped;
        valid &= hak__holds(super->mapped <= HAK_SUPER_SIZE && (!is_dirty || super->dirty <= super->mapped),
                            "what may hold old data is mapped", super);
        valid &= hak__holds(!(taken && is_dirty) && taken == (hak_load(&super->kind, HAK_RELAXED) != HAK_SUPER_FREE),
                            "a SuperSlab is free or taken", super);
        dirty += is_dirty ? super->dirty : 0;
    }
    valid &= hak__holds(mapped + hak__arena_state.pieces == hak__arena_state.mapped && dirty == hak__arena_state.dirty
                            && moved == hak__arena_state.moved && spare == hak__arena_state.spare
                            && tails == hak__arena_state.tails,
                        "the arena's sums are right", &hak__arena_state);
    valid &= hak__holds(hak__arena_state.ends == count_ends(), "the ends of what is mapped are counted", &hak__arena_state);
    valid &= hak__lru_is_valid();
    hak__arena_unlock();
    return valid;
}
