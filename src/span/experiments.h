/* What the options of the group EXPERIMENTS change about the engine. They exist so that recorded experiments (docs/decisions) can
 * be repeated in one binary; unless one is set, each function returns the design's value. Presets are values of such options
 * (diag/presets.def); warm_pool_stats and shared_pool_stats only print (stats/output.c). */
#pragma once

#include "base/assert.h"
#include "diag/options.h"
#include "size/size.h"

/* tiers=0: SuperSlabs do not differ by how well used they are (pool.h). */
hak_inline bool hak__tiers_on(void) { return hak__option(HAK_OPTION_tiers) != 0; }

/* refill_count: blocks that one miss moves, for classes whose batch is not limited by bytes. */
hak_inline uint32_t hak__refill_count(void) { return (uint32_t)hak__option(HAK_OPTION_refill_count); }

/* warm_pool_prefill: how many spans a miss may put into the warm pool; `adaptive` is the class's own number. */
hak_inline uint32_t hak__warm_budget(uint32_t adaptive)
{
    bool fixed = hak__option_origin(HAK_OPTION_warm_pool_prefill) != HAK_FROM_DEFAULT;
    return fixed ? (uint32_t)hak__option(HAK_OPTION_warm_pool_prefill) : adaptive;
}

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

/* ring_adapt=0: every bin starts at its ceiling and neither grows nor shrinks. */
hak_inline bool hak__bins_adapt(void) { return hak__option(HAK_OPTION_ring_adapt) != 0; }
