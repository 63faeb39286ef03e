/* The policy of retain.h. */
#include "base/retain.h"

enum {
    RECENT_TIMES = 4,
    EMPTIED_SHARE = 3,
    UNUSED_SHARE = 8,
    REPLACED_SHARE = 4, /* what is replaced all the time leaves no more than this part of it unused, whatever returning costs */
    USED_PER_RESERVED = 4,
    LOOKS_PER_DELAY = 2,
    STEP_TIMES = 200,
    LOOK_MOST_MS = 500
};
enum { LEARNED_PART = 4, LEARNED_MS = 1000, FALL_MS = 1200000 };
#define MIB ((size_t)1 << 20)

static size_t retain_above(size_t peak, size_t used) { return peak > used ? peak - used : 0; }

static size_t retain_times(size_t bytes, size_t times)
{
    hak_assert(times != 0, "a multiple");
    return bytes > SIZE_MAX / times ? SIZE_MAX : bytes * times;
}

/* The bytes whose return at `price` ns per MiB leaves no more than `most` ms owed. */
static size_t retain_affords(const struct hak_return_cost *cost, uint64_t most, uint64_t price)
{
    if (cost->share == 0)
        return SIZE_MAX;
    uint64_t left_us = most > cost->owed_ms ? (most - cost->owed_ms) * cost->share * 10 : 0;
    return left_us * 1000 / hak_max(price, 1) * MIB;
}

struct hak_retained hak__retain(struct hak_retention in)
{
    hak_assert(in.used <= in.taken || in.taken == 0, "tails are taken memory too");
    const struct hak_return_cost *cost = &in.cost;
    size_t recent = retain_above(in.recent_peak, in.used), most = in.pressure ? 0 : retain_times(in.slack, RECENT_TIMES);
    size_t settled =
        in.slack + in.used / UNUSED_SHARE; /* an eighth more, so that a heap around the limit is not purged all the time */
    size_t paid = in.pressure ? SIZE_MAX : retain_affords(cost, HAK_RETURN_MUCH, (uint64_t)cost->purge_ns + cost->fault_ns);
    size_t most_stays = in.watched ? in.slack + in.taken / REPLACED_SHARE + recent : 0;
    size_t stays = hak_min(in.unused - hak_min(in.unused, paid), most_stays);
    bool early = cost->share != 0 && cost->owed_ms < HAK_RETURN_LITTLE;
    struct hak_retained out = {
        .emptied = hak_max(in.slack + in.slack / 4 + in.used / EMPTIED_SHARE, hak_min(recent, most)),
        .opening = hak_min(in.slack + recent, settled + settled / 8),
        .reserve = in.taken / USED_PER_RESERVED,
        .waiting = most,
        .may_go = early ? retain_affords(cost, HAK_RETURN_EARLY, (uint64_t)cost->purge_ns + cost->fault_ns)
                        : retain_affords(cost, HAK_RETURN_MOST, cost->purge_ns),
        .look_ms = cost->share != 0 ? LOOK_MOST_MS : UINT32_MAX,
    };
    out.emptied = hak_max(out.emptied, stays);
    out.opening = hak_max(out.opening, stays);
    if (hak_unlikely(in.room != 0)) {
        size_t room = in.taken != 0 ? retain_above(in.room, in.taken) : SIZE_MAX;
        out.emptied = hak_min(out.emptied, room);
        out.opening = hak_min(out.opening, room);
        out.waiting = hak_min(out.waiting, room);
    }
    for (unsigned kind = 0; kind < HAK_UNUSED_KINDS; kind++) {
        out.delay_ms[kind] = early ? cost->soonest_ms : cost->delay_ms[kind];
        out.look_ms = hak_min(out.look_ms, out.delay_ms[kind] / LOOKS_PER_DELAY);
    }
    out.look_ms = hak_max(out.look_ms, cost->step_ms * STEP_TIMES);
    return out;
}

uint32_t hak__retain_learn(uint32_t delay_ms, uint64_t idle_ms, uint64_t cost_ns, uint64_t owed_ms, uint32_t share)
{
    uint64_t aim = hak_min(hak_max(idle_ms + idle_ms / LEARNED_PART, HAK_RETURN_SOONEST), HAK_RETURN_LATEST);
    uint64_t whole = (uint64_t)LEARNED_MS * 10000 * hak_max(share, 1); /* ns: the allowed cost of that time */
    return delay_ms >= aim || owed_ms < HAK_RETURN_EARLY
             ? delay_ms
             : delay_ms + (uint32_t)((aim - delay_ms) * hak_min(cost_ns, whole) / whole);
}

uint32_t hak__retain_fall(uint32_t delay_ms, uint64_t since_ms, uint32_t least_ms)
{
    uint64_t fall = delay_ms * hak_min(since_ms, FALL_MS) / FALL_MS;
    return (uint32_t)hak_max(delay_ms - fall, least_ms);
}

size_t hak__recent_peak(struct hak_recent *recent, size_t used, uint64_t now_ms, uint64_t period_ms)
{
    size_t most = hak_load(&recent->most, HAK_RELAXED);
    uint64_t gone = now_ms - hak_load(&recent->begun_ms, HAK_RELAXED);
    if (gone >= period_ms) {
        hak_store(&recent->begun_ms, now_ms, HAK_RELAXED);
        hak_store(&recent->most_before, gone - period_ms >= period_ms ? 0 : most, HAK_RELAXED);
        most = 0;
    }
    if (used >= most)
        hak_store(&recent->most, used, HAK_RELAXED);
    return hak_max(hak_max(most, used), hak_load(&recent->most_before, HAK_RELAXED));
}
