/* A region's blocks: small ones in slabs by the library's size classes, others as single runs; and the repair of a region. */
#include "region/units.h"

enum { SLAB_BLOCKS_LEAST = 4 };

/* --- slabs -------------------------------------------------------------------------------------------------------- */

/* The shortest slab that leaves at most an eighth of itself unused. A class whose slab would be too long has none. */
static void region_plan_slab(const struct hak_region *region, uint32_t index, struct hak_region_class *out)
{
    const struct hak_class *class = &hak__class_rows[index];
    size_t unit = hak__region_unit_bytes(region), most = (size_t) class->slabs << HAK_SLAB_SHIFT;
    if (class->size > 2 * unit || class->size > HAK_MID_MAX)
        return;
    for (uint32_t units = 1; units <= HAK_REGION_SLAB_UNITS && units * unit <= most; units++) {
        size_t bytes = units * unit, blocks = hak_min(bytes / class->size, class->blocks);
        if (blocks >= SLAB_BLOCKS_LEAST && bytes - blocks * class->size <= bytes / 8) {
            out->units = (uint16_t)units;
            out->blocks = (uint16_t)blocks;
            return;
        }
    }
}

void hak__region_plan_slabs(struct hak_region *region)
{
    for (uint32_t index = 0; index < HAK_CLASSES; index++)
        region_plan_slab(region, index, &region->classes[index]);
}

static uint32_t region_slab_words(const struct hak_region_class *class) { return (uint32_t)hak_div_up(class->blocks, 64); }

static _Atomic uint64_t *region_bits(const struct hak_region *region, uint32_t unit)
{
    size_t words_shift = region->unit_shift - 10; /* a bit for each 16 bytes */
    return (_Atomic uint64_t *)((char *)(uintptr_t)region + region->bits) + ((size_t)unit << words_shift);
}

/* The last word's bits beyond the last block. */
static uint64_t region_no_blocks(const struct hak_region_class *class)
{
    return class->blocks % 64 == 0 ? 0 : ~hak_ones64(class->blocks % 64);
}

/* --- room --------------------------------------------------------------------------------------------------------- */

static bool region_limit_allows(const struct hak_region *region, size_t units)
{
    size_t used = hak__region_used(region), bytes = units << region->unit_shift;
    uint64_t limit = hak_load(&region->limit, HAK_RELAXED);
    return used <= limit && bytes <= limit - used;
}

static void region_note_peak(struct hak_region *region)
{
    if (hak__region_used(region) > hak_counted(&region->peak_bytes))
        hak_store(&region->peak_bytes, hak__region_used(region), HAK_RELAXED);
}

static void region_slab_end(struct hak_region *region, uint32_t class, uint32_t unit)
{
    hak__run_unlink(region, &region->classes[class].first, unit);
    hak_count(&region->slab_units, -(uint64_t)region->classes[class].units);
    hak__run_give(region, unit);
}

/* Ends the class's empty slab, which stays otherwise as long as it is alone in the list; returns whether there was one. */
static bool region_end_empty_slab(struct hak_region *region, uint32_t class)
{
    uint32_t first = region->classes[class].first;
    if (first == 0 || region->unit[first - 1].free != region->classes[class].blocks)
        return false;
    region_slab_end(region, class, first - 1);
    return true;
}

static bool region_end_empty_slabs(struct hak_region *region)
{
    bool any = false;
    for (uint32_t class = 0; class < HAK_CLASSES; class++)
        any |= region_end_empty_slab(region, class);
    return any;
}

static uint32_t region_units_take(struct hak_region *region, size_t units, size_t align)
{
    if (units > region->units)
        return UINT32_MAX;
    uint32_t unit = region_limit_allows(region, units) ? hak__run_take(region, (uint32_t)units, align) : UINT32_MAX;
    if (unit == UINT32_MAX && region_end_empty_slabs(region) && region_limit_allows(region, units))
        unit = hak__run_take(region, (uint32_t)units, align);
    return unit;
}

/* --- taking ------------------------------------------------------------------------------------------------------- */

/* The run is one large block until its bits are ready. */
static uint32_t region_slab_begin(struct hak_region *region, uint32_t class)
{
    const struct hak_region_class *of = &region->classes[class];
    uint32_t unit = region_units_take(region, of->units, HAK_ALIGN), last = region_slab_words(of) - 1;
    if (unit == UINT32_MAX)
        return UINT32_MAX;
    _Atomic uint64_t *bits = region_bits(region, unit);
    for (uint32_t word = 0; word <= last; word++)
        hak_store(&bits[word], word == last ? region_no_blocks(of) : 0, HAK_RELAXED);
    region->unit[unit].free = of->blocks;
    region->unit[unit].before = 0;
    hak__run_set(region, unit, hak__run_state(HAK_RUN_SLAB, class, of->units));
    hak__run_link(region, &region->classes[class].first, unit);
    hak_count(&region->slab_units, of->units);
    region_note_peak(region);
    return unit;
}

static void *region_slab_take(struct hak_region *region, uint32_t class, uint32_t unit)
{
    struct hak_region_unit *slab = &region->unit[unit];
    _Atomic uint64_t *bits = region_bits(region, unit);
    uint32_t word = slab->before;
    while (hak_load(&bits[word], HAK_RELAXED) == ~0ull)
        word++;
    uint64_t old = hak_load(&bits[word], HAK_RELAXED);
    uint32_t bit = hak_ctz64(~old), index = word * 64 + bit;
    slab->before = word;
    hak_store(&bits[word], old | 1ull << bit, HAK_RELEASE); /* as in hak__run_set */
    if (--slab->free == 0)
        hak__run_unlink(region, &region->classes[class].first, unit);
    hak_count(&region->live_blocks, 1);
    hak_count(&region->live_bytes, hak__class_rows[class].size);
    return hak__region_unit_start(region, unit) + (size_t)index * hak__class_rows[class].size;
}

static void *region_large_take(struct hak_region *region, size_t align, size_t n)
{
    size_t units = hak_max(1, (n >> region->unit_shift) + ((n & (hak__region_unit_bytes(region) - 1)) != 0));
    uint32_t unit = region_units_take(region, units, align);
    if (unit == UINT32_MAX)
        return NULL;
    hak_count(&region->large_units, units);
    hak_count(&region->large_count, 1);
    hak_count(&region->live_blocks, 1);
    hak_count(&region->live_bytes, units << region->unit_shift);
    region_note_peak(region);
    return hak__region_unit_start(region, unit);
}

/* The smallest class with slabs whose blocks have the alignment; HAK_CLASSES: none. Units are aligned to the lesser of their own
 * size and a page. */
static uint32_t region_class_for(const struct hak_region *region, size_t align, size_t n)
{
    if (n > HAK_MID_MAX || align > hak_min(hak__region_unit_bytes(region), HAK_REGION_PAGE))
        return HAK_CLASSES;
    uint32_t class = hak__aligned_class(align, n);
    return region->classes[class].units != 0 ? class : HAK_CLASSES;
}

void *hak__region_take(struct hak_region *region, size_t align, size_t n)
{
    uint32_t class = region_class_for(region, align, n);
    void *block = NULL;
    if (class < HAK_CLASSES) {
        uint32_t first = region->classes[class].first;
        uint32_t unit = hak_likely(first != 0) ? first - 1 : region_slab_begin(region, class);
        if (hak_likely(unit != UINT32_MAX))
            return region_slab_take(region, class, unit);
    }
    block = region_large_take(region, align, n); /* room for one block may exist where none does for a slab */
    hak_count(&region->refused, block == NULL);
    return block;
}

/* --- finding and giving ------------------------------------------------------------------------------------------- */

static const char region_begins_none[] = "not the start of a block", region_is_free[] = "no block is here, or it was freed before";

static void region_find_in_slab(const struct hak_region *region, uint32_t unit, uint64_t state, size_t offset,
                                struct hak_region_block *out)
{
    uint32_t index = hak__run_class(state);
    const struct hak_class *class = &hak__class_rows[index];
    struct hak_place place = hak__place_of(class->reciprocal, offset);
    if (!hak__place_is_block(place, class->reciprocal, region->classes[index].blocks)) {
        out->why_not = region_begins_none;
        return;
    }
    *out = (struct hak_region_block){ unit, (uint32_t)place.index, index, class->size, NULL, false };
    uint64_t bits = hak_load(&region_bits(region, unit)[out->index / 64], HAK_RELAXED);
    out->freed = (bits >> out->index % 64 & 1) == 0;
    if (out->freed)
        out->why_not = "this block is free";
}

/* Scan back more than one slab only before aborting. */
static const char *region_why_none(const struct hak_region *region, uint32_t unit)
{
    uint32_t start = hak__run_start(region, unit, region->units);
    bool large = start != UINT32_MAX && hak__run_kind(hak__run_at(region, start)) == HAK_RUN_LARGE;
    return large ? region_begins_none : region_is_free;
}

struct hak_region_block hak__region_find(const struct hak_region *region, const void *p)
{
    struct hak_region_block out = { 0, 0, HAK_CLASSES, 0, region_begins_none, false };
    size_t offset = (uintptr_t)p - (uintptr_t)hak__region_unit_start(region, 0);
    if ((uintptr_t)p < (uintptr_t)hak__region_unit_start(region, 0))
        return out;
    if (offset >> region->unit_shift >= hak_load(&region->frontier, HAK_RELAXED)) {
        out.why_not = region_is_free;
        return out;
    }
    uint32_t unit = (uint32_t)(offset >> region->unit_shift), start = hak__run_start(region, unit, HAK_REGION_SLAB_UNITS);
    uint64_t state = start == UINT32_MAX ? 0 : hak__run_at(region, start);
    if (hak__run_kind(state) == HAK_RUN_SLAB) {
        region_find_in_slab(region, start, state, offset - ((size_t)start << region->unit_shift), &out);
    } else if (hak__run_kind(state) == HAK_RUN_LARGE && offset == (size_t)start << region->unit_shift) {
        size_t bytes = (size_t)hak__run_units(state) << region->unit_shift;
        out = (struct hak_region_block){ start, 0, HAK_CLASSES, bytes, NULL, false };
    } else {
        out.why_not = region_why_none(region, unit);
    }
    return out;
}

static void region_large_give(struct hak_region *region, const struct hak_region_block *block)
{
    hak_count(&region->large_units, -(uint64_t)(block->size >> region->unit_shift));
    hak_count(&region->large_count, -UINT64_C(1));
    hak__run_give(region, block->unit);
}

static void region_slab_give(struct hak_region *region, const struct hak_region_block *block)
{
    struct hak_region_unit *slab = &region->unit[block->unit];
    const struct hak_region_class *of = &region->classes[block->class];
    _Atomic uint64_t *bits = region_bits(region, block->unit);
    uint32_t word = block->index / 64;
    uint64_t bit = 1ull << block->index % 64;
    hak_store(&bits[word], hak_load(&bits[word], HAK_RELAXED) & ~bit, HAK_RELEASE); /* as in hak__run_set */
    slab->before = (uint32_t)hak_min(slab->before, word);
    if (slab->free++ == 0) {
        region_end_empty_slab(region, block->class);
        slab->before = word;
        hak__run_link(region, &region->classes[block->class].first, block->unit);
    }
    bool only = of->first == block->unit + 1 && slab->next == 0;
    if (slab->free == of->blocks && !only)
        region_slab_end(region, block->class, block->unit);
}

void hak__region_give(struct hak_region *region, const struct hak_region_block *block)
{
    hak_count(&region->live_blocks, -UINT64_C(1));
    hak_count(&region->live_bytes, -(uint64_t)block->size);
    if (block->class < HAK_CLASSES)
        region_slab_give(region, block);
    else
        region_large_give(region, block);
}

/* --- resizing ----------------------------------------------------------------------------------------------------- */

/* Resizes a large block in place, if what follows allows it. */
static bool region_large_resize(struct hak_region *region, const struct hak_region_block *block, size_t n)
{
    size_t have = block->size >> region->unit_shift, units = hak_div_up(n, hak__region_unit_bytes(region));
    if (units > region->units || (units > have && !region_limit_allows(region, units - have))
        || !hak__run_resize(region, block->unit, (uint32_t)units))
        return false;
    hak_count(&region->large_units, units - have);
    hak_count(&region->live_bytes, (units - have) << region->unit_shift);
    region_note_peak(region);
    return true;
}

bool hak__region_resize(struct hak_region *region, const struct hak_region_block *block, size_t n)
{
    bool fits = n <= block->size && n >= block->size / 2;
    if (block->class < HAK_CLASSES)
        return fits;
    if (region_class_for(region, HAK_ALIGN, n) < HAK_CLASSES)
        return fits;
    return region_large_resize(region, block, n);
}

/* --- visiting ----------------------------------------------------------------------------------------------------- */

static int region_visit_slab(struct hak_region *region, uint32_t unit, uint32_t class, const struct hak_visit *visit)
{
    const struct hak_region_class *of = &region->classes[class];
    size_t size = hak__class_rows[class].size;
    char *start = hak__region_unit_start(region, unit);
    struct hak_heap_span span = { .begin = start, .end = start + of->blocks * size, .size = size, .reached = of->blocks * size };
    for (uint32_t index = 0; index < of->blocks; index++) {
        uint64_t bits = hak_load(&region_bits(region, unit)[index / 64], HAK_RELAXED);
        int result = 0;
        bool live = (bits >> index % 64 & 1) != 0;
        span.blocks += live;
        if (live && visit->span == NULL)
            result = visit->block(start + index * size, size, visit->argument);
        if (result != 0)
            return result;
    }
    span.bytes = span.blocks * size;
    return visit->span == NULL || span.blocks == 0 ? 0 : visit->span(&span, visit->argument);
}

int hak__region_visit_blocks(struct hak_region *region, const struct hak_visit *visit)
{
    uint32_t frontier = hak_load(&region->frontier, HAK_RELAXED);
    for (uint32_t unit = 0, units; unit < frontier; unit += units) {
        uint64_t state = hak__run_at(region, unit);
        int result = 0;
        units = hak__run_units(state);
        if (hak__run_kind(state) == HAK_RUN_SLAB)
            result = region_visit_slab(region, unit, hak__run_class(state), visit);
        else if (hak__run_kind(state) == HAK_RUN_LARGE)
            result = hak__visit_single(visit, hak__region_unit_start(region, unit), (size_t)units << region->unit_shift);
        if (result != 0)
            return result;
    }
    return 0;
}

/* --- repair ----------------------------------------------------------------------------------------------------------- */

/* Repairs a region whose lock's holder has died: rebuilds all that follows from the chain of runs and the slabs' bits. A run or
 * a block's bit taken for a request that never returned stays taken. */
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
    uint32_t taken = 0, words = region_slab_words(of);
    for (uint32_t word = 0; word < words; word++)
        taken += hak_popcount64(hak_load(&region_bits(region, unit)[word], HAK_RELAXED));
    return of->blocks - (taken - hak_popcount64(region_no_blocks(of)));
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
    for (uint32_t word = 0; word < hak_min(slab->before, region_slab_words(of)); word++)
        if (~hak_load(&region_bits(region, unit)[word], HAK_RELAXED) != 0)
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
