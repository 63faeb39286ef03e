/* The life of a thread's heap: attached at the first slow path, parked when the thread ends. */
#pragma once

#include "cache/cache.h"

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

/* Repairs forked children from now on (fork.c). At the library's start, under the lock `starting`. */
void hak__fork_init(struct hak_lock *starting);
