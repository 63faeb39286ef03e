/* The life of user heaps: made, validated, emptied, merged, destroyed; and their huge blocks. */
#include "userheap/userheap.h"

#include <errno.h>
#include <string.h>

#include "arena/window.h"
#include "base/assert.h"
#include "base/bits.h"
#include "cache/cache.h"
#include "cache/large_cache.h"
#include "diag/report.h"
#include "harden/quarantine.h"
#include "harden/spans.h"
#include "huge/huge.h"
#include "os/os.h"

_Atomic bool hak__uheap_any;
_Atomic(const struct hak_regions *) hak__regions;

struct hak_lock hak__owns_lock = HAK_LOCK_INIT(HAK_RANK_OWNS);
_Atomic(struct hak_uheap *) hak__owns_first;
static struct hak_uheap *owns_gone; /* ended heaps, the latest first */
static _Atomic uint64_t owns_made;

/* --- trees ------------------------------------------------------------------------------------------------------------
 *
 * Of the links, which the list's lock covers, `first_child` and `next_child` are valid at every step of a change, for a child process that
 * is forked in the middle of it; `before_child` is a hint. */

static void tree_join(struct hak_uheap *own, struct hak_uheap *parent)
{
    own->before_child = own->first_child = NULL;
    own->account.above = parent == NULL ? NULL : &parent->account;
    own->depth = parent == NULL ? 1 : parent->depth + 1;
    if (parent == NULL)
        return;
    own->next_child = parent->first_child;
    hak_owner_store(&parent->first_child, own);
    if (own->next_child != NULL)
        own->next_child->before_child = own;
}

/* What its account still counts, of shares that a forked child could not end, is no heap's from then on. */
static void tree_leave(struct hak_uheap *own)
{
    struct hak_uheap *parent = hak__uheap_parent(own), *before = own->before_child, *next = own->next_child;
    if (parent == NULL)
        return;
    struct hak_uheap **link = before == NULL ? &parent->first_child : &before->next_child;
    if (*link != own)
        for (link = &parent->first_child; *link != own; link = &(*link)->next_child)
            hak_assert(*link != NULL, "a heap is among its parent's children");
    if (next != NULL)
        next->before_child = before;
    hak_owner_store(link, next);
    hak__account_give(&parent->account, hak_load(&own->account.used, HAK_RELAXED));
    own->account.above = NULL;
}

struct hak_uheap *hak__tree_next(const struct hak_uheap *root, struct hak_uheap *at)
{
    if (at->first_child != NULL)
        return at->first_child;
    while (at != root && at->next_child == NULL)
        at = hak__uheap_parent(at);
    return at == root ? NULL : at->next_child;
}

struct hak_uheap *hak__tree_default(struct hak_uheap *root)
{
    struct hak_uheap *own = root;
    if (hak_peek(&root->first_child) == NULL)
        return NULL;
    hak__lock_acquire(&hak__owns_lock);
    while ((own = hak__tree_next(root, own)) != NULL && hak_load(&own->standards, HAK_RELAXED) == 0)
        ;
    hak__lock_release(&hak__owns_lock);
    return own;
}

/* In a forked child a heap that another thread was ending is no longer alive, and only in the way. */
struct hak_uheap *hak__tree_leaf(struct hak_uheap *own)
{
    if (hak_peek(&own->first_child) == NULL)
        return own;
    hak__lock_acquire(&hak__owns_lock);
    for (struct hak_uheap *child; (child = own->first_child) != NULL;)
        if (hak__uheap_is_alive(child) || child->first_child != NULL)
            own = child;
        else
            tree_leave(child);
    hak__lock_release(&hak__owns_lock);
    return own;
}

/* --- beginning -------------------------------------------------------------------------------------------------------- */

/* Reuses an ended heap, or makes one; no other thread sees it as alive yet. */
static struct hak_uheap *owns_take(void)
{
    struct hak_uheap *own = owns_gone;
    if (own != NULL) {
        owns_gone = own->next_gone;
        return own;
    }
    own = hak__meta_alloc(sizeof *own);
    if (own == NULL)
        return NULL;
    own->lock.rank = HAK_RANK_OWN;
    hak_store(&own->magic, HAK_OWN_GONE, HAK_RELAXED);
    hak_store(&own->next, hak_load(&hak__owns_first, HAK_RELAXED), HAK_RELAXED);
    /* release: pairs with the acquire in hak__uheap_next; the fields above are written. */
    hak_store(&hak__owns_first, own, HAK_RELEASE);
    return own;
}

/* A reader meanwhile may see parts of both names; the last byte stays 0. */
void hak__uheap_rename(struct hak_uheap *own, const char *name)
{
    size_t length = name == NULL ? 0 : hak_text_within(name, sizeof own->name - 1);
    memset(own->name, 0, sizeof own->name);
    if (length != 0)
        memcpy(own->name, name, length);
}

static void set_options(struct hak_uheap *own, const struct hak_heap_options *options)
{
    hak__uheap_rename(own, options->name);
    own->cleanups = NULL;
    hak_store(&own->data, NULL, HAK_RELAXED);
    own->pressure = options->pressure;
    own->argument = options->argument;
    own->purge = options->purge;
    own->flags = options->flags;
    hak_store(&own->account.limit, options->limit == 0 ? SIZE_MAX : options->limit, HAK_RELAXED);
    hak_store(&own->account.used, 0, HAK_RELAXED);
    hak_store(&own->account.peak, 0, HAK_RELAXED);
    hak_store(&own->account.refused, 0, HAK_RELAXED);
    hak_store(&own->huge_bytes, 0, HAK_RELAXED);
    hak_store(&own->huge_count, 0, HAK_RELAXED);
    hak_store(&own->account.refused_by, &own->account, HAK_RELAXED);
    own->account.name = own->name;
    hak__samples_open(&own->samples, &own->account);
}

uint64_t hak__uheap_serial(void) { return hak_fetch_add(&owns_made, 1, HAK_RELAXED) + 1; }

struct hak_uheap *hak__uheap_new(const struct hak_heap_options *options)
{
    hak__lock_acquire(&hak__owns_lock);
    struct hak_uheap *parent = options->parent;
    bool valid = parent == NULL || (hak__uheap_is_alive(parent) && parent->depth < HAK_OWN_DEPTH);
    struct hak_uheap *own = valid ? owns_take() : NULL;
    if (own != NULL) {
        hak_store(&hak__uheap_any, true, HAK_RELAXED);
        own->serial = hak__uheap_serial();
        set_options(own, options);
        tree_join(own, parent);
        /* release: pairs with hak__uheap_is_alive. */
        hak_store(&own->magic, HAK_OWN_ALIVE, HAK_RELEASE);
    }
    hak__lock_release(&hak__owns_lock);
    if (own == NULL)
        errno = valid ? ENOMEM : EINVAL;
    return own;
}

struct hak_uheap *hak__uheap_next(struct hak_uheap *own)
{
    own = own == NULL ? hak_load(&hak__owns_first, HAK_ACQUIRE) : hak_load(&own->next, HAK_ACQUIRE);
    while (own != NULL && !hak__uheap_is_alive(own))
        own = hak_load(&own->next, HAK_ACQUIRE);
    return own;
}

bool hak__uheap_ask(hak_heap_pressure *callback, struct hak_uheap *heap, size_t used, size_t limit, size_t wanted, void *argument)
{
    if (callback == NULL || hak__thread_notes.in_callback)
        return false;
    int former = hak__os_cancel_state(PTHREAD_CANCEL_DISABLE);
    hak__thread_notes.in_callback = true;
    bool again = callback(heap, used, limit, wanted, argument) != 0;
    hak__thread_notes.in_callback = false;
    hak__os_cancel_state(former);
    return again;
}

/* --- misuse -------------------------------------------------------------------------------------------------------------- */

/* Heaps that this library has made lie in metadata, and most regions are known; of other addresses the system is asked. */
uint64_t hak__uheap_magic(const struct hak_uheap *own)
{
    const struct hak_regions *regions = hak_load(&hak__regions, HAK_ACQUIRE);
    bool aligned = (uintptr_t)own % sizeof(uint64_t) == 0, known = hak__meta_has(own) || (regions != NULL && regions->has(own));
    return aligned && (known || hak__os_readable((uintptr_t)own) != EFAULT) ? hak_load(&own->magic, HAK_ACQUIRE) : 0;
}

void hak__uheap_misuse(const struct hak_uheap *own, const char *function)
{
    uint64_t magic = hak__uheap_magic(own);
    hak__misuse(&(struct hak_mistake){ .kind = HAK_MISUSE_INVALID, .function = function, .p = own },
                magic == HAK_OWN_GONE        ? "%s(): heap %p has been destroyed"
                : magic == HAK_OWN_IN_REGION ? "%s(): heap %p is one in a region"
                : magic == HAK_OWN_ALIVE     ? "%s(): heap %p is in no region"
                                             : "%s(): %p is not a heap",
                function, (const void *)own);
}

bool hak__uheap_expect(const struct hak_uheap *own, const char *function)
{
    bool alive = hak__uheap_magic(own) == HAK_OWN_ALIVE;
    if (hak_unlikely(!alive))
        hak__uheap_misuse(own, function);
    return alive;
}

/* Takes the heap's lock; the heap cannot end while it is held. False: it is none, which has been reported. */
static bool own_lock(struct hak_uheap *own, const char *function)
{
    if (!hak__uheap_expect(own, function))
        return false;
    hak__lock_acquire(&own->lock);
    if (hak_likely(hak__uheap_is_alive(own)))
        return true;
    hak__lock_release(&own->lock);
    hak__uheap_misuse(own, function);
    return false;
}

/* --- cleanups --------------------------------------------------------------------------------------------------------------- */

void hak__cleanup_push(struct hak_uheap *own, struct hak_cleanup *cleanup)
{
    hak__lock_acquire(&own->lock);
    cleanup->next = own->cleanups;
    hak_owner_store(&own->cleanups, cleanup);
    hak__lock_release(&own->lock);
}

struct hak_cleanup *hak__cleanup_pop(struct hak_uheap *own, void (*function)(void *), const void *argument)
{
    hak__lock_acquire(&own->lock);
    struct hak_cleanup **link = &own->cleanups, *found;
    while ((found = *link) != NULL && function != NULL && (found->function != function || found->argument != argument))
        link = &found->next;
    if (found != NULL)
        hak_owner_store(link, found->next);
    hak__lock_release(&own->lock);
    return found;
}

/* --- huge blocks --------------------------------------------------------------------------------------------------------- */

/* Ordinary huge blocks (huge/huge.h), whose first slab's descriptor names the heap and links its list. The heap's lock covers the
 * list; a block is in it exactly while it is in use.
 *
 * The run's pages mapped for n bytes, as far as known beforehand. */
static size_t huge_wanted(size_t n) { return n > PTRDIFF_MAX ? n : hak_align_up(hak_max(n, 1), hak__page_size()); }

static void own_huge_count(struct hak_uheap *own, size_t bytes, bool came)
{
    hak_fetch_add(&own->huge_bytes, came ? bytes : 0 - bytes, HAK_RELAXED);
    hak_fetch_add(&own->huge_count, came ? 1 : (uint64_t)-1, HAK_RELAXED);
}

/* The caller holds own's lock, here and below. */
static void huge_link(struct hak_uheap *own, const void *p)
{
    size_t slab = hak__slab_of(p);
    hak_assert(hak__spans[slab].account == NULL || hak__spans[slab].account == HAK_SPAN_DESTROYED,
               "a new huge block is no heap's yet");
    hak_owner_store(&hak__spans[slab].account, own);
    own_huge_count(own, hak__huge_usable(p), true); /* first, and last below: forked in between, a child never counts too few */
    hak__owned_add(&own->first_huge, slab);
}

static void huge_unlink(struct hak_uheap *own, size_t slab)
{
    hak__owned_remove(&own->first_huge, slab);
    own_huge_count(own, hak__huge_usable(hak__slab_start(slab)), false);
    hak_owner_store(&hak__spans[slab].account, NULL); /* a free that races with a merge may read it */
}

void *hak__uheap_huge_alloc(struct hak_uheap *own, size_t n, size_t align, bool *zero)
{
    size_t want = huge_wanted(n);
    if (!hak__account_take(&own->account, want))
        return NULL;
    void *block = hak__huge_alloc(n, align, zero);
    if (block == NULL) {
        hak__account_give(&own->account, want);
        return NULL;
    }
    hak__lock_acquire(&own->lock);
    huge_link(own, block);
    hak__lock_release(&own->lock);
    return block;
}

/* Removes the block from the heap; with `give` its account gets the bytes back at once: after the unlock the heap may have been
 * merged, ended and restarted. Of two racing frees, the second finds the block off the list, or its word gone (huge.c). */
static void huge_claim(struct hak_uheap *own, void *p, bool give)
{
    size_t slab = hak__slab_of(p);
    hak__lock_acquire(&own->lock);
    if (hak__spans[slab].account == own && p == hak__slab_start(slab)) {
        huge_unlink(own, slab); /* first: a child forked in between must not give the bytes again */
        hak__account_give(&own->account, give ? hak__huge_usable(p) : 0);
    }
    hak__lock_release(&own->lock);
}

void hak__uheap_huge_free(struct hak_uheap *own, void *p, const char *function)
{
    huge_claim(own, p, true);
    hak__huge_free(p, function);
}

/* The block is in no list while it moves: no other thread may end the heap or use the block meanwhile. */
void *hak__uheap_huge_resize(struct hak_uheap *own, void *p, size_t n)
{
    size_t want = huge_wanted(n);
    if (want > hak__huge_usable(p) && !hak__account_take(&own->account, want - hak__huge_usable(p)))
        return NULL;
    size_t taken = hak_max(want, hak__huge_usable(p)), after;
    huge_claim(own, p, false);
    void *q = hak__huge_resize(p, n), *block = q != NULL ? q : p;
    if ((after = hak__huge_usable(block)) > taken && hak__account_try(&own->account, after - taken, true) != NULL) {
        hak__huge_resize(block, n); /* the limit leaves no room to grow ahead */
        after = hak__huge_usable(block);
        hak__account_try(&own->account, after - hak_min(after, taken), false);
    }
    if (after < taken)
        hak__account_give(&own->account, taken - after);
    hak__lock_acquire(&own->lock);
    huge_link(own, block);
    hak__lock_release(&own->lock);
    return q;
}

void hak__uheap_huge_end_all(struct hak_uheap *own, bool keep)
{
    while (own->first_huge != 0) {
        size_t slab = own->first_huge - 1;
        void *block = hak__slab_start(slab);
        huge_unlink(own, slab);
        hak__account_give(&own->account, hak__huge_usable(block));
        if (!keep)
            hak__huge_free(block, "hak_heap_destroy");
    }
}

/* --- ends ---------------------------------------------------------------------------------------------------------------- */

/* Skips shares that a forked child found half changed. A destroyed share belongs to its thread once it is marked so, and may
 * join another heap at once: if it is another thread's, it is not read afterwards. */
static void end_shares(struct hak_uheap *own, enum hak_share_end end)
{
    struct hak_heap *mine = hak__heap_mine();
    for (struct hak_heap *share = own->shares, *next; share != NULL; share = next) {
        next = share->share.next;
        const struct hak_heap *user = hak_load(&share->user, HAK_RELAXED);
        if (!hak__heap_lock(share))
            continue;
        hak__share_end_blocks(share, end, own->purge == HAK_HEAP_PURGE_AT_ONCE);
        hak__heap_unlock(share);
        if (end == HAK_SHARE_DESTROYED && user == NULL)
            hak__share_retire(share);
        else if (end == HAK_SHARE_DESTROYED && user == mine)
            hak__share_retire_mine(mine, share, own);
    }
}

bool hak__uheap_misuse_default(const struct hak_uheap *own, const char *function)
{
    hak__misuse(&(struct hak_mistake){ .kind = HAK_MISUSE_INVALID, .function = function, .p = own },
                "%s(): heap %p is still the default of a thread", function, (const void *)own);
    return false;
}

bool hak__uheap_destroy(struct hak_uheap *own, const char *function)
{
    if (!own_lock(own, function))
        return false;
    /* No thread attaches from here on. seq_cst: see standard_count. */
    hak_store(&own->magic, HAK_OWN_GONE, HAK_SEQ_CST);
    if (hak_load(&own->standards, HAK_SEQ_CST) != 0) {
        hak_store(&own->magic, HAK_OWN_ALIVE, HAK_RELEASE);
        hak__lock_release(&own->lock);
        return hak__uheap_misuse_default(own, function);
    }
    hak__samples_end(&own->samples, true, function);
    end_shares(own, HAK_SHARE_DESTROYED);
    hak__uheap_huge_end_all(own, false);
    own->shares = NULL;
    hak__lock_release(&own->lock);
    hak__lock_acquire(&hak__owns_lock);
    tree_leave(own);
    own->next_gone = owns_gone;
    owns_gone = own;
    hak__lock_release(&hak__owns_lock);
    return true;
}

/* The heap has no blocks. In a forked child that found shares and figures half changed, these are its own no longer. */
static void forget_lost(struct hak_uheap *own)
{
    for (struct hak_heap **link = &own->shares; *link != NULL;)
        if (hak_load(&(*link)->state, HAK_RELAXED) == HAK_HEAP_UNUSABLE)
            *link = (*link)->share.next;
        else
            link = &(*link)->share.next;
    hak_store(&own->huge_bytes, 0, HAK_RELAXED);
    hak_store(&own->huge_count, 0, HAK_RELAXED);
    hak__account_give(&own->account, hak_load(&own->account.used, HAK_RELAXED));
}

void hak__uheap_reset(struct hak_uheap *own, const char *function)
{
    if (!own_lock(own, function))
        return;
    if (hak_load(&own->account.used, HAK_RELAXED) == 0) { /* it has no blocks, and no bin of its shares has any */
        hak__lock_release(&own->lock);
        return;
    }
    hak__samples_end(&own->samples, false, function);
    end_shares(own, HAK_SHARE_EMPTIED);
    hak__uheap_huge_end_all(own, false);
    forget_lost(own);
    hak__lock_release(&own->lock);
}

/* --- merging ----------------------------------------------------------------------------------------------------------------- */

/* Once the map names the new owner, any thread may end a single-block span, so that comes last. */
static void share_move_span(struct hak_heap *from, struct hak_heap *to, struct hak_span *span)
{
    uint32_t class = span->class, blocks = hak__span_allocated(span);
    bool lists = !span->single && hak__span_has_blocks(span);
    if (span->listed)
        hak__heap_unlist(from, span);
    hak__owned_remove(&from->share.first_span, hak__span_slab(span));
    hak__account_give(from->share.account, hak__span_charge(span));
    hak__heap_large_moved(from, class, 0 - (size_t)blocks);
    hak__heap_large_moved(to, class, blocks);
    hak_count(&from->classes[class].refilled, 0 - (uint64_t)blocks);
    hak_count(&to->classes[class].refilled, blocks);
    hak_count(&from->classes[class].span_count, (uint64_t)-1);
    hak_count(&to->classes[class].span_count, 1);
    hak_count(&from->counts.slabs, 0 - (uint64_t)span->slabs);
    hak_count(&to->counts.slabs, span->slabs);
    span->account = span->keys == HAK_SPAN_HARDENED ? HAK_SPAN_MERGED : NULL;
    hak__span_change_owner(span, to->id);
    if (lists)
        hak__heap_list(to, span);
}

/* Another thread holds the share and may push to an open bin at any time, without the lock. Such bins keep their blocks as
 * another heap's until the thread gives them up. The bins behind closed ones are used under the lock. */
static void share_flush_closed(struct hak_heap *share)
{
    if (hak_unlikely(share->quarantine != NULL))
        hak__quarantine_flush(share, "free");
    for (uint64_t left = share->share.classes & hak_ones64(HAK_CLASS_FIRST_LARGE); left != 0; left &= left - 1) {
        uint32_t class = hak_ctz64(left);
        if (share->closed_reasons[class] != 0)
            hak__cache_drain(share, class, UINT32_MAX, "free");
        else
            share->foreign[class] = true; /* before a block can be in it */
    }
    hak__large_cache_flush(share);
    hak__outbox_flush(share, "free");
}

static void share_move_spans(struct hak_heap *share, struct hak_heap *into)
{
    hak__assigned_let_go(share);
    hak__heap_spare(share, HAK_CLASSES);
    while (share->share.first_span != 0) {
        struct hak_span *span = &hak__spans[share->share.first_span - 1];
        if (!hak__span_sleeps(span)) {
            share_move_span(share, into, span);
        } else {
            hak__span_unguard(span);
            hak__heap_end_span(share, span);
        }
    }
    share->sources.idle_classes = 0;
}

/* Moves the blocks of a share to `into`; the caller holds both locks. False: the share has left the heap, because another thread has it. */
static bool share_merge(struct hak_heap *share, struct hak_heap *into)
{
    const struct hak_heap *user = hak_load(&share->user, HAK_RELAXED);
    bool stays = user == NULL || user == into;
    if (stays)
        hak__cache_flush(share);
    else
        share_flush_closed(share);
    share_move_spans(share, into);
    if (stays)
        return true;
    share->share.merged = true;
    share->share.account = NULL;
    /* release: pairs with the acquire in hak__share_find. */
    hak_owner_store(&share->own, NULL);
    return false;
}

/* To a thread that does not exist in this forked child: it was changing the share, which cannot be merged. */
static bool own_lost_a_share(const struct hak_uheap *own)
{
    struct hak_heap *share = own->shares;
    while (share != NULL && !hak__heap_is_unusable(share))
        share = share->share.next;
    return share != NULL;
}

bool hak__uheap_merge(struct hak_uheap *own, struct hak_heap *into, const char *function)
{
    if (!own_lock(own, function))
        return true;
    uint32_t here = (into->share.standard == own) + (hak_load(&hak__uheap_inherited, HAK_RELAXED) == own);
    /* The bins of a thread whose default it is are open to it. */
    if (hak_load(&own->standards, HAK_RELAXED) > here || own_lost_a_share(own)) {
        hak__lock_release(&own->lock);
        return false;
    }
    hak__samples_merge(&own->samples);
    struct hak_heap **link = &own->shares, *share;
    while ((share = *link) != NULL) {
        struct hak_heap *next = share->share.next; /* do not read a share that has left the heap */
        if (!hak__heap_lock(share)) {
            link = &share->share.next;
            continue;
        }
        bool stays = share_merge(share, into);
        hak__heap_unlock(share);
        if (stays)
            link = &share->share.next;
        else
            *link = next;
    }
    hak__uheap_huge_end_all(own, true);
    hak__lock_release(&own->lock);
    return true;
}

struct hak_uheap *hak__uheap_of(const void *p)
{
    uint32_t word = hak__owner_of(p);
    if (word == hak__owner_huge())
        return hak__uheap_of_huge(hak__slab_of(p));
    return hak__owner_is_own(word) ? hak_peek(&hak__heap_by_id(hak__owner_id(word))->own) : NULL;
}

/* The sections under these locks leave the data valid at every step; shares that were locked are lost (heap/heap.c). */
void hak__uheap_fork_child(void)
{
    hak__lock_fork_child(&hak__owns_lock);
    hak__shares_fork_child();
    for (struct hak_uheap *own = hak_load(&hak__owns_first, HAK_ACQUIRE); own != NULL; own = hak_load(&own->next, HAK_ACQUIRE))
        hak__lock_fork_child(&own->lock), hak__samples_fork_child(&own->samples);
}
