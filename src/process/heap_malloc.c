/* Requests to user heaps, served from the thread's share. After waiting for a share's lock the thread checks it again: the heap
 * may have ended. */
#include "process/request.h"

#include <errno.h>

#include "base/assert.h"
#include "cache/cache.h"
#include "cache/large_cache.h"
#include "harden/harden.h"
#include "process/process.h"
#include "span/shield.h"
#include "upkeep/upkeep.h"
#include "userheap/bump.h"

enum { PRESSURE_CALLS = 16 }; /* per request */

/* The caller has locked the share. Sized frees expect just this class where a request names all of its bytes, being aligned, or no more
 * than half of them, being served by HAK_BUMP_INSTEAD. */
static void *share_take(struct hak_heap *share, uint32_t class, size_t n)
{
    void *block = NULL;
    uint32_t reasons = share->closed_reasons[class] & ~(uint32_t)HAK_CLOSED_PROFILED;
    if (reasons == HAK_CLOSED_LARGE)
        hak__large_cache_answer(&share->large_cache);
    size_t size = hak__classes[class].size;
    if (reasons == HAK_CLOSED_LARGE && n <= HAK_LARGE_MAX && hak_likely(!hak__hardened.on))
        block = n == size || n <= size / 2 ? hak__large_cache_pop(share, class) : hak__large_cache_pop_near(share, class);
    if (block == NULL)
        return hak__heap_malloc(share, class, n);
    hak__mark_live(block);
    return block;
}

static void *take_attached(struct hak_heap *mine, struct hak_uheap *own, uint32_t class, size_t n, const char *function)
{
    struct hak_heap *share;
    do {
        share = hak__uheap_attach(mine, own, function);
        if (share == NULL)
            return NULL;
    } while (hak_unlikely(!hak__heap_lock(share))); /* a forked child had to abandon it */
    bool still = hak_peek(&share->own) == own;
    void *block = still ? share_take(share, class, n) : NULL;
    hak__heap_unlock(share);
    if (!still)
        hak__uheap_misuse(own, function);
    return block;
}

/* A block out of the spans of a share that another thread may have, so that its bins are not touched. The caller has locked it. */
static void *take_apart(struct hak_heap *share, uint32_t class, size_t n)
{
    void *block = NULL;
    if (hak_unlikely(hak__hardened.on)) /* the bins are closed, and used under the lock */
        return hak__heap_malloc(share, class, n);
    hak_count(&share->classes[class].mallocs, (share->closed_reasons[class] & HAK_CLOSED_EXACT) != 0);
    if (hak__heap_take(share, class, &block, 1) != 0)
        hak__mark_live(block);
    return block;
}

/* For a thread without a share of the heap: because it has no heap, or others have as many as the limit allows, or the limit lets no
 * share grow. */
static hak_cold void *take_borrowed(struct hak_uheap *own, uint32_t class, size_t n, const char *function)
{
    struct hak_heap *share = hak__uheap_borrow(own, function);
    if (share == NULL)
        return NULL;
    void *block = NULL;
    for (; share != NULL && block == NULL; share = share->share.next)
        if (hak__heap_lock(share)) {
            block = take_apart(share, class, n);
            hak__heap_unlock(share);
        }
    hak__lock_release(&own->lock);
    return block;
}

/* Returns whether to retry. If the account still counts `refused` refusals, the system refused: frees memory once. Otherwise its limit
 * did, or that of a heap above: returns the cached memory of that heap and those below, then asks the program. */
static hak_cold bool own_relieve(struct hak_uheap *own, struct hak_heap *mine, uint64_t refused, size_t want, unsigned tries)
{
    if (hak_load(&own->account.refused, HAK_RELAXED) == refused) {
        hak__request_relieve(want);
        return tries == 0;
    }
    struct hak_uheap *full = hak__uheap_of_account(hak_load(&own->account.refused_by, HAK_RELAXED));
    if (tries == 0) {
        hak__uheap_squeeze(mine, full);
        return true;
    }
    return tries <= PRESSURE_CALLS
        && hak__uheap_ask(full->pressure, full, hak_load(&full->account.used, HAK_RELAXED),
                          hak_load(&full->account.limit, HAK_RELAXED), want, full->argument);
}

void *hak__uheap_alloc_class(struct hak_uheap *own, uint32_t class, size_t n, const char *function)
{
    int saved = errno;
    struct hak_heap *mine;
    uint64_t refused;
    void *block;
    unsigned tries = 0;
    hak_assert(class < HAK_CLASSES && n <= hak__classes[class].size, "a class has room for the request");
    if (hak_unlikely(class == HAK_BUMP_CLASS && hak__bump_has(own)) && !hak__hardened.on)
        class = HAK_BUMP_INSTEAD;
    do {
        mine = hak__request_heap(); /* the callback may have forked, and the child abandoned it */
        refused = hak_load(&own->account.refused, HAK_RELAXED);
        block = hak_likely(mine != NULL) ? take_attached(mine, own, class, n, function) : NULL;
        if (hak_unlikely(block == NULL) && (mine == NULL || hak__uheap_is_alive(own)))
            block = take_borrowed(own, class, n, function);
    } while (hak_unlikely(block == NULL) && own_relieve(own, mine, refused, n, tries++));
    hak__request_end(mine);
    if (hak_unlikely(block == NULL))
        return hak__no_memory();
    errno = saved;
    return block;
}

void *hak__uheap_alloc_huge(struct hak_uheap *own, size_t n, size_t align, bool *zero, const char *function)
{
    struct hak_heap *mine;
    uint64_t refused;
    void *block;
    unsigned tries = 0;
    if (!hak__uheap_expect(own, function))
        return hak__fail(EINVAL);
    do {
        mine = hak__request_heap();
        refused = hak_load(&own->account.refused, HAK_RELAXED);
        block = hak__uheap_huge_alloc(own, n, align, zero);
    } while (hak_unlikely(block == NULL) && own_relieve(own, mine, refused, n, tries++));
    hak__poll_huge(0, block != NULL ? n : 0);
    return block != NULL ? block : hak__no_memory();
}

static void *request_hardened(struct hak_uheap *own, size_t align, size_t n, bool *zero, const char *function)
{
    uint32_t class = hak__harden_class(align, n);
    *zero = hak__hardened.zero;
    if (class < HAK_CLASSES)
        return hak__uheap_alloc_class(own, class, n, function);
    if (n > PTRDIFF_MAX - HAK_SUPER_SIZE)
        return hak__no_memory();
    void *block = hak__uheap_alloc_huge(own, hak__harden_huge_room(n), hak_max(align, HAK_SUPER_SIZE), zero, function);
    if (block != NULL)
        hak__harden_huge_seal(block, n);
    return block;
}

static void *request_plain(struct hak_uheap *own, size_t align, size_t n, uint32_t class, bool *zero, const char *function)
{
    if (hak_unlikely(hak__is_hardened()))
        return request_hardened(own, align, n, zero, function);
    void *block = class < HAK_CLASSES
                    ? hak__uheap_alloc_class(own, class, align > HAK_ALIGN ? hak__classes[class].size : n, function)
                    : hak__uheap_alloc_huge(own, n, hak_max(align, HAK_SUPER_SIZE), zero, function);
    return hak__shield_note_aligned(block, align, n);
}

void *hak__uheap_request(struct hak_uheap *own, size_t align, size_t n, bool *zero, const char *function)
{
    uint32_t class = HAK_CLASSES;
    *zero = false;
    if (!hak__uheap_expect(own, function))
        return hak__fail(EINVAL);
    if (n > PTRDIFF_MAX || align > PTRDIFF_MAX)
        return hak__no_memory();
    align = hak_max(align, HAK_ALIGN);
    if (align > HAK_ALIGN)
        class = hak__aligned_class(align, n);
    else if (n <= HAK_LARGE_MAX)
        class = hak__class_of(n);
    if (hak_likely(!hak_load(&hak__hardened.open, HAK_RELAXED)))
        return request_plain(own, align, n, class, zero, function);
    void *block = class <= HAK_CLASS_MID_LAST ? hak__request_sample(own, align, n) : NULL;
    if (block != NULL)
        return block;
    block = request_plain(own, align, n, class, zero, function);
    if (class > HAK_CLASS_MID_LAST)
        hak__request_note(block, n);
    return block;
}
