/* Requests of heaps of one's own: from the thread's share. A thread that has waited for a share's lock checks again: the heap
 * may have ended. See heap_slow.h. */
#include "heap_slow.h"

#include <errno.h>

#include "arena/limit.h"
#include "cache/cache.h"
#include "cache/large_cache.h"
#include "guard/check.h"
#include "guard/exact.h"
#include "harden/harden.h"
#include "hardened.h"
#include "request.h"
#include "thread.h"
#include "upkeep/polling.h"
#include "upkeep/step.h"

enum { PRESSURE_CALLS = 16 };   /* for one request */

/* The share is entered. */
static void *share_take(struct hak_heap *share, uint32_t class, size_t n)
{
    void *block = NULL;
    uint32_t reasons = share->closed_reasons[class];
    if (reasons == HAK_CLOSED_LARGE)
        hak__large_cache_answer(&share->large_cache);
    if (reasons == HAK_CLOSED_LARGE && n <= HAK_LARGE_MAX && hak_likely(!hak__hardened.on))
        block = n == hak__classes[class].size ? hak__large_cache_pop(share, class) : hak__large_cache_pop_near(share, class);
    if (block != NULL) {
        hak__mark_live(block);
        return block;
    }
    if (reasons != 0 || hak_unlikely(hak__hardened.on))
        return hak__closed_malloc(share, class, n);
    block = hak__cache_pop(&share->bins[class]);
    if (block == NULL)
        block = hak__cache_refill(share, class);
    if (hak_likely(block != NULL))
        hak__mark_live(block);
    return block;
}

static void *take_attached(struct hak_heap *mine, struct hak_own *own, uint32_t class, size_t n, const char *function)
{
    struct hak_heap *share;
    do {
        share = hak__own_attach(mine, own, function);
        if (share == NULL)
            return NULL;
    } while (hak_unlikely(!hak__heap_lock(share)));   /* a child has had to give it up */
    bool still = hak_peek(&share->own) == own;
    void *block = still ? share_take(share, class, n) : NULL;
    hak__heap_unlock(share);
    if (!still)
        hak__own_misuse(own, function);
    return block;
}

/* For a thread that has given its heap back already, or finds none. */
static hak_cold void *take_borrowed(struct hak_own *own, uint32_t class, size_t n, const char *function)
{
    struct hak_heap *share = hak__own_borrow(own, function);
    if (share == NULL)
        return NULL;
    void *block = NULL;
    if (hak__heap_lock(share)) {
        block = share_take(share, class, n);
        hak__heap_unlock(share);
    }
    hak__own_let(own, share);
    return block;
}

/* The limit has refused: what the heap has cached goes back, then the program is asked. Whether to try again. */
static hak_cold bool own_relieve(struct hak_own *own, struct hak_heap *mine, size_t want, unsigned tries)
{
    if (tries == 0) {
        if (mine != NULL)
            hak__own_leave(mine);
        hak__own_squeeze(own);
        return true;
    }
    if (own->pressure == NULL || tries > PRESSURE_CALLS)
        return false;
    return own->pressure(own, hak_load(&own->account.used, HAK_RELAXED), hak_load(&own->account.limit, HAK_RELAXED), want,
                         own->argument) != 0;
}

void *hak__own_alloc_class(struct hak_own *own, uint32_t class, size_t n, const char *function)
{
    int saved = errno;
    struct hak_heap *mine = hak__request_heap();
    uint64_t refused;
    void *block;
    unsigned tries = 0;
    do {
        refused = hak_load(&own->account.refused, HAK_RELAXED);
        block = mine != NULL ? take_attached(mine, own, class, n, function) : take_borrowed(own, class, n, function);
    } while (hak_unlikely(block == NULL) && hak_load(&own->account.refused, HAK_RELAXED) != refused
             && own_relieve(own, mine, hak__classes[class].size, tries++));
    if (hak_likely(mine != NULL))
        hak__upkeep_poll(mine);
    hak__limit_deliver();
    hak__check_poll();
    if (hak_unlikely(block == NULL))
        return hak__no_memory();
    errno = saved;
    return block;
}

void *hak__own_alloc_huge(struct hak_own *own, size_t n, size_t align, bool *zero, const char *function)
{
    struct hak_heap *mine = hak__request_heap();
    uint64_t refused;
    void *block;
    unsigned tries = 0;
    hak__own_expect(own, function);
    do {
        refused = hak_load(&own->account.refused, HAK_RELAXED);
        block = hak__own_huge_alloc(own, n, align, zero);
    } while (hak_unlikely(block == NULL) && hak_load(&own->account.refused, HAK_RELAXED) != refused
             && own_relieve(own, mine, n, tries++));
    hak__poll_huge(0, block != NULL ? n : 0);
    return block != NULL ? block : hak__no_memory();
}

static void *request_hardened(struct hak_own *own, size_t align, size_t n, bool *zero, const char *function)
{
    uint32_t class = hak__harden_class(align, n);
    *zero = hak__hardened.zero;
    if (class < HAK_CLASSES)
        return hak__own_alloc_class(own, class, n, function);
    if (n > PTRDIFF_MAX - HAK_SUPER_SIZE)
        return hak__no_memory();
    void *block = hak__own_alloc_huge(own, hak__harden_huge_room(n), hak_max(align, HAK_SUPER_SIZE), zero, function);
    if (block != NULL)
        hak__harden_huge_seal(block, n);
    return block;
}

void *hak__own_request(struct hak_own *own, size_t align, size_t n, bool *zero, const char *function)
{
    hak__own_expect(own, function);
    *zero = false;
    if (n > PTRDIFF_MAX || align > PTRDIFF_MAX)
        return hak__no_memory();
    if (hak_unlikely(hak__is_hardened()))
        return request_hardened(own, align, n, zero, function);
    uint32_t class = HAK_CLASSES;
    if (align > HAK_ALIGN)
        class = hak__aligned_class(align, n);
    else if (n <= HAK_LARGE_MAX)
        class = hak__class_of(n);
    if (class < HAK_CLASSES)
        return hak__own_alloc_class(own, class, align > HAK_ALIGN ? hak__classes[class].size : n, function);
    return hak__own_alloc_huge(own, n, hak_max(align, HAK_SUPER_SIZE), zero, function);
}
