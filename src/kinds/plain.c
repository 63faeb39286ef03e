/* Plain and large blocks of threads' heaps. The slow half of free for blocks of spans: a full bin, another heap's block, one that looks
 * wrong. Called by free.c. */
#include <errno.h>

#include "base/assert.h"
#include "base/lock.h"
#include "cache/cache.h"
#include "cache/large_cache.h"
#include "diag/report.h"
#include "heap/heap.h"
#include "kinds/kind.h"
#include "process/request.h"
#include "profile/profile.h"
#include "span/shield.h"
#include "stats/stats.h"
#include "upkeep/upkeep.h"

/* --- the thread's own -------------------------------------------------------------------------------------------------------- */

static bool free_local(struct hak_heap *heap, uint32_t class, void *p, const char *function)
{
    if (!hak__heap_lock(heap))
        return false;
    hak__heap_free(heap, class, p, function);
    hak__heap_unlock(heap);
    hak__upkeep_poll(heap);
    return true;
}

void hak__free_verify(void *p, size_t class_offset, struct hak_heap *heap)
{
    uint32_t word = heap->tag | (uint32_t)class_offset;
    hak_assert(class_offset < HAK_CLASS_OFFSET_LIMIT && (heap->mode & HAK_MODE_SENTINEL) == 0, "a block of the thread's own heap");
    hak__kind_of(p, word)->free(p, word, "free");
}

/* Puts a large block into the thread's large cache; false if that takes more than a push. */
hak_inline bool free_to_cache(struct hak_heap *heap, uint32_t class, void *p)
{
    uint32_t turns = hak__large_cache_begin(&heap->large_cache);
    if (turns == 0)
        return false;
    bool cached = hak__large_cache_push_quickly(heap, class, p);
    hak__large_cache_end(&heap->large_cache, turns);
    return cached;
}

/* Frees according to the reasons for closing the bin; false: use the slow path. */
hak_inline bool free_despite_closed(struct hak_heap *heap, uint32_t class, void *p)
{
    uint32_t reasons = heap->closed_reasons[class];
    if ((reasons & ~(uint32_t)HAK_CLOSED_POLLING) == HAK_CLOSED_LARGE)
        return free_to_cache(heap, class, p);
    return reasons == HAK_CLOSED_POLLING && hak__polling_push(heap, class, p);
}

hak_inline uint32_t full_class(size_t class_offset)
{
    return hak__class_of_offset((struct hak_class_offset){ (uint32_t)class_offset });
}

/* Asks the kind what the block is, because its span's heap, its word or its content is unusual. */
static hak_noinline void free_by_kind(void *p, uint32_t word) { hak__kind_of(p, word)->free(p, word, "free"); }

/* Of the user heap that is the thread's default heap. */
static hak_noinline void free_share_full(void *p, uint32_t word)
{
    if (!hak__uheap_free_full(p, word))
        free_by_kind(p, hak__owner_of(p));
}

static hak_noinline void free_full_slow(void *p, size_t class_offset, struct hak_heap *heap)
{
    int saved = errno;
    if (hak_unlikely((heap->mode & HAK_MODE_SHARE) != 0)) {
        free_share_full(p, heap->tag | (uint32_t)class_offset);
        return;
    }
    uint64_t started = hak__latency_begin();
    if (hak_unlikely((heap->closed_reasons[full_class(class_offset)] & HAK_CLOSED_PROFILED) != 0))
        hak__profile_forget(p);
    if (hak_unlikely(!free_local(heap, full_class(class_offset), p, "free")))
        hak__free_unattached(p, hak__owner_of(p), "free");
    hak__request_end(NULL);
    hak__latency_end(HAK_LATENCY_FREE, started);
    errno = saved;
}

void hak__free_full(void *p, size_t class_offset, struct hak_heap *heap)
{
    if (!free_despite_closed(heap, full_class(class_offset), p))
        free_full_slow(p, class_offset, heap);
}

/* --- another heap's ----------------------------------------------------------------------------------------------------------- */

/* Caller holds the heap lock. */
static hak_noinline void free_remote(struct hak_heap *heap, uint32_t word, void *p)
{
    hak__outbox_add_slow(heap, p, word, "free");
    hak__heap_unlock(heap);
    hak__upkeep_poll(heap);
}

/* Frees a block that neither this thread's bin nor its outbox took. Where misuse is survived, that is every one (cache/outbox.c), and
 * it is marked at once: the mark stops a second free, by any thread, before the owner can hand the block out again. */
static hak_noinline void free_rest(void *p, uint32_t word, struct hak_heap *heap)
{
    int saved = errno;
    uint64_t started = hak__latency_begin();
    hak_assert(hak__names_span(word) && !hak__owner_is_own(word), "a block of another thread's span");
    hak__fork_check();
    if (hak_unlikely(hak__misuse_is_survived()) && !hak__mark_claims(p) && !hak__check_block(p, word, "free", NULL))
        return;
    heap = hak__heap_mine(); /* a forked child may have abandoned its heap */
    if (hak_unlikely(hak__profile_ever()))
        hak__profile_forget(p);
    if ((heap->mode & HAK_MODE_SENTINEL) != 0 || !hak__heap_lock(heap))
        hak__free_unattached(p, word, "free");
    else
        free_remote(heap, word, p);
    hak__latency_end(HAK_LATENCY_FREE, started);
    errno = saved;
}

/* Locks a heap in order to give it a block of its inherited span; false: the outbox has to do. Empties its bins first, once in each
 * child, unless they are another thread's: what they hold would keep spans, and serve requests from pages that the fork has copied. */
static bool enter_inherited(struct hak_heap *owner, struct hak_heap *mine)
{
    if (owner == mine ? !hak__heap_lock(owner) : !hak__enter_foreign(owner, 1))
        return false;
    bool idle = owner == mine || hak_load(&owner->state, HAK_RELAXED) == HAK_HEAP_PARKED;
    if (hak_unlikely(owner->generation != hak_read_mostly(&hak__window.generation)) && idle) {
        owner->generation = hak_read_mostly(&hak__window.generation);
        hak__cache_flush(owner);
    }
    return true;
}

/* Frees a block of an inherited span that does not look freed: at once, by its bit, so that a second free shows and no page is
 * copied. If the block is none, or its span has found another heap, the kind judges. */
static hak_noinline void give_inherited(void *p, uint32_t word, struct hak_heap *heap)
{
    int saved = errno;
    uint64_t started = hak__latency_begin();
    struct hak_heap *owner = hak__heap_by_id(hak__owner_id(word));
    if (hak_unlikely(!enter_inherited(owner, heap))) {
        free_rest(p, word, heap);
        return;
    }
    uint32_t index;
    const struct hak_span *span = hak__span_at(hak__slab_of(p));
    bool same = hak__owner_of(p) == word && hak__span_index(span, p, &index) == HAK_SPAN_OK && index < span->frontier;
    /* acquire: pairs with the release of the thread that freed it, in the parent. Its bit is not collected yet. */
    bool again = same && (hak_load(&span->remote[index / 64], HAK_ACQUIRE) >> index % 64 & 1) != 0;
    if (hak_unlikely(again)) {
        hak__misuse_double_free("free", p, hak__classes[span->class].size);
    } else if (hak_likely(same)) {
        if (hak_unlikely(hak__profile_ever()))
            hak__profile_forget(p);
        if (hak_unlikely((owner->mode & HAK_MODE_EXACT) != 0))
            hak_count(&owner->classes[hak__owner_class(word)].frees, 1);
        hak__heap_give_spared(owner, p, "free");
    }
    hak__heap_unlock(owner);
    if (hak_unlikely(!same))
        hak__kind_at(p)->free(p, hak__owner_of(p), "free");
    hak__request_end(same && (heap->mode & HAK_MODE_SENTINEL) == 0 ? heap : NULL);
    hak__latency_end(HAK_LATENCY_FREE, started);
    errno = saved;
}

/* Takes another heap's block into the bin for the thread's next request. */
hak_inline void free_absorb(struct hak_heap *heap, struct hak_class_offset offset, void *p)
{
    hak__mark_freed(p);
    hak__cache_absorb(heap, offset, p);
}

/* Puts another heap's block into the outbox. A sentinel has none, and that of a share stays empty. */
hak_inline bool free_post(struct hak_heap *heap, size_t slab, void *p)
{
    return hak_likely((heap->mode & HAK_MODE_APART) == 0) && hak__outbox_add_at(heap, slab, p);
}

/* Frees a block of the thread's heap or share; false: it does not look like one in use. */
hak_inline bool free_to(struct hak_heap *heap, void *p, struct hak_class_offset offset, const struct hak_slab *slab)
{
    if (hak_unlikely(!hak__begins_block(slab, p) || hak__looks_freed(p)))
        return false;
    hak__mark_freed(p);
    if (hak_unlikely(!hak__cache_push_at(heap, &offset, p)))
        hak__free_full(p, offset.bytes, heap);
    return true;
}

/* Frees a block of any share of the thread; false: it is none, or does not look like a block in use. */
static bool free_to_any_share(void *p, uint32_t word, const struct hak_heap *heap, const struct hak_slab *slab)
{
    hak_assert(hak__names_span(word), "a word of a span");
    struct hak_heap *share = hak__heap_by_id(hak__owner_id(word));
    return hak_load(&share->user, HAK_RELAXED) == heap && free_to(share, p, hak__owner_offset(word), slab);
}

/* Frees a block as if the thread had no default heap: to its own heap it is perhaps not another's. */
static hak_noinline void free_at_home(void *p, uint32_t word, const struct hak_slab *slab)
{
    struct hak_heap *home = hak__heap_mine();
    struct hak_class_offset offset = { word ^ home->tag };
    hak_assert((home->mode & HAK_MODE_APART) == 0, "the thread has a heap of its own");
    if (offset.bytes >= HAK_CLASS_OFFSET_LIMIT)
        hak__free_foreign(p, offset.bytes, home, slab);
    else if (hak_unlikely(!free_to(home, p, offset, slab)))
        hak__free_verify(p, offset.bytes, home);
}

static bool is_away(const struct hak_heap *heap)
{
    return (heap->mode & HAK_MODE_APART) != 0 && hak_read_mostly(&hak__thread_notes.home) != NULL;
}

/* What no outbox has taken. */
static hak_noinline void free_unposted(void *p, uint32_t word, struct hak_heap *heap, const struct hak_slab *slab)
{
    if (hak_unlikely(is_away(heap)))
        free_at_home(p, word, slab);
    else
        free_rest(p, word, heap);
}

/* Frees a block of a thread's span that is inherited, or that a thread without a heap frees. */
static hak_noinline void free_apart(void *p, uint32_t word, struct hak_heap *heap, const struct hak_slab *slab)
{
    uint32_t index;
    bool starts = !hak__shield_covers(p) && hak__span_index(hak__span_at(hak__slab_of(p)), p, &index) == HAK_SPAN_OK;
    if (hak__owner_is_inherited(word) && starts && !hak__looks_freed(p)) {
        if (hak__shield_lift(p)) /* its pages may be read-only */
            give_inherited(p, word, heap);
    } else if ((heap->mode & HAK_MODE_SENTINEL) != 0 && hak__begins_block(slab, p)) {
        free_rest(p, word, heap);
    } else {
        free_by_kind(p, word);
    }
}

static hak_noinline void free_of_span(void *p, uint32_t word, struct hak_heap *heap, const struct hak_slab *slab)
{
    if (hak_unlikely(is_away(heap)))
        free_at_home(p, word, slab);
    else if (!hak__owner_is_own(word))
        free_apart(p, word, heap, slab);
    else if (!free_to_any_share(p, word, heap, slab))
        free_by_kind(p, word);
}

/* What free_share does not take, in its argument order, so that its fast path moves none. `share_diff` is the slab's word ^ the share's
 * tag. */
static hak_noinline void free_other(void *p, size_t share_diff, struct hak_heap *heap, const struct hak_slab *slab)
{
    uint32_t word = (uint32_t)share_diff ^ heap->share_tag ^ heap->tag;
    if (hak__names_span(word))
        free_of_span(p, word, heap, slab);
    else
        free_by_kind(p, word);
}

/* Frees a block of the share that the thread used last (userheap/userheap.h) like one of its own. */
static hak_noinline void free_share(void *p, size_t owner_diff, struct hak_heap *heap, const struct hak_slab *slab)
{
    struct hak_heap *share = (struct hak_heap *)((char *)heap + heap->to_share);
    struct hak_class_offset offset = { (uint32_t)owner_diff ^ heap->share_tag };
    if (hak_unlikely(offset.bytes >= HAK_CLASS_OFFSET_LIMIT || !free_to(share, p, offset, slab)))
        free_other(p, offset.bytes, heap, slab);
}

/* Whether the slab has a class and this process's generation; owner_diff is its word ^ the heap's tag. Only 0 and the words of
 * threads' spans have a class without the user-heap bit. A tag has none, so the difference has the word's. */
hak_inline bool has_class(size_t owner_diff)
{
    uint32_t no_class = (1u << HAK_CLASS_OFFSET_BITS) - HAK_CLASS_OFFSET_LIMIT, generation = ~0u << HAK_GENERATION_SHIFT;
    return (owner_diff & (no_class | generation)) == 0;
}

/* The two frequent cases, absorbing a block and adding it to the outbox, call nothing, so no register has to be saved. A block
 * added to the outbox is not touched: its line may lie in another processor's cache, and its owner, the next to use it, checks
 * and marks it (docs/decisions/0069). */
void hak__free_foreign(void *p, size_t owner_diff, struct hak_heap *heap, const struct hak_slab *slab)
{
    if (hak_unlikely(!has_class(owner_diff))) {
        free_share(p, owner_diff, heap, slab);
        return;
    }
    struct hak_class_offset offset = hak__owner_offset((uint32_t)owner_diff);
    bool absorbs = owner_diff != heap->tag && hak__cache_absorbs(heap, offset);
    if (absorbs)
        hak__prefetch_mark(p); /* for writing: the check alone would fetch the line for reading, and the mark refetch it */
    if (hak_unlikely(owner_diff == heap->tag || !hak__begins_block(slab, p) || (absorbs && hak__looks_freed(p)))) {
        free_by_kind(p, (uint32_t)owner_diff ^ heap->tag);
        return;
    }
    size_t number = HAK_PROTECT ? (size_t)(slab - hak__window.map) : hak__slab_of(p);
    if (absorbs)
        free_absorb(heap, offset, p);
    else if (hak_unlikely(!free_post(heap, number, p)))
        free_unposted(p, (uint32_t)owner_diff ^ heap->tag, heap, slab);
}

/* A block of the window is the first that a forked child frees. */
void hak__free_outside(void *p)
{
    if (hak_likely(p == NULL))
        return;
    hak__fork_check();
    free_by_kind(p, hak__owner_of(p));
}

/* --- suspicious blocks --------------------------------------------------------------------------------------------------------- */

/* The heap's state decides. If the program has revoked access to the pages for good, nothing is left to do. */
hak_noinline void hak__free_block(void *p, uint32_t word, const char *function)
{
    hak_assert(hak__names_span(word) && !hak__owner_is_own(word), "a block of a thread's span");
    bool usable = hak__shield_lift(p);
    if (!hak__check_block(p, word, function, NULL) || !usable)
        return;
    struct hak_heap *heap = hak__heap_mine();
    struct hak_class_offset offset = hak__owner_offset(word);
    if ((word ^ heap->tag) < HAK_CLASS_OFFSET_LIMIT) {
        hak__mark_freed(p);
        if (!hak__cache_push_at(heap, &offset, p))
            hak__free_full(p, offset.bytes, heap);
    } else if (hak__owner_is_inherited(word)) {
        give_inherited(p, word, heap);
    } else if (hak__cache_absorbs(heap, offset)) {
        free_absorb(heap, offset, p);
    } else if (!free_post(heap, hak__slab_of(p), p)) {
        free_rest(p, word, heap);
    }
}

static bool plain_sparse(const void *p, uint32_t percent)
{
    struct hak_heap *mine = hak__heap_mine();
    return (mine->mode & HAK_MODE_SENTINEL) == 0 && hak__block_sparse(mine, p, percent);
}

const struct hak_kind hak__kind_plain = {
    .free = hak__free_block,
    .usable = hak__block_usable,
    .check_size = hak__block_check_size,
    .lift = hak__block_lift,
    .live = hak__block_live,
    .sparse = plain_sparse,
    .describe = hak__block_describe,
    .around = hak__block_start,
};

/* --- large blocks ----------------------------------------------------------------------------------------------------- */

/* They grow into free neighbours, and release slabs to shrink. */

/* Counts the part cut off for upkeep, like any freed memory. */
static void *large_resize(void *p, size_t have, size_t n, enum hak_resize how)
{
    hak_assert(have > HAK_MID_MAX && have <= HAK_LARGE_MAX, "a large block");
    struct hak_heap *heap = hak__heap_mine();
    bool mine = hak__owner_id(hak__owner_of(p)) == heap->id;
    if (n <= HAK_MID_MAX && how == HAK_RESIZE_WASTEFUL)
        n = HAK_MID_MAX + 1;
    if (!mine || n <= HAK_MID_MAX || n > HAK_LARGE_MAX || !hak__heap_lock(heap))
        return NULL;
    bool done = hak__large_resize_owner(heap, p, hak__class_of(n));
    while (!done && hak__large_cache_clear_behind(heap, p)) /* the block behind was only cached */
        done = hak__large_resize_owner(heap, p, hak__class_of(n));
    hak__heap_unlock(heap);
    if (done && n < have)
        hak__poll_huge(have - n, 0);
    return done ? p : NULL;
}

const struct hak_kind hak__kind_large = {
    .free = hak__free_block,
    .usable = hak__block_usable,
    .check_size = hak__block_check_size,
    .resize = large_resize,
    .lift = hak__block_lift,
    .live = hak__block_live,
    .describe = hak__block_describe,
    .around = hak__block_start,
};
