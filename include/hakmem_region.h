/* Heaps in memory that the program provides: libhakmem-region. Link with -lhakmem-region as well. */
#ifndef HAKMEM_REGION_H
#define HAKMEM_REGION_H

#include "hakmem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* hak_heap_new with `region` makes one; it fails with ENOTSUP where the library is missing. The heap lies in its region as a whole, the
 * handle too: it takes no memory from the system. The region's previous contents are lost. A full region is ENOMEM, after the heap's callback. One in memory of
 * malloc or of another heap is EINVAL. A shared one has no callback, and no blocks aligned to more than 4 KiB.
 *
 * hak_heap_attach gives the heap that another process made in a shared region. NULL with errno EINVAL: there is none. At one address
 * that is one handle, however often, and at another address another one: a process detaches a heap as often as it attached or made it, the
 * last time before it unmaps the region or truncates its file; other processes and the blocks are not affected. Another process may have
 * destroyed the heap before (in one of the first 64 regions). hak_heap_destroy ends all uses by its own process, which detaches no more.
 * Once the memory is gone every use of the handle faults, and what is mapped there next is taken for a region that is still attached. */
hak_heap_t *hak_heap_attach(void *region, size_t size);
void hak_heap_detach(hak_heap_t *heap);

/* Linkers leave out a library that nothing names. */
static hak_heap_t *(*const hak_region_is_linked)(void *region, size_t size) __attribute__((used)) = hak_heap_attach;

#ifdef __cplusplus
}
#endif

#endif
