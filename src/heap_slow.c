/* See heap_slow.h. A request goes to the thread's share; a free to the share of which the block is, under its lock unless the
 * thread has it. Who has waited for a share's lock looks again: the heap may have ended, or the block be another heap's. */
#include "heap_slow.h"

#include <errno.h>

#include "arena/limit.h"
#include "base/bits.h"
#include "base/forked.h"
#include "diag/report.h"
#include "guard/check.h"
#include "guard/exact.h"
#include "guard/harden.h"
#include "hardened.h"
#include "pointer.h"
#include "request.h"
#include "slab/shield.h"
#include "upkeep/step.h"

enum { PRESSURE_CALLS = 16 };   /* for one request */

/* --- malloc -------------------------------------------------------------------------------------------------------------- */

/* The share is entered. */
static void *share_take(struct hak_heap *share, uint32_t class, size_t n)
{
    void *block = NULL;
    uint32_t reasons = share->closed_reasons[class];
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
    struct hak_heap *share = hak__own_attach(mine, own, function);
    if (share == NULL)
        return NULL;
    hak__heap_lock(share);
    bool still = hak_peek(&share->own) == own;
    void *block = still ? share_take(share, class, n) : NULL;
    hak__heap_unlock(share);
    if (!still)
        hak__own_misuse(own, function);
    return block;
}

/* For a thread that has given its heap back already. */
static hak_cold void *take_borrowed(struct hak_own *own, uint32_t class, size_t n, const char *function)
{
    struct hak_heap *share = hak__thread_has_exited() ? hak__own_borrow(own, function) : NULL;
    if (share == NULL)
        return NULL;
    hak__heap_lock(share);
    void *block = share_take(share, class, n);
    hak__heap_unlock(share);
    hak__own_let(own, share);
    return block;
}

/* The limit has refused: what the heap has cached goes back, then the program is asked. Whether to try again. */
static hak_cold bool relieve(struct hak_own *own, struct hak_heap *mine, size_t want, unsigned tries)
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
             && relieve(own, mine, hak__classes[class].size, tries++));
    if (hak_likely(mine != NULL))
        hak__upkeep_poll(mine);
    hak__limit_deliver();
    hak__check_tick();
    if (hak_likely(block != NULL))
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
             && relieve(own, mine, n, tries++));
    hak__tick_huge(0, block != NULL ? n : 0);
    return block;
}

static void *request_hardened(struct hak_own *own, size_t align, size_t n, bool *zero, const char *function)
{
    uint32_t class = hak__harden_class(align, n);
    *zero = hak__hardened.zero;
    if (class < HAK_CLASSES)
        return hak__own_alloc_class(own, class, n, function);
    if (n > PTRDIFF_MAX - HAK_SUPER_SIZE)
        return NULL;
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
        return NULL;
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

/* --- free ---------------------------------------------------------------------------------------------------------------- */

/* The share is entered, and the block is of it. */
static void share_give(struct hak_heap *share, void *p, uint32_t word, bool mine, const char *function)
{
    uint32_t class = hak__owner_class_offset(word) / HAK_BIN_SIZE;
    if (hak__hardened_at(hak__slab_of(p)))
        hak__harden_free(share, p, word, function);
    else if (!mine)
        hak__heap_give(share, &p, 1, function);
    else if (share->closed_reasons[class] != 0)
        hak__closed_free(share, class, p, function);
    else if (!hak__cache_push(&share->bins[class], p))
        hak__cache_overflow(share, class, p, function);
}

static bool is_mine(const struct hak_heap *share)
{
    const struct hak_heap *mine = hak__heap_current();
    return (mine->mode & HAK_MODE_SENTINEL) == 0 && hak_load(&share->share.user, HAK_RELAXED) == mine;
}

/* The block has been checked. What a share that a forked child has given up would get is not used again. False: it is no block
 * of the share any more. */
static bool free_in(struct hak_heap *share, void *p, uint32_t word, const char *function)
{
    hak__heap_lock(share);
    bool still = hak__owner_of(p) == word;
    if (still && !hak__hardened_at(hak__slab_of(p)))
        hak__mark_freed(p);
    if (still && !hak__heap_is_lost(share))
        share_give(share, p, word, is_mine(share), function);
    hak__heap_unlock(share);
    return still;
}

/* Ends the program unless p is the start of a block in use in the span that the word names; false: nobody can use it. */
static bool check_own(void *p, uint32_t word, const char *function)
{
    if (hak__owner_class_offset(word) >= HAK_CLASS_OFFSET_LIMIT)
        hak__misuse_invalid(function, p, hak__why_invalid(p, word));
    if (hak__hardened_at(hak__slab_of(p))) {
        if (!hak__shield_lift(p))
            return false;
        hak__harden_size(p, word, function, NULL);
        return true;
    }
    const struct hak_slab *slab = &hak__window.map[hak__slab_of(p)];
    const struct hak_class *class = hak__class_at_offset(hak__owner_class_offset(word));
    if (!hak__begins_block(slab, class, p) || hak__looks_freed(p)) {
        hak__check_block(p, word, function, NULL);
        if (!hak__shield_lift(p))
            return false;
    }
    return true;
}

/* A heap that gives its blocks away while they are freed makes the word another one: then all is asked anew. */
hak_noinline void hak__own_free(void *p, const char *function)
{
    int saved = errno;
    hak__fork_check();
    hak__thread_watch_forks();
    uint32_t word = hak__owner_of(p);
    if (hak__owner_is_own(word)) {
        struct hak_heap *share = hak__heap_by_id(hak__owner_id(word));
        if (!check_own(p, word, function) || free_in(share, p, word, function)) {
            struct hak_heap *mine = hak__heap_current();
            if ((mine->mode & HAK_MODE_SENTINEL) == 0)
                hak__upkeep_poll(mine);
            errno = saved;
            return;
        }
    }
    hak_free(p);
    errno = saved;
}

hak_noinline void hak__own_free_full(void *p, size_t code, struct hak_heap *share)
{
    int saved = errno;
    hak__fork_check();
    uint32_t word = share->tag | (uint32_t)code;
    if (!free_in(share, p, word, "free")) {
        hak__mark_live(p);
        hak_free(p);
    }
    struct hak_heap *mine = hak__heap_current();
    if ((mine->mode & HAK_MODE_SENTINEL) == 0)
        hak__upkeep_poll(mine);
    errno = saved;
}
