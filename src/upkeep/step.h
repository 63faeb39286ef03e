/* Upkeep: the work that the passing of time makes necessary. One step is a function of the state and the time, so that tests call it
 * with a clock of their own; in a program slow paths take one when they find it due (polling.h), or the background
 * thread does (background.h).
 *
 * A step
 *   1. serves the heaps that nobody has locked: collects what other threads have freed, publishes their outboxes;
 *   2. ends spans that have been empty, and purges pages in spans that have been partly free, for half of HAKMEM_PURGE_DELAY;
 *   3. returns the pages of unused slabs and of free SuperSlabs after HAKMEM_PURGE_DELAY.
 * Bins are their owners' alone: a poll gives back half of what its own thread has not moved for a while. */
#pragma once

#include "heap/heap.h"

enum hak_upkeep_effort {
    HAK_UPKEEP_BOUNDED, /* in a slow path: what is due, as far as about a millisecond goes */
    HAK_UPKEEP_DUE, /* all that is due */
    HAK_UPKEEP_ALL, /* everything, due or not */
};

/* Does what is due at `now_ms`. Caller holds no heap lock. Returns the bytes that went back to the system; 0 also if another thread is
 * in a step. */
hak_cold size_t hak__upkeep_step(uint64_t now_ms, enum hak_upkeep_effort effort);

/* Waits for a thread that is in a step, unless that takes very long: it may be the one that a signal's handler has interrupted. */
hak_cold void hak__upkeep_await(void);

extern _Atomic uint64_t hak__upkeep_last_ms; /* when the last step began */

hak_cold void hak__upkeep_fork_child(void);

/* Looks at some SuperSlabs, going round from call to call; collapses one at most. For a step, one caller at a time. */
hak_cold void hak__collapse_walk(uint64_t now_ms);
