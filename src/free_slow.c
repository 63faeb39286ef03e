/* The slow half of free: a full bin, another heap, a huge block, a report. Called by free.c. */
#include "free_slow.h"

#include <errno.h>

#include "base/forked.h"
#include "cache/large_cache.h"
#include "cache/outbox.h"
#include "diag/latency.h"
#include "diag/report.h"
#include "guard/check.h"
#include "guard/exact.h"
#include "harden/harden.h"
#include "harden/zero_size.h"
#include "hardened.h"
#include "heap_slow.h"
#include "huge/huge.h"
#include "late.h"
#include "others.h"
#include "own/region.h"
#include "pointer.h"
#include "profile/profile.h"
#include "request.h"
#include "span/shield.h"
#include "upkeep/polling.h"
#include "upkeep/step.h"

static bool free_own(struct hak_heap *heap, uint32_t class, void *p, const char *function)
{
    if (!hak__heap_lock(heap))
        return false;
    if (heap->closed_reasons[class] != 0)
        hak__closed_free(heap, class, p, function);
    else
        hak__cache_overflow(heap, class, p, function);
    hak__heap_unlock(heap);
    hak__upkeep_poll(heap);
    return true;
}

/* A block that looks wrong to the fast path: the heap's own state tells, and misuse ends the program. False: the free ends here,
 * because the block was a hardened one, or because the program has taken its pages' rights for good. */
hak_inline bool free_verified(void *p, uint32_t word)
{
    if (hak__hardened_at(hak__slab_of(p))) {
        if (hak__shield_lift(p))
            hak__free_hardened(p, word);
        return false;
    }
    bool usable = hak__shield_lift(p);
    hak__check_block(p, word, "free", NULL);
    return usable;
}

void hak__free_verify(void *p, size_t class_offset, struct hak_heap *heap)
{
    uint32_t word = heap->tag | (uint32_t)class_offset;
    if (!free_verified(p, word))
        return;
    hak__mark_freed(p);
    if (!hak__cache_push(hak__bin_at(heap, hak__owner_offset(word)), p))
        hak__free_full(p, class_offset, heap);
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

/* Frees by the reasons for which the bin is closed; false: the slow path has to. */
hak_inline bool closed_free(struct hak_heap *heap, uint32_t class, void *p)
{
    uint32_t reasons = heap->closed_reasons[class];
    if ((reasons & ~(uint32_t)HAK_CLOSED_POLLING) == HAK_CLOSED_LARGE)
        return free_to_cache(heap, class, p);
    return reasons == HAK_CLOSED_POLLING && hak__polling_push(heap, class, p);
}

hak_inline uint32_t full_class(size_t class_offset) { return hak__class_of_offset((struct hak_class_offset){ (uint32_t)class_offset }); }

static hak_noinline void free_full_slow(void *p, size_t class_offset, struct hak_heap *heap)
{
    int saved = errno;
    uint64_t started = hak__latency_begin();
    if (hak_unlikely((heap->closed_reasons[full_class(class_offset)] & HAK_CLOSED_PROFILED) != 0))
        hak__profile_forget(p);
    if (hak_unlikely(!free_own(heap, full_class(class_offset), p, "free")))
        hak__free_unattached(p, hak__owner_of(p), "free");
    hak__check_poll();
    hak__latency_end(HAK_LATENCY_FREE, started);
    errno = saved;
}

void hak__free_full(void *p, size_t class_offset, struct hak_heap *heap)
{
    if (!closed_free(heap, full_class(class_offset), p))
        free_full_slow(p, class_offset, heap);
}

/* Caller holds the heap lock. */
static hak_noinline void free_remote(struct hak_heap *heap, uint32_t word, void *p)
{
    hak__outbox_add_slow(heap, p, word, "free");
    hak__heap_unlock(heap);
    hak__upkeep_poll(heap);
}

static hak_noinline void free_huge(void *p)
{
    struct hak_own *own = hak__own_of_huge(hak__slab_of(p));
    if (hak_unlikely(hak__hardened.on) && hak__shield_lift(p)) {
        size_t asked = hak__harden_huge_size(p, "free");
        if (asked != 0)
            hak__freed_hardened(p);
    }
    size_t bytes = hak__huge_usable(p);
    if (hak_unlikely(own != NULL))
        hak__own_huge_free(own, p, "free");
    else
        hak__huge_free(p, "free");
    hak__poll_huge(bytes, 0);
}

/* Neither this thread's bin nor its outbox has taken the block. */
static hak_noinline void free_rest(void *p, uint32_t word, struct hak_heap *heap)
{
    int saved = errno;
    uint64_t started = hak__latency_begin();
    hak__fork_check();
    heap = hak__heap_current();   /* a child may have had to leave its own */
    if (hak_unlikely(hak__profile_ever()))
        hak__profile_forget(p);
    if (hak__owner_id(word) == HAK_HEAP_ID_HUGE)
        free_huge(p);
    else if (word == 0)
        hak__free_outside(p);
    else if (!hak__owner_has_class(word))
        hak__misuse_invalid("free", p, hak__why_invalid(p, word));
    else if ((heap->mode & HAK_MODE_SENTINEL) != 0 || !hak__heap_lock(heap))
        hak__free_unattached(p, word, "free");
    else
        free_remote(heap, word, p);
    hak__latency_end(HAK_LATENCY_FREE, started);
    errno = saved;
}

/* Takes another heap's block into the bin, for the thread's own next request. */
hak_inline void free_absorb(struct hak_heap *heap, struct hak_class_offset offset, void *p)
{
    hak__mark_freed(p);
    hak__cache_absorb(heap, offset, p);
}

/* Puts another heap's block into the outbox. A sentinel has none. */
hak_inline bool free_post(struct hak_heap *heap, size_t slab, void *p)
{
    return hak_likely((heap->mode & HAK_MODE_SENTINEL) == 0) && hak__outbox_add_at(heap, slab, p);
}

/* Another heap's block that looks freed and is to be absorbed, or lies above the span's start bound as it was read; or any block of a
 * hardened span. This function and the next two take the same arguments in the same order, so that each reaches the next by a jump. */
static hak_noinline void free_foreign_verify(void *p, size_t owner_diff, struct hak_heap *heap)
{
    uint32_t word = (uint32_t)owner_diff ^ heap->tag;
    if (!free_verified(p, word))
        return;
    if (hak__cache_absorbs(heap, hak__owner_offset(word)))
        free_absorb(heap, hak__owner_offset(word), p);
    else if (!free_post(heap, hak__slab_of(p), p))
        free_rest(p, word, heap);
}

/* Lets the run of a huge block wait for the thread's next request; false: there is more to do. */
hak_inline bool free_huge_quickly(struct hak_heap *heap, void *p)
{
    if (hak_unlikely(hak__profile_ever()) || hak_unlikely(hak__own_of_huge(hak__slab_of(p)) != NULL))
        return false;
    return hak__huge_free_quickly(heap, p);
}

/* A huge block, an address that is no block, or a block that needs verifying. */
static hak_noinline void free_foreign_slow(void *p, size_t owner_diff, struct hak_heap *heap)
{
    uint32_t word = (uint32_t)owner_diff ^ heap->tag;
    while (hak__owner_is_own(word)) {
        if (hak__own_free(p, word, "free"))
            return;
        word = hak__owner_of(p);   /* its heap has given it away, or ended */
    }
    if (hak__names_span(word))
        free_foreign_verify(p, word ^ heap->tag, heap);
    else if (word != hak__owner_huge() || !free_huge_quickly(heap, p))
        free_rest(p, word, heap);
}

static hak_noinline void free_share_full(void *p, size_t class_offset, struct hak_heap *heap)
{
    const struct hak_heap *share = (const struct hak_heap *)((char *)heap + heap->to_share);
    if (!hak__own_free_full(p, share->tag | (uint32_t)class_offset))
        free_foreign_slow(p, hak__owner_of(p) ^ heap->tag, heap);
}

/* A block of the share that the thread used last (own/own.h) is freed as one of its own; any other is looked at again. */
static hak_noinline void free_share(void *p, size_t owner_diff, struct hak_heap *heap, const struct hak_slab *slab)
{
    struct hak_heap *share = (struct hak_heap *)((char *)heap + heap->to_share);
    struct hak_class_offset offset = { (uint32_t)owner_diff ^ heap->share_tag };
    if (hak_unlikely(offset.bytes >= HAK_CLASS_OFFSET_LIMIT || !hak__begins_block(slab, hak__class_at_offset(offset), p)
                     || hak__looks_freed(p))) {
        free_foreign_slow(p, hak__owner_of(p) ^ heap->tag, heap);
        return;
    }
    hak__mark_freed(p);
    if (hak_unlikely(!hak__cache_push(hak__bin_at(share, offset), p)))
        free_share_full(p, offset.bytes, heap);
}

/* Whether the slab whose word ^ the heap's tag this is has a class, as only 0 and the words of threads' spans have without the bit
 * of a heap of one's own. A tag has none, so the difference has the word's. */
hak_inline bool has_class(size_t owner_diff)
{
    return (owner_diff & ((1u << HAK_CLASS_OFFSET_BITS) - HAK_CLASS_OFFSET_LIMIT)) == 0;
}

/* The two frequent cases, absorbing a block and adding it to the outbox, call nothing, so no register has to be saved. A block that
 * goes into the outbox is not touched: its line may lie in another processor's cache, and its owner, who will use it next, checks
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
        hak__prefetch_mark(p);   /* as a writer: the look would fetch the line for reading, and the mark ask others again */
    if (hak_unlikely(owner_diff == heap->tag || !hak__begins_block(slab, hak__class_at_offset(offset), p)
                     || (absorbs && hak__looks_freed(p)))) {
        free_foreign_slow(p, owner_diff, heap);
        return;
    }
    size_t number = HAK_PROTECT ? (size_t)(slab - hak__window.map) : hak__slab_of(p);
    if (absorbs)
        free_absorb(heap, offset, p);
    else if (hak_unlikely(!free_post(heap, number, p)))
        free_rest(p, (uint32_t)owner_diff ^ heap->tag, heap);
}

static hak_cold void free_nothing(void *p)
{
    hak__zero_size_free(p, "free");
    hak__freed_hardened(p);
}

void hak__free_outside(void *p)
{
    if (hak_likely(p == NULL))
        return;
    if (hak__is_sampled(p))
        hak__sampled_free(p, "free");
    else if (hak__zero_size_has(p))
        free_nothing(p);
    else if (hak__region_of(p) != NULL)
        hak__region_end(hak__region_of(p), p, "free");
    else if (hak__is_others(p))
        hak__others_free(p);
    else
        hak__misuse_invalid("free", p, hak__why_invalid(p, 0));
}
