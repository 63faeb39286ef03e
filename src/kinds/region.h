/* Heaps in regions (userheap/region.h) as the program sees them: how they begin, and the functions that set errno. Called by
 * heap_api.c. */
#pragma once

#include "userheap/region.h"
#include "userheap/userheap.h"

hak_inline struct hak_region *hak__region_handle(struct hak_uheap *heap) { return (struct hak_region *)(void *)heap; }

hak_cold struct hak_uheap *hak__heap_new_in_region(const struct hak_heap_options *options); /* NULL and errno on failure */

/* NULL on failure, with errno ENOMEM or EINVAL (align is more than a shared region allows). */
void *hak__region_request(struct hak_region *region, size_t align, size_t n, const char *function);
void *hak__region_change(struct hak_region *region, void *p, size_t n, const char *function);
