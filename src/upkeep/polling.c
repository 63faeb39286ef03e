/* Decides when slow paths poll the clock and take a step, and when a heap starts and stops polling. */
#include "base/assert.h"
#include "upkeep/upkeep.h"

#include "arena/returned.h"
#include "base/bits.h"
#include "base/lock.h"
#include "cache/cache.h"
#include "cache/large_cache.h"
#include "diag/options.h"
#include "os/os.h"
#include "profile/profile.h"
#include "span/pool.h"
#include "upkeep/nearness.h"

/* The clock is coarse: FAST_MS is two of its ticks on most systems. With this many refills in POLLING_CALLS calls, slow paths
 * suffice for an open heap to read the clock now and then. */
enum { FAST_MS = 9, REFILLS_ENOUGH = 16, OVERFLOWS_ENOUGH = 4 };

/* Given back by threads that have ended, and not seen to return to the system. A thread that is alone takes it over. */
static _Atomic size_t left_bytes;

void hak__polling_leave(struct hak_heap *heap)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    hak_fetch_add(&left_bytes, hak_counted(&heap->polling.idle_bytes), HAK_RELAXED);
}

static bool much_is_left(void) { return hak_load(&left_bytes, HAK_RELAXED) >= HAK_POLLING_MUCH && hak__background_is_alone(); }

static bool is_polling(const struct hak_heap *heap) { return (heap->mode & HAK_MODE_POLLING) != 0; }

/* Takes the lock, because a child forked meanwhile must not take over a heap with half of its bins closed. */
static void begin_polling(struct hak_heap *heap, uint64_t now_ms)
{
    hak_assert(!is_polling(heap), "the heap does not poll yet");
    if (!hak__heap_lock(heap))
        return;
    hak__cache_set_polling(heap, true);
    hak__heap_unlock(heap);
    heap->polling.begun_ms = now_ms;
    hak_fetch_add(&hak__upkeep_counts.armings, 1, HAK_RELAXED);
}

static void end_polling(struct hak_heap *heap)
{
    if (!is_polling(heap) || !hak__heap_lock(heap))
        return;
    hak__cache_set_polling(heap, false);
    hak__heap_unlock(heap);
}

static void begin_count(struct hak_polling *polling, uint64_t now_ms)
{
    polling->count_ms = now_ms;
    polling->left = HAK_POLLING_CALLS;
    polling->refills_seen = polling->refills;
    polling->overflows_seen = polling->overflows;
}

/* Whether polling costs too much: the count passed quickly, with slow paths in it, and not only frees. */
static bool is_a_burden(const struct hak_polling *polling, uint64_t now_ms)
{
    uint32_t refills = polling->refills - polling->refills_seen, overflows = polling->overflows - polling->overflows_seen;
    return now_ms - polling->count_ms < FAST_MS && refills >= REFILLS_ENOUGH && refills >= overflows / 4;
}

/* Whether the open heap has only freed since the last look; it may go on doing so for long. */
static bool only_frees(struct hak_polling *polling)
{
    uint32_t refills = polling->refills - polling->refills_seen, overflows = polling->overflows - polling->overflows_seen;
    polling->refills_seen = polling->refills;
    polling->overflows_seen = polling->overflows;
    return refills == 0 && overflows >= OVERFLOWS_ENOUGH;
}

/* Whether the memory freed earlier has been returned by now. A program that freed all along may have left younger emptied
 * SuperSlabs and slabs; waits for them, but not for ever. */
static bool has_gone_back(const struct hak_heap *heap, uint64_t now_ms, uint64_t delay)
{
    uint64_t since = now_ms - heap->polling.much_ms;
    bool kept = hak_counted(&hak__arena_published.dirty) != 0 || hak__pool_waiting_ms() != UINT64_MAX;
    return since > (kept ? 4 * delay : delay + delay / 2) && !hak__idle_unfinished();
}

static hak_cold void polling_decide(struct hak_heap *heap, uint64_t now_ms)
{
    if (much_is_left()) {
        hak__heap_idle_more(heap, hak_exchange(&left_bytes, 0, HAK_RELAXED));
        heap->polling.begun_ms = 0; /* it may begin at once, however lately it did: this may be its last slow path for long */
    }
    bool much = hak_counted(&heap->polling.idle_bytes) >= HAK_POLLING_MUCH;
    uint64_t delay = much ? hak__return_horizon(now_ms) : 0;
    if (much && heap->polling.much_ms == 0)
        heap->polling.much_ms = now_ms;
    if (much && has_gone_back(heap, now_ms, delay)) {
        hak_store(&heap->polling.idle_bytes, 0, HAK_RELAXED);
        much = false;
    }
    if (!much)
        heap->polling.much_ms = 0;
    if (!much || hak__background_runs() || (heap->mode & (HAK_MODE_EXACT | HAK_MODE_HARDENED)) != 0) {
        end_polling(heap);
    } else if (!is_polling(heap) && (only_frees(&heap->polling) || now_ms - heap->polling.begun_ms >= delay / 4)) {
        begin_count(&heap->polling, now_ms);
        begin_polling(heap, now_ms);
    }
}

void hak__polling_look(struct hak_heap *heap)
{
    hak__fork_check();
    if (hak__heap_is_unusable(heap)) /* a forked child abandoned it */
        return;
    if (heap->polling.left == 0) {
        uint64_t now = hak__os->now_ms();
        if (is_a_burden(&heap->polling, now))
            end_polling(heap);
        begin_count(&heap->polling, now);
    }
    hak__upkeep_poll_now(heap);
}

/* --- polls of slow paths --------------------------------------------------------------------------------------------- */

enum { CALLS_PER_LOOK = 64, CALLS_IF_MUCH = 8, LOOKS_IF_DUE = 8 };

/* The first call only notes which classes have moved. */
static void shrink_idle_bins(struct hak_heap *heap, uint64_t now)
{
    heap->budget.shrink_ms = now;
    if (!hak__heap_lock(heap))
        return;
    if (!heap->budget.fixed)
        hak__large_cache_age(heap);
    hak__cache_shrink_idle(heap);
    hak__heap_unlock(heap);
}

/* Whether a step would return memory now: the last one ran out of system calls, or left slabs that were too young and are old
 * enough now. */
static bool is_due(uint64_t now, uint64_t delay)
{
    uint64_t waiting = hak__pool_waiting_ms();
    return hak__idle_unfinished() || (waiting < now && now - waiting >= delay);
}

/* A slow path takes steps that no background thread takes in time. Work already due waits less long. */
static uint64_t step_interval(uint64_t now, uint64_t delay)
{
    if (hak__background_runs())
        return 2 * delay;
    return hak_load(&hak__return_counts.look_ms, HAK_RELAXED) / (is_due(now, delay) ? LOOKS_IF_DUE : 1);
}

/* Each rise that is followed looks at all SuperSlabs, so it is a part of the whole; a smaller process has little to return. */
enum { PEAK_MS = 8, PEAK_PART = 64 };
#define PEAK_LEAST ((size_t)16 << 20)

static _Atomic uint64_t peak_look_ms;
static _Atomic size_t peak_seen;

/* What raises the peak does not matter: all that lies unused raises it too. */
static void follow_peak(uint64_t now)
{
    if (now - hak_load(&peak_look_ms, HAK_RELAXED) < PEAK_MS)
        return;
    hak_store(&peak_look_ms, now, HAK_RELAXED);
    size_t peak = hak__os_peak(), seen = hak_load(&peak_seen, HAK_RELAXED);
    if (peak < hak_max(seen + peak / PEAK_PART, PEAK_LEAST))
        return;
    hak_store(&peak_seen, peak, HAK_RELAXED);
    if (seen != 0)
        hak__pool_shed(hak__return_ask((struct hak_retention){ .risen = peak - seen }, now).at_once);
}

void hak__upkeep_poll_now(struct hak_heap *heap)
{
    hak__fork_check();
    if (hak__heap_is_unusable(heap)) /* a forked child abandoned it */
        return;
    uint64_t now = hak__os->now_ms();
    uint64_t since = now - hak_load(&hak__upkeep_last_ms, HAK_RELAXED), delay = hak_load(&hak__return_counts.slabs_ms, HAK_RELAXED);
    hak__background_consider();
    hak__profile_poll(heap, now);
    hak__near_poll(heap, now);
    follow_peak(now);
    if (since >= step_interval(now, delay))
        hak__upkeep_step(now, HAK_UPKEEP_BOUNDED);
    if (now - heap->budget.shrink_ms >= delay)
        shrink_idle_bins(heap, now);
    polling_decide(heap, now);
}

void hak__polling_hurry(struct hak_heap *heap) { heap->polling.calls = CALLS_PER_LOOK; }

/* What concerns every heap at its next slow path: threads that have ended, and in steps of NEWS_WANTED refusals of memory. */
enum { NEWS_WANTED = 1 << 16 };
static _Atomic uint32_t news;

void hak__polling_thread_ended(void) { hak_fetch_add(&news, 1, HAK_RELAXED); }

bool hak__bins_want(void)
{
    struct hak_heap *mine = hak__heap_mine();
    uint32_t now = hak_fetch_add(&news, NEWS_WANTED, HAK_RELAXED) + NEWS_WANTED;
    if ((mine->mode & HAK_MODE_SENTINEL) == 0)
        mine->news = now;
    return hak__heap_last_id() > 1;
}

static hak_cold void give_up_bins(struct hak_heap *heap)
{
    if (!hak__heap_lock(heap))
        return;
    hak__cache_flush(heap);
    hak__heap_spare(heap, HAK_CLASSES);
    hak__heap_unlock(heap);
}

static hak_cold void hear_news(struct hak_heap *heap, uint32_t now)
{
    bool wanted = (now ^ heap->news) >= NEWS_WANTED;
    heap->news = now;
    if (wanted)
        give_up_bins(heap);
    if (much_is_left())
        hak__polling_hurry(heap);
}

void hak__upkeep_poll(struct hak_heap *heap)
{
    uint32_t now = hak_load(&news, HAK_RELAXED);
    hak__background_poll();
    if (hak_unlikely(now != heap->news))
        hear_news(heap, now);
    if (hak_likely(++heap->polling.calls < CALLS_PER_LOOK && (heap->polling.much_ms == 0 || heap->polling.calls < CALLS_IF_MUCH)))
        return;
    heap->polling.calls = 0;
    hak__upkeep_poll_now(heap);
}
