/* Maps and unmaps runs of SuperSlabs: with one system call per gap, and in a crowded process (limit.h) without leaving gaps. Asks for
 * huge pages. */
#include "arena/mapping.h"

#include <errno.h>

#include "arena/limit.h"
#include "arena/returned.h"
#include "arena/window.h"
#include "diag/options.h"

/* The longest gap of free SuperSlabs below that is mapped too; blocks with wider alignment lie farther apart. */
enum { GAP_MOST = 64, PURGED_MAPPED_MOST = 16 << 20 };

static _Atomic size_t purged_mapped; /* the sum of all SuperSlabs' */

/* --- mapping without gaps -------------------------------------------------------------------------------------------- */

/* Whether a SuperSlab is free and wholly unmapped. Not in a closed part, which may be foreign. */
static bool is_gap(size_t super)
{
    return hak__part_is_open(super / HAK_PART_SUPERS) && hak__supers[super].mapped == 0 && !hak__super_is_taken(super);
}

/* The bytes between an unmapped SuperSlab and the end of the mapped memory below; 0 if there are none, or too many to be mapped
 * too. */
static size_t gap_below(size_t super)
{
    size_t at = super;
    if (hak__supers[super].mapped != 0)
        return 0;
    while (at > 0 && super - at < GAP_MOST && is_gap(at - 1))
        at--;
    if (at == 0 || hak__supers[at - 1].mapped == 0 || hak_load(&hak__supers[at - 1].kind, HAK_RELAXED) == HAK_SUPER_HOLE)
        return 0;
    return ((super - at + 1) << HAK_SUPER_SHIFT) - hak__supers[at - 1].mapped;
}

/* Marks the whole range: marking a part would make it a separate mapping. */
static int map_marked(uintptr_t address, size_t size, int code)
{
    if (code == 0)
        hak__thp_mapped(address, size);
    return code;
}

/* Notes no range, because the SuperSlabs of the gap note the mapping one after another, and a child could not tell which have done
 * so. */
static int map_whole_gap(uintptr_t address, size_t size) { return map_marked(address, size, hak__os_map(address, size)); }

/* Notes that the gap is mapped. The SuperSlab at its bottom may be in use; then the gap includes its tail. */
static void fill_gap(size_t super, size_t gap)
{
    for (; gap != 0; gap -= hak_min(gap, HAK_SUPER_SIZE))
        hak__super_count_mapped(--super, HAK_SUPER_SIZE);
}

/* Maps, by one call, the gap below and `length` bytes behind the mapped part of the SuperSlab. 0 or an errno code. */
static int map_with_gap(size_t super, size_t length, size_t gap, int call(uintptr_t, size_t))
{
    hak_assert(gap == 0 || hak__supers[super].mapped == 0, "a gap lies directly below the new memory");
    if (!hak__limit_allows(hak__arena_state.mapped, gap + length))
        return ENOMEM;
    int code = call((uintptr_t)hak__super_start(super) + hak__supers[super].mapped - gap, gap + length);
    if (code == 0)
        fill_gap(super, gap);
    return code;
}

static int map_behind(size_t super, size_t length)
{
    size_t gap = gap_below(super);
    if (gap != 0 && hak__arena_is_crowded() && map_with_gap(super, length, gap, map_whole_gap) == 0)
        return 0;
    uintptr_t start = (uintptr_t)hak__super_start(super) + hak__supers[super].mapped;
    int code = map_marked(start, length, hak__arena_map(start, length));
    if (code != ENOMEM)
        return code;
    bool below = hak__supers[super].mapped != 0 || gap != 0 || (super > 0 && hak__supers[super - 1].mapped == HAK_SUPER_SIZE);
    return below && map_with_gap(super, length, gap, hak__os_extend) == 0 ? 0 : ENOMEM;
}

/* --- runs ------------------------------------------------------------------------------------------------------------ */

/* Counts the SuperSlabs from `i` on, up to `end` and `most`, that have nothing of what the block needs; returns the bytes to
 * map. */
static size_t map_length(size_t first, size_t i, size_t end, size_t bytes, size_t most, size_t *next_one)
{
    size_t length = hak__super_need(i, bytes) - hak__supers[first + i].mapped, j = i + 1;
    hak_assert(hak__part_is_open((first + i) / HAK_PART_SUPERS), "memory is mapped in open parts");
    for (; j < end && j - i < most && hak__supers[first + j].mapped == 0 && hak__super_need(j, bytes) != 0; j++)
        length += hak__super_need(j, bytes);
    *next_one = j;
    return length;
}

int hak__run_map(size_t first, size_t count, size_t bytes, size_t *at)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    hak_assert(bytes <= count << HAK_SUPER_SHIFT && first + count <= hak__arena_top(), "the run lies below the frontier");
    for (size_t i = 0, j, most = count; i < count;) {
        struct hak_super *super = &hak__supers[first + i];
        *at = first + i;
        if (super->mapped >= hak__super_need(i, bytes)) {
            i++;
            continue;
        }
        size_t length = map_length(first, i, count, bytes, most, &j);
        if (!hak__limit_allows(hak__arena_state.mapped, length))
            return ENOMEM;
        int code = map_behind(first + i, length);
        if (code == EEXIST && j - i > 1) {
            most = (j - i) / 2;
            continue;
        }
        if (code != 0)
            return code;
        for (; i < j; i++)
            hak__super_count_mapped(first + i, hak__super_need(i, bytes));
        hak__arena_state.peak = hak_max(hak__arena_state.peak, hak__arena_state.mapped);
    }
    return 0;
}

bool hak__place_stays(uintptr_t place, size_t bytes)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    int code = hak__os_map(place, bytes);
    unsigned char page;
    if (code == ENOMEM) /* the code with too many mappings, where it would otherwise be EEXIST */
        code = hak__os_resident(place, hak__page_size(), &page);
    return code == 0 || code == EEXIST;
}

/* --- giving back ----------------------------------------------------------------------------------------------------- */

bool hak__run_trim(size_t first, size_t count, size_t bytes)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    for (size_t i = count; i-- > 0;) {
        size_t need = hak__super_need(i, bytes), have = hak__supers[first + i].mapped;
        hak_assert(hak__super_is_taken(first + i), "the run is the caller's");
        if (have <= need)
            continue;
        hak__super_count_mapped(first + i, need);
        if (hak__os_unmap((uintptr_t)hak__super_start(first + i) + need, have - need) != 0) {
            hak__super_count_mapped(first + i, have);
            return false;
        }
    }
    return true;
}

void hak__super_set_purged(size_t super, uint32_t bytes)
{
    hak_assert(bytes <= HAK_SUPER_SIZE, "no more is purged than there is");
    uint32_t before = hak_exchange(&hak__supers[super].purged_mapped, bytes, HAK_RELAXED);
    hak_fetch_add(&purged_mapped, (size_t)bytes - before, HAK_RELAXED);
}

/* Under HAKMEM_UNMAP mapped memory has to stay near resident memory, but a piece of a SuperSlab cannot be unmapped. Pages that came
 * back meanwhile still count, so this is an upper bound. */
bool hak__arena_purge_range(void *start, size_t bytes, enum hak_unused kind)
{
    size_t super = hak__super_of(start);
    hak_assert(bytes != 0 && hak__super_of((char *)start + bytes - 1) == super, "the range lies in one SuperSlab");
    hak_assert(hak_load(&hak__supers[super].kind, HAK_RELAXED) == HAK_SUPER_IN_SLABS,
               "only a SuperSlab in slabs is purged in part");
    size_t before = hak_load(&hak__supers[super].purged_mapped, HAK_RELAXED), after = hak_min(before + bytes, HAK_SUPER_SIZE);
    bool counts = hak__option(HAK_OPTION_unmap) != 0;
    if (counts && hak_load(&purged_mapped, HAK_RELAXED) + (after - before) > PURGED_MAPPED_MOST)
        return false;
    uint64_t began = hak__return_begin();
    if (hak__os_purge((uintptr_t)start, bytes) != 0)
        return false;
    hak__return_end(kind, bytes, began);
    hak__super_set_purged(super, (uint32_t)after);
    return true;
}

int hak__arena_advise(void *start, size_t bytes, enum hak_os_advice advice)
{
    hak_assert((uintptr_t)start % hak__page_size() == 0 && bytes % hak__page_size() == 0, "advice is for whole pages");
    return hak__os_advise((uintptr_t)start, bytes, advice);
}

/* --- huge pages ------------------------------------------------------------------------------------------------------- */

/* A SuperSlab unmarked for collapsing is a separate mapping; at most this share of the process's mappings may be such. */
enum { MAPPINGS_PER_UNMARKED = 16 };

/* Memory is dense if no more than this share of its pages is absent. */
enum { ABSENT_SHARE = 16, PAGES_OF_SUPER = HAK_SUPER_SIZE / 4096 };

static _Atomic uint32_t setting; /* enum hak_os_huge_setting, the system's */
static _Atomic bool impossible; /* the kernel does not support collapsing */
hak_rare_data struct hak_thp_counts hak__thp_counts;

static enum hak_os_huge_setting thp_setting(void) { return (enum hak_os_huge_setting)hak_load(&setting, HAK_RELAXED); }

/* Read once: a later change of the setting does not affect what is already mapped. */
bool hak__thp_look(void)
{
    if (thp_setting() == HAK_OS_HUGE_UNKNOWN)
        hak_store(&setting, hak__os->huge_setting(), HAK_RELAXED);
    return thp_setting() != HAK_OS_HUGE_UNKNOWN;
}

/* While the setting is not known, marks all, and notes it. Later what is mapped behind a marked part of a SuperSlab is marked too: a
 * SuperSlab of two mappings can never be one huge page. */
void hak__thp_mapped(uintptr_t start, size_t bytes)
{
    hak_assert(start % hak__page_size() == 0 && bytes % hak__page_size() == 0, "whole pages are mapped");
    uint32_t now = hak_load(&setting, HAK_RELAXED);
    size_t first = hak__super_of((void *)start), last = hak__super_of((void *)(start + bytes - 1));
    bool known = now != HAK_OS_HUGE_UNKNOWN, inside = (uintptr_t)hak__super_start(first) != start;
    hak_assert(hak__arena_is_mine() && last < hak__arena_top(), "the memory is the arena's, whose lock is held");
    if (hak__option(HAK_OPTION_thp) == HAK_THP_ALWAYS || now == HAK_OS_HUGE_ALWAYS) {
        hak__os_advise(start, bytes, hak__option(HAK_OPTION_thp) == HAK_THP_ALWAYS ? HAK_OS_HUGE : HAK_OS_NO_HUGE);
        return;
    }
    uintptr_t end = known ? hak_min(start + bytes, (uintptr_t)hak__super_start(first + 1)) : start + bytes;
    if ((!known || (inside && hak__supers[first].no_huge)) && hak__os_advise(start, end - start, HAK_OS_NO_HUGE) == EINVAL)
        hak_store(&setting, HAK_OS_HUGE_NEVER, HAK_RELAXED); /* the kernel has no huge pages */
    for (size_t i = first + inside; i <= last; i++)
        hak__supers[i].no_huge = !known;
    hak__supers[first].no_huge |= !known;
}

bool hak__thp_must_stay(size_t super)
{
    struct hak_super *at = &hak__supers[super];
    hak_assert(hak_load(&at->kind, HAK_RELAXED) == HAK_SUPER_IN_SLABS, "only a SuperSlab in slabs is purged in part");
    bool collapsed = hak_load(&at->collapsed, HAK_RELAXED);
    if (!collapsed && hak__option(HAK_OPTION_thp) != HAK_THP_ALWAYS)
        return false;
    if (hak_popcount32((uint32_t)hak_load(&at->slabs, HAK_RELAXED)) < HAK_SUPER_SLABS / 2)
        return true;
    if (collapsed && hak_exchange(&at->collapsed, false, HAK_RELAXED))
        hak_fetch_add(&hak__thp_counts.split, 1, HAK_RELAXED);
    return false;
}

bool hak__thp_is_dense(size_t super)
{
    unsigned char pages[PAGES_OF_SUPER];
    size_t count = HAK_SUPER_SIZE / hak__page_size(), present = 0;
    if (count > PAGES_OF_SUPER || hak__os_resident((uintptr_t)hak__super_start(super), HAK_SUPER_SIZE, pages) != 0)
        return false;
    for (size_t i = 0; i < count; i++)
        present += pages[i] & 1;
    return present >= count - count / ABSENT_SHARE;
}

bool hak__thp_may_collapse(void)
{
    size_t unmarked = hak_load(&hak__thp_counts.collapsed, HAK_RELAXED), most = hak__limit_mappings() / MAPPINGS_PER_UNMARKED;
    return hak__option(HAK_OPTION_thp) == HAK_THP_AUTO && !hak_load(&impossible, HAK_RELAXED)
        && (thp_setting() == HAK_OS_HUGE_MADVISE || (thp_setting() == HAK_OS_HUGE_ALWAYS && unmarked < most));
}

bool hak__thp_collapse(size_t super)
{
    hak_assert(hak__supers[super].mapped == HAK_SUPER_SIZE && !hak__super_is_bare(super), "a huge page is a whole SuperSlab");
    uintptr_t start = (uintptr_t)hak__super_start(super);
    if (thp_setting() == HAK_OS_HUGE_ALWAYS || hak__supers[super].no_huge) /* collapsing a marked SuperSlab is refused */
        hak__os_advise(start, HAK_SUPER_SIZE, HAK_OS_HUGE);
    int code = hak__os_advise(start, HAK_SUPER_SIZE, HAK_OS_COLLAPSE);
    if (code == 0) {
        hak_store(&hak__supers[super].collapsed, true, HAK_RELAXED);
        hak_fetch_add(&hak__thp_counts.collapsed, 1, HAK_RELAXED);
        return true;
    }
    hak_fetch_add(&hak__thp_counts.refused, 1, HAK_RELAXED);
    if (code == EINVAL && hak_load(&hak__thp_counts.collapsed, HAK_RELAXED) == 0)
        hak_store(&impossible, true, HAK_RELAXED);
    return false;
}

/* --- huge pages ahead of their faults ------------------------------------------------------------------------------------ */

static bool thp_may_prefault(void)
{
    bool fits = hak__page_size() * PAGES_OF_SUPER == HAK_SUPER_SIZE; /* where pages are larger, a SuperSlab is no huge page */
    return fits && hak__option(HAK_OPTION_thp) == HAK_THP_AUTO && thp_setting() >= HAK_OS_HUGE_MADVISE;
}

/* If the kernel gives a page of the usual size, the next one is absent. */
static bool thp_prefault(size_t super)
{
    hak_assert(hak__supers[super].mapped == HAK_SUPER_SIZE, "a huge page is a whole SuperSlab");
    uintptr_t start = (uintptr_t)hak__super_start(super);
    size_t page = hak__page_size();
    unsigned char next = 0;
    if (hak__os_advise(start, HAK_SUPER_SIZE, HAK_OS_HUGE) != 0)
        return false;
    *(volatile char *)start = 0;
    bool whole = hak__os_resident(start + page, page, &next) == 0 && (next & 1) != 0;
    hak__os_advise(start, HAK_SUPER_SIZE, HAK_OS_NO_HUGE);
    hak__supers[super].no_huge = thp_setting() == HAK_OS_HUGE_MADVISE;
    hak_fetch_add(&hak__thp_counts.prefaulted, whole, HAK_RELAXED);
    return whole;
}

enum {
    PREFAULT_FROM = 8, /* SuperSlabs already in slabs */
    PROBE_EVERY = 8,
    PREFAULT_PAUSE = 64, /* SuperSlabs to skip after one for which the kernel had no huge page */
};

/* Threads that open SuperSlabs at the same time may overwrite each other's probe; one of them counts. */
static struct {
    _Atomic uint32_t probe; /* the SuperSlab left to fault page by page, plus one; 0: it has been looked at */
    _Atomic uint32_t opened; /* so far, modulo 2^32 */
    _Atomic bool dense; /* the result of the last probe */
    _Atomic uint32_t pause_left;
} prefaults;

static void look_at_probe(void)
{
    size_t super = (size_t)hak_exchange(&prefaults.probe, 0, HAK_RELAXED) - 1;
    if (super != HAK_NO_SUPER)
        hak_store(&prefaults.dense,
                  hak_load(&hak__supers[super].kind, HAK_RELAXED) == HAK_SUPER_IN_SLABS && hak__thp_is_dense(super), HAK_RELAXED);
}

/* False: the kernel had no huge page. It is not asked again for a while, since it may have searched for one. */
static bool prefault_now(size_t super)
{
    uint32_t left = hak_load(&prefaults.pause_left, HAK_RELAXED);
    if (left != 0)
        hak_store(&prefaults.pause_left, left - 1, HAK_RELAXED);
    if (left != 0 || thp_prefault(super))
        return left == 0;
    hak_store(&prefaults.pause_left, PREFAULT_PAUSE, HAK_RELAXED);
    return false;
}

void hak__prefault(size_t super, size_t others)
{
    hak_assert(!hak__super_is_bare(super), "a bare SuperSlab has no memory to touch");
    bool may = others >= PREFAULT_FROM && thp_may_prefault() && !hak__ahead_counts();
    if (may)
        look_at_probe();
    bool turn = hak_fetch_add(&prefaults.opened, 1, HAK_RELAXED) % PROBE_EVERY != 0;
    if (!may || !turn || !hak_load(&prefaults.dense, HAK_RELAXED) || !prefault_now(super))
        hak_store(&prefaults.probe, (uint32_t)super + 1, HAK_RELAXED);
}

void hak__prefault_even(size_t first, size_t count)
{
    hak_assert(hak__arena_is_mine() && hak__super_is_taken(first), "the run is the caller's, under the arena's lock");
    size_t marked = 0, bytes = 0;
    for (size_t i = first; i < first + count; i++) {
        marked += hak__supers[i].no_huge;
        bytes += hak__supers[i].mapped;
    }
    if (hak_likely(marked == 0) || marked == count || bytes == 0)
        return;
    hak__os_advise((uintptr_t)hak__super_start(first), bytes, HAK_OS_NO_HUGE);
    for (size_t i = first; i < first + count; i++)
        hak__supers[i].no_huge = 1;
}
