/* Gets a block for the calling thread from the heap layer or the arena, whatever the thread's state. Every request that misses
 * its cache ends here. All functions return NULL when the system refuses, with errno set to ENOMEM. */
#pragma once

#include "diag/latency.h"
#include "size/size.h"

/* One block of a class, for n bytes; a hardened one holds exactly n. */
void *hak__alloc_class(uint32_t class, size_t n);

/* The same for a class above the tiny ones; *zero: its bytes are known to be 0. */
void *hak__alloc_class_zeroed(uint32_t class, bool *zero);

/* A huge block at a multiple of `align`; zero: NULL, or as above. */
hak_noinline void *hak__alloc_huge(size_t n, size_t align, bool *zero);

/* A block of a class, or a huge one with HAK_CLASSES; timed under HAKMEM_LATENCY. */
hak_inline void *hak__alloc_timed(uint32_t class, size_t n)
{
    uint64_t started = hak__latency_begin();
    void *block = hak_likely(class < HAK_CLASSES) ? hak__alloc_class(class, n) : hak__alloc_huge(n, HAK_SUPER_SIZE, NULL);
    hak__latency_end(HAK_LATENCY_MALLOC, started);
    return block;
}
