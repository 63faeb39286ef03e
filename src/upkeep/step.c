/* The step: one thread at a time takes it, others skip it. It takes no lock but the arena's. */
#include "upkeep/step.h"

#include <limits.h>

#include "arena/hugepages.h"
#include "arena/recycled.h"
#include "arena/retained.h"
#include "arena/returned.h"
#include "arena/runs.h"
#include "arena/window.h"
#include "base/assert.h"
#include "base/bits.h"
#include "cache/cache.h"
#include "cache/large_cache.h"
#include "cache/outbox.h"
#include "diag/options.h"
#include "os/os.h"
#include "profile/profile.h"
#include "span/pool.h"
#include "upkeep/idle.h"
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
