/* The beginning and the end of a request, whichever function it came by. */
#pragma once

#include "base/forked.h"
#include "thread.h"

/* The calling thread's heap; starts the library and attaches a heap if need be. NULL if the thread has given its heap back
 * (hak__thread_has_exited) or the system refuses memory. */
hak_cold struct hak_heap *hak__request_heap_slow(void);
hak_inline struct hak_heap *hak__request_heap(void)
{
    hak__fork_check();
    struct hak_heap *heap = hak__heap_current();
    return hak_likely((heap->mode & HAK_MODE_SENTINEL) == 0) ? heap : hak__request_heap_slow();
}

/* The same, locked. Where a fork comes between, the child may have to leave the heap and take another. */
hak_inline struct hak_heap *hak__request_enter(void)
{
    struct hak_heap *heap = hak__heap_current();
    while (hak_unlikely((heap->mode & HAK_MODE_SENTINEL) != 0) || hak_unlikely(!hak__heap_lock(heap))) {
        heap = hak__request_heap();
        if (heap == NULL)
            break;
    }
    return heap;
}

/* To the profiler, while it counts: the program has been given a block above the mid pool (NULL: it has not). A thread without a heap
 * gets one, since that is where the bytes up to the next sample are counted. */
hak_cold void hak__request_note(void *block, size_t n);

/* Sets errno, the second one to ENOMEM, and gives NULL. */
hak_cold void *hak__fail(int code);
hak_cold void *hak__no_memory(void);

/* At the end of requests: a huge block has come or gone. */
void hak__poll_huge(size_t given, size_t taken);
