/* The statistics of the whole process, gathered from the heaps without stopping anybody. */
#pragma once

#include "hakmem_stats.h"
#include "heap/heap.h"

/* All figures of the public structure but the ledger (ledger.h): exact when no other thread allocates meanwhile, else each is of
 * its own moment. Takes no lock and does not wait, so it may be called in a signal handler. */
hak_cold void hak__snapshot(struct hak_stats *out);

/* The same in memory that is not the caller's stack, which may be a coroutine's; to be given back. NULL: there is none. */
hak_cold struct hak_stats *hak__snapshot_take(void);
hak_cold void hak__snapshot_give(struct hak_stats *stats);
