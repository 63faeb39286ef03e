/* The check of all invariants: hak_check_heap() and HAKMEM_CHECK. It holds for the moment at which it looks: each heap is
 * entered while its spans and bins are looked at, the arena's state under their lock; what other threads pop and push
 * meanwhile breaks no invariant. Called by api.c, malloc_slow.c, free_slow.c, thread.c and init.c. */
#pragma once

#include "diag/broken.h"
#include "diag/options.h"
#include "heap/heap.h"

/* False: *broken says which invariant is broken first, and where. No heap is entered and no lock held by the caller. */
hak_cold bool hak__check(struct hak_broken *broken);

/* The same without a look at single blocks of hardened mode. */
hak_cold bool hak__check_structure(struct hak_broken *broken);

/* The same, reported in one line that begins with the name of who asks; the option's checks end the program then. */
hak_cold bool hak__check_report(const char *who);
hak_cold void hak__check_or_die(const char *who);

/* In a child of a process in which another thread may have been at work. */
hak_cold void hak__check_fork_child(void);
hak_cold bool hak__check_is_half_done(void);

/* At the end of a slow path: every N-th of the process under HAKMEM_CHECK=N, N > 1. */
hak_cold void hak__check_count(void);
hak_inline void hak__check_poll(void)
{
    if (hak_unlikely(hak__option(HAK_OPTION_check) > 1))
        hak__check_count();
}

/* At the ends of threads and of the program. */
hak_inline void hak__check_end(const char *who)
{
    if (hak_unlikely(hak__option(HAK_OPTION_check) != 0))
        hak__check_or_die(who);
}
