/* Blocks of user heaps (userheap/userheap.h). A free puts them into their share, under its lock unless the thread has the share.
 * After waiting for the lock the thread checks again: the block may be another heap's, or none. */
#include <errno.h>

#include "base/assert.h"
#include "base/lock.h"
#include "cache/cache.h"
#include "diag/report.h"
#include "harden/harden.h"
#include "kinds/kind.h"
#include "process/process.h"
#include "process/request.h"
#include "profile/profile.h"
#include "span/shield.h"
#include "upkeep/upkeep.h"
#include "userheap/userheap.h"

/* The caller has locked the share, and the block is its own. */
static void share_give(struct hak_heap *share, void *p, uint32_t word, bool mine, const char *function)
{
    uint32_t class = hak__owner_class(word);
    if (hak__hardened_at(hak__slab_of(p)))
        hak__harden_free(share, p, word, function);
    else if (!mine)
        hak__heap_give(share, &p, 1, function);
    else
        hak__heap_free(share, class, p, function);
}

static bool is_mine(const struct hak_heap *share)
{
    const struct hak_heap *mine = hak__heap_mine();
    return (mine->mode & HAK_MODE_SENTINEL) == 0 && hak_load(&share->user, HAK_RELAXED) == mine;
}

/* Frees a checked block. A share that a forked child abandoned never reuses the block. False: it is no longer the share's. */
static bool free_in(struct hak_heap *share, void *p, uint32_t word, const char *function)
{
    bool locked = hak__heap_lock(share), still = hak__owner_of(p) == word, hardened = hak__hardened_at(hak__slab_of(p));
    if (still && !hardened)
        hak__mark_freed(p);
    else if (still && !locked)
        hak__harden_clear(NULL, p, hak__owner_class(word));
    if (still && locked)
        share_give(share, p, word, is_mine(share), function);
    if (locked)
        hak__heap_unlock(share);
    return still;
}

/* Whether to free p: reports a misuse unless it is the start of a block in use in the span that the word names; false also if access
 * to its pages is gone for good. */
static bool check_own(void *p, uint32_t word, const char *function)
{
    if (!hak__owner_has_class(word)) {
        hak__misuse_invalid(function, p, hak__why_invalid(p, word));
        return false;
    }
    if (hak__hardened_at(hak__slab_of(p)))
        return hak__shield_lift(p) && hak__harden_size(p, word, function, NULL) != HAK_NO_BLOCK;
    const struct hak_slab *slab = &hak__window.map[hak__slab_of(p)];
    if (!hak__begins_block(slab, p) || hak__looks_freed(p)) {
        bool usable = hak__shield_lift(p);
        return hak__check_block(p, word, function, NULL) && usable;
    }
    return true;
}

/* Forgets a sample that stays in place, before another thread may get the block. */
hak_inline void forget_sample(const void *p, uint32_t word)
{
    if (hak_unlikely(hak__profile_ever()) && hak__owner_class(word) >= HAK_CLASS_FIRST_LARGE)
        hak__profile_forget(p);
}

/* What the thread has given back to its share is idle memory of its heap's: only that polls. */
static void poll_mine(uint32_t word)
{
    struct hak_heap *mine = hak__heap_mine(), *share = hak__heap_by_id(hak__owner_id(word));
    if ((mine->mode & HAK_MODE_SENTINEL) != 0)
        return;
    size_t given = hak_load(&share->user, HAK_RELAXED) == mine ? hak_counted(&share->polling.idle_bytes) : 0;
    if (hak_unlikely(given >= HAK_POLLING_MUCH)) {
        hak__heap_idle_less(share, given);
        hak__heap_idle_more(mine, given);
        hak__polling_hurry(mine);
    }
    hak__upkeep_poll(mine);
}

hak_noinline bool hak__uheap_free(void *p, uint32_t word, const char *function)
{
    int saved = errno;
    hak_assert(hak__owner_is_own(word), "a share's");
    hak__fork_check();
    bool usable = check_own(p, word, function);
    if (usable)
        forget_sample(p, word);
    bool done = !usable || free_in(hak__heap_by_id(hak__owner_id(word)), p, word, function);
    poll_mine(word);
    errno = saved;
    return done;
}

hak_noinline bool hak__uheap_free_full(void *p, uint32_t word)
{
    int saved = errno;
    hak__fork_check();
    forget_sample(p, word);
    bool done = free_in(hak__heap_by_id(hak__owner_id(word)), p, word, "free");
    if (!done)
        hak__mark_live(p);
    poll_mine(word);
    errno = saved;
    return done;
}

static void user_heap_free(void *p, uint32_t word, const char *function)
{
    if (hak_unlikely(!hak__uheap_free(p, word, function))) /* its heap has given it away, or ended */
        word = hak__owner_of(p), hak__kind_of(p, word)->free(p, word, function);
}

/* A bump heap serves requests of one class by the next (userheap/bump.h). */
static void user_heap_check_size(const void *p, size_t align, size_t n, const char *function)
{
    bool instead = hak__owner_class(hak__owner_of(p)) == HAK_BUMP_INSTEAD && hak__bump_has(hak__uheap_of(p));
    if (!instead || !hak__class_has_size(HAK_BUMP_CLASS, align, n))
        hak__block_check_size(p, align, n, function);
}

/* No copy would come from another thread's share. One that the thread has left, as hak_collect does, or that an ended thread had, is idle. */
static bool user_heap_sparse(const void *p, uint32_t percent)
{
    struct hak_heap *mine = hak__heap_mine(), *share = hak__heap_by_id(hak__owner_id(hak__owner_of(p)));
    const struct hak_heap *user = hak_load(&share->user, HAK_RELAXED);
    struct hak_uheap *own = hak_peek(&share->own);
    if ((mine->mode & HAK_MODE_SENTINEL) != 0 || (user != mine && user != NULL) || own == NULL)
        return false;
    if (user == NULL && (share = hak__share_find(mine, own)) == NULL)
        share = hak__uheap_attach(mine, own, "hak_is_sparse");
    return share != NULL && hak__block_sparse(share, p, percent);
}

const struct hak_kind hak__kind_user_heap = {
    .free = user_heap_free,
    .usable = hak__block_usable,
    .check_size = user_heap_check_size,
    .lift = hak__block_lift,
    .heap = hak__uheap_of,
    .live = hak__block_live,
    .sparse = user_heap_sparse,
    .describe = hak__block_describe,
    .around = hak__block_start,
};
