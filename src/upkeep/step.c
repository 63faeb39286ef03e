/* The step and when it is due. One thread at a time does it; others pass on. Takes no lock but the arena's. */
#include "upkeep/step.h"

#include "diag/options.h"
#include "os/os.h"
#include "shared/pool.h"

enum { CALLS_PER_LOOK = 64, STEPS_PER_DELAY = 4 };

static _Atomic uint32_t stepping;      /* a thread is in a step */
static _Atomic uint64_t last_step_ms;

size_t hak__upkeep_step(const struct hak_heap *mine, uint64_t now_ms, bool all)
{
    uint64_t delay = all ? 0 : hak__option(HAK_OPTION_purge_delay);
    /* acquire, release: a step sees what the one before it has done. */
    if (hak_exchange(&stepping, 1, HAK_ACQUIRE) != 0)
        return 0;
    hak_store(&last_step_ms, now_ms, HAK_RELAXED);
    hak__heaps_sweep(mine);
    size_t bytes = now_ms >= delay ? hak__pool_purge(now_ms - delay) : 0;
    bytes += hak__arena_purge(now_ms, all);
    hak__reserve_refill();
    hak_store(&stepping, 0, HAK_RELEASE);
    return bytes;
}

void hak__upkeep_tick(struct hak_heap *heap)
{
    if (hak_likely(++heap->upkeep_calls < CALLS_PER_LOOK))
        return;
    heap->upkeep_calls = 0;
    uint64_t now = hak__os->now_ms(), last = hak_load(&last_step_ms, HAK_RELAXED);
    if (now - last >= hak__option(HAK_OPTION_purge_delay) / STEPS_PER_DELAY)
        hak__upkeep_step(heap, now, false);
}

void hak__upkeep_fork_child(void) { hak_store(&stepping, 0, HAK_RELAXED); }
