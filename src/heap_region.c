/* Heaps in regions on their way from and to the program. See heap_region.h. */
#include "heap_region.h"

#include <errno.h>

#include "base/forked.h"
#include "hakmem.h"
#include "request.h"
#include "start.h"
#include "thread.h"

hak_inline struct hak_region *region_of_handle(struct hak_own *heap) { return (struct hak_region *)(void *)heap; }

/* Before each use: a lock may be held that a fork has left behind. */
hak_inline struct hak_robust_thread *region_begin(struct hak_robust_thread *here)
{
    hak__fork_check();
    return hak__thread_robust(here);
}

/* --- life -------------------------------------------------------------------------------------------------------------- */

static struct hak_own *region_result(int code, struct hak_region *region)
{
    return code == 0 ? (struct hak_own *)(void *)region : hak__fail(code);
}

/* From now on a child of this process finds out that it is one, however many threads there are. */
static void region_watch_forks(void)
{
    hak__fork_check();
    hak__fork_watch();
}

struct hak_own *hak__heap_new_in_region(const struct hak_heap_options *options)
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
        hak__own_misuse(heap, "hak_heap_detach");
    hak__fork_check();
    hak__region_detach(region_of_handle(heap));
}

void hak__heap_destroy_in_region(struct hak_own *heap)
{
    struct hak_robust_thread here;
    hak__region_destroy(region_of_handle(heap), region_begin(&here), "hak_heap_destroy");
}

void hak__heap_reset_in_region(struct hak_own *heap)
{
    struct hak_robust_thread here;
    hak__region_reset(region_of_handle(heap), region_begin(&here), "hak_heap_reset");
}

void hak__heap_set_limit_in_region(struct hak_own *heap, size_t limit)
{
    struct hak_robust_thread here;
    hak__region_set_limit(region_of_handle(heap), region_begin(&here), limit, "hak_heap_set_limit");
}

void hak__heap_stats_in_region(struct hak_own *heap, struct hak_heap_figures *out)
{
    struct hak_robust_thread here;
    hak__region_figures(region_of_handle(heap), region_begin(&here), out, "hak_heap_stats");
}

/* --- blocks ------------------------------------------------------------------------------------------------------------ */

void *hak__region_request(struct hak_own *heap, size_t align, size_t n, const char *function)
{
    struct hak_robust_thread here;
    struct hak_region *region = region_of_handle(heap);
    if ((region->flags & HAK_HEAP_SHARED) != 0 && align > HAK_REGION_PAGE)
        return hak__fail(EINVAL);
    void *block = hak__region_alloc(region, region_begin(&here), hak_max(align, HAK_ALIGN), n, function);
    return hak_likely(block != NULL) ? block : hak__no_memory();
}

void *hak__region_change(struct hak_own *heap, void *p, size_t n, const char *function)
{
    struct hak_robust_thread here;
    void *block = hak__region_realloc(region_of_handle(heap), region_begin(&here), p, n, function);
    return block != NULL || n == 0 ? block : hak__no_memory();
}

void hak__region_drop(struct hak_own *heap, void *p, const char *function)
{
    struct hak_robust_thread here;
    hak__region_end(region_of_handle(heap), region_begin(&here), p, function);
}

size_t hak__region_block_size(const void *p, const char *function)
{
    struct hak_robust_thread here;
    return hak__region_usable(hak__region_of(p), region_begin(&here), p, function);
}
