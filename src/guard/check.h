/* The check of all invariants: hak_check_heap() and HAKMEM_CHECK. Its result holds for the moment of the check: each heap is
 * locked while its spans and bins are checked, the arena under its lock; concurrent pops and pushes break no invariant. Called
 * by api.c, malloc.c, kinds/, thread.c and init.c. */
#pragma once

#include "base/assert.h"
#include "diag/options.h"
#include "heap/heap.h"

/* False: *broken holds the first broken invariant, and where. The caller holds no lock, not even its heap's. */
hak_cold bool hak__check(struct hak_broken *broken);

/* The same without hardened mode's check of single blocks. */
hak_cold bool hak__check_structure(struct hak_broken *broken);

/* The same, with a one-line report that begins with the caller's name; under HAKMEM_CHECK a failure ends the program. */
hak_cold bool hak__check_report(const char *who);
hak_cold void hak__check_or_die(const char *who);

/* In a child of a process whose other threads may have been at work. */
hak_cold void hak__check_fork_child(void);
hak_cold bool hak__check_is_half_done(void);

/* At the end of a slow path; checks at every N-th of the process under HAKMEM_CHECK=N, N > 1. */
hak_cold void hak__check_count(void);

/* At the ends of threads and of the program. */
hak_inline void hak__check_end(const char *who)
{
    if (hak_unlikely(hak__option(HAK_OPTION_check) != 0))
        hak__check_or_die(who);
}
