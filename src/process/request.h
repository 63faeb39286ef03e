/* The beginning and end of a request, whichever function it came through. */
#pragma once

#include "base/forked.h"
#include "process/thread.h"
#include "size/size.h"
#include "userheap/userheap.h"

/* The calling thread's heap; starts the library and attaches a heap if necessary. NULL if the thread has returned its heap
 * (hak__thread_has_exited) or the system refuses memory. */
hak_at_start struct hak_heap *hak__request_heap_slow(void);
hak_inline struct hak_heap *hak__request_heap(void)
{
    hak__fork_check();
    struct hak_heap *heap = hak__heap_mine();
    return hak_likely((heap->mode & HAK_MODE_SENTINEL) == 0) ? heap : hak__request_heap_slow();
}

/* For a request that needs no heap, such as a huge block. A thread without a heap gets one only if new threads begin with a
 * default heap, because the request is then that heap's. Otherwise the sentinel stays. */
hak_inline bool hak__request_is_plain(const struct hak_heap *heap)
{
    bool mine = (heap->mode & HAK_MODE_APART) == 0;
    return mine || (hak_read_mostly(&hak__thread_notes.home) == NULL && hak_load(&hak__uheap_inherited, HAK_RELAXED) == NULL);
}
hak_inline struct hak_uheap *hak__request_standard(void)
{
    struct hak_heap *heap = hak__heap_current();
    if (hak_likely(hak__request_is_plain(heap)) || (heap = hak__request_heap()) == NULL)
        return NULL;
    return heap->share.standard;
}

/* The same, locked. If a fork intervenes, the child may have to abandon the heap and take another. */
hak_inline struct hak_heap *hak__request_enter(void)
{
    struct hak_heap *heap = hak__heap_current();
    while (hak_unlikely((heap->mode & HAK_MODE_APART) != 0) || hak_unlikely(!hak__heap_lock(heap))) {
        heap = hak__request_heap();
        if (heap == NULL)
            break;
    }
    return heap;
}

/* Chooses samples, once for each request up to the mid classes that finds no block or is to be counted, of a user heap, or malloc's
 * if NULL: it counts for a profile if the thread's countdown ends, and gets guard pages if a refill has left it to that
 * (cache/refill.c). Returns the sampled block, aligned as asked; NULL: it is to be served as any other. */
hak_cold void *hak__request_sample(struct hak_uheap *own, size_t align, size_t n);

/* Sends a redirected thread's requests to malloc until the end call, which takes the result. */
hak_cold struct hak_heap *hak__request_apart(void);
hak_cold void hak__request_apart_end(struct hak_heap *heap);

/* Tells a counting profiler that the program got a block above the mid classes (NULL: it got none). A thread without a heap gets
 * one, because heaps count the bytes up to the next sample. */
hak_cold void hak__request_note(void *block, size_t n);

/* Returns the thread's cached blocks and all that upkeep can, due or not; the result is the bytes returned to the system. The
 * caller holds no heap lock. */
hak_cold size_t hak__request_collect(void);

/* Frees memory, unless that would be in vain, for a request of n bytes that the system refused; the caller then retries it. */
hak_cold void hak__request_relieve(size_t n);

/* Set errno, the second to ENOMEM, and return NULL. */
hak_cold void *hak__fail(int code);
hak_cold void *hak__no_memory(void);

/* The end of a request that took the slow path, when no lock is held: upkeep of the thread's heap (NULL: it has none), the limit's
 * callback, and under HAKMEM_CHECK=N the check at every N-th. */
void hak__request_end(struct hak_heap *heap);

/* At the end of a request that has added or removed a huge block, or a part of a large one. */
void hak__poll_huge(size_t given, size_t taken);

/* --- a block -------------------------------------------------------------------------------------------------------------- */

/* Every request that misses its bin ends here: a block from the heap layer or the arena, whatever the thread's state. All return
 * NULL when the system refuses, with errno set to ENOMEM. */

/* One block of a class, for n bytes; a hardened one holds exactly n. */
void *hak__alloc_class(uint32_t class, size_t n);

/* The same for a class above the tiny ones; *zero: its bytes are known to be 0. */
void *hak__alloc_class_zeroed(uint32_t class, bool *zero);

/* A huge block at a multiple of `align`; zero: NULL, or as above. */
hak_noinline void *hak__alloc_huge(size_t n, size_t align, bool *zero);

/* The slow half of malloc for user heaps (process/heap_malloc.c). */
/* A block of the class, or a huge one, from the heap; NULL with errno ENOMEM: its limit forbids it, or the system refuses. */
void *hak__uheap_alloc_class(struct hak_uheap *own, uint32_t class, size_t n, const char *function);
void *hak__uheap_alloc_huge(struct hak_uheap *own, size_t n, size_t align, bool *zero, const char *function);

/* Applies all that the process's mode asks of a request. *zero: the bytes are known to be 0. */
void *hak__uheap_request(struct hak_uheap *own, size_t align, size_t n, bool *zero, const char *function);
