/* What begins and ends a request, whichever function it came by. */
#ifndef HAK_REQUEST_H
#define HAK_REQUEST_H

#include "base/forked.h"
#include "thread.h"

/* The calling thread's heap, for what may be the first request of the thread or of the process. NULL when the thread has ended
 * its heap already (hak__thread_has_exited) or the system refuses memory. */
hak_cold struct hak_heap *hak__request_heap_slow(void);
hak_inline struct hak_heap *hak__request_heap(void)
{
    hak__fork_check();
    struct hak_heap *heap = hak__heap_current();
    return hak_likely((heap->mode & HAK_MODE_SENTINEL) == 0) ? heap : hak__request_heap_slow();
}

/* The same, entered. */
hak_inline struct hak_heap *hak__request_enter(void)
{
    struct hak_heap *heap = hak__request_heap();
    if (hak_likely(heap != NULL))
        hak__heap_lock(heap);
    return heap;
}

/* Sets errno to ENOMEM and gives NULL. */
void *hak__no_memory(void);

/* At the process's end: the blocks that threads have freed for others are collected, so that a double free among them is reported at
 * last. Waits for nobody; a forked child that has not been put in order yet is left as it is. */
hak_cold void hak__request_settle(void);

/* At the end of requests: a huge block has come or gone. */
void hak__tick_huge(size_t given, size_t taken);

#endif
