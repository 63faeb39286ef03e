/* Few mappings. The kernel allows a process so many of them (vm.max_map_count). Each huge block whose last SuperSlab is mapped
 * in part begins one, as does each that ends at a guard. Neighbours with the same flags are one mapping, so from a share of
 * that number on mapping.c maps memory without gaps: tails too, and what is free below; blocks have no guards behind them
 * then. Nobody touches it, so it takes no memory, only addresses. Where those count (HAKMEM_LIMIT, HAKMEM_UNMAP, RLIMIT_AS,
 * locked memory) the share is larger, and a request that is refused so is tried without its tail. If the program itself uses
 * up its mappings, those that exist grow, which the kernel still allows. Bare SuperSlabs (pieces.c) do not count: what is
 * mapped in them is mapped to be used. */
#include "arena/crowd.h"

#include "arena/limit.h"
#include "arena/state.h"

static _Atomic bool crowded;

bool hak__is_crowded(void)
{
    size_t most = hak__limit_mappings(), many = hak__arena_state.ends + hak__arena_state.moved;
    if (many <= most / 4)
        return false;
    bool addresses_count = hak__ahead_counts() || hak__limit_exists() || hak__limit_addresses();
    return !addresses_count || many > most / 4 * 3;
}

/* For good: if a gap between two mappings is filled, the kernel does not merge them once both have had pages, so the count falls below
 * the real number. */
void hak__crowd_publish(void)
{
    if (hak_unlikely(hak__is_crowded()))
        hak_store(&crowded, true, HAK_RELAXED);
}

bool hak__arena_crowded(void) { return hak_load(&crowded, HAK_RELAXED); }

size_t hak__crowd_bytes(size_t bytes) { return hak__is_crowded() ? hak_align_up(bytes, HAK_SUPER_SIZE) : bytes; }
