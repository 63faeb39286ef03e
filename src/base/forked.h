/* Whether this process is a child that has been forked while its parent had threads, and not been put in order since.
 * The kernel says so by a word in a page that a child finds wiped (MADV_WIPEONFORK); no handler of the C library's fork
 * is needed, so _Fork() and bare system calls are covered too. Slow paths look before they touch what threads share.
 *
 *   mark == NULL   the kernel has refused the page so far: a child finds out by the process's number, and only before a
 *                  thread without a heap gets one, or waits; fork.c sees that this is enough
 *   *mark          REPAIRED, or WIPED in a new child; REPAIRING while its first slow path puts it in order
 * A second thread of the child may come to a slow path before the one that has forked (fork.c); the second one waits for
 * the repair. AWAITED: all is done but what only the thread that has forked can do; each thread checks whether it is that one. */
#pragma once

#include "base/atomic.h"

enum hak_fork_mark { HAK_FORK_WIPED, HAK_FORK_REPAIRED, HAK_FORK_REPAIRING, HAK_FORK_AWAITED };

/* Read in each slow path: on a line of its own, apart from the counters of calls that a linker puts beside it. */
struct hak_forked {
    hak_line_aligned _Atomic uint32_t *mark;
};

extern struct hak_forked hak__forked;

/* At the library's start: what puts a child in order, which takes no lock, and what finds the mark, a word that is wiped in
 * children; NULL if there is none yet. `repair` gives false when the thread that has forked is awaited; `arrive` says then
 * whether the calling one is it, and does the rest. Where there is no mark, `is_copy` says whether this memory is a copy that a fork has
 * made since it was asked last: in a child of vfork() it is not. */
void hak__fork_begin(bool (*repair)(void), bool (*arrive)(void), _Atomic uint32_t *(*find_mark)(void), bool (*is_copy)(void));

/* From now on all forked children are put in order; called before a second thread takes a lock (lock.h), or the library makes a thread
 * of its own. May allocate. */
hak_cold void hak__fork_watch(void);
bool hak__fork_alone(void); /* neither has happened yet */

/* While there is no mark: repairs a child that was forked by a thread without a heap. For a thread that is about to get
 * one, or that waits for a lock. */
hak_cold void hak__fork_unwatched(void);

hak_cold void hak__fork_found(void);

/* How often this process's memory has been put in order: a thread that finds another number after it has waited is in a child, which
 * has dealt with whatever the thread held without a lock. */
hak_at_start uint32_t hak__fork_repairs(void);

/* Whether the caller runs in the process that this memory is of. A child of vfork() runs in its parent's, and in its parent's
 * thread-local memory: what it changed of the process there, the parent would keep. */
hak_cold bool hak__fork_is_home(void);

hak_inline void hak__fork_check(void)
{
    _Atomic uint32_t *mark = hak_read_mostly(&hak__forked.mark);
    /* acquire: pairs with the release of the thread that has repaired. */
    if (hak_unlikely(mark != NULL && hak_load(mark, HAK_ACQUIRE) != HAK_FORK_REPAIRED))
        hak__fork_found();
}
