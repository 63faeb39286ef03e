/* Runs of units in a region: taken from bins by length, split, joined with free neighbours.
 *
 * A bin holds the free runs of one length, or from 8 units on of a quarter of a doubling. A request first searches bins where
 * every run is long enough, then a few runs of the bin where some are, then goes behind the frontier: each step takes bounded
 * time. */
#include "region/units.h"

enum { RUN_TRIES = 64 };

/* --- where runs begin --------------------------------------------------------------------------------------------- */

static uint64_t *region_begins_word(const struct hak_region *region, uint32_t unit)
{
    return (uint64_t *)(void *)((char *)(uintptr_t)region + region->begins) + unit / 64;
}

void hak__run_begins(struct hak_region *region, uint32_t unit, bool begins)
{
    uint64_t *word = region_begins_word(region, unit), bit = 1ull << unit % 64;
    *word = begins ? *word | bit : *word & ~bit;
}

void hak__run_know(struct hak_region *region, uint32_t units)
{
    while (region->known < units) {
        *region_begins_word(region, region->known) = 0;
        region->known += 64;
    }
}

uint32_t hak__run_start(const struct hak_region *region, uint32_t unit, uint32_t most)
{
    uint32_t least = unit < most ? 0 : unit - most;
    for (uint64_t mask = hak_ones64(unit % 64 + 1);; mask = ~0ull) {
        uint64_t word = *region_begins_word(region, unit) & mask;
        if (word != 0) {
            uint32_t start = (unit & ~63u) + hak_msb64(word);
            return start >= least ? start : UINT32_MAX;
        }
        if ((unit & ~63u) <= least)
            return UINT32_MAX;
        unit = (unit & ~63u) - 1;
    }
}

/* --- bins --------------------------------------------------------------------------------------------------------- */

uint32_t hak__region_bin(uint32_t units)
{
    if (units < 4)
        return units;
    unsigned msb = hak_msb64(units);
    return (msb - 1) * 4 + (units >> (msb - 2) & 3);
}

void hak__region_bin_add(struct hak_region *region, uint32_t unit, uint32_t units)
{
    uint32_t bin = hak__region_bin(units);
    region->unit[unit + units - 1].before = units;
    hak__run_link(region, &region->bins[bin], unit);
    region->bins_used[bin / 64] |= 1ull << bin % 64;
}

static void region_bin_remove(struct hak_region *region, uint32_t unit, uint32_t units)
{
    uint32_t bin = hak__region_bin(units);
    hak__run_unlink(region, &region->bins[bin], unit);
    if (region->bins[bin] == 0)
        region->bins_used[bin / 64] &= ~(1ull << bin % 64);
}

/* The first nonempty bin from this one on, or HAK_REGION_BINS. */
static uint32_t region_bin_used_from(const struct hak_region *region, uint32_t bin)
{
    for (uint32_t word = bin / 64; word < HAK_REGION_BINS / 64; word++, bin = word * 64) {
        uint64_t used = region->bins_used[word] & ~hak_ones64(bin % 64);
        if (used != 0)
            return word * 64 + hak_ctz64(used);
    }
    return HAK_REGION_BINS;
}

/* --- taking ------------------------------------------------------------------------------------------------------- */

/* Units to skip so that the next is aligned; UINT32_MAX: none is. */
static uint32_t region_units_to(const struct hak_region *region, uint32_t unit, size_t align)
{
    uintptr_t start = (uintptr_t)hak__region_unit_start(region, unit);
    size_t bytes = hak_align_up(start, align) - start;
    if ((bytes & (hak__region_unit_bytes(region) - 1)) != 0 || bytes >> region->unit_shift >= UINT32_MAX)
        return UINT32_MAX;
    return (uint32_t)(bytes >> region->unit_shift);
}

static bool region_run_serves(const struct hak_region *region, uint32_t unit, uint32_t have, uint32_t units, size_t align)
{
    uint32_t skip = region_units_to(region, unit, align);
    return skip <= have && units <= have - skip;
}

static uint32_t region_bin_search(const struct hak_region *region, uint32_t bin, uint32_t units, size_t align)
{
    uint32_t link = region->bins[bin];
    for (unsigned tries = 0; link != 0 && tries < RUN_TRIES; tries++) {
        if (region_run_serves(region, link - 1, hak__run_units(hak__run_at(region, link - 1)), units, align))
            return link - 1;
        link = region->unit[link - 1].next;
    }
    return UINT32_MAX;
}

/* A free run with room for the aligned one. */
static uint32_t region_run_search(const struct hak_region *region, uint32_t units, size_t align)
{
    for (uint32_t bin = hak__region_bin(units); (bin = region_bin_used_from(region, bin)) < HAK_REGION_BINS; bin++) {
        uint32_t unit = region_bin_search(region, bin, units, align);
        if (unit != UINT32_MAX)
            return unit;
    }
    return UINT32_MAX;
}

static void region_run_put_free(struct hak_region *region, uint32_t unit, uint32_t units)
{
    hak__run_begins(region, unit, true);
    hak__region_bin_add(region, unit, units);
}

/* Takes units [unit + skip, + units) out of a free run of `have`. The last store completes the chain. */
static void region_run_carve(struct hak_region *region, uint32_t unit, uint32_t have, uint32_t skip, uint32_t units, uint64_t state)
{
    uint32_t rest = have - skip - units, start = unit + skip;
    region_bin_remove(region, unit, have);
    if (rest != 0) {
        hak__run_set(region, start + units, hak__run_state(HAK_RUN_FREE, 0, rest));
        region_run_put_free(region, start + units, rest);
    }
    hak__run_begins(region, start, true);
    hak__run_set(region, start, state);
    if (skip != 0) {
        hak__run_set(region, unit, hak__run_state(HAK_RUN_FREE, 0, skip));
        hak__region_bin_add(region, unit, skip);
    }
}

/* Extends the frontier. */
static uint32_t region_run_extend(struct hak_region *region, uint32_t units, size_t align, uint64_t state)
{
    uint32_t unit = hak_load(&region->frontier, HAK_RELAXED), skip = region_units_to(region, unit, align);
    if (skip > region->units - unit || units > region->units - unit - skip)
        return UINT32_MAX;
    uint32_t start = unit + skip;
    hak__run_know(region, start + units);
    if (skip != 0) {
        hak__run_set(region, unit, hak__run_state(HAK_RUN_FREE, 0, skip));
        region_run_put_free(region, unit, skip);
    }
    hak__run_begins(region, start, true);
    hak__run_set(region, start, state);
    hak_store(&region->frontier, start + units, HAK_RELEASE); /* as in hak__run_set */
    return start;
}

uint32_t hak__run_take(struct hak_region *region, uint32_t units, size_t align)
{
    uint64_t state = hak__run_state(HAK_RUN_LARGE, 0, units);
    uint32_t unit = region_run_search(region, units, align);
    if (unit == UINT32_MAX)
        return region_run_extend(region, units, align, state);
    uint32_t skip = region_units_to(region, unit, align);
    region_run_carve(region, unit, hak__run_units(hak__run_at(region, unit)), skip, units, state);
    return unit + skip;
}

/* --- giving ------------------------------------------------------------------------------------------------------- */

static bool region_run_is_free(const struct hak_region *region, uint32_t unit)
{
    return hak__run_kind(hak__run_at(region, unit)) == HAK_RUN_FREE;
}

/* The length of the free run that ends where this one begins, or 0. Its last unit's claim holds only if a free run of that
 * length begins there. */
static uint32_t region_run_free_before(const struct hak_region *region, uint32_t unit)
{
    if (unit == 0)
        return 0;
    uint32_t units = region->unit[unit - 1].before;
    if (units == 0 || units > unit || hak__run_start(region, unit - units, 1) != unit - units)
        return 0;
    return hak__run_at(region, unit - units) == hak__run_state(HAK_RUN_FREE, 0, units) ? units : 0;
}

static uint32_t region_run_free_after(const struct hak_region *region, uint32_t unit)
{
    bool inside = unit < hak_load(&region->frontier, HAK_RELAXED);
    return inside && region_run_is_free(region, unit) ? hak__run_units(hak__run_at(region, unit)) : 0;
}

/* Removes a free run from all lists, so that the one before it can absorb its units. */
static void region_run_absorb(struct hak_region *region, uint32_t unit, uint32_t units)
{
    if (units == 0)
        return;
    region_bin_remove(region, unit, units);
    hak__run_begins(region, unit, false);
}

void hak__run_give(struct hak_region *region, uint32_t unit)
{
    uint32_t units = hak__run_units(hak__run_at(region, unit)), end = unit + units;
    uint32_t before = region_run_free_before(region, unit), after = region_run_free_after(region, end);
    if (before != 0)
        region_bin_remove(region, unit - before, before);
    region_run_absorb(region, end, after);
    uint32_t start = unit - before;
    units += before + after;
    hak__run_set(region, start, hak__run_state(HAK_RUN_FREE, 0, units));
    if (before != 0)
        hak__run_begins(region, unit, false);
    if (start + units == hak_load(&region->frontier, HAK_RELAXED)) {
        hak_store(&region->frontier, start, HAK_RELEASE); /* as in hak__run_set */
        hak__run_begins(region, start, false);
    } else {
        hak__region_bin_add(region, start, units);
    }
}

static void region_run_shorten(struct hak_region *region, uint32_t unit, uint32_t have, uint32_t units)
{
    uint64_t state = hak__run_at(region, unit);
    hak__run_set(region, unit + units, hak__run_state(HAK_RUN_FREE, 0, have - units));
    hak__run_begins(region, unit + units, true);
    hak__run_set(region, unit, hak__run_state(hak__run_kind(state), hak__run_class(state), units));
    hak__run_give(region, unit + units);
}

bool hak__run_resize(struct hak_region *region, uint32_t unit, uint32_t units)
{
    uint32_t have = hak__run_units(hak__run_at(region, unit)), end = unit + have;
    uint32_t frontier = hak_load(&region->frontier, HAK_RELAXED);
    if (units < have) {
        region_run_shorten(region, unit, have, units);
        return true;
    }
    uint32_t more = units - have, after = region_run_free_after(region, end);
    if (more == 0)
        return true;
    uint64_t state = hak__run_state(HAK_RUN_LARGE, 0, units);
    if (end == frontier && more <= region->units - frontier) {
        hak__run_know(region, end + more);
        /* Behind the frontier the run is separate for a moment, or does not exist. */
        hak__run_set(region, end, hak__run_state(HAK_RUN_FREE, 0, more));
        hak_store(&region->frontier, end + more, HAK_RELEASE);
        hak__run_set(region, unit, state);
        return true;
    }
    if (after < more)
        return false;
    region_run_absorb(region, end, after);
    if (after != more) {
        hak__run_set(region, end + more, hak__run_state(HAK_RUN_FREE, 0, after - more));
        region_run_put_free(region, end + more, after - more);
    }
    hak__run_set(region, unit, state);
    return true;
}
