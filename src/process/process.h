/* The life of the process and of its threads: started at the first request, an IFUNC resolver's, a constructor's or a thread's; forked
 * (start.c); a thread's heap, attached at its first slow path, parked when it ends (thread.c). */
#pragma once

#include "cache/cache.h"
#include "harden/mode.h"

/* Starts the arena, the heap layer and the options unless they have started. False if the system refuses; the next request tries
 * again. */
bool hak__start(void);
bool hak__has_started(void);

/* Whether the process is hardened. Starts the library to find out. */
hak_inline bool hak__is_hardened(void)
{
    return hak_unlikely(hak_load(&hak__hardened.open, HAK_RELAXED)) && hak__start() && hak__hardened.on;
}

/* Called by libhakmem-region when it is loaded, and before it makes or attaches a heap. From then on a child of this process detects
 * the fork, however many threads there are. Returns the table of the copy of that library that came first, which serves all of them;
 * NULL: the system refuses. */
struct hak_regions;
hak_for_region hak_cold const struct hak_regions *hak__regions_join(const struct hak_regions *regions);

/* Reads the options if they were unreadable at the start; false: they were read before. */
bool hak__start_options(void);

/* The constructor (init.c). */
void hak__library_loaded(void);

/* --- threads (thread.c) ----------------------------------------------------------------------------------------------- */

/* The calling thread's own heap; attaches a parked or new one if it has none. The library has started. NULL if the thread has
 * returned its heap (hak__thread_has_exited) or the system refuses memory. */
struct hak_heap *hak__thread_attach(void);

/* The same for a thread that frees another's block, but the first few such frees attach no heap: some threads only free what the
 * C library frees for them after their last destructor, and nothing would park their heaps. */
struct hak_heap *hak__thread_attach_to_free(void);

/* The thread has returned its heap and only runs its last destructors. */
bool hak__thread_has_exited(void);

/* Allocation for such threads: one heap behind a lock. */
struct hak_heap *hak__exit_heap_lock(void); /* NULL: the system refuses */
void hak__exit_heap_unlock(void);

void hak__thread_init(void); /* once, when the C library is ready for thread keys */
bool hak__thread_fork_child(bool forker); /* whether the caller has forked; false: the repair waits for the thread that has */
bool hak__thread_fork_arrive(void); /* whether the caller is the awaited thread */

/* Reopens the first heap as the options say, if it was opened before they were readable. */
void hak__thread_reopen_early(void);

/* At process end: collects remote frees, so that double frees among them are still reported. Waits for no thread, and skips an
 * unrepaired forked child. */
hak_at_start void hak__thread_settle(void);
