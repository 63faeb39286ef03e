/* The calling thread's heap. A thread starts with the sentinel, whose bins are empty to a pop and full to a push and
 * whose tag owns nothing, so the fast paths need no "is there a heap?" test. The thread's word is the distance from the
 * sentinel to its heap: zero, which is what thread-local memory holds before anything has run, means the sentinel. */
#pragma once

#include "cache/cache.h"

/* Only the front of a heap exists: every slow path checks the mode before it reads more. */
extern struct hak_heap_front hak__sentinel __attribute__((visibility("hidden")));
extern __thread intptr_t hak__thread_word __attribute__((tls_model("initial-exec")));

hak_inline struct hak_heap *hak__heap_current(void)
{
    return (struct hak_heap *)((uintptr_t)&hak__sentinel + (uintptr_t)hak__thread_word);
}

/* What the thread knows of itself for the locks of regions (os/robust.h): kept in its heap. A thread without one finds it out in
 * `here` each time. */
hak_inline struct hak_robust_thread *hak__thread_robust(struct hak_robust_thread *here)
{
    struct hak_heap *heap = hak__heap_current();
    here->generation = 0;
    return (heap->mode & HAK_MODE_SENTINEL) != 0 ? here : &heap->share.robust;
}

/* Before a thread without a heap takes a lock: it may be the process's second one. */
void hak__thread_watch_forks(void);

/* The calling thread's own heap; attaches a parked or a new one if it has none. The library has started. NULL if the thread has given
 * its heap back (hak__thread_has_exited) or the system refuses memory. */
struct hak_heap *hak__thread_attach(void);

/* The same for a thread that frees another's block, but its first few such frees give it no heap: some threads only free what the C
 * library frees for them after their last destructor, and nobody would park their heaps. */
struct hak_heap *hak__thread_attach_to_free(void);

/* The thread has given its heap back and only runs its last destructors. */
bool hak__thread_has_exited(void);

/* Allocation for such threads: one heap behind a lock. */
struct hak_heap *hak__exit_heap_lock(void);   /* NULL: the system refuses */
void hak__exit_heap_unlock(void);

void hak__thread_init(void);          /* once, when the C library is ready for thread keys */
bool hak__thread_fork_child(bool forker);   /* whether the caller has forked; false: the repair awaits that thread */
bool hak__thread_fork_arrive(void);         /* whether the caller is the thread that was awaited */

/* Opens the first heap again, as the options say, if it was opened before they could be read. */
void hak__thread_reopen_early(void);

/* At the process's end: collects what threads have freed for others, so that a double free among those blocks is still reported.
 * Waits for nobody, and leaves a forked child alone that has not been repaired yet. */
hak_cold void hak__thread_settle(void);
