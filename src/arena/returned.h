/* What returning memory costs: counted here for the policy (base/retain.h), which bounds it, and for the statistics.
 *
 * Calls that return pages are timed. A fault cannot be: it is priced as FAULT_TIMES what returning the same pages costs, which holds
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
#pragma once

#include "arena/arena.h"
#include "base/retain.h"

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
