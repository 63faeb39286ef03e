/* The ledger: every resident byte of the process by what it is to the allocator. docs/statistics.md has the rules. */
#pragma once

#include "stats/snapshot.h"

/* Adds the ledger to a snapshot, whose counts of live and cached blocks it uses. Does not allocate and takes no lock;
 * each heap is entered for a moment, and one that stays occupied is not read (it may be the caller's own, in a signal
 * handler). False when the kernel does not say what is resident; the snapshot has no ledger then. */
hak_cold bool hak__ledger(struct hak_stats *stats);
