/* Chooses where the heap lives: at a random, SuperSlab-aligned base in a part of the address space that other programs rarely use
 * (the same in each run with HAKMEM_LAYOUT_SEED, or if the process was started with fixed addresses). First come the ranges for
 * sampled blocks and for blocks of size 0, then the metadata windows, then user data. Nothing is reserved: the choice is only a number.
 * If a few random bases are refused (a simulator or a small address space), the system is asked for ever smaller free ranges.
 * Also opens parts of the window for runs, and steps over foreign mappings. */
#include "arena/window.h"

#include <errno.h>

#include "arena/limit.h"
#include "diag/options.h"

enum { RANDOM_TRIES = 8, SMALLEST_SHIFT = 28, GUARDED_SHARE = 4 };

/* The table of SuperSlabs lies directly before the blocks and is half as long as a page table of the second level reaches. So the beginnings
 * of both share one if the blocks' lies in the upper half of its reach. */
#define TABLE_REACH ((size_t)1 << 30)

enum { PARTS = HAK_WINDOW_SUPERS / HAK_PART_SUPERS, PART_WORDS = (PARTS + 63) / 64 };

_Static_assert(HAK_PART_SUPERS == 64, "a part is a word of bits");

struct hak_window hak__window;
static size_t window_supers;

static uintptr_t guarded_start;
static hak_first_data _Atomic uint64_t open_parts[PART_WORDS];
static hak_rare_data _Atomic uint64_t foreign_parts[PART_WORDS];

size_t hak__window_supers(void) { return window_supers; }
uintptr_t hak__guarded_start(void) { return guarded_start; }
uintptr_t hak__zero_size_start(void) { return guarded_start + hak__guarded_size(); }

static size_t guarded_of(size_t supers) { return hak_min(HAK_GUARDED_SIZE, (supers << HAK_SUPER_SHIFT) / GUARDED_SHARE); }
size_t hak__guarded_size(void) { return guarded_of(window_supers); }

/* The addresses in front of the window. */
static size_t span_before(size_t supers) { return hak__meta_span(supers) + guarded_of(supers) + HAK_ZERO_SIZE_SIZE; }

/* Maps the start of what every heap needs, and the memory of the first heap, whose id is 1. On failure unmaps the pieces mapped so
 * far. */
static int map_first(void)
{
    size_t first = hak_align_up(HAK_HEAP_FIRST, hak__page_size());
    for (int w = 0; w < HAK_META_WINDOWS; w++) {
        int code = w == HAK_META_HEAPS ? hak__meta_heap(1, &first) : hak__meta_ensure((enum hak_meta_window)w, w != HAK_META_WORDS);
        if (code == 0)
            continue;
        while (w-- > 0)
            hak__meta_give_up((enum hak_meta_window)w);
        return code;
    }
    return 0;
}

static int try_base(uintptr_t base, size_t supers)
{
    hak_assert(base % HAK_SUPER_SIZE == 0 && supers <= HAK_WINDOW_SUPERS, "SuperSlabs are aligned, and have bits");
    uintptr_t data = hak__meta_layout(base + guarded_of(supers) + HAK_ZERO_SIZE_SIZE, supers);
    int code = map_first();
    if (code != 0)
        return code;
    window_supers = supers;
    guarded_start = base;
    hak__window.map = (struct hak_slab *)hak__meta_start(HAK_META_MAP);
    hak_owner_store(&hak__window.slabs, 0);
    hak__window.base = data;
    hak__window_show();
    hak_assert(data % HAK_SUPER_SIZE == 0, "SuperSlabs are aligned");
    return 0;
}

int hak__window_choose(void)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    size_t before = span_before(HAK_WINDOW_SUPERS);
    size_t room = HAK_WINDOW_HIGH - HAK_WINDOW_LOW - HAK_WINDOW_SIZE - before - TABLE_REACH / 2;
    int code = ENOMEM;
    bool fixed = hak__os->fixed();
    for (uint64_t i = 0; i < RANDOM_TRIES; i++) {
        uint64_t seeded = hak__layout_choice(i, room);
        uint64_t choice = seeded != 0 ? seeded : fixed ? hak_mix64(i + 1) : hak__os->random();
        uintptr_t data = HAK_WINDOW_LOW + hak_align_down(choice % room, HAK_SUPER_SIZE) + before;
        code = try_base((data | TABLE_REACH / 2) - before, HAK_WINDOW_SUPERS);
        if (code == 0)
            return 0;
    }
    for (unsigned shift = HAK_WINDOW_SHIFT; shift >= SMALLEST_SHIFT; shift--) {
        size_t supers = (size_t)1 << (shift - HAK_SUPER_SHIFT);
        uintptr_t found = hak__os_probe(((size_t)1 << shift) + span_before(supers) + HAK_SUPER_SIZE);
        if (found == 0)
            continue;
        code = try_base(hak_align_up(found, HAK_SUPER_SIZE), supers);
        if (code == 0)
            return 0;
    }
    return code;
}

/* --- sampled blocks -------------------------------------------------------------------------------------------------------- */

hak_inline bool is_guarded(uintptr_t address, size_t bytes)
{
    return guarded_start != 0 && address - guarded_start < hak__guarded_size() && bytes <= HAK_GUARDED_STRIDE;
}

int hak__guarded_map(uintptr_t address, size_t bytes)
{
    hak_assert(is_guarded(address, bytes), "sampled blocks have a range of their own");
    hak__arena_lock();
    int code = hak__limit_allows(hak__arena_state.mapped, bytes) ? hak__os_map(address, bytes) : ENOMEM;
    if (code == 0)
        hak__arena_count_samples(bytes);
    hak__arena_unlock();
    return code;
}

bool hak__guarded_unmap(uintptr_t address, size_t bytes)
{
    hak_assert(is_guarded(address, bytes), "sampled blocks have a range of their own");
    hak__arena_lock();
    bool done = hak__os_unmap(address, bytes) == 0;
    if (done)
        hak__arena_count_samples(0 - bytes);
    hak__arena_unlock();
    return done;
}

/* --- parts --------------------------------------------------------------------------------------------------------------- */

bool hak__part_is_open(size_t part)
{
    /* acquire: pairs with the release in mark_open. */
    return hak_load(&open_parts[part / 64], HAK_ACQUIRE) >> part % 64 & 1;
}

static bool is_foreign(size_t part) { return hak_load(&foreign_parts[part / 64], HAK_RELAXED) >> part % 64 & 1; }

static void mark_open(size_t part)
{
    hak_assert(hak__arena_is_mine() && !is_foreign(part), "parts open under the lock, unless they are foreign");
    /* release: a thread that reads the bit may read the descriptors. */
    hak_fetch_or(&open_parts[part / 64], 1ull << part % 64, HAK_RELEASE);
}

static void mark_foreign(size_t part)
{
    hak_assert(!hak__part_is_open(part), "an open part stays open");
    hak_fetch_or(&foreign_parts[part / 64], 1ull << part % 64, HAK_RELAXED);
}

bool hak__super_is_hole(size_t super)
{
    hak_assert(super < hak__arena_top(), "above the frontier nothing is known");
    size_t part = super / HAK_PART_SUPERS;
    return hak__part_is_open(part) ? hak_load(&hak__supers[super].kind, HAK_RELAXED) == HAK_SUPER_HOLE : is_foreign(part);
}

size_t hak__part_next(size_t part, size_t top)
{
    hak_assert(top <= hak__arena_top(), "a walk ends below the frontier");
    while (part * HAK_PART_SUPERS < top) {
        uint64_t bits = hak_load(&open_parts[part / 64], HAK_ACQUIRE) >> part % 64; /* acquire: as above */
        if (bits != 0)
            return hak_likely(bits & 1) ? part : part + hak_ctz64(bits);
        part = (part / 64 + 1) * 64;
    }
    return part;
}

size_t hak__super_before(size_t super)
{
    while (super > 0) {
        size_t part = (super - 1) / HAK_PART_SUPERS;
        if (hak__part_is_open(part))
            return super - 1;
        bool none = hak_load(&open_parts[part / 64], HAK_RELAXED) == 0;
        super = (none ? hak_align_down(part, 64) : part) * HAK_PART_SUPERS;
    }
    return HAK_NO_SUPER;
}

size_t hak__parts_alike(size_t part)
{
    uint64_t open = hak_load(&open_parts[part / 64], HAK_RELAXED), others = hak_load(&foreign_parts[part / 64], HAK_RELAXED);
    uint64_t like = hak__part_is_open(part) ? hak__parts_full(part) : is_foreign(part) ? others : ~(open | others);
    like >>= part % 64;
    return (like & 1) == 0 ? 1 : like == UINT64_MAX ? 64 : hak_ctz64(~like);
}

uint64_t hak__part_free(size_t part)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    return hak__part_is_open(part) ? ~(hak__super_words - part)->taken : is_foreign(part) ? 0 : ~0ull;
}

size_t hak__parts_foreign(void)
{
    size_t count = 0;
    for (size_t word = 0; word * 64 * HAK_PART_SUPERS < hak__arena_top(); word++)
        count += hak_popcount64(hak_load(&foreign_parts[word], HAK_RELAXED));
    return count;
}

/* --- opening --------------------------------------------------------------------------------------------------------- */

/* Extends the tables that are indexed by address, up to a new frontier. */
static int extend_tables(size_t new_top)
{
    size_t words = hak_div_up(new_top, HAK_PART_SUPERS);
    int code = hak__meta_ensure(HAK_META_MAP, new_top * HAK_SUPER_SLABS * sizeof(struct hak_slab));
    if (code == 0)
        code = hak__meta_ensure(HAK_META_SUPERS,
                                HAK_META_FIRST_WORDS * sizeof(struct hak_super_word) + new_top * sizeof(struct hak_super));
    if (code == 0 && words > HAK_META_FIRST_WORDS)
        code = hak__meta_ensure(HAK_META_WORDS, (words - HAK_META_FIRST_WORDS) * sizeof(struct hak_super_word));
    return code;
}

/* The first part's descriptors grow with it, the others' are mapped at once. */
static int part_open(size_t part, size_t end)
{
    if (part == 0) {
        int code = hak__meta_ensure(HAK_META_SPANS, hak_min(end, HAK_PART_SUPERS) * HAK_SUPER_SPANS);
        if (code != 0 || hak__part_is_open(0))
            return code;
    } else if (hak__part_is_open(part)) {
        return 0;
    } else {
        int code = hak__meta_piece(HAK_META_SPANS, part * HAK_PART_SUPERS * HAK_SUPER_SPANS, HAK_PART_SUPERS * HAK_SUPER_SPANS);
        if (code != 0)
            return code;
    }
    mark_open(part);
    hak__meta_piece_done();
    return 0;
}

static void raise_top(size_t new_top)
{
    hak_assert(new_top >= hak__arena_top() && new_top <= window_supers, "the frontier only rises, within the window");
    /* release: a thread that reads the new mark may read the metadata below it. */
    hak_store(&hak__arena_frontier, new_top, HAK_RELEASE);
    hak_owner_store(&hak__window.slabs, new_top * HAK_SUPER_SLABS);
    hak_owner_store(&hak__window.sized_slabs, hak__window.exact_sizes ? 0 : new_top * HAK_SUPER_SLABS);
    hak__window_show();
}

static int pass_over(size_t part);

int hak__run_open(size_t first, size_t count)
{
    size_t end = first + count, top = hak__arena_top();
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    if (end > hak__window_supers())
        return ENOMEM;
    int code = end > top ? extend_tables(end) : 0;
    if (code == EEXIST) /* a table cannot be placed elsewhere */
        return ENOMEM;
    for (size_t part = first / HAK_PART_SUPERS; code == 0 && part * HAK_PART_SUPERS < end; part++)
        if ((code = part_open(part, hak_max(end, top))) == EEXIST)
            return pass_over(part);
    if (code == 0 && end > top)
        raise_top(end);
    return code;
}

/* --- holes ------------------------------------------------------------------------------------------------------------ */

/* Whether a foreign mapping covers the first page of a SuperSlab where nothing is ours. If the kernel does not tell, each such
 * SuperSlab is found when it is mapped. */
static bool begins_foreign(size_t super)
{
    unsigned char page;
    return hak__os_resident((uintptr_t)hak__super_start(super), hak__page_size(), &page) == 0;
}

/* The search's bound: the first SuperSlab behind `super` where something is ours, or the window's end. */
static size_t next_own(size_t super)
{
    for (super = hak__super_from(super + 1); super < hak__arena_top(); super = hak__super_from(super + 1))
        if (hak__super_is_taken(super) || hak__supers[super].mapped != 0)
            return super;
    return hak__window_supers();
}

/* The end of the foreign mapping found at a SuperSlab, by steps that double, then halve. A gap shorter than the mapping may count
 * as part of it. */
static size_t foreign_end(size_t super)
{
    size_t low = super, limit = next_own(super), step = 1;
    for (; step < limit - low && begins_foreign(low + step); step *= 2)
        low += step;
    size_t high = low + hak_min(step, limit - low);
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (begins_foreign(middle))
            low = middle;
        else
            high = middle;
    }
    return high;
}

static void mark_hole(size_t super)
{
    hak_assert(!hak__super_is_taken(super) && hak__supers[super].dirty == 0, "a hole has no block and no old data");
    hak_store(&hak__supers[super].kind, HAK_SUPER_HOLE, HAK_RELAXED);
    hak__super_set_taken(super, true);
}

/* Closed parts have no entries. */
static void mark_holes(size_t super, size_t end)
{
    hak_assert(super < end && end <= hak__arena_top(), "holes lie below the frontier");
    hak__arena_state.holes += end - super;
    for (size_t i = super; i < end; i++) {
        size_t part = i / HAK_PART_SUPERS;
        if (hak__part_is_open(part)) {
            mark_hole(i);
        } else {
            mark_foreign(part);
            i = (part + 1) * HAK_PART_SUPERS - 1;
        }
    }
}

/* The parts at both ends are open afterwards, unless the last one has proved to be wholly foreign. */
void hak__hole_make(size_t super)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    hak_assert(hak__part_is_open(super / HAK_PART_SUPERS), "a run is mapped in open parts");
    size_t end = foreign_end(super);
    int code = end > super + 1 ? hak__run_open(end - 1, 1) : 0;
    if (code == HAK_PASSED)
        end = hak_align_down(end - 1, HAK_PART_SUPERS);
    else if (code != 0)
        end = super + 1;
    mark_holes(super, end);
}

/* A foreign mapping lies where the descriptors of a part should be: the part is never used. HAK_PASSED, or ENOMEM if no part can
 * follow. */
static int pass_over(size_t part)
{
    size_t top = hak__arena_top(), from = part * HAK_PART_SUPERS, end = from + HAK_PART_SUPERS;
    if (hak__part_is_open(part)) /* the first one, as far as it reaches */
        from = top;
    hak_assert(from < end, "what is open below the frontier has its descriptors");
    if (end > top && (end > hak__window_supers() || extend_tables(end) != 0))
        return ENOMEM;
    raise_top(hak_max(end, top));
    mark_holes(from, end);
    return HAK_PASSED;
}

/* --- forks ------------------------------------------------------------------------------------------------------------ */

/* Descriptors of an open part are in use; others will be mapped anew. */
void hak__window_fork_child(void)
{
    size_t offset = hak__meta_piece_begun(HAK_META_SPANS);
    if (offset != HAK_META_NO_PIECE && hak__part_is_open(offset / (HAK_PART_SUPERS * HAK_SUPER_SPANS)))
        hak__meta_piece_done();
    hak__meta_fork_child();
}
