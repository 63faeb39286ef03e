/* The beginning and the end of a request, whichever function it came by. */
#pragma once

#include "base/forked.h"
#include "userheap/userheap.h"
#include "process/thread.h"

/* The calling thread's heap; starts the library and attaches a heap if need be. NULL if the thread has given its heap back
 * (hak__thread_has_exited) or the system refuses memory. */
hak_at_start struct hak_heap *hak__request_heap_slow(void);
hak_inline struct hak_heap *hak__request_heap(void)
{
    hak__fork_check();
    struct hak_heap *heap = hak__heap_current();
    return hak_likely((heap->mode & HAK_MODE_SENTINEL) == 0) ? heap : hak__request_heap_slow();
}

/* For a request that needs no heap, as of a huge block: a thread without a heap gets one all the same where new threads begin with a
 * default heap, since the request is that heap's. Otherwise the sentinel stays. */
hak_inline bool hak__request_is_plain(const struct hak_heap *heap)
{
    uint32_t mode = heap->mode & (HAK_MODE_REDIRECTED | HAK_MODE_SENTINEL);
    return mode == 0 || (mode == HAK_MODE_SENTINEL && hak_load(&hak__uheap_inherited, HAK_RELAXED) == NULL);
}
hak_inline struct hak_uheap *hak__request_standard(void)
{
    struct hak_heap *heap = hak__heap_current();
    if (hak_likely(hak__request_is_plain(heap)) || (heap = hak__request_heap()) == NULL)
        return NULL;
    return (heap->mode & HAK_MODE_REDIRECTED) != 0 ? heap->share.standard : NULL;
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

/* While a profile counts: counts down the bytes of a request of up to the mid pool, of a user heap or with NULL malloc's. Gives a
 * sampled block, aligned as asked, when they are used up, else NULL. */
struct hak_uheap;
hak_cold void *hak__request_sample(struct hak_uheap *own, size_t align, size_t n);

/* For a thread whose requests go to a heap of one's own: from here on they are malloc's, until the end with what this gave. */
hak_cold struct hak_heap *hak__request_apart(void);
hak_cold void hak__request_apart_end(struct hak_heap *heap);

/* To the profiler, while it counts: the program has been given a block above the mid pool (NULL: it has not). A thread without a heap
 * gets one, since that is where the bytes up to the next sample are counted. */
hak_cold void hak__request_note(void *block, size_t n);

/* Gives back what the thread caches, and all that upkeep can, due or not; the bytes that went back to the system. The caller holds no
 * heap lock. */
hak_cold size_t hak__request_collect(void);

/* For a request of n bytes that the system has refused, and that is tried once more afterwards: does that, unless it would be in vain. */
hak_cold void hak__request_relieve(size_t n);

/* Sets errno, the second one to ENOMEM, and gives NULL. */
hak_cold void *hak__fail(int code);
hak_cold void *hak__no_memory(void);

/* At the end of requests: a huge block, or a part of a large one, has come or gone. */
void hak__poll_huge(size_t given, size_t taken);
