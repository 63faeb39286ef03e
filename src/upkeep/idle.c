/* The walk over idle spans. See idle.h. */
#include "upkeep/idle.h"

#include <string.h>

#include "arena/hugepages.h"
#include "arena/limit.h"
#include "arena/mapping.h"
#include "arena/returned.h"
#include "arena/window.h"
#include "base/assert.h"
#include "diag/options.h"
#include "harden/spans.h"
#include "heap/spans.h"
#include "os/os.h"

enum { PURGES_PER_HOLD = 16, SPANS_PER_HOLD = 64, PAGES_OF_SPAN = HAK_SPAN_SLABS_MAX * HAK_SLAB_SIZE / 4096 };

struct hak_upkeep_counts hak__upkeep_counts;

static size_t next_super; /* where the next walk continues */
static _Atomic bool unfinished;

struct idle_walk {
    const struct hak_idle_work *work;
    struct hak_heap *entered;
    uint32_t held_spans, held_purges; /* since the lock was taken */
    uint32_t slabs, purges; /* so far */
    size_t bytes;
};

static void let_go(struct idle_walk *walk)
{
    if (walk->entered != NULL)
        hak__heap_unlock(walk->entered);
    walk->entered = NULL;
    walk->held_spans = walk->held_purges = 0;
}

/* Locks the heap unless it is locked already; its owner never waits long for the walk. */
static bool enter_owner(struct idle_walk *walk, uint32_t id)
{
    struct hak_heap *heap = hak__heap_by_id(id);
    if (walk->entered != heap || walk->held_spans >= SPANS_PER_HOLD || walk->held_purges >= PURGES_PER_HOLD)
        let_go(walk);
    if (walk->entered == NULL && hak__enter_foreign(heap, 1))
        walk->entered = heap;
    walk->held_spans++;
    return walk->entered != NULL;
}

/* Of a span that was purged and has changed since: the pages that its batches of blocks can have touched are in use again. */
static void idle_regret(struct hak_span *span, uint32_t now)
{
    size_t batches = (uint16_t)(span->changes - span->changes_seen), size = hak__classes[span->class].size;
    size_t touched = batches * hak__option(HAK_OPTION_refill_count) * hak_max(size, hak__page_size());
    if (span->purged != 0)
        hak__return_regret(HAK_UNUSED_PAGES, hak_min((span->purged - 1u) * hak__page_size(), touched), now - span->seen_ms);
    span->purged = 0;
}

/* Whether nothing has moved for long enough. */
static bool has_idled(struct hak_span *span, const struct hak_idle_work *work)
{
    uint32_t now = (uint32_t)work->now_ms;
    if (span->changes != span->changes_seen) {
        idle_regret(span, now);
        span->changes_seen = span->changes;
        span->seen_ms = now;
    }
    return now - span->seen_ms >= work->idle_ms;
}

/* Narrows a run of `count` pages to the range from its first to its last resident page. */
static void idle_narrow(const unsigned char *pages, size_t *first, size_t *count)
{
    for (; *count != 0 && !pages[*first]; (*first)++, (*count)--)
        continue;
    while (*count != 0 && !pages[*first + *count - 1])
        (*count)--;
}

static size_t count_resident(const unsigned char *pages, size_t count)
{
    size_t resident = 0;
    for (size_t i = 0; i < count; i++)
        resident += pages[i];
    return resident;
}

/* Free blocks below the frontier bear keys, so each has a page, unless a purge took the key. */
static bool is_below_frontier(const struct hak_span *span, size_t offset)
{
    return offset < (size_t)span->frontier * hak__classes[span->class].size;
}

/* First asks the kernel which pages are resident: one call instead of one for each run purged long ago. A run is purged with its
 * absent pages, because they may be in swap, which mincore does not show; so is a run without resident pages, unless a purge
 * explains it. Runs are kept as short as possible only where mapped but absent memory counts (HAKMEM_UNMAP). */
static void purge_span(struct idle_walk *walk, struct hak_span *span)
{
    hak_assert(span->listed && !span->purged, "a span with free blocks that has not been purged");
    unsigned char pages[PAGES_OF_SPAN];
    char *start = hak__span_start(span);
    size_t from = 0, gone = 0, bytes, page = hak__page_size();
    bool sparing = hak__option(HAK_OPTION_unmap) != 0, was_sure = span->keys == HAK_SPAN_KEYS_WHOLE;
    if (hak__thp_must_stay(hak__span_slab(span) / HAK_SUPER_SLABS))
        return;
    if (hak__os_resident((uintptr_t)start, (size_t)span->slabs << HAK_SLAB_SHIFT, pages) != 0)
        memset(pages, 1, sizeof pages);
    walk->held_purges++;
    for (; (bytes = hak__span_idle_pages(span, page, &from)) != 0; from += bytes) {
        size_t first = from / page, count = bytes / page, resident = count_resident(pages + first, count);
        if (resident == 0 && (sparing || !was_sure || !is_below_frontier(span, from)))
            continue;
        if (sparing)
            idle_narrow(pages, &first, &count);
        if (walk->purges == walk->work->purges || walk->bytes >= walk->work->most)
            return; /* another step does the rest */
        walk->purges++;
        walk->held_purges++;
        hak__span_lose_keys(span); /* first, so that no free meets a block without its key unprepared */
        if (!hak__arena_purge_range(start + first * page, count * page, HAK_UNUSED_PAGES))
            break; /* locked memory, for instance: do not retry at every step */
        walk->bytes += resident * page;
        gone += resident;
    }
    span->purged = (uint8_t)hak_min(1 + gone, UINT8_MAX);
}

/* A hardened span keeps its slabs, and gives up their memory only where addresses are limited. */
static bool may_sleep(const struct idle_walk *walk, const struct hak_span *span)
{
    return hak__span_allocated(span) == 0 && !hak__span_sleeps(span) && !hak__heap_is_share(walk->entered) && hak__limit_unmaps();
}

static void look_at(struct idle_walk *walk, struct hak_span *span)
{
    hak_assert(hak__heap_is_mine(walk->entered), "the span's heap is locked");
    if (!span->listed || !has_idled(span, walk->work))
        return;
    if (hak__span_allocated(span) == 0 && !hak__hardened.regions) {
        hak__heap_end_idle(walk->entered, span);
        hak_count(&hak__upkeep_counts.spans_ended, 1);
    } else if (may_sleep(walk, span) && hak__span_sleep(span)) {
        walk->bytes += (size_t)span->slabs << HAK_SLAB_SHIFT;
        walk->purges++;
    } else if (!span->purged && hak_load(&span->closed, HAK_RELAXED) == 0) { /* a closed block's pages are gone */
        purge_span(walk, span);
    }
}

/* Handles what begins at a slab; returns the number of slabs to advance. */
static unsigned walk_slab(struct idle_walk *walk, size_t slab)
{
    uint32_t word = hak__owner_at(slab), class = hak__owner_class(word);
    bool small = hak__owner_id(word) != 0 && class < HAK_CLASSES && (hak__classes[class].blocks > 1 || hak__hardened.on);
    if (!small || !enter_owner(walk, hak__owner_id(word)))
        return 1;
    struct hak_span *span = &hak__spans[slab];
    if (!hak__heap_has_span(walk->entered, span)) /* it has ended, changed hands, or has one block */
        return 1;
    unsigned slabs = span->slabs;
    look_at(walk, span);
    return slabs;
}

static void walk_super(struct idle_walk *walk, size_t super)
{
    if (hak_load(&hak__supers[super].kind, HAK_RELAXED) != HAK_SUPER_IN_SLABS)
        return;
    for (unsigned i = 0; i < HAK_SUPER_SLABS;)
        i += walk_slab(walk, super * HAK_SUPER_SLABS + i);
    walk->slabs += HAK_SUPER_SLABS;
    let_go(walk);
}

size_t hak__idle_walk(const struct hak_idle_work *work)
{
    struct idle_walk walk = { .work = work };
    size_t top = hak__arena_top(), begun = next_super;
    for (unsigned rounds = 0; walk.slabs < work->slabs && walk.purges < work->purges;) {
        next_super = hak__super_from(next_super);
        if (next_super >= top) {
            rounds++;
            next_super = hak__super_from(0);
        }
        if (rounds > 1 || next_super >= top || (rounds == 1 && next_super >= begun))
            break;
        walk_super(&walk, next_super);
        next_super += walk.purges < work->purges;
    }
    hak_count(&hak__upkeep_counts.span_purges, walk.purges);
    hak_count(&hak__upkeep_counts.span_purged, walk.bytes);
    hak_store(&unfinished, walk.purges == work->purges, HAK_RELAXED);
    return walk.bytes;
}

bool hak__idle_unfinished(void) { return hak_load(&unfinished, HAK_RELAXED); }
