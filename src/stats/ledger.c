/* Attributes resident pages. The kernel says which pages of the window are in memory; a resident page's bytes then belong to the
 * blocks in it, each by its state:
 *
 *   in the program's hands, in a bin or in an outbox     allocated in the span (span.h); divided between live and cached
 *                                                        like the class's counts of blocks
 *   free bit                                             free in slabs; pinned if the span has allocated blocks too
 *   at or beyond the frontier, behind the last block     frontier slack
 *   unused slab, free SuperSlab                          empty
 *
 * Sampled blocks have mappings of their own: those with guard pages are live; of the slots, as many bytes as their blocks have.
 *
 * Bitmaps are read under their heap's lock, so they are consistent. Work of other threads between two heaps may move bytes from
 * one state to another, but each page counts exactly once. */
#include "stats/stats.h"

#include "arena/window.h"
#include "os/os.h"
#include "sample/sample.h"

enum { ENTER_TRIES = 200, PAGES_MAX = HAK_SUPER_SIZE / 4096 };

struct ledger_walk {
    struct hak_stats *stats;
    struct hak_heap *entered;
    uint32_t occupied; /* the last heap whose lock was unavailable */
    size_t page;
    uintptr_t start; /* of the SuperSlab with these pages */
    bool huge_waits; /* the huge run met last holds no block */
    size_t huge_left; /* remaining bytes of the huge block being walked */
    unsigned char resident[PAGES_MAX];
    uint64_t allocated[HAK_CLASSES]; /* resident bytes */
    uint64_t guarded, slots; /* resident bytes of samples */
};

/* --- pages -------------------------------------------------------------------------------------------------------- */

/* The length of the mapped part at the start of a slab. */
static size_t mapped_prefix(uintptr_t start, size_t size, size_t page)
{
    unsigned char one[1];
    size_t low = 0, high = size / page;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (hak__os_resident(start + middle * page, page, one) == 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low * page;
}

/* A partly mapped slab is mapped at its start. */
static void read_slab(struct ledger_walk *walk, size_t at)
{
    unsigned char *pages = &walk->resident[at / walk->page];
    size_t mapped = hak__os_resident(walk->start + at, HAK_SLAB_SIZE, pages) == 0
                      ? HAK_SLAB_SIZE
                      : mapped_prefix(walk->start + at, HAK_SLAB_SIZE, walk->page);
    bool known = mapped == HAK_SLAB_SIZE || (mapped != 0 && hak__os_resident(walk->start + at, mapped, pages) == 0);
    for (size_t i = known ? mapped / walk->page : 0; i < HAK_SLAB_SIZE / walk->page; i++)
        pages[i] = 0;
}

static void read_pages(struct ledger_walk *walk, uintptr_t start)
{
    walk->start = start;
    for (unsigned i = 0; i < PAGES_MAX; i++)
        walk->resident[i] = 0;
    if (hak__os_resident(start, HAK_SUPER_SIZE, walk->resident) == 0)
        return;
    for (size_t at = 0; at < HAK_SUPER_SIZE; at += HAK_SLAB_SIZE)
        read_slab(walk, at);
}

static bool page_resident(const struct ledger_walk *walk, uintptr_t at) { return walk->resident[(at - walk->start) / walk->page]; }

/* The resident bytes of a range of whole pages. */
static uint64_t resident_in(const struct ledger_walk *walk, uintptr_t from, size_t size)
{
    uint64_t sum = 0;
    for (uintptr_t at = from; at < from + size; at += walk->page)
        sum += page_resident(walk, at) ? walk->page : 0;
    return sum;
}

/* --- spans -------------------------------------------------------------------------------------------------------- */

static bool ledger_enter(struct ledger_walk *walk, uint32_t id)
{
    struct hak_heap *heap = hak__heap_by_id(id);
    if (walk->entered == heap)
        return true;
    if (walk->entered != NULL)
        hak__heap_unlock(walk->entered);
    walk->entered = NULL;
    if (walk->occupied != id && hak__enter_foreign(heap, ENTER_TRIES))
        walk->entered = heap;
    else
        walk->occupied = id;
    return walk->entered != NULL;
}

/* The free bytes in blocks that overlap [from, to), offsets in a span below its frontier. */
static uint64_t free_between(const struct hak_span *span, size_t size, size_t from, size_t to)
{
    uint64_t sum = 0;
    for (size_t i = from / size; i * size < to; i++)
        if (span->free[i / 64] >> i % 64 & 1)
            sum += hak_min(to, (i + 1) * size) - hak_max(from, i * size);
    return sum;
}

/* Counts a span under its heap's lock. */
static void count_span(struct ledger_walk *walk, const struct hak_span *span)
{
    uintptr_t start = (uintptr_t)hak__span_start(span);
    size_t size = hak__classes[span->class].size, used = span->frontier * size;
    uint64_t all = 0, free_bytes = 0, slack = 0;
    for (size_t from = 0; from < (size_t)span->slabs << HAK_SLAB_SHIFT; from += walk->page) {
        size_t end = hak_min(from + walk->page, hak_max(from, used));
        if (!page_resident(walk, start + from))
            continue;
        all += walk->page;
        slack += from + walk->page - end;
        free_bytes += free_between(span, size, from, end);
    }
    walk->allocated[span->class] += all - free_bytes - slack;
    walk->stats->ledger_frontier_slack += slack;
    walk->stats->ledger_free_in_slabs += free_bytes;
    if (hak__span_allocated(span) != 0)
        walk->stats->classes[span->class].pinned += free_bytes;
}

/* A single-block span is in use or does not exist; its descriptor need not be read. */
static void count_lone(struct ledger_walk *walk, size_t slab, uint32_t class_index)
{
    uintptr_t start = (uintptr_t)hak__slab_start(slab);
    size_t used = hak_align_up(hak__classes[class_index].size, walk->page);
    size_t whole = (size_t)hak__class_single_slabs(class_index) << HAK_SLAB_SHIFT;
    walk->allocated[class_index] += resident_in(walk, start, used);
    walk->stats->ledger_frontier_slack += resident_in(walk, start + used, whole - used);
}

/* Counts what begins at a slab; returns its number of slabs. */
static unsigned count_slab(struct ledger_walk *walk, size_t slab, unsigned room)
{
    uint32_t word = hak__owner_at(slab), class = hak__owner_class(word);
    uintptr_t start = (uintptr_t)hak__slab_start(slab);
    if (word == 0) {
        walk->stats->ledger_empty += resident_in(walk, start, HAK_SLAB_SIZE);
        return 1;
    }
    bool single = class < HAK_CLASSES && class >= HAK_CLASS_FIRST_LARGE && hak__span_is_single(slab, class);
    if (single && hak__class_single_slabs(class) <= room) {
        count_lone(walk, slab, class);
        return hak__class_single_slabs(class);
    }
    struct hak_span *span = &hak__spans[slab];
    if (!single && class < HAK_CLASSES && ledger_enter(walk, hak__owner_id(word)) && hak__heap_has_span(walk->entered, span)
        && span->slabs <= room) {
        unsigned slabs = span->slabs;
        count_span(walk, span);
        return slabs;
    }
    walk->stats->ledger_unread_spans++;
    walk->allocated[class < HAK_CLASSES ? class : 0] += resident_in(walk, start, HAK_SLAB_SIZE);
    return 1;
}

static void count_slabs(struct ledger_walk *walk, size_t super)
{
    for (unsigned i = 0; i < HAK_SUPER_SLABS;)
        i += count_slab(walk, super * HAK_SUPER_SLABS + i, HAK_SUPER_SLABS - i);
    if (walk->entered != NULL)
        hak__heap_unlock(walk->entered);
    walk->entered = NULL;
}

/* Behind the block's end lies its tail, which is empty. */
static void count_huge(struct ledger_walk *walk, uintptr_t start)
{
    size_t block = hak_min(walk->huge_left, HAK_SUPER_SIZE);
    walk->huge_left -= block;
    walk->stats->ledger_huge += resident_in(walk, start, block);
    walk->stats->ledger_empty += resident_in(walk, start + block, HAK_SUPER_SIZE - block);
}

static void count_super(struct ledger_walk *walk, size_t super)
{
    uintptr_t start = (uintptr_t)hak__super_start(super);
    uint32_t kind = hak_load(&hak__supers[super].kind, HAK_RELAXED);
    if (kind == HAK_SUPER_HOLE)
        return;
    read_pages(walk, start);
    if (kind == HAK_SUPER_HUGE) { /* a waiting run's resident pages are empty (arena/retained.h) */
        walk->huge_waits = hak__owner_at(super * HAK_SUPER_SLABS) == 0;
        walk->huge_left = hak_load(&hak__supers[super].huge_bytes, HAK_RELAXED);
    }
    if (kind == HAK_SUPER_IN_SLABS)
        count_slabs(walk, super);
    else if (kind == HAK_SUPER_FREE || walk->huge_waits)
        walk->stats->ledger_empty += resident_in(walk, start, HAK_SUPER_SIZE);
    else
        count_huge(walk, start);
}

/* --- everything --------------------------------------------------------------------------------------------------- */

/* Whether a mapping that begins there is the library's; a foreign one in the window is a hole. */
static bool mapping_is_ours(uintptr_t start)
{
    size_t super = (start - hak__window.base) >> HAK_SUPER_SHIFT;
    if (start < hak__guarded_start())
        return false;
    if (start < hak__window.base)
        return true;
    return super < hak__arena_top() && !hak__super_is_hole(super);
}

/* The tables count by their mappings: mincore would add pages that were only read, as this walk reads most of every heap's. */
static void count_mapping(void *argument, uintptr_t start, size_t resident, size_t huge)
{
    struct ledger_walk *walk = argument;
    walk->stats->ledger_rss += resident;
    if (start - hak__sample.start < hak__sample.bytes)
        walk->guarded += resident;
    else if (start - hak__sample.slots < hak__sample.slots_bytes)
        walk->slots += resident;
    else if (hak__store_owns(start) || (start < hak__window.base && mapping_is_ours(start)))
        walk->stats->ledger_metadata += resident;
    else if (!mapping_is_ours(start))
        walk->stats->ledger_not_ours += resident;
    else
        walk->stats->ledger_huge_pages += huge;
}

/* A block with guard pages counts with these, so its bytes are none of a slot's. */
static void count_samples(struct ledger_walk *walk)
{
    uint64_t bytes = hak_load(&hak__sampled.bytes, HAK_RELAXED), live = hak_min(bytes - hak_min(walk->guarded, bytes), walk->slots);
    walk->stats->ledger_live += walk->guarded + live;
    walk->stats->ledger_free_in_slabs += walk->slots - live;
}

/* Divides allocated blocks' memory between the program and the caches. */
static void ledger_divide(struct ledger_walk *walk)
{
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        const struct hak_stats_class *class = &walk->stats->classes[c];
        uint64_t cached = class->cached + class->outbox, blocks = cached + class->live, bytes = walk->allocated[c];
        uint64_t of_caches = blocks == 0 ? 0 : (uint64_t)((unsigned __int128)bytes * cached / blocks);
        walk->stats->ledger_cached += of_caches;
        walk->stats->ledger_live += bytes - of_caches;
    }
}

bool hak__ledger(struct hak_stats *stats)
{
    struct ledger_walk walk = { .stats = stats, .page = hak__page_size() };
    for (size_t super = hak__super_from(0); super < hak__arena_top(); super = hak__super_from(super + 1))
        count_super(&walk, super);
    ledger_divide(&walk);
    if (!hak__os_mappings(count_mapping, &walk))
        return false;
    count_samples(&walk);
    stats->ledger_sum = stats->ledger_live + stats->ledger_cached + stats->ledger_free_in_slabs + stats->ledger_frontier_slack
                      + stats->ledger_empty + stats->ledger_huge + stats->ledger_metadata + stats->ledger_not_ours;
    stats->flags |= HAK_STATS_HAS_LEDGER;
    return true;
}
