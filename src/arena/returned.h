/* How much unused memory may stay, and for how long. Only this policy decides, by pure functions that read no state, lock, clock or
 * option (hak__retain and its kin). A layer with unused memory fills in its figures, asks, and carries out the answer:
 *
 *   arena/, span/, upkeep/   emptied SuperSlabs, tails, unused slabs, idle pages, the reserve, waiting runs    hak__retain
 *   cache/                   large blocks that a thread has freed                                              hak__retain_large
 *   heap/                    assigned SuperSlabs, empty spans                                                  the predicates at the end
 *
 * Returning costs the calls that return pages and the faults that bring them back (counted below). HAKMEM_RETURN bounds the sum to
 * a share of time, by one figure: `owed_ms`, the time after which the cost so far is that share. While little is owed, memory goes
 * back soon; later only what has been unused for longer than returned memory lately was; in the end nothing. Amounts follow use:
 * memory below the recent peak raises no peak, and beyond it no more than a quarter of the use stays whatever its return costs. When
 * the process's own peak rises, whoever raises it, as much of the unused slabs goes back.
 * Under pressure, neither cost nor peaks count. */
#pragma once

#include "arena/arena.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "base/limits.h"

/* What can go back: emptied SuperSlabs and tails of huge blocks; unused slabs; pages in free blocks of idle spans. */
enum hak_unused { HAK_UNUSED_SUPERS, HAK_UNUSED_SLABS, HAK_UNUSED_PAGES, HAK_UNUSED_KINDS };

/* In ms: the bounds of what is learned; what was owed when the process started; below what memory begins to go back as soon
 * as possible; and what may be owed before it goes so soon, because there is much of it, and at all. */
enum {
    HAK_RETURN_SOONEST = 50,
    HAK_RETURN_LATEST = 60000,
    HAK_RETURN_LITTLE = 3000,
    HAK_RETURN_EARLY = 4000,
    HAK_RETURN_START = 8000,
    HAK_RETURN_MUCH = 12000,
    HAK_RETURN_MOST = 24000,
};

struct hak_return_cost {
    uint64_t owed_ms; /* so long does the cost so far take to become the allowed share */
    uint32_t soonest_ms; /* the least delay */
    uint32_t delay_ms[HAK_UNUSED_KINDS]; /* longer than returned memory was lately unused before it was used again */
    uint32_t purge_ns, fault_ns; /* of a MiB: to return it, to bring it back */
    uint32_t share; /* HAKMEM_RETURN, in percent; 0: cost does not count (HAKMEM_PURGE_DELAY) */
    uint32_t step_ms; /* what a step of upkeep takes: the shorter of the last two, as from one the processor may have been taken */
};

/* In bytes. */
struct hak_retention {
    size_t used; /* mapped in used SuperSlabs, without tails */
    size_t taken; /* with tails */
    size_t recent_peak; /* the highest `taken` lately */
    size_t unused; /* kept now: of the kind, or of those that count together */
    size_t slack; /* what may always stay: HAKMEM_DIRTY_LIMIT */
    size_t risen; /* by so much has the process's peak risen just now */
    size_t room; /* what may be mapped, in use or not: hak__limit_room; 0: any number */
    bool watched; /* a thread will look again by itself; otherwise this call may be the last for long, and no price counts */
    bool pressure; /* mapped bytes count: a limit exists, or there is little room */
    struct hak_return_cost cost;
};

struct hak_retained {
    size_t emptied; /* emptied SuperSlabs, and tails of huge blocks */
    size_t opening; /* unused slabs and emptied SuperSlabs together, when a SuperSlab is opened */
    size_t reserve; /* mapped by upkeep ahead of need */
    size_t waiting; /* freed runs that their threads may take again without asking the arena */
    size_t at_once; /* so much of the unused slabs goes back now, however young, because the process's peak has risen */
    size_t may_go; /* no more than this goes back now because of its age */
    uint32_t delay_ms[HAK_UNUSED_KINDS]; /* this age */
    uint32_t look_ms; /* when to look again */
};

struct hak_retained hak__retain(struct hak_retention in);

/* The delay after returned memory was used again `idle_ms` after it became unused, which cost `cost_ns`. The more that cost, the
 * nearer the delay comes to a quarter more than this time; but what can be afforded teaches nothing. Without regret it falls to the
 * least within twenty minutes, so that a change is noticed. */
uint32_t hak__retain_learn(uint32_t delay_ms, uint64_t idle_ms, uint64_t cost_ns, uint64_t owed_ms, uint32_t share);
uint32_t hak__retain_fall(uint32_t delay_ms, uint64_t since_ms, uint32_t least_ms);

/* The highest use in this period and in the one before; a period is as long as emptied SuperSlabs stay. Threads that note use at
 * the same time without a lock may overwrite each other's figures; the next call corrects them. */
struct hak_recent {
    _Atomic uint64_t begun_ms;
    _Atomic size_t most, most_before;
};

/* Notes the current use and returns the recent peak; no figure counts for longer than two periods. */
size_t hak__recent_peak(struct hak_recent *recent, size_t used, uint64_t now_ms, uint64_t period_ms);

/* --- one thread's large blocks ---------------------------------------------------------------------------------------- */

enum { HAK_RETAIN_WHOLE = 256 }; /* the unit of `absent` */

struct hak_large_retention {
    size_t used, cached; /* bytes in the program's hands; in the large cache */
    size_t peak; /* the most of `used` lately */
    size_t budget, spent; /* HAKMEM_THREAD_BUDGET; the part of it that other bins use */
    unsigned absent; /* the part of the cached blocks that is not resident; at most three quarters count */
};

/* The bytes that a thread's cache may hold in addition to the budget, given the bytes in its spans. */
hak_inline size_t hak__retain_share(size_t bytes) { return bytes / 100 * HAK_BUDGET_SHARE; }

/* How many bytes the large cache may hold: the budget and the share of the bytes in the thread's spans, like its other bins
 * (docs/decisions/0026); but bytes in use and cached together may not exceed the recent peak, its share, and half of the budget.
 * Only resident bytes count (docs/decisions/0050). */
hak_inline size_t hak__retain_large(struct hak_large_retention in)
{
    if (in.budget == 0)
        return 0;
    size_t by_budget = in.budget + hak__retain_share(in.used + in.cached) - hak_min(in.budget, in.spent);
    size_t together = in.peak + hak__retain_share(in.peak) + in.budget / 2;
    size_t resident = hak_min(by_budget, together - in.used);
    return resident / (HAK_RETAIN_WHOLE - hak_min(in.absent, HAK_RETAIN_WHOLE / 4 * 3)) * HAK_RETAIN_WHOLE;
}

/* --- smaller questions ------------------------------------------------------------------------------------------------- */

/* Whether a heap with this many bytes in large blocks is assigned a SuperSlab. With a block or two, most of its slabs would be
 * unused; but SuperSlabs that many threads share are emptied and opened all the time (docs/decisions/0059). Other threads may have
 * freed more than has been counted as allocated so far. */
hak_inline bool hak__retain_assigned(size_t allocated, size_t freed) { return allocated >= freed + ((size_t)512 << 10); }

/* Whether a heap keeps an empty span for the next request: the last one of its class, if its blocks are small. An empty span of
 * large blocks ends, since its slabs can serve any class and thread. */
hak_inline bool hak__retain_empty_span(bool last, size_t block_size) { return last && block_size <= 16 << 10; }

/* --- what returning costs --------------------------------------------------------------------------------------------- */

/* Calls that return pages are timed. A fault cannot be: it is priced as FAULT_TIMES what returning the same pages costs, which holds
 * within a factor of two with and without a hypervisor, and at least as much as on a fast machine. Which returned memory is used
 * again each layer knows by itself, at no system call: an emptied SuperSlab keeps the number of bytes returned of it until it is
 * taken (hak_super.returned); in slabs, a clean slab of a SuperSlab with returned bytes is claimed (purged_mapped); a span whose pages
 * went back takes or gives blocks (hak_span.purged), so that a step of upkeep finds it changed. Memory that is used again after more
 * than HAK_RETURN_LATEST is not regretted: no delay would have kept it.
 *
 * While little is owed, a return is charged with the regret that may follow, up to a bound, so that it cannot spend what regret will
 * need; regret uses that up first.
 *
 * All threads count, with relaxed atomics: each figure stands alone. */
struct hak_return_counts {
    hak_line_aligned _Atomic uint64_t returned[HAK_UNUSED_KINDS], regretted[HAK_UNUSED_KINDS]; /* bytes */
    _Atomic uint64_t cost_ns, regret_ns; /* of returning; of bringing back */
    _Atomic uint64_t paid_us; /* the time at which nothing will be owed; 0: nothing has been asked yet */
    _Atomic uint64_t ahead_ns; /* charged for regret that has not come yet */
    _Atomic uint64_t delays[HAK_UNUSED_KINDS]; /* delay << DELAY_SHIFT | the time when it was learned; 0: the option's default */
    _Atomic uint32_t purge_ns; /* of a MiB, lately */
    _Atomic uint32_t step_ms;
    _Atomic uint64_t watched; /* 1: the background thread takes steps: what stays now goes back even if no thread calls again */
    _Atomic uint32_t look_ms, slabs_ms; /* of the last answer: when to look again, and how old unused slabs become; for polls */
};
extern struct hak_return_counts hak__return_counts;

/* Around a call that returns pages: `began` is the time before it. */
hak_inline uint64_t hak__return_begin(void) { return hak__os->now_ns(); }
void hak__return_end(enum hak_unused kind, size_t bytes, uint64_t began);

/* Returned memory is used again, `idle_ms` after it became unused. */
void hak__return_regret(enum hak_unused kind, size_t bytes, uint64_t idle_ms);

/* Around a step of upkeep, whose own time counts too. */
void hak__return_step(uint64_t began, uint64_t cost_before);

/* Asks the policy, with the cost so far. */
struct hak_retained hak__return_ask(struct hak_retention in, uint64_t now_ms);

/* How long a peak of use counts: as long as emptied SuperSlabs may stay. */
uint64_t hak__return_period(uint64_t now_ms);

/* By then all memory that is unused now should have gone back, in ms from now. */
uint64_t hak__return_horizon(uint64_t now_ms);
