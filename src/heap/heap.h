/* A heap is all that one thread owns: its bins (worked by cache/), its spans by class, its outbox, its pending stack.
 * Called by cache/, malloc_slow.c, free_slow.c, thread.c. A heap outlives its thread: it is parked, and a new thread takes it over.
 *
 * Who may touch what:
 *   bins                the owner thread; while the heap is parked, the holder of `lock`
 *   classes, bitmaps    the holder of `lock`: the owner in its slow paths, or a thread that sweeps idle heaps (before it asks for
 *                       new memory, or in a step of upkeep); a forked child's only thread takes over heaps that were not locked
 *   outbox              the owner appends without `lock`; all else under it (cache/outbox.h)
 *   pending, remote bits of the heap's spans    any thread
 *   counters            written by the owner, read by anyone (base/atomic.h, "shared plain")
 *
 * Invariants:
 *   1. a span is listed <=> it is this heap's and has blocks to give
 *   2. live blocks of a class, summed over all heaps = refilled - drained - collected - (top - bottom) - outbox
 *   3. bottom[-1] == NULL, bottom <= top <= end = bottom + capacity, unless the class is closed
 *   4. a span in the warm pool of its class is listed and good for a refill (warm.h); its `warm` says where it stands */
#pragma once

#include "arena/meta.h"
#include "base/forked.h"
#include "base/lock.h"
#include "heap/large.h"
#include "heap/share.h"
#include "heap/sources.h"
#include "heap/state.h"
#include "span/span.h"

enum hak_heap_state { HAK_HEAP_NEW, HAK_HEAP_ACTIVE, HAK_HEAP_PARKED, HAK_HEAP_UNUSABLE, HAK_HEAP_SHARE };
enum hak_heap_user { HAK_OWNER, HAK_SWEEPER };
enum hak_heap_left { HAK_LEFT_NOTHING, HAK_LEFT_NOW, HAK_LEFT_BEFORE };   /* before the last step of upkeep */

enum { HAK_WARM_MAX = 16 };

/* The part that the fast paths read; the sentinel has no other (cache/current.h). */
#define HAK_HEAP_FRONT \
    uint32_t tag; /* id << HAK_CLASS_OFFSET_BITS */ \
    uint32_t id; \
    uint32_t mode; /* HAK_MODE_... */ \
    _Atomic uint32_t lock; /* who is inside a slow path: a word as in base/lock.h; marked if as a HAK_SWEEPER */ \
    int64_t profile_left; /* bytes until the next request that is sampled (profile/sampler.c) */ \
    uint32_t profile_session; /* that profile's number */ \
    uint32_t share_tag; /* the tag of the share that the thread used last ^ this one; 0: none (own/own.h) */ \
    intptr_t to_share; /* it lies so many bytes from here */ \
    struct hak_own *own; /* of a share: the heap it is of now; NULL: of none */ \
    hak_line_aligned struct hak_bin bins[HAK_CLASS_LIMIT]; \
    void **absorb[HAK_CLASS_LIMIT]; /* while top is below this, blocks of other heaps are taken in; NULL: never */ \
    uint8_t foreign[HAK_CLASS_LIMIT]; /* the bin may hold blocks of other heaps */ \
    uint8_t closed_reasons[HAK_CLASS_LIMIT]; /* enum hak_closed_reason; 0: the bin is open */

struct hak_heap_front {
    HAK_HEAP_FRONT
};

/* The owner's counters; figures are sums over all heaps. */
struct hak_heap_counts {
    hak_counter remote_frees, remote_published, forwarded, adopted;
    hak_counter common_taken;           /* blocks that the common heaps have given */
    hak_counter runs_claimed;           /* runs of slabs found in SuperSlabs that were in slabs already */
    hak_counter stages[HAK_STAGES];     /* spans obtained, by where they came from */
    hak_counter slabs;                  /* of spans */
    hak_counter huge_allocated, huge_freed, huge_bytes;   /* by way of a run that waited (huge/huge.c); the last modulo 2^64 */
};

struct hak_heap {
    HAK_HEAP_FRONT
    /* slow paths */
    struct hak_slots slots;
    struct hak_outbox outbox;
    struct hak_budget budget;
    struct hak_polling polling;
    struct hak_sample_marks sample;
    struct hak_large_cache large_cache;
    struct hak_sources sources;
    struct hak_assigned assigned;
    struct hak_heap_counts counts;
    size_t large_out;                               /* bytes of large blocks that are allocated, and large_remote_freed */
    struct hak_quarantine *quarantine;              /* hardened mode: freed blocks that are not used again yet */
    _Atomic uint64_t thread;                        /* process << 32 | its thread's number; 0: none, or not asked */
    bool ending;                                    /* the thread has begun to run its destructors */
    uint32_t left;                                  /* blocks in the bins of a parked heap: enum hak_heap_left */
    _Atomic uint32_t state;                         /* enum hak_heap_state */
    _Atomic uint32_t parked_next;                   /* id of the next parked heap */
    struct hak_share share;                         /* heaps of one's own */
    /* the line that other threads write */
    hak_line_aligned _Atomic(struct hak_span *) pending;
    _Atomic size_t large_remote_freed;              /* bytes of large blocks that others have freed, spans and all */
    hak_line_aligned struct hak_heap_class classes[HAK_CLASSES];
    /* the warm pools, by slab; of each as much is touched as is used */
    uint32_t warm[HAK_CLASSES][HAK_WARM_MAX];
    /* last, because few threads ever touch it */
    hak_line_aligned struct hak_outbox_bucket outbox_buckets[HAK_OUTBOX_BUCKETS];
};
_Static_assert(sizeof(struct hak_heap) + 64 < HAK_HEAP_FIRST, "the slot area follows in the same stride");

/* The bin that really has the class's blocks, visible or hidden. */
hak_inline struct hak_bin *hak__heap_bin(struct hak_heap *heap, uint32_t class)
{
    return heap->closed_reasons[class] != 0 ? &heap->classes[class].hidden : &heap->bins[class];
}

/* Counts bytes of blocks given back, or taken. Under `lock`, or by the owner; if both do so at once, the figure is a little wrong, but
 * it only decides how soon upkeep comes. */
hak_inline void hak__heap_idle_more(struct hak_heap *heap, size_t bytes) { hak_count(&heap->polling.idle_bytes, bytes); }
hak_inline void hak__heap_idle_less(struct hak_heap *heap, size_t bytes)
{
    uint64_t idle = hak_counted(&heap->polling.idle_bytes);
    hak_store(&heap->polling.idle_bytes, bytes < idle ? idle - bytes : 0, HAK_RELAXED);
}

hak_inline bool hak__heap_is_share(const struct hak_heap *heap) { return heap->share.account != NULL; }

/* Whether a heap in this state has spans and bins that may be used. */
hak_inline bool hak__heap_is_open(uint32_t state) { return state != HAK_HEAP_NEW && state != HAK_HEAP_UNUSABLE; }

/* Whether a forked child has given the heap up, because it was half done. */
hak_inline bool hak__heap_is_unusable(struct hak_heap *heap) { return hak_load(&heap->state, HAK_RELAXED) == HAK_HEAP_UNUSABLE; }

/* The lock's place in the order, which only debug builds ask. */
hak_inline uint32_t hak__heap_rank(struct hak_heap *heap, enum hak_heap_user user)
{
    if (!HAK_DEBUG || HAK_LOCK_FIBERS)
        return HAK_RANK_HEAP;
    if (user == HAK_SWEEPER)
        return HAK_RANK_FOREIGN;
    return hak_load(&heap->state, HAK_RELAXED) == HAK_HEAP_SHARE ? HAK_RANK_SHARE : HAK_RANK_HEAP;
}

/* Gives the heap up for good. In a child that is being repaired, or by the holder of its lock, who does not release it. */
hak_inline void hak__heap_lose(struct hak_heap *heap)
{
    if (hak__lock_word_is_mine(&heap->lock))
        hak__lock_note(hak__heap_rank(heap, hak_load(&heap->lock, HAK_RELAXED) & HAK_LOCK_MARK), -1);
    hak_store(&heap->state, HAK_HEAP_UNUSABLE, HAK_RELAXED);
    hak_store(&heap->lock, HAK_LOCK_LOST, HAK_RELAXED);
}

/* Slow paths run between these two. The owner rarely waits: only while another thread collects for it. False: the heap is unusable. A
 * fork, in a handler, say, has brought the thread into a child where it has had to leave it, since the collecting thread does not exist
 * there. It then has another heap, or a sentinel; other heaps' callers do without. */
__attribute__((warn_unused_result)) hak_inline bool hak__heap_lock(struct hak_heap *heap)
{
    return hak__lock_word_take(&heap->lock, HAK_OWNER, hak__heap_rank(heap, HAK_OWNER));
}
hak_inline bool hak__heap_try_lock(struct hak_heap *heap, enum hak_heap_user user)
{
    return hak__lock_word_try(&heap->lock, user, hak__heap_rank(heap, user));
}
hak_inline void hak__heap_unlock(struct hak_heap *heap)
{
    hak_assert(hak__lock_word_is_mine(&heap->lock), "a thread unlocks a heap that it has locked");
    hak__lock_note(hak__heap_rank(heap, hak_load(&heap->lock, HAK_RELAXED) & HAK_LOCK_MARK), -1);
    hak_store(&heap->lock, HAK_LOCK_FREE, HAK_RELEASE);
}

/* Whether a thread that does not exist in this child, which is being repaired, was inside. */
hak_inline bool hak__heap_is_left(struct hak_heap *heap)
{
    bool in_large_cache = (hak_load(&heap->large_cache.owner_turns, HAK_RELAXED) & 1) != 0;   /* its owner; needs no lock there */
    return hak__lock_word_is_left(&heap->lock) || in_large_cache;
}

/* Whether a span of several blocks begins at the descriptor and is the heap's, which the caller has locked: then it neither ends nor
 * changes hands. Any thread may end a single-block span at any moment, and another heap may begin one there; the descriptor names no
 * owner of those (span/span.h), so nothing is asked twice. */
hak_inline bool hak__heap_has_span(struct hak_heap *heap, struct hak_span *span)
{
    hak_assert(hak__lock_word_is_mine(&heap->lock), "only the lock makes the answer last");
    return hak_load(&span->owner, HAK_RELAXED) == heap->id;
}

/* The way into another thread's heap, as a sweeper: false if the heap is not in use, or locked at each of so many tries. The owner may
 * be the one who was interrupted by the caller, so nobody tries for ever. */
hak_inline bool hak__enter_foreign(struct hak_heap *heap, unsigned tries)
{
    hak__fork_check();
    for (unsigned i = 0; i < tries; i++) {
        if (i != 0)
            hak__yield(i - 1);
        if (!hak__heap_is_open(hak_load(&heap->state, HAK_ACQUIRE)))
            return false;
        if (!hak__heap_try_lock(heap, HAK_SWEEPER))
            continue;
        if (hak_likely(hak__heap_is_open(hak_load(&heap->state, HAK_RELAXED))))
            return true;
        hak__heap_unlock(heap);   /* it was given back meanwhile */
        return false;
    }
    return false;
}

/* Collects for the heaps whose owners are not in a slow path, and for parked ones, so that spans that have emptied can
 * serve others: for `most` heaps in the order of their ids, from the one after `after` on, and the first after the last. The id of the
 * last one. Caller holds the lock of `mine`. */
uint32_t hak__heaps_sweep(const struct hak_heap *mine, uint32_t after, uint32_t most);

/* The same for one heap, which is not the caller's. */
void hak__heap_sweep(struct hak_heap *heap);

/* Starts the layer once the arena runs. */
void hak__heap_init(void);

/* A new heap, mapped and named, in state NEW: its classes and bins are still zero. NULL when the system refuses, or there are as many
 * as can be. */
struct hak_heap *hak__heap_new(void);

/* Ends a heap that has nothing left, a share of no heap: its memory goes back to the system and its id to the next hak__heap_new. `heir`
 * goes on with its counters. The caller has locked both, and let go of neither; of the first nothing is looked at afterwards. False: the
 * system refuses the memory to note it in, and nothing has happened. */
hak_cold bool hak__heap_give_back(struct hak_heap *heap, struct hak_heap *heir);
/* The same, also with the last id of all, which is kept for the exit heap: it serves threads that find no other. */
struct hak_heap *hak__heap_new_last(void);

hak_inline struct hak_heap *hak__heap_by_id(uint32_t id) { return hak__heap_address(id); }
extern _Atomic uint32_t hak__heap_last;
/* Heaps 1..this exist. acquire: pairs with the release in hak__heap_new. */
hak_inline uint32_t hak__heap_last_id(void) { return hak_load(&hak__heap_last, HAK_ACQUIRE); }

/* Takes up to `want` blocks of a class into out[0..], which afterwards pops (from the end) in ascending order: from the
 * warm pool; when that is empty the remote frees that wait are collected, then come spans with blocks, then a new
 * span. 0 when the system refuses. */
uint32_t hak__heap_take(struct hak_heap *heap, uint32_t class, void **out, uint32_t want);

/* A large block from what the heap has at hand: a listed span, or a run in a SuperSlab assigned to it, or in any open one if none is.
 * NULL: there is none. */
void *hak__heap_take_at_hand(struct hak_heap *heap, uint32_t class);

/* Blocks of the large pool have left their spans, or come back: then `count` is negative. */
hak_inline void hak__heap_large_moved(struct hak_heap *heap, uint32_t class, size_t count)
{
    if (class >= HAK_CLASS_FIRST_LARGE)
        heap->large_out += count * hak__classes[class].size;
}

/* One block that is known to be zero if that costs nothing, else NULL. */
void *hak__heap_take_zeroed(struct hak_heap *heap, uint32_t class);

/* Gives back blocks of this heap, of any classes. `function` names the public call for reports of misuse. */
void hak__heap_give(struct hak_heap *heap, void *const *blocks, uint32_t count, const char *function);

/* Ends a single-block span for another thread that has freed the block: its slabs go to the pool at once, since the owner holds
 * nothing but counters of such a span. `heap` is the freeing thread's (NULL: it has none), `word` the slab's owner word as read. */
void hak__heap_end_foreign(struct hak_heap *heap, void *block, uint32_t word, const char *function);

/* Collects the spans on which other threads have freed blocks. */
void hak__heap_collect(struct hak_heap *heap);

/* A span enters or leaves the list of those with blocks to give. */
void hak__heap_list(struct hak_heap *heap, struct hak_span *span);
void hak__heap_unlist(struct hak_heap *heap, struct hak_span *span);

/* --- checks ------------------------------------------------------------------------------------------------------- */

hak_cold bool hak__heap_is_valid(struct hak_heap *heap);
