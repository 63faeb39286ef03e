/* The slow halves of malloc and free for heaps of one's own (own/own.h): heap_malloc.c, called by heap_api.c, alloc.c and realloc.c, and
 * heap_free.c, called by free_slow.c. */
#pragma once

#include "own/own.h"

/* A block of the class, or a huge one, of the heap; NULL, and errno is ENOMEM: its limit does not allow it, or the system refuses. */
void *hak__own_alloc_class(struct hak_own *own, uint32_t class, size_t n, const char *function);
void *hak__own_alloc_huge(struct hak_own *own, size_t n, size_t align, bool *zero, const char *function);

/* Whatever the process's mode asks of a request. *zero: the bytes are known to be 0. */
void *hak__own_request(struct hak_own *own, size_t align, size_t n, bool *zero, const char *function);

/* An address in a slab that has, or had just now, such a heap's word. False, and nothing has happened: the word is another one
 * by now. */
hak_noinline bool hak__own_free(void *p, uint32_t word, const char *function);

/* The same for a block of the calling thread's share that is marked as freed, and for which the bin had no room. */
hak_noinline bool hak__own_free_full(void *p, uint32_t word);

