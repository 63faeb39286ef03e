/* The beginning and end of a request, whichever function it came through, and its way to a bin. */
#pragma once

#include "base/bits.h"
#include "base/lock.h"
#include "cache/cache.h"
#include "harden/mode.h"
#include "process/process.h"
#include "size/size.h"
#include "userheap/userheap.h"

/* --- the fast path ---------------------------------------------------------------------------------------------------- */

/* Every allocating function begins here: it pops a block of the calling thread, or gets NULL and takes its slow path. A closed bin
 * always gives NULL. */

/* A block for n bytes after the fast path found none; sets errno on failure (entry/malloc.c). */
hak_noinline void *hak__malloc_slow(size_t n);

hak_inline void *hak__pop_from(struct hak_heap *heap, struct hak_class_offset offset)
{
    void *block = hak__cache_pop_at(heap, offset);
    if (hak_likely(block != NULL))
        hak__mark_live(block);
    return block;
}

/* Requests above the mid classes find no bin: large blocks' bins are always closed. */
hak_inline void *hak__pop(size_t n)
{
    if (hak_likely(n <= HAK_TINY_MAX))
        return hak__pop_from(hak__heap_current(), hak__bin_of_tiny(n));
    return hak_likely(n <= HAK_MID_MAX) ? hak__pop_from(hak__heap_current(), hak__bin_of_mid(n)) : NULL;
}

/* Rounds n up to the alignment: if that class's blocks are aligned, no smaller class's are. Else NULL. */
hak_inline void *hak__aligned_pop(size_t align, size_t n)
{
    size_t need = hak_align_up(n, align);
    if (hak_unlikely(n > HAK_MID_MAX || need > HAK_MID_MAX))
        return NULL;
    struct hak_class_offset offset = need <= HAK_TINY_MAX ? hak__bin_of_tiny(need) : hak__bin_of_mid(need);
    if (hak_unlikely((hak__class_at_offset(offset)->size & (align - 1)) != 0))
        return NULL;
    return hak__pop_from(hak__heap_current(), offset);
}

/* --- the slow path ---------------------------------------------------------------------------------------------------- */

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

/* Frees memory, unless that would be in vain, for a request of n bytes that the system refused; the caller then retries it. Whether other
 * threads have been asked for theirs, and may need a moment. */
hak_cold bool hak__request_relieve(size_t n);

/* Set errno, the second to ENOMEM, and return NULL. */
hak_cold void *hak__fail(int code);
hak_cold void *hak__no_memory(void);

/* The end of a request that took the slow path, when no lock is held: upkeep of the thread's heap (NULL: it has none), the limit's
 * callback, and under HAKMEM_CHECK=N the check at every N-th. */
void hak__request_end(struct hak_heap *heap);

/* At the end of a request that has added or removed a huge block, or a part of a large one; or has ended so many bytes of a user heap. */
void hak__poll_huge(size_t given, size_t taken);
void hak__poll_ended(size_t bytes);

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

/* --- bins, closed or not ---------------------------------------------------------------------------------------------- */

/* One dispatcher for each direction: decides under the heap lock where a block comes from and goes to. A class's bin may be
 * closed, so that every call takes the slow path; then the reasons decide (heap/state.h, enum hak_closed_reason). Called by
 * request.c, heap_malloc.c and kinds/. */

/* A block of the class, for n bytes; a hardened one holds exactly n. NULL when the system refuses. */
void *hak__closed_malloc(struct hak_heap *heap, uint32_t class, size_t n);
void hak__closed_free(struct hak_heap *heap, uint32_t class, void *block, const char *function);

/* The same for any class, closed or not. Heaps made before the options were readable have open bins even in a hardened process. */
hak_inline void *hak__heap_malloc(struct hak_heap *heap, uint32_t class, size_t n)
{
    if (heap->closed_reasons[class] != 0 || hak_unlikely(hak__hardened.on))
        return hak__closed_malloc(heap, class, n);
    void *block = hak__cache_pop(&heap->bins[class]);
    if (block == NULL)
        block = hak__cache_refill(heap, class);
    if (hak_likely(block != NULL))
        hak__mark_live(block);
    return block;
}

hak_inline void hak__heap_free(struct hak_heap *heap, uint32_t class, void *block, const char *function)
{
    if (heap->closed_reasons[class] != 0)
        hak__closed_free(heap, class, block, function);
    else if (!hak__cache_push(&heap->bins[class], block))
        hak__cache_overflow(heap, class, block, function);
}
