/* The slow half of malloc for user heaps (userheap/userheap.h). Called by heap_api.c, alloc.c and realloc.c. */
#pragma once

#include "userheap/userheap.h"

/* A block of the class, or a huge one, from the heap; NULL with errno ENOMEM: its limit forbids it, or the system refuses. */
void *hak__uheap_alloc_class(struct hak_uheap *own, uint32_t class, size_t n, const char *function);
void *hak__uheap_alloc_huge(struct hak_uheap *own, size_t n, size_t align, bool *zero, const char *function);

/* Applies all that the process's mode asks of a request. *zero: the bytes are known to be 0. */
void *hak__uheap_request(struct hak_uheap *own, size_t align, size_t n, bool *zero, const char *function);
