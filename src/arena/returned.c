/* What returning memory costs, and the policy that follows. See returned.h. */
#include "arena/returned.h"

#include "arena/limit.h"
#include "diag/options.h"

/* Of a MiB of 4 KiB pages on a fast machine: 0.1 and 0.5 us for each. FEW_BYTES: the price of less is that of the call. A call from
 * which the processor was taken counts as PRICE_TIMES the usual price. */
enum {
    PURGE_NS = 25600,
    FAULT_NS = 128000,
    FAULT_TIMES = 5,
    PRICES_KEPT = 8,
    PRICE_TIMES = 8,
    FEW_BYTES = 256 << 10,
    DELAY_SHIFT = 44
};
enum { LOOKS_PER_DELAY = 2 };

struct hak_return_counts hak__return_counts = { .purge_ns = PURGE_NS };

static uint32_t return_share(void)
{
    return hak__option_origin(HAK_OPTION_purge_delay) == HAK_FROM_DEFAULT ? (uint32_t)hak__option(HAK_OPTION_return) : 0;
}

static uint64_t fault_ns(void)
{
    return hak_max(FAULT_NS, (uint64_t)hak_load(&hak__return_counts.purge_ns, HAK_RELAXED) * FAULT_TIMES);
}

/* What the faults on so many bytes cost. */
static uint64_t bytes_ns(size_t bytes) { return bytes / 1024 * fault_ns() / 1024; }

/* Uses up what has been charged ahead; returns what is left to charge. */
static uint64_t return_use_ahead(uint64_t ns)
{
    uint64_t ahead = hak_load(&hak__return_counts.ahead_ns, HAK_RELAXED), use;
    do
        use = hak_min(ahead, ns);
    while (use != 0 && !hak_cas_weak(&hak__return_counts.ahead_ns, &ahead, ahead - use, HAK_RELAXED, HAK_RELAXED));
    return ns - use;
}

/* Adds to what is owed; returns the time, in us, at which nothing will be. A thread that is first begins the account. */
static uint64_t return_charge(uint64_t ns)
{
    uint64_t now = hak__os->now_ms() * 1000, more = ns / (10 * hak_max(return_share(), 1)), paid, next;
    paid = hak_load(&hak__return_counts.paid_us, HAK_RELAXED);
    do
        next = (paid == 0 ? now + HAK_RETURN_START * 1000 : hak_max(paid, now)) + more;
    while ((more != 0 || paid == 0) && !hak_cas_weak(&hak__return_counts.paid_us, &paid, next, HAK_RELAXED, HAK_RELAXED));
    return next;
}

/* The mean of the last few prices; threads that come at once may lose one. Returns what the call counts as. */
static uint64_t learn_price(size_t bytes, uint64_t took)
{
    uint64_t price = hak_load(&hak__return_counts.purge_ns, HAK_RELAXED), kib = hak_max(bytes, FEW_BYTES) >> 10;
    uint64_t counts = hak_min(took, hak_max(price, PURGE_NS) * PRICE_TIMES / 1024 * kib),
             seen = hak_min(counts / kib * 1024, UINT32_MAX);
    hak_assert(counts <= took, "a call counts as no more than it took");
    if (bytes >= FEW_BYTES)
        hak_store(&hak__return_counts.purge_ns, (uint32_t)((price * (PRICES_KEPT - 1) + seen) / PRICES_KEPT), HAK_RELAXED);
    return counts;
}

/* Charges regret before it comes, as far as memory goes back soon anyway. */
static void charge_ahead(uint64_t ns, uint64_t paid_us)
{
    uint64_t until = (hak__os->now_ms() + HAK_RETURN_MUCH) * 1000, each = 10ull * return_share(),
             most = HAK_RETURN_MUCH * 1000 * each;
    uint64_t ahead = hak_min(ns, (until - hak_min(until, paid_us)) * each),
             had = hak_load(&hak__return_counts.ahead_ns, HAK_RELAXED);
    if (ahead != 0)
        hak_store(&hak__return_counts.ahead_ns, hak_min(had + ahead, most), HAK_RELAXED);
    return_charge(ahead);
}

void hak__return_end(enum hak_unused kind, size_t bytes, uint64_t began)
{
    hak_assert(kind < HAK_UNUSED_KINDS, "memory of a kind goes back");
    uint64_t took = hak__os->now_ns() - began;
    hak_fetch_add(&hak__return_counts.returned[kind], bytes, HAK_RELAXED);
    hak_fetch_add(&hak__return_counts.cost_ns, took, HAK_RELAXED);
    uint64_t paid_us = return_charge(learn_price(bytes, took));
    charge_ahead(bytes_ns(bytes), paid_us);
}

void hak__return_step(uint64_t began, uint64_t cost_before)
{
    static _Atomic uint64_t last_ns;
    uint64_t took = hak__os->now_ns() - began;
    uint64_t counted = hak_load(&hak__return_counts.cost_ns, HAK_RELAXED) - cost_before;
    uint64_t rest = took - hak_min(took, counted);
    hak_fetch_add(&hak__return_counts.cost_ns, rest, HAK_RELAXED);
    uint64_t shorter = hak_min(rest, hak_load(&last_ns, HAK_RELAXED)), most = 10000ull * HAK_RETURN_MUCH * return_share();
    hak_store(&last_ns, rest, HAK_RELAXED);
    hak_store(&hak__return_counts.step_ms, (uint32_t)(shorter / 1000000), HAK_RELAXED);
    return_charge(hak_min(rest, most));
}

/* --- delays ----------------------------------------------------------------------------------------------------------- */

static uint32_t learned_delay(enum hak_unused kind, uint64_t now_ms)
{
    uint64_t word = hak_load(&hak__return_counts.delays[kind], HAK_RELAXED), since = word & ((1ull << DELAY_SHIFT) - 1);
    uint32_t least = (uint32_t)(hak__option(HAK_OPTION_purge_delay) / (kind == HAK_UNUSED_PAGES ? 2 : 1));
    if (word == 0 || return_share() == 0)
        return least;
    return hak__retain_fall((uint32_t)(word >> DELAY_SHIFT), now_ms > since ? now_ms - since : 0, least);
}

void hak__return_regret(enum hak_unused kind, size_t bytes, uint64_t idle_ms)
{
    hak_assert(kind < HAK_UNUSED_KINDS, "memory of a kind is used again");
    if (kind != HAK_UNUSED_SUPERS) /* arena.c sees them */
        hak__limit_regrew(bytes);
    if (bytes == 0 || idle_ms > HAK_RETURN_LATEST)
        return;
    uint64_t now = hak__os->now_ms(), ns = bytes_ns(bytes);
    hak_fetch_add(&hak__return_counts.regretted[kind], bytes, HAK_RELAXED);
    hak_fetch_add(&hak__return_counts.regret_ns, ns, HAK_RELAXED);
    uint64_t owed = return_charge(return_use_ahead(ns)) / 1000 - now;
    uint64_t delay = hak__retain_learn(learned_delay(kind, now), idle_ms, ns, owed, return_share());
    hak_store(&hak__return_counts.delays[kind], delay << DELAY_SHIFT | (now & ((1ull << DELAY_SHIFT) - 1)), HAK_RELAXED);
}

/* --- asking ----------------------------------------------------------------------------------------------------------- */

struct hak_retained hak__return_ask(struct hak_retention in, uint64_t now_ms)
{
    uint64_t now = now_ms * 1000, paid = return_charge(0);
    in.slack = hak__option(HAK_OPTION_dirty_limit);
    in.room = hak__limit_room();
    in.watched = hak_load(&hak__return_counts.watched, HAK_RELAXED) != 0;
    in.cost = (struct hak_return_cost){
        .owed_ms = (paid - hak_min(paid, now)) / 1000,
        .soonest_ms = HAK_RETURN_SOONEST,
        .purge_ns = hak_load(&hak__return_counts.purge_ns, HAK_RELAXED),
        .fault_ns = (uint32_t)hak_min(fault_ns(), UINT32_MAX),
        .share = return_share(),
        .step_ms = hak_load(&hak__return_counts.step_ms, HAK_RELAXED),
    };
    for (unsigned kind = 0; kind < HAK_UNUSED_KINDS; kind++)
        in.cost.delay_ms[kind] = learned_delay(kind, now_ms);
    struct hak_retained out = hak__retain(in);
    hak_store(&hak__return_counts.look_ms, out.look_ms, HAK_RELAXED);
    hak_store(&hak__return_counts.slabs_ms, out.delay_ms[HAK_UNUSED_SLABS], HAK_RELAXED);
    return out;
}

uint64_t hak__return_period(uint64_t now_ms)
{
    return hak_max(learned_delay(HAK_UNUSED_SUPERS, now_ms), hak__option(HAK_OPTION_purge_delay));
}

uint64_t hak__return_horizon(uint64_t now_ms)
{
    /* One look notes what is unused, a later one returns it. */
    uint64_t most = LOOKS_PER_DELAY * (uint64_t)hak_load(&hak__return_counts.look_ms, HAK_RELAXED);
    uint64_t at = now_ms + HAK_RETURN_MUCH, paid = return_charge(0) / 1000;
    for (unsigned kind = 0; kind < HAK_UNUSED_KINDS; kind++)
        most = hak_max(most, learned_delay(kind, now_ms));
    return most + (return_share() == 0 ? 0 : paid - hak_min(paid, at));
}

/* --- the policy ------------------------------------------------------------------------------------------------------- */

enum {
    RECENT_TIMES = 4,
    EMPTIED_SHARE = 3,
    UNUSED_SHARE = 8,
    REPLACED_SHARE = 4, /* what is replaced all the time leaves no more than this part of it unused, whatever returning costs */
    USED_PER_RESERVED = 4,
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
    hak_assert(left_us <= UINT64_MAX / (1000 * MIB), "what is left fits nanoseconds of MiB");
    return left_us * 1000 * MIB / hak_max(price, 1);
}

struct hak_retained hak__retain(struct hak_retention in)
{
    hak_assert(in.used <= in.taken || in.taken == 0, "tails are taken memory too");
    const struct hak_return_cost *cost = &in.cost;
    size_t recent = retain_above(in.recent_peak, in.used), most = in.pressure ? 0 : retain_times(in.slack, RECENT_TIMES);
    size_t settled =
        in.slack + in.used / UNUSED_SHARE; /* an eighth more, so that a heap around the limit is not purged all the time */
    size_t afforded = retain_affords(cost, HAK_RETURN_MUCH, (uint64_t)cost->purge_ns + cost->fault_ns);
    size_t paid = in.pressure ? SIZE_MAX : afforded;
    size_t most_stays = in.watched ? in.slack + in.taken / REPLACED_SHARE + recent : 0;
    size_t stays = hak_min(in.unused - hak_min(in.unused, paid), most_stays);
    bool early = cost->share != 0 && cost->owed_ms < HAK_RETURN_LITTLE;
    struct hak_retained out = {
        .emptied = hak_max(in.slack + in.slack / 4 + in.used / EMPTIED_SHARE, hak_min(recent, most)),
        .opening = hak_min(in.slack + recent, settled + settled / 8),
        .reserve = in.taken / USED_PER_RESERVED,
        .waiting = most,
        .at_once = cost->share != 0 ? hak_min(in.risen, afforded) : 0,
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
