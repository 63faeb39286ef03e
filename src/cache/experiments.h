/* What the options of the group EXPERIMENTS change about the engine. They exist so that recorded experiments (docs/decisions) can
 * be repeated in one binary; unless one is set, each function returns the design's value. All are asked when a heap gets its bins
 * (tune.c), so no other code knows them, but for: tiers, without which no SuperSlab drains (span/pool.c); presets, which are
 * values of such options (diag/presets.def); reserve (arena/); and warm_pool_stats and shared_pool_stats, which only print. */
#pragma once

#include "base/assert.h"
#include "diag/options.h"
#include "heap/state.h"

/* tiny_unified_cache, tiny_unified_c0 .. _c7, l2_ring_cap, l25_ring_cap: the largest capacity of a bin of the class. */
_Static_assert(HAK_OPTION_tiny_unified_c7 == HAK_OPTION_tiny_unified_c0 + 7, "the bands' options are adjacent");
hak_inline uint32_t hak__bin_ceiling(uint32_t class)
{
    hak_assert(class < HAK_CLASSES, "a class");
    if (class > HAK_CLASS_MID_LAST)
        return (uint32_t)hak__option(HAK_OPTION_l25_ring_cap);
    if (class > HAK_CLASS_TINY_LAST)
        return (uint32_t)hak__option(HAK_OPTION_l2_ring_cap);
    if (!hak__option(HAK_OPTION_tiny_unified_cache))
        return 0;
    return (uint32_t)hak__option((enum hak_option)(HAK_OPTION_tiny_unified_c0 + hak__band_of(class)));
}

/* tiny_c2_local_cache .. _c6: the class's bin uses the fixed slots in the heap's struct. */
_Static_assert(HAK_OPTION_tiny_c6_local_cache == HAK_OPTION_tiny_c2_local_cache + 4, "the bands' options are adjacent");
hak_inline bool hak__slots_are_local(uint32_t class)
{
    uint32_t band = class < HAK_CLASS_LOCAL_FIRST || class > HAK_CLASS_LOCAL_LAST ? 0 : hak__band_of(class);
    return band != 0 && hak__option((enum hak_option)(HAK_OPTION_tiny_c2_local_cache + band - 2)) != 0;
}

/* refill_count: blocks that one miss moves, for classes whose batch is not limited by bytes. warm_pool_prefill: how many spans a miss
 * puts into the warm pool, in place of the class's own number. ring_adapt=0: every bin starts at its ceiling and stays there. */
hak_inline void hak__experiments_open(struct hak_heap *heap)
{
    heap->refill_count = (uint16_t)hak__option(HAK_OPTION_refill_count);
    heap->warm_fixed = hak__option_origin(HAK_OPTION_warm_pool_prefill) != HAK_FROM_DEFAULT;
    for (uint32_t class = 0; heap->warm_fixed && class < HAK_CLASSES; class++)
        heap->classes[class].warm_budget = (uint8_t)hak__option(HAK_OPTION_warm_pool_prefill);
    heap->budget.fixed = hak__option(HAK_OPTION_ring_adapt) == 0;
}
