/* Maps and unmaps runs of SuperSlabs: with one system call per gap, and in a crowded process (limit.h) without leaving gaps. */
#include "arena/mapping.h"

#include <errno.h>

#include "arena/hugepages.h"
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
