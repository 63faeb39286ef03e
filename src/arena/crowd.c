/* Few mappings. The kernel allows a process so many of them (vm.max_map_count), and each huge block whose last SuperSlab is
 * mapped in part begins one, as does each that ends at a guard. Neighbours with the same flags are one mapping, so from a share of that number on memory is
 * mapped without gaps: tails too, and what is free below; blocks have no guards behind them then. Nobody touches it, so it takes no memory, only addresses; where
 * those count (HAKMEM_LIMIT, HAKMEM_UNMAP, RLIMIT_AS, locked memory) the share is larger, and a request that is refused so is
 * tried without its tail. If the program itself uses up its mappings, those that exist grow, which the kernel still allows.
 * Called by arena.c, lru.c, lend.c and meta.c under the arena's lock. Bare SuperSlabs (pieces.c) do not count: what is mapped
 * in them is mapped to be used.
 *
 * Invariant: state.ends is the number of SuperSlabs with an end of what is mapped: mapped in part, or wholly and the next one
 * not at all. */
#include "arena/crowd.h"

#include <errno.h>

#include "arena/limit.h"
#include "arena/regions.h"
#include "arena/reserve.h"
#include "arena/state.h"
#include "arena/thp.h"
#include "os/os.h"

/* Gaps of free SuperSlabs below that are mapped along; blocks aligned to more lie further apart. */
enum { GAP_MOST = 64 };

static _Atomic bool crowded;

/* --- the count ----------------------------------------------------------------------------------------------------- */

static bool crowd_is_end(size_t super)
{
    uint32_t mapped = hak__supers[super].mapped;
    bool last = super + 1 >= hak__arena_top();
    return mapped != 0 && (mapped != HAK_SUPER_SIZE || last || hak__supers[super + 1].mapped == 0);
}

static size_t crowd_ends_at(size_t super) { return crowd_is_end(super) + (super > 0 && crowd_is_end(super - 1)); }

void hak__super_set_mapped(size_t super, uint32_t bytes)
{
    size_t before = crowd_ends_at(super);
    if (!hak__super_is_taken(super))
        hak__arena_state.spare += (size_t)bytes - hak__supers[super].mapped;
    hak__supers[super].mapped = bytes;
    hak__arena_state.ends += crowd_ends_at(super) - before;
}

size_t hak__crowd_count(void)
{
    size_t ends = 0;
    for (size_t super = hak__super_from(0); super < hak__arena_top(); super = hak__super_from(super + 1))
        ends += crowd_is_end(super);
    return ends;
}

bool hak__is_crowded(void)
{
    size_t most = hak__limit_mappings(), many = hak__arena_state.ends + hak__arena_state.moved;
    if (many <= most / 4)
        return false;
    bool addresses_count = hak__ahead_counts() || hak__limit_exists() || hak__limit_addresses();
    return !addresses_count || many > most / 4 * 3;
}

/* Once and for all: a gap that is filled between two mappings leaves them two for the kernel, which does not merge what has
 * had pages apart, so the count falls below what there is. */
void hak__crowd_publish(void)
{
    if (hak_unlikely(hak__is_crowded()))
        hak_store(&crowded, true, HAK_RELAXED);
}

bool hak__arena_crowded(void) { return hak_load(&crowded, HAK_RELAXED); }

size_t hak__crowd_bytes(size_t bytes) { return hak__is_crowded() ? hak_align_up(bytes, HAK_SUPER_SIZE) : bytes; }

/* --- mapping without gaps -------------------------------------------------------------------------------------------- */

/* Free, and nothing of it is mapped. A closed region may be somebody else's, and what is mapped there would not be seen. */
static bool crowd_is_gap(size_t super)
{
    return hak__region_is_open(super / HAK_REGION_SUPERS) && hak__supers[super].mapped == 0 && !hak__super_is_taken(super);
}

/* The bytes that are not mapped between a SuperSlab of which nothing is and the end of what is mapped below; 0 if there are
 * none, or more than may be mapped along. */
static size_t gap_below(size_t super)
{
    size_t at = super;
    if (hak__supers[super].mapped != 0)
        return 0;
    while (at > 0 && super - at < GAP_MOST && crowd_is_gap(at - 1))
        at--;
    if (at == 0 || hak__supers[at - 1].mapped == 0 || hak_load(&hak__supers[at - 1].kind, HAK_RELAXED) == HAK_SUPER_HOLE)
        return 0;
    return ((super - at + 1) << HAK_SUPER_SHIFT) - hak__supers[at - 1].mapped;
}

static int crowd_map_new(uintptr_t address, size_t size)
{
    int code = hak__os_map(address, size);
    if (code == 0)
        hak__thp_mapped(address, size);   /* all of it: a part would be a mapping of its own */
    return code;
}

/* What was a gap is mapped now; the SuperSlab at the bottom may be in use, and has its tail. */
static void crowd_fill_gap(size_t super, size_t gap)
{
    hak__arena_state.mapped += gap;
    for (; gap != 0; gap -= hak_min(gap, HAK_SUPER_SIZE))
        hak__super_set_mapped(--super, HAK_SUPER_SIZE);
}

/* Maps the gap below and `length` bytes behind what is mapped of the SuperSlab by one call. 0 or an errno code. */
static int map_with_gap(size_t super, size_t length, size_t gap, int call(uintptr_t, size_t))
{
    if (!hak__limit_allows(hak__arena_state.mapped, gap + length))
        return ENOMEM;
    int code = call((uintptr_t)hak__super_start(super) + hak__supers[super].mapped - gap, gap + length);
    if (code == 0)
        crowd_fill_gap(super, gap);
    return code;
}

int hak__crowd_map(size_t super, size_t length)
{
    size_t gap = gap_below(super);
    if (gap != 0 && hak__is_crowded() && map_with_gap(super, length, gap, crowd_map_new) == 0)
        return 0;
    int code = crowd_map_new((uintptr_t)hak__super_start(super) + hak__supers[super].mapped, length);
    if (code != ENOMEM)
        return code;
    bool below = hak__supers[super].mapped != 0 || gap != 0 || (super > 0 && hak__supers[super - 1].mapped == HAK_SUPER_SIZE);
    return below && map_with_gap(super, length, gap, hak__os_extend) == 0 ? 0 : ENOMEM;
}

/* --- giving back without gaps ------------------------------------------------------------------------------------------ */

static bool crowd_purge(size_t first, size_t count, size_t bytes)
{
    bool done = true;
    for (size_t i = bytes >> HAK_SUPER_SHIFT; i < count; i++) {
        size_t need = hak__super_need(i, bytes), have = hak__supers[first + i].mapped;
        done &= have <= need || hak__os_purge((uintptr_t)hak__super_start(first + i) + need, have - need) == 0;
    }
    return done;
}

bool hak__supers_shorten(size_t first, size_t count, size_t bytes)
{
    hak__arena_lock();
    bool stay = hak__is_crowded() && crowd_purge(first, count, bytes), gone = !stay && hak__run_trim(first, count, bytes);
    if (!stay && !gone)
        crowd_purge(first, count, bytes);
    hak__arena_unlock();
    return gone;
}
