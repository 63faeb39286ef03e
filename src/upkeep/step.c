/* The step and when it is due. One thread at a time does it; others pass on. Takes no lock but the arena's. */
#include "upkeep/step.h"

#include "base/forked.h"
#include "cache/cache.h"
#include "diag/options.h"
#include "os/os.h"
#include "shared/pool.h"
#include "upkeep/polling.h"
#include "upkeep/background.h"
#include "upkeep/collapse.h"
#include "upkeep/counts.h"
#include "upkeep/idle.h"

enum { CALLS_PER_LOOK = 64, CALLS_IF_MUCH = 8, STEPS_PER_DELAY = 4, STEPS_IF_DUE = 32 };
enum { BOUNDED_SLABS = 8192, BOUNDED_PURGES = 1024 };

static _Atomic uint32_t stepping;      /* a thread is in a step */
static _Atomic uint64_t last_step_ms;
struct hak_upkeep_counts hak__upkeep_counts;

/* --- heaps whose owners are not inside ---------------------------------------------------------------------------- */

static bool has_work(struct hak_heap *heap)
{
    uint32_t state = hak_load(&heap->state, HAK_ACQUIRE);
    if (state != HAK_HEAP_ACTIVE && state != HAK_HEAP_PARKED && state != HAK_HEAP_SHARE)
        return false;
    return hak_load(&heap->pending, HAK_RELAXED) != NULL || hak_load(&heap->outbox_used, HAK_RELAXED) != 0
        || hak_peek(&heap->assigned_count) != 0 || hak_peek(&heap->large_cache_bytes) != 0
        || (state == HAK_HEAP_PARKED && hak_peek(&heap->left) != HAK_LEFT_NOTHING);
}

/* The large blocks of a thread that has freed none since the step before are not kept any longer. */
static void age_kept(struct hak_heap *heap, bool all)
{
    if (all || heap->large_cache_stepped == heap->large_cache_clock)
        hak__large_cache_flush(heap);
    heap->large_cache_stepped = heap->large_cache_clock;
}

static void serve(struct hak_heap *heap, bool all)
{
    hak__cache_age_left(heap, all);
    age_kept(heap, all);
    hak_count(&hak__upkeep_counts.collected_heaps, hak_load(&heap->pending, HAK_RELAXED) != NULL);
    hak_count(&hak__upkeep_counts.outbox_blocks, hak__outbox_sweep(heap));
    hak__heap_collect(heap);
    if (heap->held_seen == heap->held_moves)
        hak__assigned_let_go(heap);
    heap->held_seen = heap->held_moves;
}

/* Outboxes first, so that what they publish is collected in the same step by heaps with a higher id, and by lower ones in
 * the next. */
static void serve_heaps(bool all)
{
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++) {
        struct hak_heap *heap = hak__heap_by_id(id);
        if (has_work(heap) && hak__enter_foreign(heap, 1)) {
            serve(heap, all);
            hak__heap_unlock(heap);
        }
    }
}

/* --- the step ------------------------------------------------------------------------------------------------------- */

static size_t purge(uint64_t now_ms, enum hak_upkeep_effort effort)
{
    bool all = effort == HAK_UPKEEP_ALL, bounded = effort == HAK_UPKEEP_BOUNDED;
    uint64_t delay = all ? 0 : hak__option(HAK_OPTION_purge_delay);
    struct hak_idle_work work = { now_ms, all, bounded ? BOUNDED_SLABS : UINT32_MAX,
                                  bounded ? BOUNDED_PURGES : UINT32_MAX };
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
    hak_store(&last_step_ms, now_ms, HAK_RELAXED);
    hak_count(&hak__upkeep_counts.steps, 1);
    serve_heaps(effort == HAK_UPKEEP_ALL);
    if (effort == HAK_UPKEEP_ALL)
        serve_heaps(true);
    size_t bytes = purge(now_ms, effort);
    if (effort == HAK_UPKEEP_DUE)
        hak__collapse_walk(now_ms);
    hak__reserve_refill();
    hak_store(&stepping, 0, HAK_RELEASE);
    return bytes;
}

/* The first time only notes what has moved. */
static void shrink_records(struct hak_heap *heap, uint64_t now)
{
    heap->shrink_ms = now;
    if (!hak__enter_own(heap))
        return;
    hak__cache_shrink_idle(heap);
    hak__heap_unlock(heap);
}

/* Whether there is something that a step would return just now: the last one came to the end of its calls of the system, or
 * left slabs alone that were too young and are old enough by now. */
static bool is_due(uint64_t now, uint64_t delay)
{
    uint64_t waiting = hak__pool_waiting_ms();
    return hak__idle_unfinished() || (waiting < now && now - waiting >= delay);
}

/* Where a background thread does not take the steps in time, a slow path does. What is due already should not wait as long
 * as what is not. */
static uint64_t step_interval(uint64_t now, uint64_t delay)
{
    if (hak__background_runs())
        return 2 * delay;
    return delay / (is_due(now, delay) ? STEPS_IF_DUE : STEPS_PER_DELAY);
}

void hak__upkeep_poll_now(struct hak_heap *heap)
{
    hak__fork_check();
    if (hak__heap_is_lost(heap))   /* a child has had to leave it */
        return;
    uint64_t now = hak__os->now_ms();
    uint64_t since = now - hak_load(&last_step_ms, HAK_RELAXED), delay = hak__option(HAK_OPTION_purge_delay);
    hak__background_consider();
    if (since >= step_interval(now, delay))
        hak__upkeep_step(now, HAK_UPKEEP_BOUNDED);
    if (now - heap->shrink_ms >= delay)
        shrink_records(heap, now);
    hak__polling_decide(heap, now);
}

void hak__upkeep_poll(struct hak_heap *heap)
{
    hak__background_poll();
    if (hak_likely(++heap->upkeep_calls < CALLS_PER_LOOK && (heap->much_ms == 0 || heap->upkeep_calls < CALLS_IF_MUCH)))
        return;
    heap->upkeep_calls = 0;
    hak__upkeep_poll_now(heap);
}

void hak__upkeep_fork_child(void) { hak_store(&stepping, 0, HAK_RELAXED); }
