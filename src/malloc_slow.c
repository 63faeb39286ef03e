/* The slow half of malloc: attach the thread, choose between the record's refill, a kept large block and a huge one, and
 * the ways of hardened, sampled, counted and armed heaps. Called by malloc.c, calloc.c and aligned.c. */
#include "malloc_slow.h"

#include "arena/limit.h"
#include "base/forked.h"
#include "diag/latency.h"
#include "guard/check.h"
#include "guard/exact.h"
#include "guard/sample.h"
#include "hardened.h"
#include "huge/huge.h"
#include "request.h"
#include "slab/freed.h"
#include "start.h"
#include "upkeep/armed.h"
#include "upkeep/step.h"

static void *alloc_from(struct hak_heap *heap, uint32_t class)
{
    void *block;
    hak__enter(heap);
    if (heap->classes[class].closed) {
        block = hak__closed_malloc(heap, class);
    } else {
        block = hak__cache_pop(&heap->records[class]);
        if (block == NULL)
            block = hak__cache_refill(heap, class);
    }
    hak__leave(heap);
    hak__upkeep_tick(heap);
    return block;
}

static hak_cold void *alloc_late(uint32_t class)
{
    struct hak_heap *heap = hak__late_heap_locked();
    if (heap == NULL)
        return NULL;
    void *block = alloc_from(heap, class);
    hak__late_heap_unlock();
    return block;
}

void *hak__alloc_class(uint32_t class)
{
    struct hak_heap *heap = hak__request_heap();
    void *block = NULL;
    if (hak_likely(heap != NULL))
        block = alloc_from(heap, class);
    else if (hak__thread_is_late())
        block = alloc_late(class);
    hak__limit_deliver();
    hak__check_tick();
    if (hak_likely(block != NULL))
        hak__mark_live(block);
    return block;
}

/* A large block that the thread keeps. In other modes than these two there is more to do. */
hak_inline void *alloc_kept(struct hak_heap *heap, uint32_t class)
{
    hak__fork_check();
    if (hak_unlikely((heap->mode & ~(uint32_t)HAK_MODE_ARMED) != 0 || heap != hak__heap_current()))
        return NULL;
    hak__enter(heap);
    void *block = hak__kept_pop_near(heap, class);
    hak__leave(heap);
    return block;
}

static hak_noinline void *alloc_huge(size_t n)
{
    void *block = hak__huge_alloc(n, HAK_SUPER_SIZE, NULL);
    hak__tick_huge(0, n);
    return block;
}

static hak_noinline void *malloc_rest(size_t n)
{
    void *block = NULL;
    if (hak_unlikely(hak_load(&hak__hardened.open, HAK_RELAXED))) {
        if (hak__is_hardened())
            return hak__malloc_hardened(n);
        if (hak__sample_on() && (block = hak__sample_malloc(hak__heap_current(), n)) != NULL)
            return block;
    }
    struct hak_heap *heap = hak__heap_current();
    if ((heap->mode & HAK_MODE_ARMED) != 0 && n <= HAK_MID_MAX)
        block = hak__armed_pop(heap, hak__class_of(n));
    if (block != NULL) {
        hak__mark_live(block);
        return block;
    }
    uint64_t started = hak__latency_begin();
    if (hak_likely(n <= HAK_LARGE_MAX))
        block = hak__alloc_class(hak__class_of(n));
    else if (n <= PTRDIFF_MAX && hak__start())
        block = alloc_huge(n);
    hak__latency_end(HAK_LATENCY_MALLOC, started);
    return hak_likely(block != NULL) ? block : hak__no_memory();
}

void *hak__malloc_slow(size_t n)
{
    void *block = NULL;
    if (n > HAK_MID_MAX && n <= HAK_LARGE_MAX)
        block = alloc_kept(hak__heap_current(), hak__class_above_tiny(n));
    if (block == NULL)
        return malloc_rest(n);
    hak__mark_live(block);
    return block;
}

void *hak__alloc_class_zeroed(uint32_t class, bool *zero)
{
    hak__fork_check();
    struct hak_heap *heap = hak__heap_current();
    *zero = false;
    if ((heap->mode & HAK_MODE_SENTINEL) != 0 || heap->classes[class].closed)
        return hak__alloc_class(class);
    void *block = hak__cache_pop(&heap->records[class]);
    if (block != NULL) {
        hak__mark_live(block);
        return block;
    }
    hak__enter(heap);
    block = hak__heap_take_zeroed(heap, class);
    hak__leave(heap);
    hak__limit_deliver();
    *zero = block != NULL;
    return *zero ? block : hak__alloc_class(class);
}
