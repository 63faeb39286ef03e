/* Requests and frees of heaps in regions (own/region.h), with what they need of the calling thread. Called by heap_api.c; the last
 * part by free_slow.c, pointer.c and realloc.c for pointers that the window of addresses does not know. */
#pragma once

#include "own/own.h"
#include "own/region.h"

hak_cold struct hak_own *hak__heap_new_in_region(const struct hak_heap_options *options);   /* NULL and errno */
hak_cold void hak__heap_destroy_in_region(struct hak_own *heap);
hak_cold void hak__heap_reset_in_region(struct hak_own *heap);
hak_cold void hak__heap_set_limit_in_region(struct hak_own *heap, size_t limit);
hak_cold void hak__heap_stats_in_region(struct hak_own *heap, struct hak_heap_figures *out);

/* NULL, and errno is ENOMEM or EINVAL (align is more than a shared region allows). */
void *hak__region_request(struct hak_own *heap, size_t align, size_t n, const char *function);
void *hak__region_change(struct hak_own *heap, void *p, size_t n, const char *function);
void hak__region_drop(struct hak_own *heap, void *p, const char *function);

/* The heap in whose region p lies, which this process has made or attached; NULL: none. */
hak_inline struct hak_own *hak__region_holding(const void *p) { return (struct hak_own *)hak__region_of(p); }
size_t hak__region_block_size(const void *p, const char *function);
