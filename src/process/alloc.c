/* Called by malloc_slow.c, calloc.c, aligned.c and harden/kinds.c. */
#include "process/alloc.h"

#include "arena/limit.h"
#include "guard/check.h"
#include "guard/exact.h"
#include "harden/mode.h"
#include "huge/huge.h"
#include "process/request.h"
#include "process/start.h"
#include "upkeep/polling.h"
#include "upkeep/step.h"

/* For a thread that has returned its heap or finds none: the system refuses memory for a new one, or there are too many. */
static hak_cold void *alloc_late(uint32_t class, size_t n)
{
    struct hak_heap *heap = hak__exit_heap_lock();
    if (heap == NULL)
        return NULL;
    void *block = hak__heap_malloc(heap, class, n);
    hak__exit_heap_unlock();
    return block;
}

hak_inline void *alloc_class(uint32_t class, size_t n)
{
    struct hak_heap *heap = hak__request_enter();
    void *block = NULL;
    if (heap != NULL && hak_unlikely((heap->mode & HAK_MODE_REDIRECTED) != 0)) {
        hak__heap_unlock(heap);
        return hak__uheap_alloc_class(heap->share.standard, class, n, "malloc");
    }
    if (hak_likely(heap != NULL)) {
        block = hak__heap_malloc(heap, class, n);
        hak__heap_unlock(heap);
        hak__upkeep_poll(heap);
    } else if (hak__has_started()) {
        block = alloc_late(class, n);
    }
    hak__limit_deliver();
    hak__check_poll();
    return block;
}

static hak_cold void *alloc_class_again(uint32_t class, size_t n)
{
    if ((hak__heap_current()->mode & HAK_MODE_REDIRECTED) != 0) /* a redirected heap has done so already */
        return NULL;
    hak__request_relieve(hak__classes[class].size);
    void *block = alloc_class(class, n);
    return block != NULL ? block : hak__no_memory();
}

void *hak__alloc_class(uint32_t class, size_t n)
{
    void *block = alloc_class(class, n);
    return hak_likely(block != NULL) ? block : alloc_class_again(class, n);
}

void *hak__alloc_class_zeroed(uint32_t class, bool *zero)
{
    struct hak_heap *heap = hak__heap_current();
    *zero = false;
    if (heap->closed_reasons[class] != 0)
        return hak__alloc_class(class, hak__classes[class].size);
    void *block = hak__cache_pop(&heap->bins[class]);
    if (block != NULL) {
        hak__mark_live(block);
        return block;
    }
    if (hak__heap_lock(heap)) {
        block = hak__heap_take_zeroed(heap, class);
        hak__heap_unlock(heap);
        hak__limit_deliver();
    }
    *zero = block != NULL;
    return *zero ? block : hak__alloc_class(class, hak__classes[class].size);
}

void *hak__alloc_huge(size_t n, size_t align, bool *zero)
{
    if (hak_unlikely(n > PTRDIFF_MAX || align > PTRDIFF_MAX || !hak__start()))
        return hak__no_memory();
    struct hak_uheap *standard = hak__request_standard();
    if (hak_unlikely(standard != NULL))
        return hak__uheap_alloc_huge(standard, n, align, zero, "malloc");
    void *block = hak__huge_alloc(n, align, zero);
    if (hak_unlikely(block == NULL)) {
        hak__request_relieve(n);
        block = hak__huge_alloc(n, align, zero);
    }
    hak__poll_huge(0, block != NULL ? n : 0);
    return hak_likely(block != NULL) ? block : hak__no_memory();
}
