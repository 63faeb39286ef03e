/* libhakmem-region: heaps in memory that the program provides. malloc's library comes here by the table of functions that this one
 * registers when it is loaded (struct hak_regions in userheap/userheap.h). */
#pragma once

#include "hakmem_region.h"
#include "region/units.h"

/* Where this process's regions lie. size == 0: the row is free. Rows change under a lock; readers take none and read the size
 * twice. */
struct hak_region_row {
    _Atomic uintptr_t start;
    _Atomic size_t size;
    _Atomic uint64_t serial;
    uint32_t uses; /* times made or attached here, and not detached since */
    bool shared;
};
enum { HAK_REGIONS_MOST = 64 };

/* NULL on failure, with errno. */
struct hak_region *hak__region_new(const struct hak_heap_options *options);
void hak__region_destroy(struct hak_region *region, const char *function);
void hak__region_reset(struct hak_region *region, const char *function);

/* NULL: there is no room, and the heap's callback does not help (ENOMEM), or the alignment is too large (EINVAL). */
void *hak__region_alloc(struct hak_region *region, size_t align, size_t n, const char *function);
void hak__region_end(struct hak_region *region, void *p, const char *function);
void *hak__region_realloc(struct hak_region *region, void *p, size_t n, const char *function);
size_t hak__region_usable(struct hak_region *region, const void *p, const char *function);
void hak__region_set_limit(struct hak_region *region, size_t limit, const char *function);

/* Without a `function` it takes no lock: figures may be of different moments. */
void hak__region_figures(struct hak_region *region, struct hak_heap_figures *out, const char *function);

/* The heap made or attached by this process whose region contains p; NULL: none. */
struct hak_region *hak__region_of(const void *p);
