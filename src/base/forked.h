/* Detects a child that was forked while its parent had threads and has not been repaired yet. The kernel wipes the page of a mark
 * word in each child (MADV_WIPEONFORK), so the C library's fork handlers are not needed, and _Fork() and bare system calls are
 * covered too. Slow paths check the mark before they touch shared data.
 *
 *   mark == NULL   the kernel has refused the page so far: a child is detected by its process number, and only before a thread
 *                  without a heap gets one, or waits; fork.c makes sure that this is enough
 *   *mark          REPAIRED, or WIPED in a new child; REPAIRING while its first slow path repairs it; AWAITED: only the part is
 *                  left that the forking thread itself must do, and each thread checks whether it is that one
 *
 * The first thread to reach a slow path repairs the child, and a second one waits for that; either may be the thread that forked
 * (fork.c). */
#pragma once

#include "base/atomic.h"
#include "base/limits.h"

enum hak_fork_mark { HAK_FORK_WIPED, HAK_FORK_REPAIRED, HAK_FORK_REPAIRING, HAK_FORK_AWAITED };

/* Every slow path reads it, so it has its own cache line, apart from the call counters that the linker would place beside it. */
struct hak_forked {
    hak_line_aligned _Atomic uint32_t *mark;
};

extern struct hak_forked hak__forked;

/* What a child finds zero, if the kernel wipes this page: the mark, and the bounds by which free's fast path asks whether an address
 * is in the window. A child's first free so takes the slow path, which repairs it (kinds/plain.c). All other code reads the
 * bounds in hak__window (arena/owner.h). */
struct hak_wiped {
    _Alignas(HAK_PAGE_MOST) _Atomic uint32_t mark;
    size_t slabs, sized_slabs;
};

extern struct hak_wiped hak__wiped;

/* Called at the library's start. `repair` repairs a child and takes no lock; it returns false if a part is left for the thread that
 * forked. `arrive` then returns whether the calling thread is that one, and does the rest. `find_mark` returns the mark, a word
 * that is wiped in children, or NULL if there is none yet. Without a mark, `is_copy` says whether this memory is a copy that a fork
 * has made since it was last asked; in a child of vfork() it is not. */
void hak__fork_begin(bool (*repair)(void), bool (*arrive)(void), _Atomic uint32_t *(*find_mark)(void), bool (*is_copy)(void));

/* From now on every forked child is repaired. Called before a second thread takes a lock (lock.h) or the library starts a thread.
 * May allocate. */
hak_cold void hak__fork_watch(void);
bool hak__fork_alone(void); /* neither has happened yet */

/* Without a mark: repairs a child that a thread without a heap has forked. Called by a thread that is about to get a heap, or waits
 * for a lock. */
hak_cold void hak__fork_unwatched(void);

hak_cold void hak__fork_found(void);
hak_for_region void hak__fork_look(void); /* hak__fork_check for libhakmem-region */

/* How often this process's memory has been repaired. A thread that finds a different number after it has waited is in a child; the
 * repair has dealt with everything that the thread held without a lock. */
hak_at_start uint32_t hak__fork_repairs(void);

/* Whether the caller runs in the process that owns this memory. A child of vfork() runs in its parent's memory, thread-local memory
 * included: the parent would keep any change to the state of the process. */
hak_cold bool hak__fork_is_home(void);

hak_inline void hak__fork_check(void)
{
    _Atomic uint32_t *mark = hak_read_mostly(&hak__forked.mark);
    /* acquire: pairs with the release of the repairing thread. */
    if (hak_unlikely(mark != NULL && hak_load(mark, HAK_ACQUIRE) != HAK_FORK_REPAIRED))
        hak__fork_found();
}
