/* The shares of user heaps: which thread holds each, and how they end. */
#include <string.h>

#include "arena/arena.h"
#include "arena/mapping.h"
#include "base/assert.h"
#include "base/bits.h"
#include "cache/cache.h"
#include "cache/large_cache.h"
#include "diag/options.h"
#include "diag/report.h"
#include "harden/quarantine.h"
#include "harden/spans.h"
#include "heap/heap.h"
#include "span/pool.h"
#include "span/shield.h"
#include "userheap/userheap.h"

/* Shares without heap and thread wait for the next one. The first takes over the counters of those that are given back. */
enum { SPARE_MOST = 16, TENDED = 4, SHARE_LIMIT = 1 << 20 }; /* a heap with a limit has a share per SHARE_LIMIT, and at least one */
static struct hak_lock spare_lock = HAK_LOCK_INIT(HAK_RANK_SPARE);
static struct hak_heap *spare_shares;
static uint32_t spare_count;

/* --- a share begins ---------------------------------------------------------------------------------------------------- */

/* The caller holds the spare lock, here and below. */
static void spare_push(struct hak_heap *share)
{
    share->share.next = spare_shares;
    spare_shares = share;
    spare_count++;
}

static struct hak_heap *spare_pop(void)
{
    struct hak_heap *share = spare_shares;
    if (share != NULL) {
        spare_shares = share->share.next;
        spare_count--;
    }
    return share;
}

/* Locks two spare shares, which other threads lock only for a moment; false: one is unavailable now. */
static bool spare_lock_both(struct hak_heap *one, struct hak_heap *other)
{
    if (!hak__heap_try_lock(one, HAK_OWNER))
        return false;
    if (hak__heap_try_lock(other, HAK_OWNER))
        return true;
    hak__heap_unlock(one);
    return false;
}

/* Gives one back if there are more than `most`. */
static bool spare_shrink(uint32_t most)
{
    if (spare_count <= most || spare_shares->share.next == NULL)
        return false;
    struct hak_heap *share = spare_pop(), *heir = spare_shares;
    bool locked = spare_lock_both(share, heir), gone = locked && hak__heap_give_back(share, heir);
    if (locked)
        hak__heap_unlock(heir);
    if (locked && !gone)
        hak__heap_unlock(share);
    if (!gone)
        spare_push(share);
    return gone;
}

static struct hak_heap *spare_take(void)
{
    hak__lock_acquire(&spare_lock);
    struct hak_heap *share = spare_pop();
    hak__lock_release(&spare_lock);
    return share;
}

void hak__share_retire(struct hak_heap *share)
{
    hak_assert(hak_peek(&share->own) == NULL && hak_load(&share->user, HAK_RELAXED) == NULL,
               "a spare share has neither heap nor thread");
    if (!hak__heap_lock(share))
        return;
    if (share->budget.in_process)
        hak__cache_park(share);
    hak__heap_unlock(share);
    hak__lock_acquire(&spare_lock);
    spare_push(share);
    spare_shrink(SPARE_MOST);
    hak__lock_release(&spare_lock);
}

bool hak__shares_spare_id(void)
{
    hak__lock_acquire(&spare_lock);
    bool gone = spare_shrink(1);
    hak__lock_release(&spare_lock);
    return gone;
}

/* The share takes no part in what threads' heaps do for each other: no common blocks, no parking. Locked, so that no child takes
 * it for a thread's heap. */
static struct hak_heap *share_new(void)
{
    struct hak_heap *share = hak__heap_new();
    if (share == NULL || !hak__heap_try_lock(share, HAK_SWEEPER))
        return NULL;
    share->tag = hak__owner_aged(0, share->id, 0) | HAK_CLASS_OFFSET_OWN;
    hak__cache_open(share, hak__cache_mode());
    share->mode |= HAK_MODE_SHARE | HAK_MODE_PROFILED; /* its large blocks may be the profiler's */
    hak__cache_park(share);
    hak_store(&share->state, HAK_HEAP_SHARE, HAK_RELEASE);
    hak__heap_unlock(share);
    return share;
}

/* --- the thread's table --------------------------------------------------------------------------------------------------
 *
 * Used only by the thread, or by the thread that parks its heap when it has ended. A child forked in the middle of a change finds it valid,
 * at worst without some of the shares. */

static size_t table_buckets(const struct hak_share_table *table)
{
    return table->buckets == NULL ? 0 : (size_t)1 << (64 - table->shift);
}

static void table_push(struct hak_heap **link, struct hak_heap *share)
{
    share->share.chained = *link;
    *link = share;
}

static struct hak_heap *table_pop(struct hak_heap **link)
{
    struct hak_heap *share = *link;
    *link = share == NULL ? NULL : share->share.chained;
    return share;
}

/* Removes a share of a heap, which may be ending meanwhile; false: it is not there. */
static bool table_remove(struct hak_heap *mine, const struct hak_heap *share, const struct hak_uheap *own)
{
    struct hak_share_table *table = &mine->shares;
    struct hak_heap **link = &table->buckets[hak__share_bucket(table, own)];
    while (*link != NULL && *link != share)
        link = &(*link)->share.chained;
    bool found = table_pop(link) != NULL;
    table->count -= found;
    if (mine->to_share == (const char *)share - (const char *)mine)
        hak__share_choose(mine, NULL);
    return found;
}

/* Without memory for more buckets their chains grow. */
static void table_grow(struct hak_share_table *table)
{
    size_t buckets = table_buckets(table);
    struct hak_share_table more = *table;
    more.buckets = hak__meta_alloc(2 * buckets * sizeof(struct hak_heap *));
    if (more.buckets == NULL)
        return;
    more.shift--;
    for (size_t i = 0; i < buckets; i++)
        for (struct hak_heap *share; (share = table_pop(&table->buckets[i])) != NULL;) {
            const struct hak_uheap *own = hak_peek(&share->own);
            table_push(own == NULL ? more.buckets : &more.buckets[hak__share_bucket(&more, own)], share);
        }
    table->buckets = more.buckets;
    table->shift = more.shift;
}

static void table_add(struct hak_heap *mine, struct hak_heap *share, const struct hak_uheap *own)
{
    struct hak_share_table *table = &mine->shares;
    if (table->buckets == NULL) {
        table->shift = 64 - hak_msb64(HAK_SHARE_BUCKETS);
        table->buckets = table->first;
    }
    if (table->count >= table_buckets(table))
        table_grow(table);
    table_push(&table->buckets[hak__share_bucket(table, own)], share);
    table->count++;
}

/* --- bins -------------------------------------------------------------------------------------------------------------- */

/* Empties a share's bins: their entries are no blocks any more. */
static void share_forget_bins(struct hak_heap *share)
{
    for (uint64_t left = share->share.classes; left != 0; left &= left - 1) {
        unsigned class = hak_ctz64(left);
        struct hak_bin *bin = hak__heap_bin(share, class);
        hak_owner_store(&bin->top, share->classes[class].bottom);
        share->foreign[class] = false;
    }
    bool large = share->share.classes >> HAK_CLASS_FIRST_LARGE != 0; /* else the cache's page stays untouched */
    if (large && share->large_cache.bytes != 0) {
        share->large_cache.classes = 0;
        hak_owner_store(&share->large_cache.bytes, 0);
    }
    if (large && share->large_cache.charged != 0)
        hak__cache_discharge_large(share);
}

/* --- coming and going ---------------------------------------------------------------------------------------------------- */

/* An idle share of the heap, whose lock the caller holds: the one that the thread with this heap has left, if there is one. */
static struct hak_heap *share_idle(struct hak_uheap *own, const struct hak_heap *mine)
{
    struct hak_heap *found = NULL;
    for (struct hak_heap *share = own->shares; share != NULL; share = share->share.next)
        if (hak_load(&share->user, HAK_RELAXED) == NULL && (found == NULL || share->share.chained == mine)
            && !hak__heap_is_unusable(share))
            found = share;
    return found;
}

/* Clears the bins of a share whose heap has ended: they hold nothing valid, or after a merge the process's blocks. Caller holds
 * the share's lock. */
static void share_clear_bins(struct hak_heap *share)
{
    if (share->share.merged)
        hak__cache_flush(share);
    share->share.merged = false;
    share_forget_bins(share);
    share->share.classes = 0;
}

/* Adds the share to the heap, whose lock the caller holds. False: a forked child had to abandon the share. */
static bool share_join(struct hak_uheap *own, struct hak_heap *share)
{
    if (!hak__heap_lock(share))
        return false;
    hak_assert(hak_peek(&share->own) == NULL && share->share.first_span == 0,
               "a share that joins a heap is of none, and has no spans");
    share_clear_bins(share);
    hak_assert(hak__cache_bytes(share) == 0, "only classes that have had spans have blocks in bins");
    share->share.account = &own->account;
    share->share.next = own->shares;
    own->shares = share;
    /* release: pairs with the acquire in hak__share_find. */
    hak_owner_store(&share->own, own);
    hak__heap_unlock(share);
    return true;
}

/* Pages that a thread's share has begun to use serve no other thread, so a small heap has few. Its other threads take blocks out of the
 * spans that there are, under the share's lock. */
static bool share_is_one_too_many(const struct hak_uheap *own)
{
    size_t limit = SIZE_MAX;
    for (const struct hak_account *account = &own->account; account != NULL; account = account->above)
        limit = hak_min(limit, hak_load(&account->limit, HAK_RELAXED));
    const struct hak_heap *share = own->shares;
    for (size_t left = limit / SHARE_LIMIT; share != NULL && left > 1; left--)
        share = share->share.next;
    return share != NULL;
}

static struct hak_heap *share_obtain(struct hak_uheap *own, const struct hak_heap *mine)
{
    struct hak_heap *share = share_idle(own, mine);
    if (share != NULL || share_is_one_too_many(own))
        return share;
    do
        if ((share = spare_take()) == NULL && (share = share_new()) == NULL)
            return NULL;
    while (hak_unlikely(!share_join(own, share)));
    return share;
}

/* The thread gives up the share. */
static void share_empty(struct hak_heap *share, bool lives)
{
    if (!hak__heap_lock(share))
        return;
    if (lives)
        hak__cache_flush(share);
    else
        share_clear_bins(share);
    hak__assigned_let_go(share);
    if (share->budget.in_process)
        hak__cache_park(share);
    hak__heap_unlock(share);
}

/* Empties the share, which is no longer in its thread's table, and leaves it to its heap, which may be ending. */
static void share_detach(struct hak_heap *share)
{
    struct hak_uheap *own = hak_peek(&share->own);
    if (hak_unlikely(share == hak__heap_current())) /* the default's: the next request makes one anew */
        hak__heap_set_current(&hak__sentinel);
    if (own != NULL)
        hak__lock_acquire(&own->lock);
    bool lives = own != NULL && hak_peek(&share->own) == own;
    share_empty(share, lives);
    share->share.chained = hak_exchange(&share->user, NULL, HAK_RELAXED);
    if (own != NULL)
        hak__lock_release(&own->lock);
    if (!lives && !hak__heap_is_unusable(share))
        hak__share_retire(share);
}

void hak__share_retire_mine(struct hak_heap *mine, struct hak_heap *share, const struct hak_uheap *own)
{
    hak_assert(hak_peek(&share->own) == NULL && hak_load(&share->user, HAK_RELAXED) == mine, "the thread's, whose heap has ended");
    if (table_remove(mine, share, own))
        share_detach(share);
}

/* Looks into buckets: leaves shares whose heaps others have ended, and while there are too many others, but not the new one. */
static void table_tend(struct hak_heap *mine, const struct hak_heap *new, size_t buckets)
{
    struct hak_share_table *table = &mine->shares;
    for (size_t i = 0; i < buckets; i++) {
        struct hak_heap **link = &table->buckets[table->hand++ & (table_buckets(table) - 1)], *share;
        while ((share = *link) != NULL) {
            bool ended = hak_peek(&share->own) == NULL;
            bool room = table->count <= HAK_OWN_ATTACHED || share == hak__heap_current();
            if (share == new || (!ended && room)) {
                link = &share->share.chained;
                continue;
            }
            table_pop(link);
            table->count--;
            share_detach(share);
        }
    }
}

/* A thread takes the share into use: its bins count against the process's budget again. They may have to shrink, which moves slots that
 * a sweeper may be reading. A share that a child has had to give up stays as it is: the caller cannot lock it either. */
static void share_unpark(struct hak_heap *share)
{
    if (share->budget.in_process || !hak__heap_lock(share))
        return;
    hak__cache_unpark(share);
    hak__heap_unlock(share);
}

static struct hak_heap *share_enter(struct hak_heap *mine, struct hak_uheap *own, const char *function, bool *full)
{
    hak__lock_acquire(&own->lock);
    if (!hak__uheap_is_alive(own)) {
        hak__lock_release(&own->lock);
        hak__uheap_misuse(own, function);
        return NULL;
    }
    struct hak_heap *share = share_obtain(own, mine);
    if (share != NULL)
        hak_store(&share->user, mine, HAK_RELAXED);
    *full = share == NULL && share_is_one_too_many(own);
    hak__lock_release(&own->lock);
    return share;
}

/* A share that the thread does not have yet; at worst one that it still has of a heap that another thread has ended. */
static struct hak_heap *share_attach(struct hak_heap *mine, struct hak_uheap *own, const char *function)
{
    bool full = false;
    struct hak_heap *share = share_enter(mine, own, function, &full);
    if (hak_unlikely(share == NULL) && !full && hak__uheap_is_alive(own)) {
        table_tend(mine, NULL, table_buckets(&mine->shares));
        share = share_enter(mine, own, function, &full);
    }
    if (share == NULL)
        return NULL; /* the heap has its shares, the system refuses, or the heap has ended */
    share_unpark(share);
    table_add(mine, share, own);
    hak__share_choose(mine, share);
    table_tend(mine, share, TENDED);
    return share;
}

struct hak_heap *hak__uheap_attach(struct hak_heap *mine, struct hak_uheap *own, const char *function)
{
    struct hak_heap *share = hak__share_find(mine, own);
    if (hak_unlikely(share != NULL && hak__heap_is_unusable(share))) {
        table_remove(mine, share, own);
        share = NULL;
    }
    if (share == NULL)
        share = share_attach(mine, own, function);
    else
        hak__share_choose(mine, share);
    if (hak_unlikely(own == mine->share.standard) && share != NULL && hak__heap_current() != mine)
        hak__heap_set_current(share);
    return share;
}

struct hak_heap *hak__uheap_borrow(struct hak_uheap *own, const char *function)
{
    if (!hak__uheap_expect(own, function))
        return NULL;
    hak__lock_acquire(&own->lock);
    struct hak_heap *share = !hak__uheap_is_alive(own) ? NULL : own->shares != NULL ? own->shares : share_obtain(own, NULL);
    if (share == NULL)
        hak__lock_release(&own->lock);
    return share;
}

void hak__uheap_leave(struct hak_heap *mine)
{
    struct hak_share_table *table = &mine->shares;
    hak__share_choose(mine, NULL);
    for (size_t i = 0; i < table_buckets(table); i++)
        for (struct hak_heap *share; (share = table_pop(&table->buckets[i])) != NULL; table->count--)
            share_detach(share);
}

/* Ends the chunk that a reset has left, if the share has not begun it. Nobody else uses the share. */
static void share_give_chunk(struct hak_heap *share)
{
    if (!hak__bump_is_kept(share))
        return;
    struct hak_span *span = hak__span_at(hak__slab_of(share->share.bump));
    share->share.bump = share->share.bump_end = NULL;
    hak__heap_end_span(share, span);
}

static void squeeze_one(struct hak_heap *mine, struct hak_uheap *own)
{
    struct hak_heap *held = mine == NULL ? NULL : hak__share_find(mine, own);
    if (held != NULL && table_remove(mine, held, own))
        share_detach(held);
    hak__lock_acquire(&own->lock);
    for (struct hak_heap *share = own->shares; share != NULL; share = share->share.next) {
        if (!hak__heap_lock(share))
            continue;
        if (hak_load(&share->user, HAK_RELAXED) == NULL) {
            hak__cache_flush(share);
            share_give_chunk(share);
        }
        hak__heap_spare(share, HAK_CLASSES);
        hak__heap_unlock(share);
    }
    hak__lock_release(&own->lock);
}

void hak__uheap_squeeze(struct hak_heap *mine, struct hak_uheap *root)
{
    hak__lock_acquire(&hak__owns_lock);
    for (struct hak_uheap *own = root; own != NULL; own = hak__tree_next(root, own))
        squeeze_one(mine, own);
    hak__lock_release(&hak__owns_lock);
}

/* --- ends ---------------------------------------------------------------------------------------------------------------- */

/* Marks a destroyed slab, so that reports can explain its addresses until they are reused. */
static void share_note_destroyed(struct hak_span *span)
{
    for (uint32_t i = 0; i < span->slabs && (i == 0 || span->blocks != 1); i++)
        span[i].account = HAK_SPAN_DESTROYED;
}

/* Adjacent slabs of a SuperSlab, which go back to the pool together. */
struct slab_run {
    size_t slab;
    unsigned slabs; /* 0: none */
};

static void slab_run_add(struct slab_run *run, size_t slab, unsigned slabs)
{
    bool near = slab / HAK_SUPER_SLABS == run->slab / HAK_SUPER_SLABS;
    bool joins = near && (slab + slabs == run->slab || slab == run->slab + run->slabs);
    if (!joins && run->slabs != 0)
        hak__pool_give(run->slab, run->slabs);
    *run = (struct slab_run){ joins ? hak_min(slab, run->slab) : slab, joins ? run->slabs + slabs : slabs };
}

static void share_end_with_blocks(struct hak_heap *share, struct hak_span *span, enum hak_share_end end, bool purge,
                                  struct slab_run *run)
{
    size_t bytes = hak__span_bitmap_bytes(&hak__classes[span->class]), slab = hak__span_slab(span);
    unsigned slabs = span->slabs;
    size_t whole = (size_t)slabs << HAK_SLAB_SHIFT;
    hak__span_unguard(span);
    hak_count(&share->classes[span->class].span_count, (uint64_t)-1);
    hak_count(&share->counts.slabs, 0 - (uint64_t)slabs);
    span->free_count = span->frontier; /* no block is allocated any more */
    bool bare = hak__super_is_bare(slab / HAK_SUPER_SLABS), usable = bare || hak__shield_lift_range(hak__slab_start(slab), whole);
    void *bitmaps = hak__span_destroy(span);
    if (end == HAK_SHARE_DESTROYED)
        share_note_destroyed(span);
    if (bitmaps != NULL)
        hak__bitmaps_give(share, bitmaps, bytes);
    if (!usable) /* the slabs stay claimed, without an owner */
        return;
    if (purge && !bare)
        hak__arena_purge_range(hak__slab_start(slab), whole, HAK_UNUSED_SLABS);
    slab_run_add(run, slab, slabs);
}

/* Makes all blocks unused again; the span's pages keep their contents. That of a chunk serves as the share's next one. */
static void share_rewind_span(struct hak_heap *share, struct hak_span *span)
{
    size_t half = span->words * sizeof(uint64_t);
    hak__owned_add(&share->share.first_span, hak__span_slab(span));
    memset(span->free, 0, half);
    for (uint32_t word = 0; word < span->words; word++)
        hak_store(&span->remote[word], 0, HAK_RELAXED);
    span->summary = 0;
    span->frontier = span->free_count = 0;
    span->fresh = span->purged = false;
    span->keys = HAK_SPAN_KEYS_WHOLE;
    span->changes++;
    span->account = share->share.account;
    hak__span_map_places(span);
    if (span->blocks != 1) {
        hak__heap_list(share, span);
        return;
    }
    share->share.bump = share->share.bump_end = memset(hak__span_start(span), 0, HAK_BUMP_BITS / 8);
}

/* Forgets all blocks, in bins, in quarantine and in the program's hands. */
static void share_forget_blocks(struct hak_heap *share)
{
    share_forget_bins(share);
    for (uint64_t left = share->share.classes; left != 0; left &= left - 1) {
        unsigned class = hak_ctz64(left);
        struct hak_heap_class *of = &share->classes[class];
        uint64_t live = hak_counted(&of->refilled) - hak_counted(&of->drained) - hak_counted(&of->collected);
        if (live != 0)
            hak_count(&of->drained, live);
        of->ramp /= 2; /* the next heap's blocks may be as many */
        if (of->spans != NULL)
            hak__heap_unlist_all(share, class);
    }
    share->share.bump = share->share.bump_end = NULL;
    share->sources.idle_classes = 0;
    share->large_out = 0;
    hak_store(&share->large_remote_freed, 0, HAK_RELAXED);
}

void hak__share_end_blocks(struct hak_heap *share, enum hak_share_end end, bool purge)
{
    if (hak_unlikely(share->quarantine != NULL))
        hak__quarantine_flush(share, "free");
    hak__assigned_let_go(share);
    uint32_t slab = share->share.first_span; /* blocks leaving the quarantine may have ended some */
    struct slab_run run = { 0, 0 };
    const char *kept = purge ? NULL : (char *)hak_align_down((uintptr_t)share->share.bump, HAK_SLAB_SIZE);
    size_t charged = 0;
    share->share.first_span = 0;
    share_forget_blocks(share);
    while (slab != 0) {
        struct hak_span *span = &hak__spans[slab - 1];
        slab = span->next_owned;
        charged += hak__span_charge(span);
        bool single = span->blocks == 1 && hak__span_start(span) != kept;
        if (end == HAK_SHARE_DESTROYED || single || span->keys == HAK_SPAN_HARDENED || hak_load(&span->shielded, HAK_RELAXED) != 0)
            share_end_with_blocks(share, span, end, purge, &run);
        else
            share_rewind_span(share, span);
    }
    if (run.slabs != 0)
        hak__pool_give(run.slab, run.slabs);
    hak__account_give(share->share.account, charged);
    if (end == HAK_SHARE_DESTROYED) {
        /* release: pairs with the acquire in hak__share_find. */
        hak_owner_store(&share->own, NULL);
        share->share.account = NULL;
    }
}

void hak__shares_fork_child(void) { hak__lock_fork_child(&spare_lock); }
