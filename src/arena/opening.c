/* Opening regions of the window for runs, and stepping over what somebody else has mapped there. */
#include "arena/opening.h"

#include <errno.h>

#include "arena/lru.h"
#include "arena/meta.h"
#include "arena/regions.h"
#include "arena/state.h"
#include "arena/window.h"
#include "base/assert.h"
#include "os/os.h"

/* --- opening --------------------------------------------------------------------------------------------------------- */

/* The tables that are found by an address alone, up to a new frontier. */
static int extend_tables(size_t new_top)
{
    int code = hak__meta_ensure(HAK_META_MAP, new_top * HAK_SUPER_SLABS * sizeof(struct hak_slab));
    if (code == 0)
        code = hak__meta_ensure(HAK_META_SUPERS, new_top * sizeof(struct hak_super));
    if (code == 0)
        code = hak__meta_ensure(HAK_META_WORDS, hak_div_up(new_top, HAK_REGION_SUPERS) * sizeof(struct hak_super_word));
    return code;
}

/* The first region's descriptors grow with it, the others' come at once. */
static int region_open(size_t region, size_t end)
{
    if (region == 0) {
        int code = hak__meta_ensure(HAK_META_SPANS, hak_min(end, HAK_REGION_SUPERS) * HAK_SUPER_SPANS);
        if (code != 0 || hak__region_is_open(0))
            return code;
    } else if (hak__region_is_open(region)) {
        return 0;
    } else {
        int code = hak__meta_piece(HAK_META_SPANS, region * HAK_REGION_SUPERS * HAK_SUPER_SPANS, HAK_REGION_SUPERS * HAK_SUPER_SPANS);
        if (code != 0)
            return code;
    }
    hak__region_mark_open(region);
    hak__meta_piece_done();
    return 0;
}

static void raise_top(size_t new_top)
{
    /* release: a thread that reads the new mark may read the metadata below it. */
    hak_store(&hak__arena_frontier, new_top, HAK_RELEASE);
    hak_owner_store(&hak__window.slabs, new_top * HAK_SUPER_SLABS);
    hak_owner_store(&hak__window.sized_slabs, hak__window.exact_sizes ? 0 : new_top * HAK_SUPER_SLABS);
}

static int pass_over(size_t region);

int hak__run_open(size_t first, size_t count)
{
    size_t end = first + count, top = hak__arena_top();
    if (end > hak__window_supers())
        return ENOMEM;
    int code = end > top ? extend_tables(end) : 0;
    if (code == EEXIST)   /* no table can be found elsewhere */
        return ENOMEM;
    for (size_t region = first / HAK_REGION_SUPERS; code == 0 && region * HAK_REGION_SUPERS < end; region++)
        if ((code = region_open(region, hak_max(end, top))) == EEXIST)
            return pass_over(region);
    if (code == 0 && end > top)
        raise_top(end);
    return code;
}

/* --- holes ------------------------------------------------------------------------------------------------------------ */

/* Whether somebody else has mapped the first page of a SuperSlab where nothing is ours. If the kernel does not tell, each such
 * SuperSlab is found when it is mapped. */
static bool begins_foreign(size_t super)
{
    unsigned char page;
    return hak__os_resident((uintptr_t)hak__super_start(super), hak__page_size(), &page) == 0;
}

/* The first SuperSlab behind `super` where something is ours, or the window's end: the bound of the search. */
static size_t next_own(size_t super)
{
    for (super = hak__super_from(super + 1); super < hak__arena_top(); super = hak__super_from(super + 1))
        if (hak__super_is_taken(super) || hak__supers[super].mapped != 0)
            return super;
    return hak__window_supers();
}

/* The end of the foreign mapping found at a SuperSlab, by steps that double, then halves. May take a gap that is shorter than the
 * mapping for a part of it. */
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

/* Unmaps our part. If the system refuses even that, it stays where it is, counted as mapped. */
static void make_hole(size_t super)
{
    if (!hak__super_unmap(super)) {
        hak__lru_remove(super);
        hak__supers[super].dirty = 0;
    }
    hak_store(&hak__supers[super].kind, HAK_SUPER_HOLE, HAK_RELAXED);
    hak__super_set_taken(super, true);
}

/* Closed regions need no entries. */
static void mark_holes(size_t super, size_t end)
{
    hak__arena_state.holes += end - super;
    for (size_t i = super; i < end; i++) {
        size_t region = i / HAK_REGION_SUPERS;
        if (hak__region_is_open(region)) {
            make_hole(i);
        } else {
            hak__region_mark_foreign(region);
            i = (region + 1) * HAK_REGION_SUPERS - 1;
        }
    }
}

/* The regions at its two ends are open afterwards, unless the last one has proved to be foreign as a whole. */
void hak__hole_make(size_t super)
{
    size_t end = foreign_end(super);
    int code = end > super + 1 ? hak__run_open(end - 1, 1) : 0;
    if (code == HAK_PASSED)
        end = hak_align_down(end - 1, HAK_REGION_SUPERS);
    else if (code != 0)
        end = super + 1;
    mark_holes(super, end);
}

/* Somebody else's mapping lies where the descriptors of a region should: what has none is never used. HAK_PASSED, or ENOMEM where no region
 * can follow. */
static int pass_over(size_t region)
{
    size_t top = hak__arena_top(), from = region * HAK_REGION_SUPERS, end = from + HAK_REGION_SUPERS;
    if (hak__region_is_open(region))   /* the first one, as far as it has come */
        from = top;
    hak_assert(from < end, "what is open below the frontier has its descriptors");
    if (end > top && (end > hak__window_supers() || extend_tables(end) != 0))
        return ENOMEM;
    raise_top(hak_max(end, top));
    mark_holes(from, end);
    return HAK_PASSED;
}
