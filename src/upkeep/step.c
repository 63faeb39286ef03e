/* The step. One thread at a time does it; others pass on. Takes no lock but the arena's. */
#include "upkeep/step.h"

#include <limits.h>

#include "base/assert.h"
#include "base/bits.h"
#include "arena/window.h"
#include "arena/hugepages.h"
#include "arena/recycled.h"
#include "arena/retained.h"
#include "arena/runs.h"
#include "cache/cache.h"
#include "cache/large_cache.h"
#include "cache/outbox.h"
#include "diag/options.h"
#include "os/os.h"
#include "profile/profile.h"
#include "span/pool.h"
#include "upkeep/idle.h"

enum { BOUNDED_SLABS = 8192, BOUNDED_PURGES = 1024, ASKED_NAPS = 50, AWAITED_TRIES = 5000 };

static _Atomic uint32_t stepping; /* a thread is in a step */
_Atomic uint64_t hak__upkeep_last_ms;

/* --- heaps that nobody has locked --------------------------------------------------------------------------------- */

static bool has_work(struct hak_heap *heap)
{
    uint32_t state = hak_load(&heap->state, HAK_ACQUIRE);
    if (!hak__heap_is_open(state))
        return false;
    return hak_load(&heap->pending, HAK_RELAXED) != NULL || hak_load(&heap->outbox.used, HAK_RELAXED) != 0
        || hak_peek(&heap->assigned.count) != 0 || hak_peek(&heap->large_cache.bytes) != 0
        || (state == HAK_HEAP_PARKED && hak_peek(&heap->left) != HAK_LEFT_NOTHING);
}

/* How a step goes round: by the clock; or for all that there is, first asking for the large blocks that threads have cached, then
 * taking them. */
enum step_round { ROUND_DUE, ROUND_ALL, ROUND_ALL_WAITED };

/* False: the heap's owner has been asked for large blocks and may still answer. */
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

/* Outboxes first, so that what they publish is collected in the same step by heaps with a higher id, and by lower ones in
 * the next. */
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

/* Everything, due or not. The sleep between the rounds is a hundred times what a store takes to become visible to other processors
 * (cache/large_cache.h). */
static void serve_all(uint64_t now_ms)
{
    bool done = serve_heaps(now_ms, ROUND_ALL);
    for (unsigned i = 0; !done && i < ASKED_NAPS; i++)
        hak__nap(UINT_MAX);
    serve_heaps(now_ms, ROUND_ALL_WAITED);
}

/* --- huge pages -----------------------------------------------------------------------------------------------------
 *
 * With HAKMEM_THP=auto SuperSlabs are collapsed into huge pages that have been nearly full for a while and are resident nearly whole, so
 * that no page comes to life that nothing uses, and none is collapsed that is about to empty. The background thread alone does it: a
 * collapse copies 2 MiB. */

enum {
    FULL_MS = 10000, /* how long a SuperSlab has to be nearly full */
    UNUSED_MOST = 1, /* slabs: of 32 */
    LOOKS = 256,
    READS = 16, /* in one walk: SuperSlabs, and those of which the kernel is asked */
};

static size_t next_look;

/* Nearly full now, and at every look for FULL_MS. A time of 0 is "not full": the clock is not 0 for long. */
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
        hak_store(&at->full_ms, (uint32_t)now_ms, HAK_RELAXED); /* if it is not collapsed: not to be asked at once again */
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
    uint64_t delay = all ? 0 : hak__option(HAK_OPTION_purge_delay);
    struct hak_idle_work work = { now_ms, all, bounded ? BOUNDED_SLABS : UINT32_MAX, bounded ? BOUNDED_PURGES : UINT32_MAX };
    size_t bytes = hak__idle_walk(&work);
    /* What the step itself has emptied is newer than the time at which it began. */
    bytes += now_ms >= delay ? hak__pool_purge(all ? UINT64_MAX : now_ms - delay) : 0;
    return bytes + hak__arena_purge(now_ms, all);
}

size_t hak__upkeep_step(uint64_t now_ms, enum hak_upkeep_effort effort)
{
    /* acquire, release: a step sees what the one before it has done. */
    if (hak_exchange(&stepping, 1, HAK_ACQUIRE) != 0)
        return 0;
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
    hak_store(&stepping, 0, HAK_RELEASE);
    return bytes;
}

void hak__upkeep_await(void)
{
    for (unsigned tries = 0; hak_load(&stepping, HAK_ACQUIRE) != 0 && tries < AWAITED_TRIES; tries++)
        hak__yield(tries);
}

void hak__upkeep_fork_child(void) { hak_store(&stepping, 0, HAK_RELAXED); }
