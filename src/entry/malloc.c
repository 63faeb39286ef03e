/* malloc: its fast path, the class of a request and one pop (process/request.h); below, what remains if the bin is empty, or closed
 * for a reason that decides where the block comes from; and calloc. */
#include <string.h>

#include "cache/large_cache.h"
#include "hakmem.h"
#include "huge/huge.h"
#include "kinds/kind.h"
#include "process/process.h"
#include "process/request.h"
#include "profile/profile.h"
#include "upkeep/upkeep.h"

hak_export hak_fast_path void *hak_malloc(size_t n)
{
    void *block = hak__pop(n);
    return hak_likely(block != NULL) ? block : hak__malloc_slow(n);
}

/* --- the slow half -------------------------------------------------------------------------------------------------------- */

enum { CALLS_PER_HUGE = 8 };

/* Takes a large block that the thread has cached. */
hak_inline void *alloc_cached(struct hak_heap *heap, uint32_t class)
{
    uint32_t turns = hak__large_cache_begin(&heap->large_cache);
    if (turns == 0)
        return NULL;
    void *block = hak__large_cache_pop_near(heap, class);
    hak__large_cache_end(&heap->large_cache, turns);
    return block;
}

hak_inline void *alloc_any(size_t n, uint32_t class)
{
    return hak_likely(class < HAK_CLASSES) ? hak__alloc_class(class, n) : hak__alloc_huge(n, HAK_SUPER_SIZE, NULL);
}

/* The process is hardened or samples blocks, or does not know yet; this request is not sampled. */
static hak_cold void *malloc_open(size_t n, uint32_t class)
{
    void *block;
    if (hak__is_hardened())
        return hak__malloc_hardened(n);
    struct hak_heap *heap = hak__heap_current();
    uint32_t reasons =
        class < HAK_CLASSES ? heap->closed_reasons[class] & ~(uint32_t)(HAK_CLOSED_POLLING | HAK_CLOSED_PROFILED) : 0;
    block = reasons == HAK_CLOSED_LARGE ? alloc_cached(heap, class) : NULL;
    if (block == NULL)
        return alloc_any(n, class);
    hak__mark_live(block);
    return block;
}

static hak_noinline void *malloc_rest(size_t n, uint32_t class)
{
    if (hak_likely(!hak_load(&hak__hardened.open, HAK_RELAXED)))
        return alloc_any(n, class);
    /* acquire: pairs with the release at the start; no sample comes in question. */
    if (hak_load(&hak__hardened.quick, HAK_ACQUIRE) && !hak__profile_counts())
        return hak__malloc_hardened(n);
    void *block = n > HAK_MID_MAX || hak__profile_malloc_counts() ? NULL : hak__request_sample(NULL, HAK_ALIGN, n);
    if (block != NULL)
        return block;
    block = malloc_open(n, class);
    if (n > HAK_MID_MAX)
        hak__request_note(block, n);
    return block;
}

/* Allocates according to the reasons for closing the bin; NULL: use the slow path. */
hak_inline void *closed_malloc(struct hak_heap *heap, uint32_t class)
{
    uint32_t reasons = heap->closed_reasons[class];
    if ((reasons & ~(uint32_t)HAK_CLOSED_POLLING) == HAK_CLOSED_LARGE)
        return alloc_cached(heap, class);
    return reasons == HAK_CLOSED_POLLING ? hak__polling_pop(heap, class) : NULL;
}

/* --- while a profile counts ----------------------------------------------------------------------------------------------- */

/* The real bin is empty or the countdown has ended. The request is not counted yet. */
static hak_noinline void *malloc_counted_slow(size_t n)
{
    uint32_t class = hak__class_of(n);
    void *block = hak__request_sample(NULL, HAK_ALIGN, n);
    if (block != NULL)
        return block;
    struct hak_heap *heap = hak__heap_current();
    block = hak__cache_pop(&heap->bins[class]);
    if (block == NULL && (block = closed_malloc(heap, class)) == NULL)
        return malloc_rest(n, class);
    hak__mark_live(block);
    return block;
}

/* Serves every request up to the mid classes: the tables lead all of them to one empty bin. */
hak_inline void *malloc_counted(size_t n)
{
    struct hak_heap *heap = hak__heap_mine();
    int64_t left = heap->profile_left - (int64_t)n;
    if (hak_unlikely(left < 0 || !hak__profile_has_joined(heap)))
        return malloc_counted_slow(n);
    struct hak_class_offset offset = hak_likely(n <= HAK_TINY_MAX) ? hak__offset_of_tiny(n) : hak__offset_of_mid(n);
    void *block = hak__cache_pop_at(hak__heap_current(), offset);
    if (hak_unlikely(block == NULL))
        return malloc_counted_slow(n);
    heap->profile_left = left;
    hak__mark_live(block);
    return block;
}

hak_inline void *malloc_of_class(size_t n, uint32_t class)
{
    void *block = closed_malloc(hak__heap_current(), class);
    if (block == NULL)
        return malloc_rest(n, class);
    hak__mark_live(block);
    return block;
}

/* Takes a run that waits for the thread (arena/retained.h). Threads that use huge blocks make few calls, so each counts as
 * several of a poll. */
static hak_noinline void *malloc_huge(size_t n)
{
    struct hak_heap *heap = hak__heap_current();
    bool has = hak_likely((heap->mode & HAK_MODE_APART) == 0);
    bool plain = !hak_load(&hak__hardened.open, HAK_RELAXED) && (has || hak__request_is_plain(heap));
    void *block = hak_likely(plain) ? hak__huge_alloc_quickly(heap, n) : NULL;
    if (block == NULL)
        return malloc_rest(n, HAK_CLASSES);
    if (hak_likely(has)) {
        heap->polling.calls += CALLS_PER_HUGE;
        hak__upkeep_poll(heap);
    }
    return block;
}

/* Separate functions, so that hak__malloc_slow jumps to each. */
static hak_noinline void *malloc_large(size_t n) { return malloc_of_class(n, hak__class_of_offset(hak__offset_of_large(n))); }

static hak_noinline void *malloc_to_mid(size_t n)
{
    if (hak_unlikely(hak__profile_asked()))
        hak__profile_answer();
    return malloc_of_class(n, hak__class_of(n));
}

hak_fast_path void *hak__malloc_slow(size_t n)
{
    if (n > HAK_MID_MAX)
        return n > HAK_LARGE_MAX ? malloc_huge(n) : malloc_large(n);
    return hak__profile_malloc_counts() ? malloc_counted(n) : malloc_to_mid(n);
}

/* --- calloc ----------------------------------------------------------------------------------------------------------- */

/* Does not clear memory known to be zero. Simply clears tiny blocks. A larger block that was used before is cleared
 * too, because that costs less than the first touch of fresh pages (docs/decisions/0002); of a huge one only the SuperSlabs that
 * were used before (huge/huge.c). */
static hak_noinline void *calloc_above_tiny(size_t n)
{
    bool zero = false;
    void *block = NULL;
    if (hak_unlikely(hak_load(&hak__hardened.open, HAK_RELAXED))) {
        if (n <= HAK_MID_MAX && (block = hak__request_sample(NULL, HAK_ALIGN, n)) != NULL)
            return memset(block, 0, n);
        if (hak__is_hardened()) {
            block = hak__memalign_hardened(HAK_ALIGN, n, &zero);
            if (n > HAK_MID_MAX)
                hak__request_note(block, n);
            return block == NULL || zero ? block : memset(block, 0, n);
        }
    }
    if (n <= HAK_LARGE_MAX)
        block = hak__alloc_class_zeroed(hak__class_above_tiny(n), &zero);
    else
        block = hak__alloc_huge(n, HAK_SUPER_SIZE, &zero);
    if (hak_unlikely(hak__profile_counts()) && n > HAK_MID_MAX)
        hak__request_note(block, n);
    return zero || block == NULL ? block : memset(block, 0, n);
}

hak_export void *hak_calloc(size_t count, size_t size)
{
    size_t n;
    if (hak_unlikely(__builtin_mul_overflow(count, size, &n)))
        return hak__no_memory();
    if (hak_unlikely(n > HAK_TINY_MAX))
        return calloc_above_tiny(n);
    void *block = hak_malloc(n);
    return hak_likely(block != NULL) ? memset(block, 0, n) : NULL;
}
