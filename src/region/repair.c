/* Repairs a region whose lock's holder has died: rebuilds all that follows from the chain of runs and the slabs' bits. A run or
 * a block's bit taken for a request that never returned stays taken. */
#include "region/blocks.h"

/* Whether a run at the unit may have this state. */
static bool region_state_is_valid(const struct hak_region *region, uint32_t unit, uint64_t state, uint32_t end)
{
    uint32_t units = hak__run_units(state), class = hak__run_class(state);
    if (units == 0 || units > end - unit || state != hak__run_state(hak__run_kind(state), class, units))
        return false;
    switch (hak__run_kind(state)) {
    case HAK_RUN_FREE:
    case HAK_RUN_LARGE: return class == 0;
    case HAK_RUN_SLAB: return class < HAK_CLASSES && region->classes[class].units == units;
    default: return false;
    }
}

static bool region_chain_is_valid(const struct hak_region *region)
{
    uint32_t unit = 0, end = hak_load(&region->frontier, HAK_RELAXED);
    while (end <= region->units && unit < end && region_state_is_valid(region, unit, hak__run_at(region, unit), end))
        unit += hak__run_units(hak__run_at(region, unit));
    return unit == end;
}

static uint32_t region_slab_free_blocks(const struct hak_region *region, uint32_t unit, const struct hak_region_class *of)
{
    uint32_t taken = 0, words = hak__region_slab_words(of);
    for (uint32_t word = 0; word < words; word++)
        taken += hak_popcount64(hak_load(&hak__region_bits(region, unit)[word], HAK_RELAXED));
    return of->blocks - (taken - hak_popcount64(hak__region_no_blocks(of)));
}

/* --- rebuilding --------------------------------------------------------------------------------------------------- */

static void region_forget_all(struct hak_region *region)
{
    uint32_t frontier = hak_load(&region->frontier, HAK_RELAXED);
    region->known = 0;
    hak__run_know(region, frontier);
    for (uint32_t bin = 0; bin < HAK_REGION_BINS; bin++)
        region->bins[bin] = 0;
    for (uint32_t word = 0; word < HAK_REGION_BINS / 64; word++)
        region->bins_used[word] = 0;
    for (uint32_t class = 0; class < HAK_CLASSES; class++)
        region->classes[class].first = 0;
    hak_counter *all[] = { &region->slab_units, &region->large_units, &region->large_count, &region->live_blocks,
                           &region->live_bytes };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        hak_store(all[i], 0, HAK_RELAXED);
}

/* Ends a slab without blocks: others of its class may follow. */
static void region_repair_slab(struct hak_region *region, uint32_t unit, uint32_t class)
{
    const struct hak_region_class *of = &region->classes[class];
    struct hak_region_unit *slab = &region->unit[unit];
    slab->before = 0;
    slab->free = region_slab_free_blocks(region, unit, of);
    if (slab->free == of->blocks) {
        hak__run_set(region, unit, hak__run_state(HAK_RUN_FREE, 0, of->units));
        return;
    }
    if (slab->free != 0)
        hak__run_link(region, &region->classes[class].first, unit);
    hak_count(&region->slab_units, of->units);
    hak_count(&region->live_blocks, of->blocks - slab->free);
    hak_count(&region->live_bytes, (uint64_t)(of->blocks - slab->free) * hak__class_rows[class].size);
}

static void region_repair_large(struct hak_region *region, uint32_t units)
{
    hak_count(&region->large_units, units);
    hak_count(&region->large_count, 1);
    hak_count(&region->live_blocks, 1);
    hak_count(&region->live_bytes, (uint64_t)units << region->unit_shift);
}

/* Joins the free runs that begin at the unit, and lists them. A run that ends at the frontier goes behind it. */
static void region_repair_free(struct hak_region *region, uint32_t unit, uint32_t units)
{
    hak__run_set(region, unit, hak__run_state(HAK_RUN_FREE, 0, units));
    if (unit + units == hak_load(&region->frontier, HAK_RELAXED)) {
        hak_store(&region->frontier, unit, HAK_RELEASE); /* as in hak__run_set */
        return;
    }
    hak__run_begins(region, unit, true);
    hak__region_bin_add(region, unit, units);
}

static void region_repair_slabs_and_large(struct hak_region *region)
{
    uint32_t end = hak_load(&region->frontier, HAK_RELAXED);
    for (uint32_t unit = 0; unit < end; unit += hak__run_units(hak__run_at(region, unit))) {
        uint64_t state = hak__run_at(region, unit);
        if (hak__run_kind(state) == HAK_RUN_SLAB)
            region_repair_slab(region, unit, hak__run_class(state));
        else if (hak__run_kind(state) == HAK_RUN_LARGE)
            region_repair_large(region, hak__run_units(state));
    }
}

static void region_repair_chain(struct hak_region *region)
{
    uint32_t end = hak_load(&region->frontier, HAK_RELAXED), free_units = 0;
    for (uint32_t unit = 0, units; unit < end; unit += units) {
        uint64_t state = hak__run_at(region, unit);
        units = hak__run_units(state);
        if (hak__run_kind(state) == HAK_RUN_FREE) {
            free_units += units;
            continue;
        }
        if (free_units != 0)
            region_repair_free(region, unit - free_units, free_units);
        free_units = 0;
        hak__run_begins(region, unit, true);
    }
    if (free_units != 0)
        region_repair_free(region, end - free_units, free_units);
}

bool hak__region_repair(struct hak_region *region)
{
    if (!region_chain_is_valid(region))
        return false;
    region_forget_all(region);
    region_repair_slabs_and_large(region);
    region_repair_chain(region);
    return true;
}

/* --- checking ----------------------------------------------------------------------------------------------------- */

static bool region_is_linked(const struct hak_region *region, uint32_t unit, uint32_t first)
{
    const struct hak_region_unit *of = &region->unit[unit];
    bool before = of->prev == 0 ? first == unit + 1 : region->unit[of->prev - 1].next == unit + 1;
    return before && (of->next == 0 || region->unit[of->next - 1].prev == unit + 1);
}

static bool region_slab_is_valid(const struct hak_region *region, uint32_t unit, uint32_t class)
{
    const struct hak_region_class *of = &region->classes[class];
    const struct hak_region_unit *slab = &region->unit[unit];
    if (slab->free != region_slab_free_blocks(region, unit, of))
        return false;
    for (uint32_t word = 0; word < hak_min(slab->before, hak__region_slab_words(of)); word++)
        if (~hak_load(&hak__region_bits(region, unit)[word], HAK_RELAXED) != 0)
            return false;
    bool alone = slab->prev == 0 && slab->next == 0;
    return slab->free == 0 || (region_is_linked(region, unit, of->first) && (slab->free != of->blocks || alone));
}

static bool region_free_is_valid(const struct hak_region *region, uint32_t unit, uint32_t units, bool after_free)
{
    uint32_t bin = hak__region_bin(units);
    return !after_free && unit + units != hak_load(&region->frontier, HAK_RELAXED) && region->unit[unit + units - 1].before == units
        && (region->bins_used[bin / 64] >> bin % 64 & 1) != 0 && region_is_linked(region, unit, region->bins[bin]);
}

/* Only the run's first unit is marked as a beginning. */
static bool region_begins_are_valid(const struct hak_region *region, uint32_t unit, uint32_t units)
{
    return hak__run_start(region, unit + units - 1, region->units) == unit;
}

bool hak__region_is_valid(const struct hak_region *region)
{
    uint32_t end = hak_load(&region->frontier, HAK_RELAXED);
    uint64_t slab_units = 0, large_units = 0;
    bool after_free = false;
    if (!region_chain_is_valid(region) || end > region->known)
        return false;
    for (uint32_t unit = 0, units; unit < end; unit += units) {
        uint64_t state = hak__run_at(region, unit);
        enum hak_region_kind kind = hak__run_kind(state);
        units = hak__run_units(state);
        bool valid = region_begins_are_valid(region, unit, units)
                  && (kind != HAK_RUN_SLAB || region_slab_is_valid(region, unit, hak__run_class(state)))
                  && (kind != HAK_RUN_FREE || region_free_is_valid(region, unit, units, after_free));
        if (!valid)
            return false;
        after_free = kind == HAK_RUN_FREE;
        slab_units += kind == HAK_RUN_SLAB ? units : 0;
        large_units += kind == HAK_RUN_LARGE ? units : 0;
    }
    return slab_units == hak_counted(&region->slab_units) && large_units == hak_counted(&region->large_units);
}
