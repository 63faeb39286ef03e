/* The calling thread's heap. A thread starts with the sentinel, whose bins are empty to a pop and full to a push and
 * whose tag owns nothing, so the fast paths need no "is there a heap?" test. The thread's word is the distance from the
 * sentinel to its heap: zero, which is what thread-local memory holds before anything has run, means the sentinel. */
#pragma once

#include "cache/cache.h"

/* Only the front of a heap: nothing behind it is ever read, since every slow path looks at the mode first. */
extern struct hak_heap_front hak__sentinel __attribute__((visibility("hidden")));
extern __thread intptr_t hak__thread_word __attribute__((tls_model("initial-exec")));

hak_inline struct hak_heap *hak__heap_current(void)
{
    return (struct hak_heap *)((uintptr_t)&hak__sentinel + (uintptr_t)hak__thread_word);
}

/* Before a thread without a heap takes a lock: it may be the process's second one. */
void hak__thread_watch_forks(void);

/* The calling thread's own heap, attaching one if it has none: a parked one or a new one. The library has started. NULL when the thread has
 * ended its heap already (see hak__thread_has_exited) or the system refuses memory. */
struct hak_heap *hak__thread_attach(void);

/* The same for a thread that frees another's block. One that has only done so a few times gets no heap: what the C library frees
 * for a thread after its last destructor is all that some of them ever do here, and nobody would park their heaps. */
struct hak_heap *hak__thread_attach_to_free(void);

/* The thread has given its heap back and only runs its last destructors. */
bool hak__thread_has_exited(void);

/* Allocation for such threads: one heap behind a lock. */
struct hak_heap *hak__exit_heap_lock(void);   /* NULL: the system refuses */
void hak__exit_heap_unlock(void);

void hak__thread_init(void);          /* once, when the C library is ready for thread keys */
bool hak__thread_fork_child(bool forker);   /* whether it is the thread that has forked; false: that is awaited */
bool hak__thread_fork_arrive(void);         /* whether it was awaited, as the thread that has forked */

/* The first heap was opened before the options could be read: opens it again as they say. */
void hak__thread_reopen_early(void);

/* At the process's end: the blocks that threads have freed for others are collected, so that a double free among them is reported at
 * last. Waits for nobody; a forked child that has not been put in order yet is left as it is. */
hak_cold void hak__thread_settle(void);
