/* The ledger: every resident byte of the process by what it is to the allocator. docs/statistics.md has the rules. */
#pragma once

#include "stats/snapshot.h"

/* Adds the ledger to a snapshot, whose counts of live and cached blocks it uses. Does not allocate and takes no lock;
 * tries for each heap's lock, and does not read a heap that stays locked (it may be the caller's own, in a signal handler). False if
 * the kernel does not say what is resident; the snapshot then has no ledger. */
hak_cold bool hak__ledger(struct hak_stats *stats);
