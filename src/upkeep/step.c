/* The step: one thread at a time takes it, others skip it. It takes no lock but the arena's. */
#include "upkeep/upkeep.h"

#include <limits.h>
#include <string.h>

#include "arena/limit.h"
#include "arena/mapping.h"
#include "arena/returned.h"
#include "arena/retained.h"
#include "arena/runs.h"
#include "arena/window.h"
#include "base/assert.h"
#include "base/bits.h"
#include "cache/cache.h"
#include "cache/large_cache.h"
#include "diag/options.h"
#include "harden/spans.h"
#include "heap/heap.h"
#include "os/os.h"
#include "profile/profile.h"
#include "span/pool.h"
#include "upkeep/nearness.h"

enum { BOUNDED_SLABS = 8192, BOUNDED_PURGES = 1024, ASKED_NAPS = 50, AWAITED_TRIES = 5000 };

static _Atomic uint32_t stepping; /* a thread is taking a step */
_Atomic uint64_t hak__upkeep_last_ms;

/* --- unlocked heaps ----------------------------------------------------------------------------------------------- */

static bool has_work(struct hak_heap *heap)
{
    uint32_t state = hak_load(&heap->state, HAK_ACQUIRE);
    if (!hak__heap_is_open(state))
        return false;
    return hak_load(&heap->pending, HAK_RELAXED) != NULL || hak_load(&heap->outbox.used, HAK_RELAXED) != 0
        || hak_peek(&heap->assigned.count) != 0 || hak_peek(&heap->large_cache.bytes) != 0
        || (state == HAK_HEAP_PARKED && hak_peek(&heap->left) != HAK_LEFT_NOTHING);
}

/* How a step serves heaps: by the clock; or everything, first asking threads for their cached large blocks, then taking them. */
enum step_round { ROUND_DUE, ROUND_ALL, ROUND_ALL_WAITED };

/* False: the heap's owner was asked for large blocks and may still answer. */
static bool step_serve(struct hak_heap *heap, uint64_t now_ms, enum step_round round)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    hak__cache_age_left(heap, round != ROUND_DUE);
    bool done = hak_peek(&heap->large_cache.bytes) == 0 || hak__large_cache_reclaim(heap, now_ms, round == ROUND_ALL_WAITED);
    hak_count(&hak__upkeep_counts.collected_heaps, hak_load(&heap->pending, HAK_RELAXED) != NULL);
    hak_count(&hak__upkeep_counts.outbox_blocks, hak__outbox_sweep(heap));
    hak__heap_collect(heap);
    if (heap->assigned.moves_seen == heap->assigned.moves)
        hak__assigned_let_go(heap);
    heap->assigned.moves_seen = heap->assigned.moves;
    return done;
}

/* Outboxes first: heaps with a higher id collect the published blocks in the same step, those with a lower id in the next. */
static bool serve_heaps(uint64_t now_ms, enum step_round round)
{
    bool done = true;
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++) {
        struct hak_heap *heap = hak__heap_by_id(id);
        if (has_work(heap) && hak__enter_foreign(heap, 1)) {
            done &= step_serve(heap, now_ms, round);
            hak__heap_unlock(heap);
        }
    }
    return done;
}

/* Serves everything, due or not. The sleep between the rounds is a hundred times what a store takes to become visible to other
 * processors (cache/large_cache.h). */
static void serve_all(uint64_t now_ms)
{
    bool done = serve_heaps(now_ms, ROUND_ALL);
    for (unsigned i = 0; !done && i < ASKED_NAPS; i++)
        hak__nap(UINT_MAX);
    serve_heaps(now_ms, ROUND_ALL_WAITED);
}

/* --- huge pages -----------------------------------------------------------------------------------------------------
 *
 * HAKMEM_THP=auto collapses SuperSlabs into huge pages that have been nearly full for a while and are almost wholly resident, so
 * that it brings in no unused pages and collapses none that is about to empty. Only the background thread does this: a collapse
 * copies 2 MiB. */

enum {
    FULL_MS = 10000, /* how long a SuperSlab must be nearly full */
    UNUSED_MOST = 1, /* slabs: of 32 */
    LOOKS = 256,
    READS = 16, /* per walk: SuperSlabs read, and those that the kernel is asked about */
};

static size_t next_look;

/* Whether it is nearly full now and was at every look for FULL_MS. Time 0 means "not full": the clock soon passes 0. */
static bool long_full(struct hak_super *super, uint32_t now)
{
    uint64_t word = hak_load(&super->slabs, HAK_RELAXED);
    bool in_slabs = hak_load(&super->kind, HAK_RELAXED) == HAK_SUPER_IN_SLABS;
    uint32_t since = hak_load(&super->full_ms, HAK_RELAXED);
    if (!in_slabs || hak_popcount32((uint32_t)word) > UNUSED_MOST)
        now = since = 0;
    else if (since == 0)
        since = now;
    hak_store(&super->full_ms, since, HAK_RELAXED);
    return since != 0 && now - since >= FULL_MS;
}

void hak__collapse_walk(uint64_t now_ms)
{
    size_t top = hak__arena_top();
    if (!hak__thp_may_collapse())
        return;
    for (unsigned looks = 0, reads = 0; looks < LOOKS && looks < top && reads < READS; looks++) {
        size_t super = hak__super_from(next_look);
        super = super < top ? super : hak__super_from(0);
        struct hak_super *at = &hak__supers[super];
        next_look = super + 1;
        if (!long_full(at, (uint32_t)now_ms) || hak_load(&at->collapsed, HAK_RELAXED))
            continue;
        reads++;
        hak_store(&at->full_ms, (uint32_t)now_ms, HAK_RELAXED); /* if the collapse fails, do not retry at once */
        if (hak__thp_is_dense(super)) {
            hak__thp_collapse(super);
            return;
        }
    }
}

/* --- the step ------------------------------------------------------------------------------------------------------- */

static size_t step_purge(uint64_t now_ms, enum hak_upkeep_effort effort)
{
    hak__waiting_end();
    bool all = effort == HAK_UPKEEP_ALL, bounded = effort == HAK_UPKEEP_BOUNDED;
    struct hak_retained may = hak__return_ask((struct hak_retention){ 0 }, now_ms);
    uint64_t delay = all ? 0 : may.delay_ms[HAK_UNUSED_SLABS];
    struct hak_idle_work work = { now_ms, bounded ? BOUNDED_SLABS : UINT32_MAX, bounded ? BOUNDED_PURGES : UINT32_MAX,
                                  all ? 0 : may.delay_ms[HAK_UNUSED_PAGES], all ? SIZE_MAX : may.may_go };
    size_t bytes = hak__idle_walk(&work);
    /* Memory emptied by this step is newer than the time at which it began. */
    size_t left = work.most - hak_min(bytes, work.most);
    bytes += now_ms >= delay ? hak__pool_purge(all ? UINT64_MAX : now_ms - delay, left) : 0;
    return bytes + hak__arena_purge(now_ms, all);
}

size_t hak__upkeep_step(uint64_t now_ms, enum hak_upkeep_effort effort)
{
    /* acquire, release: a step sees the previous one's work. */
    if (hak_exchange(&stepping, 1, HAK_ACQUIRE) != 0)
        return 0;
    uint64_t began = hak__return_begin(), cost = hak_load(&hak__return_counts.cost_ns, HAK_RELAXED);
    hak_store(&hak__upkeep_last_ms, now_ms, HAK_RELAXED);
    hak_count(&hak__upkeep_counts.steps, 1);
    if (effort == HAK_UPKEEP_ALL)
        serve_all(now_ms);
    else
        serve_heaps(now_ms, ROUND_DUE);
    size_t bytes = step_purge(now_ms, effort);
    if (effort == HAK_UPKEEP_DUE)
        hak__collapse_walk(now_ms);
    hak__reserve_refill();
    if (effort != HAK_UPKEEP_ALL)
        hak__return_step(began, cost);
    hak_store(&stepping, 0, HAK_RELEASE);
    return bytes;
}

void hak__upkeep_await(void)
{
    for (unsigned tries = 0; hak_load(&stepping, HAK_ACQUIRE) != 0 && tries < AWAITED_TRIES; tries++)
        hak__yield(tries);
}

void hak__upkeep_fork_child(void)
{
    hak_store(&stepping, 0, HAK_RELAXED);
    hak__near_fork_child();
}

/* --- idle spans ------------------------------------------------------------------------------------------------------- */

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

/* First asks the kernel which pages are resident, unless none may go: one call instead of one for each run purged long ago. A run is
 * purged with its absent pages, because they may be in swap, which mincore does not show; so is a run without resident pages, unless a
 * purge explains it. Runs are kept as short as possible only where mapped but absent memory counts (HAKMEM_UNMAP). */
static void purge_span(struct idle_walk *walk, struct hak_span *span)
{
    hak_assert(span->listed && !span->purged, "a span with free blocks that has not been purged");
    unsigned char pages[PAGES_OF_SPAN];
    char *start = hak__span_start(span);
    size_t from = 0, gone = 0, bytes, page = hak__page_size();
    bool sparing = hak__option(HAK_OPTION_unmap) != 0, was_sure = span->keys == HAK_SPAN_KEYS_WHOLE;
    if (walk->bytes >= walk->work->most || hak__thp_must_stay(hak__span_slab(span) / HAK_SUPER_SLABS))
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

/* An empty hardened span keeps its slabs, and sleeps where that is worth more than its pages: where addresses or its user heap are
 * limited. */
static bool may_sleep(const struct idle_walk *walk, const struct hak_span *span)
{
    size_t super = hak__span_slab(span) / HAK_SUPER_SLABS;
    bool limited =
        hak__heap_is_share(walk->entered) ? !hak__thp_must_stay(super) : hak__limit_unmaps() && hak__super_is_bare(super);
    return limited && hak__span_allocated(span) == 0;
}

static void look_at(struct idle_walk *walk, struct hak_span *span)
{
    hak_assert(hak__heap_is_mine(walk->entered), "the span's heap is locked");
    if (!span->listed || !has_idled(span, walk->work))
        return;
    if (hak__span_allocated(span) == 0 && !hak__hardened.regions) {
        hak__heap_end_idle(walk->entered, span);
        hak_count(&hak__upkeep_counts.spans_ended, 1);
    } else if (may_sleep(walk, span) && hak__heap_sleep_span(walk->entered, span)) {
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
