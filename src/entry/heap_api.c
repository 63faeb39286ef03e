/* The public functions of user heaps (userheap/userheap.h): the fast path of their malloc, and what surrounds it. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "arena/window.h"
#include "diag/options.h"
#include "diag/report.h"
#include "hakmem.h"
#include "harden/mode.h"
#include "kinds/kind.h"
#include "os/os.h"
#include "process/process.h"
#include "process/request.h"
#include "stats/stats.h"
#include "upkeep/upkeep.h"

/* --- life -------------------------------------------------------------------------------------------------------------- */

/* What malloc and heaps in regions do not have. */
static bool is_plain(const hak_heap_t *own, const char *function)
{
    return own != NULL && hak__regions_of(own) == NULL && hak__uheap_expect(own, function);
}

hak_export hak_heap_t *hak_heap_new(const struct hak_heap_options *given)
{
    struct hak_heap_options options = { .size = sizeof options };
    if (given != NULL) {
        if (given->size < offsetof(struct hak_heap_options, flags))
            return hak__fail(EINVAL);
        memcpy(&options, given, hak_min(given->size, sizeof options));
    }
    if (options.purge > HAK_HEAP_PURGE_AT_ONCE || (options.flags & ~(HAK_HEAP_HARDENED | HAK_HEAP_SHARED | HAK_HEAP_BUMP)) != 0)
        return hak__fail(EINVAL);
    if (options.region == NULL ? (options.flags & HAK_HEAP_SHARED) != 0 : (options.flags & HAK_HEAP_BUMP) != 0)
        return hak__fail(EINVAL);
    if (!hak__start())
        return hak__fail(ENOMEM);
    if (options.parent != NULL && (options.region != NULL || !is_plain(options.parent, "hak_heap_new")))
        return hak__fail(EINVAL);
    if (options.region != NULL) {
        uintptr_t start = (uintptr_t)options.region;
        if (hak__block_around(start) != NULL || hak__block_around(start + options.region_size - 1) != NULL)
            return hak__fail(EINVAL); /* free would take a block of the heap for one that begins inside of another */
        const struct hak_regions *regions = hak_load(&hak__regions, HAK_ACQUIRE);
        return regions == NULL ? hak__fail(ENOTSUP) : (hak_heap_t *)(void *)regions->make(&options);
    }
    if ((options.flags & HAK_HEAP_HARDENED) != 0 && !hak__is_hardened())
        return hak__fail(ENOTSUP);
    return hak__uheap_new(&options);
}

/* Calls what is to be called before the heap's blocks end, without locks; what a cleanup adds, too. */
static void clean_up(hak_heap_t *own)
{
    struct hak_cleanup *next;
    while (hak_peek(&own->cleanups) != NULL && (next = hak__cleanup_pop(own, NULL, NULL)) != NULL) {
        struct hak_cleanup cleanup = *next;
        hak_free(next); /* malloc has it if the heap has been merged */
        int former = hak__os_cancel_state(PTHREAD_CANCEL_DISABLE);
        cleanup.function(cleanup.argument);
        hak__os_cancel_state(former);
    }
}

/* Ends the heaps below and calls all cleanups, those of a heap before its parent's. False: misuse, which has been reported. */
static bool end_below(hak_heap_t *own, const char *function)
{
    hak_heap_t *leaf = hak__tree_default(own);
    if (hak_unlikely(leaf != NULL))
        return hak__uheap_misuse_default(leaf, function);
    for (;;) {
        clean_up(leaf = hak__tree_leaf(own));
        if (hak__tree_leaf(leaf) != leaf) /* made by a cleanup */
            continue;
        if (leaf == own || !hak__uheap_destroy(leaf, function))
            return leaf == own;
    }
}

hak_export int hak_heap_at_end(hak_heap_t *own, void (*function)(void *argument), void *argument)
{
    if (function == NULL || !is_plain(own, "hak_heap_at_end"))
        return EINVAL;
    struct hak_cleanup *cleanup = hak_heap_malloc(own, sizeof *cleanup);
    if (cleanup == NULL)
        return ENOMEM;
    *cleanup = (struct hak_cleanup){ .function = function, .argument = argument };
    hak__cleanup_push(own, cleanup);
    return 0;
}

hak_export int hak_heap_at_end_cancel(hak_heap_t *own, void (*function)(void *argument), void *argument)
{
    if (function == NULL || !is_plain(own, "hak_heap_at_end_cancel"))
        return EINVAL;
    struct hak_cleanup *cleanup = hak__cleanup_pop(own, function, argument);
    hak_free(cleanup);
    return cleanup != NULL ? 0 : ENOENT;
}

hak_export void hak_heap_destroy(hak_heap_t *own)
{
    if (own == NULL)
        return; /* malloc's blocks do not end, here and below */
    hak__fork_check();
    const struct hak_regions *regions = hak__regions_of(own);
    if (regions != NULL) {
        regions->destroy(hak__region_handle(own), "hak_heap_destroy");
        return;
    }
    /* Misuse ends nothing, and hak__uheap_destroy reports it. */
    bool ends = hak__uheap_magic(own) == HAK_OWN_ALIVE && hak_load(&own->standards, HAK_RELAXED) == 0;
    size_t used = ends ? hak_load(&own->account.used, HAK_RELAXED) : 0;
    if ((!ends || end_below(own, "hak_heap_destroy")) && hak__uheap_destroy(own, "hak_heap_destroy") && used != 0)
        hak__poll_ended(used);
}

hak_export void hak_heap_reset(hak_heap_t *own)
{
    if (own == NULL)
        return;
    hak__fork_check();
    const struct hak_regions *regions = hak__regions_of(own);
    if (regions != NULL) {
        regions->reset(hak__region_handle(own), "hak_heap_reset");
        return;
    }
    if (!hak__uheap_expect(own, "hak_heap_reset"))
        return;
    size_t used = hak_load(&own->account.used, HAK_RELAXED);
    if (!end_below(own, "hak_heap_reset"))
        return;
    hak__uheap_reset(own, "hak_heap_reset");
    if (used != 0)
        hak__poll_ended(used);
}

hak_export int hak_heap_merge_into_default(hak_heap_t *own)
{
    if (own == NULL)
        return 0;
    if (hak__regions_of(own) != NULL)
        return ENOTSUP;
    if (!hak__uheap_expect(own, "hak_heap_merge_into_default"))
        return EINVAL;
    if (hak__bump_has(own))
        return ENOTSUP;
    struct hak_heap *mine = hak__request_heap();
    if (mine != NULL && hak__profile_ever())
        hak__profile_join(mine); /* it may get samples that stay in place */
    mine = hak__request_enter();
    if (mine == NULL)
        return ENOMEM;
    bool merged = hak__uheap_merge(own, mine, "hak_heap_merge_into_default");
    hak__heap_unlock(mine);
    return merged ? 0 : EBUSY;
}

/* --- blocks -------------------------------------------------------------------------------------------------------------- */

/* While a profile counts, like malloc.c's malloc_counted. NULL: the slow path counts. */
static void *heap_malloc_counted(const hak_heap_t *own, size_t n)
{
    struct hak_heap *heap = hak__heap_mine();
    struct hak_heap *share = (struct hak_heap *)((char *)heap + heap->to_share);
    int64_t left = heap->profile_left - (int64_t)n;
    if (n > HAK_MID_MAX || left < 0 || hak_peek(&share->own) != own || !hak__profile_has_joined(heap))
        return NULL;
    void *block = hak__pop_from(share, n <= HAK_TINY_MAX ? hak__offset_of_tiny(n) : hak__offset_of_mid(n));
    if (hak_likely(block != NULL))
        heap->profile_left = left;
    return block;
}

/* A block of malloc's, whatever the thread's default heap is. */
static void *process_request(size_t align, size_t n, bool zero)
{
    struct hak_heap *redirected = hak__request_apart();
    void *block = zero ? hak_aligned_calloc(align, 1, n) : align <= HAK_ALIGN ? hak_malloc(n) : hak_aligned_alloc(align, n);
    hak__request_apart_end(redirected);
    return block;
}

static hak_noinline void *heap_malloc_slow(hak_heap_t *own, size_t n)
{
    bool zero;
    void *block;
    if (own == NULL)
        return process_request(HAK_ALIGN, n, false);
    const struct hak_regions *regions = hak__regions_of(own);
    if (regions != NULL)
        return regions->alloc(hak__region_handle(own), HAK_ALIGN, n, "hak_heap_malloc");
    if (hak_unlikely(hak__profile_asked()))
        hak__profile_answer();
    if (hak__profile_malloc_counts() && (block = heap_malloc_counted(own, n)) != NULL)
        return block;
    block = hak__bump_malloc(own, n, "hak_heap_malloc");
    return block != NULL ? block : hak__uheap_request(own, HAK_ALIGN, n, &zero, "hak_heap_malloc");
}

/* From the share that the thread used last, so that the handle is valid. */
static hak_noinline void *heap_malloc_refilled(hak_heap_t *own, size_t n)
{
    bool plain = own != NULL && hak__bump_may() && !hak__bump_has(own) && !hak__profile_asked();
    return plain ? hak__uheap_alloc_class(own, hak__class_of(n), n, "hak_heap_malloc") : heap_malloc_slow(own, n);
}

/* The share's bin is empty, as those of a bump heap mostly are. Without a heap the share is the thread's heap. */
static hak_noinline void *heap_malloc_missed(hak_heap_t *own, size_t n, struct hak_heap *share)
{
    void *block = own != NULL && hak__bump_may() ? hak__bump_cut(share, n) : NULL; /* NULL: it may be the sentinel */
    return hak_likely(block != NULL) ? block : heap_malloc_refilled(own, n);
}

/* From another share that the thread has. */
static hak_noinline void *heap_malloc_turn(hak_heap_t *own, size_t n)
{
    struct hak_heap *mine = hak__heap_mine(), *share = NULL;
    if (hak_likely(own != NULL && (mine->mode & HAK_MODE_SENTINEL) == 0 && n <= HAK_MID_MAX))
        share = hak__share_find(mine, own);
    if (hak_unlikely(share == NULL))
        return heap_malloc_slow(own, n);
    hak__share_choose(mine, share);
    void *block = hak__pop_from(share, n <= HAK_TINY_MAX ? hak__bin_of_tiny(n) : hak__bin_of_mid(n));
    return hak_likely(block != NULL) ? block : heap_malloc_missed(own, n, share);
}

/* malloc's fast path, but from the bins of the share that the thread used last, or of its default heap, if it is this heap's. */
hak_export hak_fast_path void *hak_heap_malloc(hak_heap_t *own, size_t n)
{
    struct hak_heap *heap = hak__heap_current();
    struct hak_heap *share = (struct hak_heap *)((char *)heap + heap->to_share);
    struct hak_class_offset offset;
    if (hak_unlikely(hak_read_mostly(&share->own) != own))
        return heap_malloc_turn(own, n);
    if (hak_likely(n <= HAK_TINY_MAX))
        offset = hak__bin_of_tiny(n);
    else if (hak_likely(n <= HAK_MID_MAX))
        offset = hak__bin_of_mid(n);
    else
        return heap_malloc_slow(own, n);
    void *block = hak__pop_from(share, offset);
    return hak_likely(block != NULL) ? block : heap_malloc_missed(own, n, share);
}

/* Does not clear memory known to be zero. */
static void *heap_calloc(hak_heap_t *own, size_t align, size_t count, size_t size, const char *function)
{
    size_t n;
    bool zero = false;
    if (hak_unlikely(__builtin_mul_overflow(count, size, &n)))
        return hak__no_memory();
    if (own == NULL)
        return process_request(align, n, true);
    bool plain = (align > HAK_ALIGN || n > HAK_TINY_MAX) && hak__regions_of(own) == NULL;
    void *block = plain              ? hak__uheap_request(own, align, n, &zero, function)
                : align <= HAK_ALIGN ? hak_heap_malloc(own, n)
                                     : hak_heap_aligned_alloc(own, align, n);
    return zero || block == NULL ? block : memset(block, 0, n);
}

hak_export void *hak_heap_calloc(hak_heap_t *own, size_t count, size_t size)
{
    return heap_calloc(own, HAK_ALIGN, count, size, "hak_heap_calloc");
}

hak_export void *hak_heap_aligned_calloc(hak_heap_t *own, size_t align, size_t count, size_t size)
{
    return hak_is_power_of_two(align) ? heap_calloc(own, align, count, size, "hak_heap_aligned_calloc") : hak__fail(EINVAL);
}

hak_export void *hak_heap_aligned_alloc(hak_heap_t *own, size_t align, size_t n)
{
    bool zero;
    if (!hak_is_power_of_two(align))
        return hak__fail(EINVAL);
    if (own == NULL)
        return process_request(align, n, false);
    const struct hak_regions *regions = hak__regions_of(own);
    if (regions != NULL)
        return regions->alloc(hak__region_handle(own), align, n, "hak_heap_aligned_alloc");
    return hak__uheap_request(own, align, n, &zero, "hak_heap_aligned_alloc");
}

/* Another heap's block is the program's mistake, and so is a pointer to none: reports it and returns false. */
static bool expect_block_of(const hak_heap_t *own, const void *p, const char *function)
{
    if (hak_likely(hak__heap_of_block(p) == own))
        return true;
    if (own == NULL || hak__uheap_expect(own, function))
        hak__misuse(&(struct hak_mistake){ .kind = HAK_MISUSE_INVALID, .function = function, .p = p },
                    own == NULL ? "%s(): %p is not a block of malloc's" : "%s(): %p is not a block of heap %p", function, p,
                    (const void *)own);
    return false;
}

hak_export void *hak_heap_realloc(hak_heap_t *own, void *p, size_t n)
{
    if (p == NULL)
        return hak_heap_malloc(own, n);
    const struct hak_regions *regions = hak__regions_of(own);
    if (regions != NULL)
        return regions->realloc(hak__region_handle(own), p, n, "hak_heap_realloc");
    return expect_block_of(own, p, "hak_heap_realloc") ? hak_realloc(p, n) : hak__fail(EINVAL); /* keeps it in its heap */
}

hak_export void *hak_heap_aligned_realloc(hak_heap_t *own, void *p, size_t align, size_t n)
{
    if (p == NULL || !hak_is_power_of_two(align))
        return hak_heap_aligned_alloc(own, align, n);
    bool of_it = hak__regions_of(own) != NULL ? hak_heap_of(p) == own : expect_block_of(own, p, "hak_heap_aligned_realloc");
    return of_it ? hak_aligned_realloc(p, align, n) : hak__fail(EINVAL);
}

hak_export void hak_heap_free(hak_heap_t *own, void *p)
{
    if (p == NULL)
        return;
    const struct hak_regions *regions = hak__regions_of(own);
    if (regions != NULL) {
        regions->free(hak__region_handle(own), p, "hak_heap_free");
        return;
    }
    if (expect_block_of(own, p, "hak_heap_free"))
        hak_free(p);
}

hak_export hak_heap_t *hak_heap_of(const void *p)
{
    const struct hak_kind *kind = hak__kind_at(p);
    hak_heap_t *own = kind->heap == NULL ? NULL : kind->heap(p);
    return own != NULL && (kind->live == NULL || kind->live(p)) ? own : NULL;
}

hak_export hak_heap_t *hak_heap_parent(hak_heap_t *own) { return is_plain(own, "hak_heap_parent") ? hak__uheap_parent(own) : NULL; }

/* --- settings and figures ---------------------------------------------------------------------------------------------------- */

hak_export void hak_heap_set_limit(hak_heap_t *own, size_t limit)
{
    const struct hak_regions *regions = hak__regions_of(own);
    if (own == NULL) {
        hak__option_put(HAK_OPTION_limit, limit);
    } else if (regions != NULL) {
        regions->set_limit(hak__region_handle(own), limit, "hak_heap_set_limit");
    } else if (hak__uheap_expect(own, "hak_heap_set_limit")) {
        hak_store(&own->account.limit, limit == 0 ? SIZE_MAX : limit, HAK_RELAXED);
    }
}

hak_export int hak_heap_limit_large(hak_heap_t *own, size_t used, size_t limit, size_t wanted, void *most)
{
    const struct hak_regions *regions = hak__regions_of(own);
    size_t room = regions == NULL ? SIZE_MAX : regions->room(hak__region_handle(own));
    if (wanted > (uintptr_t)most || limit >= room)
        return 0;
    hak_heap_set_limit(own, hak_max(used, limit) + HAK_SLAB_SIZE);
    return 1;
}

hak_export int hak_heap_set_name(hak_heap_t *own, const char *name)
{
    if (!is_plain(own, "hak_heap_set_name"))
        return EINVAL;
    hak__uheap_rename(own, name);
    return 0;
}

hak_export void *hak_heap_set_data(hak_heap_t *own, void *data)
{
    return is_plain(own, "hak_heap_set_data") ? hak_exchange(&own->data, data, HAK_ACQ_REL) : NULL;
}

hak_export void *hak_heap_data(hak_heap_t *own)
{
    return is_plain(own, "hak_heap_data") ? hak_load(&own->data, HAK_ACQUIRE) : NULL;
}

hak_export int hak_heap_stats(hak_heap_t *own, struct hak_heap_figures *out, size_t size)
{
    struct hak_heap_figures stats;
    const struct hak_regions *regions = hak__regions_of(own);
    if (own != NULL && regions == NULL && !hak__uheap_expect(own, "hak_heap_stats"))
        return EINVAL;
    if (out == NULL || size < offsetof(struct hak_heap_figures, limit))
        return EINVAL;
    if (regions != NULL)
        regions->figures(hak__region_handle(own), &stats, "hak_heap_stats");
    else if (own == NULL)
        hak__process_figures(&stats);
    else
        hak__uheap_figures(own, &stats, true);
    memset(out, 0, size);
    memcpy(out, &stats, hak_min(size, sizeof stats));
    return 0;
}

hak_export size_t hak_heap_collect(hak_heap_t *own)
{
    if (own == NULL || !is_plain(own, "hak_heap_collect"))
        return own == NULL ? hak_collect() : 0;
    hak__uheap_squeeze(hak__request_heap(), own);
    return hak__upkeep_step(hak__os->now_ms(), HAK_UPKEEP_ALL);
}

static int visit_heap(hak_heap_t *own, const struct hak_visit *visit)
{
    const struct hak_regions *regions = hak__regions_of(own);
    if (own == NULL)
        return ENOTSUP;
    if (regions == NULL && !hak__uheap_expect(own, visit->function))
        return EINVAL;
    int former = hak__os_cancel_state(PTHREAD_CANCEL_DISABLE);
    int stop = regions != NULL ? regions->visit(hak__region_handle(own), visit) : hak__uheap_visit(own, visit);
    hak__os_cancel_state(former);
    return stop;
}

hak_export int hak_heap_visit(hak_heap_t *own, hak_heap_visitor *visit, void *argument)
{
    return visit_heap(own, &(struct hak_visit){ .block = visit, .argument = argument, .function = "hak_heap_visit" });
}

hak_export int hak_heap_visit_spans(hak_heap_t *own, hak_heap_span_visitor *visit, void *argument)
{
    return visit_heap(own, &(struct hak_visit){ .span = visit, .argument = argument, .function = "hak_heap_visit_spans" });
}

hak_export hak_heap_t *hak_heap_next(hak_heap_t *heap)
{
    const struct hak_regions *regions = hak__regions_of(heap);
    if (heap != NULL && regions == NULL && !hak__meta_has(heap)) {
        hak__uheap_misuse(heap, "hak_heap_next");
        return NULL;
    }
    hak_heap_t *next = regions != NULL ? NULL : hak__uheap_next(heap);
    struct hak_region *region = regions != NULL ? hak__region_handle(heap) : NULL;
    regions = hak_load(&hak__regions, HAK_ACQUIRE);
    return next != NULL || regions == NULL ? next : (hak_heap_t *)(void *)regions->next(region);
}

/* --- defaults ------------------------------------------------------------------------------------------------------------------ */

hak_export hak_heap_t *hak_heap_set_default(hak_heap_t *own)
{
    int saved = errno;
    struct hak_heap *mine = hak__request_heap();
    if (hak_unlikely(mine == NULL))
        return hak__no_memory();
    errno = saved;
    return hak__uheap_set_standard(mine, own, "hak_heap_set_default");
}

hak_export hak_heap_t *hak_heap_get_default(void) { return hak__request_standard(); }

hak_export hak_heap_t *hak_heap_set_default_of_new_threads(hak_heap_t *own)
{
    hak__fork_check();
    return hak__uheap_set_inherited(own, "hak_heap_set_default_of_new_threads");
}
