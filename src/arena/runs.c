/* Runs of SuperSlabs: search, growth, giving back, moving; memory ahead of need, and SuperSlabs in pieces. See runs.h. Everything
 * happens under the arena's lock, whose sections keep the data valid at each step (arena.h). */
#include "arena/runs.h"

#include <errno.h>

#include "arena/limit.h"
#include "arena/mapping.h"
#include "arena/retained.h"
#include "arena/returned.h"
#include "arena/window.h"
#include "diag/options.h"

/* READY_LOOKS: free SuperSlabs that a request checks for a mapped one. LOOKED_AT_MOST: new SuperSlabs checked for pages that are
 * resident at once. */
enum { HOLES_PER_CALL = 4096, READY_LOOKS = 256, LOOKED_AT_MOST = 16 };

/* --- bits of SuperSlabs -------------------------------------------------------------------------------------- */

enum which { WHICH_FREE, WHICH_DIRTY };

static uint64_t arena_eligible(enum which which, size_t word)
{
    if (which == WHICH_FREE)
        return hak__part_free(word);
    return hak__part_is_open(word) ? (hak__super_words - word)->dirty : 0;
}

/* The first SuperSlab at or after `from`, below the top, whose eligibility is `value`; the top if there is none. */
static size_t next_superslab(enum which which, size_t from, bool value)
{
    size_t end = hak__arena_top();
    for (size_t word = from / 64; word * 64 < end; word += hak__parts_alike(word)) {
        uint64_t bits = arena_eligible(which, word) ^ (value ? 0 : ~0ull);
        if (word == from / 64)
            bits &= ~0ull << from % 64;
        if (bits != 0)
            return hak_min(word * 64 + hak_ctz64(bits), end);
    }
    return end;
}

/* --- ahead of need ------------------------------------------------------------------------------------------------ */

/* A growing heap should not wait for the system, so some SuperSlabs are mapped before a request needs them: a few above each new
 * one, and those that upkeep maps until HAKMEM_RESERVE are ready. A ready one is free like any other, serves first, and is unmapped
 * with the rest before a request is refused. It is untouched, so it takes no resident memory, unless the kernel makes new memory
 * resident at once: then it is unmapped, and nothing is mapped ahead from then on. */

static bool is_ready(size_t super) { return !hak__super_is_taken(super) && hak__supers[super].mapped == HAK_SUPER_SIZE; }

/* Whether new memory is resident although untouched: then all of it is, so one page suffices. `end`: where it ends. */
static bool is_there_at_once(const char *end)
{
    unsigned char page = 0;
    size_t bytes = hak__page_size();
    return hak__os_resident((uintptr_t)end - bytes, bytes, &page) == 0 && page != 0;
}

static bool map_ahead(size_t first, size_t count)
{
    size_t at;
    if (hak__run_open(first, count) != 0 || hak__run_map(first, count, count << HAK_SUPER_SHIFT, &at) != 0)
        return false;
    bool at_once = is_there_at_once(hak__super_start(first + count));
    if (at_once)
        hak__ahead_end();
    for (size_t i = first; i < first + count; i++) {
        hak_assert(!hak__super_is_taken(i), "memory ahead of need is free");
        if (!hak__super_is_dirty(i)) /* since when it has been unused */
            hak_store(&hak__supers[i].freed_ms, hak__os->now_ms(), HAK_RELAXED);
        if (at_once)
            hak__super_unmap(i);
    }
    return !at_once;
}

/* An eighth of the present amount, so that growth takes few system calls. */
static void grow_ahead(void)
{
    size_t count = hak_min(hak__arena_state.mapped / 8, HAK_GROW_MAX) >> HAK_SUPER_SHIFT;
    if (count != 0 && !hak__ahead_counts())
        map_ahead(hak__arena_top(), count);
}

/* The lowest ready SuperSlab; HAK_NO_SUPER if there is none. */
static size_t find_ready(void)
{
    unsigned looks = READY_LOOKS;
    size_t top = hak__arena_top();
    for (size_t word = hak__part_next(0, top); word * 64 < top && looks > 0; word = hak__part_next(word + 1, top)) {
        uint64_t bits = ~(hak__super_words - word)->taken & hak_ones64((unsigned)hak_min(top - word * 64, 64));
        for (; bits != 0 && looks > 0; bits &= bits - 1, looks--) {
            size_t super = word * 64 + hak_ctz64(bits);
            if (is_ready(super))
                return super;
        }
    }
    return HAK_NO_SUPER;
}

/* Counts the ready ones, up to `enough`; *gap is the lowest free SuperSlab that could become ready. */
static size_t count_ready(size_t enough, size_t *gap)
{
    size_t ready = 0;
    *gap = hak__arena_top();
    for (size_t super = hak__super_from(0); super < hak__arena_top() && ready < enough; super = hak__super_from(super + 1)) {
        if (is_ready(super))
            ready++;
        else if (!hak__super_is_taken(super) && super < *gap)
            *gap = super;
    }
    return ready;
}

/* Stays below both limits, and avoids places that the system has just refused for want of memory or for a foreign mapping; the next
 * request handles those. */
static bool reserve_one(size_t super)
{
    static size_t refused_at; /* bytes that were mapped then */
    size_t soft = hak__option(HAK_OPTION_soft_limit), mapped = hak__arena_state.mapped;
    bool may = hak__limit_allows(mapped, HAK_SUPER_SIZE) && (soft == 0 || mapped + HAK_SUPER_SIZE <= soft);
    if (!may || mapped == refused_at)
        return false;
    bool done = map_ahead(super, 1);
    refused_at = done ? refused_at : mapped;
    return done;
}

size_t hak__reserve_refill(void)
{
    size_t want = hak__option(HAK_OPTION_reserve), gap, done = 0;
    if (want == 0 || hak__ahead_counts())
        return 0;
    hak__arena_lock();
    size_t may = hak__retain((struct hak_retention){ .taken = hak__arena_state.taken << HAK_SUPER_SHIFT }).reserve;
    want = hak_min(want, may >> HAK_SUPER_SHIFT); /* small processes reserve none */
    while (count_ready(want, &gap) < want && reserve_one(gap))
        done++;
    hak__arena_state.reserved += done;
    hak__arena_unlock();
    return done;
}

/* --- search ------------------------------------------------------------------------------------------------------- */

/* The first SuperSlab at or after `super` whose address is a multiple of `align` SuperSlabs; the window's base is aligned to only
 * one SuperSlab. */
static size_t aligned_from(size_t super, size_t align)
{
    size_t skew = (hak__window.base >> HAK_SUPER_SHIFT) % align;
    return hak_align_up(super + skew, align) - skew;
}

/* The tightest run among the eligible SuperSlabs, the lowest of equals; HAK_NO_SUPER if none is long enough. */
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

/* The start of the free SuperSlabs just below the frontier. */
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
    size_t newest = hak__retained_newest();
    return newest != HAK_NO_SUPER ? newest : find_ready();
}

/* Steps over a SuperSlab with a foreign mapping. If the system refuses to unmap our part of it, that stays, counted as mapped. */
static void step_over(size_t super)
{
    if (!hak__super_unmap(super)) {
        hak__retained_remove(super);
        hak__supers[super].dirty = 0;
    }
    hak__hole_make(super);
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
        if (*first == HAK_NO_SUPER) { /* a run at the frontier, joined with the free SuperSlabs just below it */
            *first = aligned_from(free_end(), align);
            grown = true;
        }
        code = hak__run_open(*first, count);
        if (code == 0 && (code = hak__run_map(*first, count, bytes, &at)) == EEXIST) {
            step_over(at);
            code = HAK_PASSED;
        }
        if (code != HAK_PASSED) {
            if (code == 0 && grown && ahead)
                grow_ahead();
            return code;
        }
        holes++;
    }
    return ENOMEM;
}

/* Marks a run as taken and returns whether its first `bytes` bytes are zero. */
static bool claim_run(size_t first, size_t count, enum hak_super_kind kind, enum hak_super_kind tail)
{
    bool fresh = true;
    hak_assert(first + count <= hak__arena_top(), "a run lies below the frontier");
    for (size_t i = first; i < first + count; i++) {
        struct hak_super *super = &hak__supers[i];
        hak_assert(!hak__super_is_taken(i), "a run is handed out once");
        fresh &= super->dirty == 0;
        if (super->dirty != HAK_SUPER_SIZE)
            hak_store(&super->collapsed, false, HAK_RELAXED);
        size_t returned = hak_load(&super->returned, HAK_RELAXED);
        if (returned != 0)
            hak__return_regret(HAK_UNUSED_SUPERS, returned, hak__os->now_ms() - hak_load(&super->freed_ms, HAK_RELAXED));
        hak_store(&super->returned, 0, HAK_RELAXED);
        hak__retained_remove(i);
        hak_store(&super->kind, i == first ? kind : tail, HAK_RELAXED);
        hak__super_set_taken(i, true);
    }
    hak__arena_state.taken += count;
    return fresh;
}

/* The bytes to map of a run for `bytes` bytes: in a crowded process, the tail of its last SuperSlab too. */
static size_t crowd_bytes(size_t bytes) { return hak__arena_is_crowded() ? hak_align_up(bytes, HAK_SUPER_SIZE) : bytes; }

size_t hak__supers_take(size_t count, size_t align, size_t bytes, enum hak_super_kind kind, bool *fresh)
{
    size_t first;
    hak_assert(count != 0 && align != 0 && (align & (align - 1)) == 0, "a run has SuperSlabs, at a power of two");
    hak_assert(bytes <= count << HAK_SUPER_SHIFT && bytes % hak__page_size() == 0, "its prefix is whole pages of it");
    hak__arena_lock();
    hak__waiting_end_locked();
    /* SuperSlabs for slabs will be followed by more; a huge block does not predict the size of the next. */
    bool ahead = kind == HAK_SUPER_IN_SLABS && bytes != 0;
    size_t mapped = hak__arena_state.mapped, whole = crowd_bytes(bytes);
    int code = find_and_map(count, align, whole, ahead, &first);
    if (code != 0 && (hak__arena_gives_up(code) || whole != bytes))
        code = find_and_map(count, align, bytes, ahead, &first);
    hak__arena_state.waited += hak__arena_state.mapped != mapped;
    if (code == 0)
        *fresh = claim_run(first, count, kind, HAK_SUPER_HUGE_TAIL);
    if (code == 0 && kind == HAK_SUPER_HUGE)
        hak__prefault_even(first, count);
    /* More is in use, so less unused memory may stay; not before, as the request uses some, and a huge block has yet to borrow. */
    if (hak__arena_state.dirty > 0 && kind != HAK_SUPER_HUGE)
        hak__retained_due(hak__os->now_ms());
    hak__arena_unlock();
    return code == 0 ? first : HAK_NO_SUPER;
}

/* The old end of the block may be followed by dirty SuperSlabs; a realloc does not mind their old data. */
static int run_extend(size_t first, size_t count, size_t new_count, size_t bytes)
{
    size_t at;
    int code = hak__run_open(first + count, new_count - count);
    return code == 0 ? hak__run_map(first, new_count, bytes, &at) : code;
}

bool hak__supers_extend(size_t first, size_t count, size_t new_count, size_t bytes)
{
    hak_assert(count <= new_count && bytes <= new_count << HAK_SUPER_SHIFT, "a run grows");
    hak__arena_lock();
    hak__waiting_end_locked();
    hak__tail_end(first + count - 1);
    bool done = next_superslab(WHICH_FREE, first + count, false) >= hak_min(first + new_count, hak__arena_top());
    if (done) {
        size_t whole = crowd_bytes(bytes);
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
    hak_assert(count != 0 && first + count <= hak__arena_top(), "the run lies below the frontier");
    hak__arena_lock();
    uint64_t now = hak__os->now_ms();
    hak__retained_note(now);
    for (size_t i = first; i < first + count; i++)
        hak__super_set_purged(i, 0);
    hak__retained_add_run(first, count, now);
    hak__retained_due(now);
    hak__arena_unlock();
}

/* The first `moved` bytes of a SuperSlab have moved elsewhere. The memory mapped behind them is no longer a prefix, so it is
 * unmapped too. If the system refuses, the prefix is mapped again; if it refuses that as well, the next thread to map there finds a
 * hole. */
static void move_away(size_t super, size_t moved)
{
    uintptr_t start = (uintptr_t)hak__super_start(super);
    size_t had = hak__supers[super].mapped;
    hak_assert(moved <= had, "what has moved was mapped");
    hak__super_count_mapped(super, 0);
    hak__super_set_moved(super, 0);
    if (had == moved || hak__os_unmap(start + moved, had - moved) == 0 || hak__os_map(start, moved) != 0)
        return;
    hak__super_count_mapped(super, had);
}

bool hak__supers_move(size_t from, size_t size, size_t to, size_t new_size)
{
    hak_assert(from != to && size != 0 && size <= new_size, "a block moves elsewhere, and does not shrink");
    hak__arena_lock();
    hak_assert(hak__super_is_taken(from) && hak__super_is_taken(to), "both runs are the caller's");
    hak__tail_end(from + ((size - 1) >> HAK_SUPER_SHIFT));
    uintptr_t source = (uintptr_t)hak__super_start(from), place = (uintptr_t)hak__super_start(to);
    bool may = !hak__arena_is_crowded(), done = may && hak__os_move(source, size, place, new_size) == 0;
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

/* --- SuperSlabs in pieces ------------------------------------------------------------------------------------------ */

hak_counter hak__pieces_missing;

static bool looks_at_once(size_t super)
{
    static _Atomic uint32_t looks;
    return hak_load(&looks, HAK_RELAXED) < LOOKED_AT_MOST && hak_fetch_add(&looks, 1, HAK_RELAXED) < LOOKED_AT_MOST
        && is_there_at_once(hak__super_start(super + 1));
}

static size_t make_bare(size_t super, bool *fresh)
{
    if (!hak__supers_trim(super, 1, 0)) {
        hak__supers_give(super, 1);
        return HAK_NO_SUPER;
    }
    hak_assert(hak__supers[super].mapped == 0, "a bare SuperSlab is as new");
    hak_store(&hak__supers[super].bare, 1, HAK_RELAXED);
    *fresh = true;
    return super;
}

size_t hak__supers_open(bool whole, bool *fresh)
{
    if (whole && hak__is_thrifty())
        return HAK_NO_SUPER;
    size_t super = hak__supers_take(1, 1, whole ? HAK_SUPER_SIZE : 0, HAK_SUPER_IN_SLABS, fresh);
    if (super == HAK_NO_SUPER)
        return super;
    if (whole && *fresh && looks_at_once(super)) {
        hak__thrift_begin();
        whole = false;
    }
    if (!whole)
        return make_bare(super, fresh);
    hak_store(&hak__supers[super].bare, 0, HAK_RELAXED);
    return super;
}

static int map_piece(uintptr_t start, size_t bytes)
{
    return hak__limit_allows(hak__arena_state.mapped, bytes) ? hak__arena_map(start, bytes) : ENOMEM;
}

int hak__piece_map(void *start, size_t bytes)
{
    hak_assert(hak__super_is_bare(hak__super_of(start)), "only a bare SuperSlab is mapped in pieces");
    hak_assert(bytes != 0 && hak__super_of((char *)start + bytes - 1) == hak__super_of(start), "the piece lies in one SuperSlab");
    hak__arena_lock();
    hak__waiting_end_locked();
    int code = map_piece((uintptr_t)start, bytes);
    if (hak__arena_gives_up(code))
        code = map_piece((uintptr_t)start, bytes);
    if (code == 0) {
        hak__thp_mapped((uintptr_t)start, bytes);
        hak_fetch_sub(&hak__pieces_missing, bytes, HAK_RELAXED);
        hak__arena_state.pieces += bytes;
        hak__arena_state.mapped += bytes;
        hak__arena_state.peak = hak_max(hak__arena_state.peak, hak__arena_state.mapped);
    }
    hak__arena_unlock();
    return code;
}

bool hak__piece_unmap(void *start, size_t bytes)
{
    hak__arena_lock();
    bool done = hak__os_unmap((uintptr_t)start, bytes) == 0;
    if (done) {
        hak_assert(hak__arena_state.pieces >= bytes, "sums do not fall below 0");
        hak_fetch_add(&hak__pieces_missing, bytes, HAK_RELAXED);
        hak__arena_state.pieces -= bytes;
        hak__arena_state.mapped -= bytes;
    }
    hak__arena_unlock();
    return done;
}

/* --- the rest of the contract ------------------------------------------------------------------------------------- */

static bool unmap_unused(void)
{
    hak__waiting_end_locked();
    return hak__retained_unmap_all();
}

int hak__arena_init(void)
{
    hak__arena_lock();
    hak__arena_on_refusal(unmap_unused);
    int code = hak__window.base != 0 ? 0 : hak__window_choose();
    hak__super_words = (struct hak_super_word *)hak__meta_start(HAK_META_SUPERS) + HAK_META_FIRST_WORDS - 1;
    hak__supers = (struct hak_super *)(hak__super_words + 1);
    hak__arena_unlock();
    return code;
}

/* A SuperSlab that a thread was taking or giving at the fork is now free, and all of it may hold old data. */
static void arena_settle(size_t super)
{
    struct hak_super *at = &hak__supers[super];
    bool taken = hak__super_is_taken(super), hole = hak_load(&at->kind, HAK_RELAXED) == HAK_SUPER_HOLE;
    if (!hole && taken == (hak_load(&at->kind, HAK_RELAXED) != HAK_SUPER_FREE))
        return;
    hak_store(&at->kind, hole ? HAK_SUPER_HOLE : HAK_SUPER_FREE, HAK_RELAXED);
    at->dirty = hole ? 0 : at->mapped;
    hak__super_set_purged(super, 0);
    hak__super_set_taken(super, hole);
}

static size_t count_ends(void)
{
    size_t ends = 0;
    for (size_t super = hak__super_from(0); super < hak__arena_top(); super = hak__super_from(super + 1))
        ends += hak__super_is_end(super);
    return ends;
}

/* Computes the sums anew: another thread may have been between a SuperSlab's change and theirs. */
static void sum_anew(void)
{
    hak__arena_state.ends = count_ends();
    hak__arena_state.taken = hak__arena_state.moved = hak__arena_state.spare = 0;
    hak__arena_state.holes = hak__parts_foreign() * HAK_PART_SUPERS;
    hak__arena_state.mapped = hak__arena_state.pieces + hak__arena_state.samples;
    for (size_t i = hak__super_from(0); i < hak__arena_top(); i = hak__super_from(i + 1)) {
        bool hole = hak_load(&hak__supers[i].kind, HAK_RELAXED) == HAK_SUPER_HOLE;
        hak__arena_state.mapped += hak__supers[i].mapped;
        hak__arena_state.moved += hak__supers[i].moved;
        hak__arena_state.spare += hak__super_is_taken(i) ? 0 : hak__supers[i].mapped;
        hak__arena_state.holes += hole;
        hak__arena_state.taken += hak__super_is_taken(i) && !hole;
    }
}

/* Unmaps memory that a thread absent here had mapped but not yet noted. */
static void unmap_unsaid(void)
{
    uintptr_t offset = hak__arena_state.mapping - hak__window.base;
    if (hak__arena_state.mapping_bytes != 0 && hak__supers[offset >> HAK_SUPER_SHIFT].mapped <= offset % HAK_SUPER_SIZE)
        hak__os_unmap(hak__arena_state.mapping, hak__arena_state.mapping_bytes);
}

/* Unless another thread held the lock when the process forked, the state is sound, and repairing it would only copy the tables'
 * pages. */
void hak__arena_fork_child(void)
{
    if (hak__arena_inherit()) {
        unmap_unsaid();
        for (size_t i = hak__super_from(0); i < hak__arena_top(); i = hak__super_from(i + 1))
            arena_settle(i);
        sum_anew();
        hak__retained_rebuild();
        hak__window_fork_child();
        hak__arena_unlock();
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
        valid &= hak__holds(taken || (hak__parts_full(i / HAK_PART_SUPERS) >> i / HAK_PART_SUPERS % 64 & 1) == 0,
                            "a full part has no free SuperSlab", super);
        dirty += is_dirty ? super->dirty : 0;
    }
    valid &= hak__holds(mapped + hak__arena_state.pieces + hak__arena_state.samples == hak__arena_state.mapped
                            && dirty == hak__arena_state.dirty && moved == hak__arena_state.moved && spare == hak__arena_state.spare
                            && tails == hak__arena_state.tails,
                        "the arena's sums are right", &hak__arena_state);
    valid &= hak__holds(hak__arena_state.ends == count_ends(), "the ends of what is mapped are counted", &hak__arena_state);
    valid &= hak__retained_is_valid();
    hak__arena_unlock();
    return valid;
}
