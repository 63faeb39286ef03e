/* Upkeep: work made necessary by the passing of time. A step is a function of state and time, so tests call it with their own
 * clock; in a program a slow path takes one when it is due (polling.h), or the background thread does (background.h).
 *
 * A step
 *   1. serves unlocked heaps: collects remote frees and publishes outboxes;
 *   2. ends spans that have been empty, and purges pages in spans that have been partly free, long enough;
 *   3. returns the pages of old unused slabs and free SuperSlabs, as the policy says (base/retain.h).
 * Bins belong to their owners: a poll gives back half of the blocks that its own thread has not moved for a while. */
#pragma once

#include "heap/heap.h"

enum hak_upkeep_effort {
    HAK_UPKEEP_BOUNDED, /* in a slow path: due work, for about a millisecond */
    HAK_UPKEEP_DUE, /* all due work */
    HAK_UPKEEP_ALL, /* everything, due or not */
};

/* Does what is due at `now_ms`. Caller holds no heap lock. Returns the bytes returned to the system; 0 also if another thread is
 * taking a step. */
hak_cold size_t hak__upkeep_step(uint64_t now_ms, enum hak_upkeep_effort effort);

/* Waits until no thread is in a step, but not very long: a signal handler may have interrupted that thread. */
hak_cold void hak__upkeep_await(void);

extern _Atomic uint64_t hak__upkeep_last_ms; /* when the last step began */

hak_cold void hak__upkeep_fork_child(void);

/* Checks some SuperSlabs, continuing from call to call; collapses one at most. Called by a step, one caller at a time. */
hak_cold void hak__collapse_walk(uint64_t now_ms);
