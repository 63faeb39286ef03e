/* The step. One thread at a time does it; others pass on. Takes no lock but the arena's. */
#include "upkeep/step.h"

#include "arena/lru.h"
#include "arena/reserve.h"
#include "arena/waiting.h"
#include "cache/cache.h"
#include "cache/flush.h"
#include "cache/large_cache.h"
#include "cache/outbox.h"
#include "diag/options.h"
#include "os/os.h"
#include "profile/profile.h"
#include "shared/pool.h"
#include "upkeep/collapse.h"
#include "upkeep/counts.h"
#include "upkeep/idle.h"

enum { BOUNDED_SLABS = 8192, BOUNDED_PURGES = 1024 };

static _Atomic uint32_t stepping;      /* a thread is in a step */
_Atomic uint64_t hak__upkeep_last_ms;
struct hak_upkeep_counts hak__upkeep_counts;

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

/* Releases the cached large blocks of a thread that has freed none since the step before. */
static void step_age_large(struct hak_heap *heap, bool all)
{
    if (all || heap->large_cache.stepped == heap->large_cache.clock)
        hak__large_cache_flush(heap);
    heap->large_cache.stepped = heap->large_cache.clock;
}

static void step_serve(struct hak_heap *heap, bool all)
{
    hak__cache_age_left(heap, all);
    step_age_large(heap, all);
    hak_count(&hak__upkeep_counts.collected_heaps, hak_load(&heap->pending, HAK_RELAXED) != NULL);
    hak_count(&hak__upkeep_counts.outbox_blocks, hak__outbox_sweep(heap));
    hak__heap_collect(heap);
    if (heap->assigned.moves_seen == heap->assigned.moves)
        hak__assigned_let_go(heap);
    heap->assigned.moves_seen = heap->assigned.moves;
}

/* Outboxes first, so that what they publish is collected in the same step by heaps with a higher id, and by lower ones in
 * the next. */
static void serve_heaps(bool all)
{
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++) {
        struct hak_heap *heap = hak__heap_by_id(id);
        if (has_work(heap) && hak__enter_foreign(heap, 1)) {
            step_serve(heap, all);
            hak__heap_unlock(heap);
        }
    }
}

/* --- the step ------------------------------------------------------------------------------------------------------- */

static size_t step_purge(uint64_t now_ms, enum hak_upkeep_effort effort)
{
    hak__waiting_end();
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
    hak_store(&hak__upkeep_last_ms, now_ms, HAK_RELAXED);
    hak_count(&hak__upkeep_counts.steps, 1);
    serve_heaps(effort == HAK_UPKEEP_ALL);
    if (effort == HAK_UPKEEP_ALL)
        serve_heaps(true);
    size_t bytes = step_purge(now_ms, effort);
    if (effort == HAK_UPKEEP_DUE)
        hak__collapse_walk(now_ms);
    hak__reserve_refill();
    hak_store(&stepping, 0, HAK_RELEASE);
    return bytes;
}

void hak__upkeep_fork_child(void) { hak_store(&stepping, 0, HAK_RELAXED); }
