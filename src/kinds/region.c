/* The kind of blocks of heaps in regions (userheap/region.h). */
#include "kinds/region.h"

#include <errno.h>

#include "base/assert.h"
#include "base/forked.h"
#include "diag/report.h"
#include "hakmem.h"
#include "kinds/kind.h"
#include "process/request.h"
#include "process/start.h"

/* --- life -------------------------------------------------------------------------------------------------------------- */

static struct hak_uheap *region_result(int code, struct hak_region *region)
{
    return code == 0 ? (struct hak_uheap *)(void *)region : hak__fail(code);
}

/* From now on a child of this process detects the fork, however many threads there are. */
static void region_watch_forks(void)
{
    hak__fork_check();
    hak__fork_watch();
}

struct hak_uheap *hak__heap_new_in_region(const struct hak_heap_options *options)
{
    struct hak_region *region = NULL;
    region_watch_forks();
    int code = hak__region_new(options, &region);
    return region_result(code, region);
}

hak_export hak_heap_t *hak_heap_attach(void *start, size_t size)
{
    struct hak_region *region = NULL;
    if (!hak__start())
        return region_result(ENOMEM, NULL);
    region_watch_forks();
    int code = hak__region_attach(start, size, &region);
    return region_result(code, region);
}

hak_export void hak_heap_detach(hak_heap_t *heap)
{
    if (!hak__is_region(heap))
        hak__uheap_misuse(heap, "hak_heap_detach");
    hak__fork_check();
    hak__region_detach(hak__region_handle(heap));
}

/* --- blocks ------------------------------------------------------------------------------------------------------------ */

void *hak__region_request(struct hak_region *region, size_t align, size_t n, const char *function)
{
    if ((region->flags & HAK_HEAP_SHARED) != 0 && align > HAK_REGION_PAGE)
        return hak__fail(EINVAL);
    void *block = hak__region_alloc(region, hak_max(align, HAK_ALIGN), n, function);
    return hak_likely(block != NULL) ? block : hak__no_memory();
}

void *hak__region_change(struct hak_region *region, void *p, size_t n, const char *function)
{
    void *block = hak__region_realloc(region, p, n, function);
    return block != NULL || n == 0 ? block : hak__no_memory();
}

/* --- the kind ---------------------------------------------------------------------------------------------------------- */

static bool region_kind_has(const void *p) { return hak__region_of(p) != NULL; }

static void region_kind_free(void *p, uint32_t word, const char *function)
{
    (void)word;
    hak_assert(word == 0, "no slab of the window");
    hak__region_end(hak__region_of(p), p, function);
}

static size_t region_kind_usable(const void *p, const char *function) { return hak__region_usable(hak__region_of(p), p, function); }

static void *region_kind_realloc(void *p, size_t n) { return hak__region_change(hak__region_of(p), p, n, "realloc"); }

static struct hak_uheap *region_kind_heap(const void *p) { return (struct hak_uheap *)(void *)hak__region_of(p); }

static bool region_kind_live(const void *p) { return hak__region_has(hak__region_of(p), p, "hak_heap_of"); }

static void region_kind_describe(uintptr_t address, char *text, size_t size)
{
    const struct hak_region *region = hak__region_of((const void *)address);
    hak__format(text, size, "in the region of heap %p, offset %u", (const void *)region, (uint64_t)(address - (uintptr_t)region));
}

const struct hak_kind hak__kind_region = {
    .has = region_kind_has,
    .free = region_kind_free,
    .usable = region_kind_usable,
    .realloc = region_kind_realloc,
    .heap = region_kind_heap,
    .live = region_kind_live,
    .describe = region_kind_describe,
};
