/* The slow half of malloc: the bin is empty, or closed for a reason that decides where the block comes from. Called by
 * malloc.c. */
#include "malloc_slow.h"

#include "alloc.h"
#include "cache/large_cache.h"
#include "diag/latency.h"
#include "hardened.h"
#include "request.h"
#include "sample/sample.h"
#include "upkeep/polling.h"

/* A large block that the thread keeps. */
hak_inline void *alloc_kept(struct hak_heap *heap, uint32_t class)
{
    if (!hak__enter_own(heap))
        return NULL;
    void *block = hak__large_cache_pop_near(heap, class);
    hak__heap_unlock(heap);
    return block;
}

static void *alloc_timed(uint32_t class, size_t n)
{
    uint64_t started = hak__latency_begin();
    void *block = hak_likely(class < HAK_CLASSES) ? hak__alloc_class(class, n) : hak__alloc_huge(n, HAK_SUPER_SIZE, NULL);
    hak__latency_end(HAK_LATENCY_MALLOC, started);
    return hak_likely(block != NULL) ? block : hak__no_memory();
}

/* The process may be hardened or have blocks sampled, or not know yet. */
static hak_noinline void *malloc_rest(size_t n, uint32_t class)
{
    void *block;
    if (hak_unlikely(hak_load(&hak__hardened.open, HAK_RELAXED))) {
        if (hak__is_hardened())
            return hak__malloc_hardened(n);
        if (hak__sample_on() && (block = hak__sample_malloc(hak__heap_current(), n)) != NULL)
            return block;
    }
    return alloc_timed(class, n);
}

/* By why the bin of the class is closed; NULL: there is more to do. */
hak_inline void *closed_malloc(struct hak_heap *heap, uint32_t class)
{
    uint32_t reasons = heap->closed_reasons[class];
    if ((reasons & ~(uint32_t)HAK_CLOSED_POLLING) == HAK_CLOSED_LARGE)
        return alloc_kept(heap, class);
    return reasons == HAK_CLOSED_POLLING ? hak__polling_pop(heap, class) : NULL;
}

void *hak__malloc_slow(size_t n)
{
    if (n > HAK_LARGE_MAX)
        return malloc_rest(n, HAK_CLASSES);
    uint32_t class = hak__class_of(n);
    void *block = closed_malloc(hak__heap_current(), class);
    if (block == NULL)
        return malloc_rest(n, class);
    hak__mark_live(block);
    return block;
}
