/* What a heap consists of: its bins, its classes, and the parts that belong to the layers above. Functions are in heap.h.
 *
 * Invariants:
 *   1. a span is listed <=> it is this heap's and has blocks to give
 *   2. live blocks of a class, summed over all heaps = refilled - drained - collected - (top - bottom) - outbox
 *   3. bottom[-1] == NULL, bottom <= top <= end = bottom + capacity, unless the class is closed
 *   4. a span in the warm pool of its class is listed and good for a refill (spans.h); its `warm` says where it stands
 *   5. of a share: account.used = bytes of the slabs of all its heap's shares, of its huge blocks, and of its samples elsewhere;
 *      used <= limit, unless that was lowered */
#pragma once

#include "base/assert.h"
#include "os/robust.h"
#include "span/span.h"

/* --- bins --------------------------------------------------------------------------------------------------------------- */

/* A class's stack of ready blocks: the two words that a pop or a push needs, and nothing else. The word below the
 * bottom is NULL, so "empty" is the same test as "no pointer". */
struct hak_bin {
    void **top; /* where the next push goes; top[-1] is the next block, or NULL */
    void **end; /* top == end: full */
};
_Static_assert(sizeof(struct hak_bin) == HAK_BIN_SIZE, "class offsets are those of bins; one line per operation");

/* The rest of a class, off the fast path. */
struct hak_heap_class {
    struct hak_bin hidden; /* the real bin while the visible one is closed */
    void **bottom;
    struct hak_span *spans; /* those with blocks to give */
    uint16_t capacity; /* 0: nothing is cached, the bin is closed */
    uint16_t ceiling; /* capacity may grow to this */
    uint8_t local; /* its slots are heap->slots.local's, of fixed capacity */
    uint8_t returned_lately; /* blocks were drained or collected since the capacity last grew */
    uint8_t missed_lately; /* the bin was found empty since the capacity last grew */
    uint8_t common_left; /* blocks that the common heaps may still give (take.c) */
    uint8_t dry; /* misses since blocks were last drained or collected; stops counting at its end */
    uint16_t moves; /* refills and drains since the budget was last looked at */
    uint16_t warm_need; /* blocks that make a span good for a refill; 0: there is no warm pool */
    uint8_t warm_count; /* spans in the warm pool */
    uint8_t warm_budget; /* spans that the next miss puts there at most, while that is adaptive */
    uint8_t warm_rate; /* hit rate of late, in 256ths */
    uint8_t absorbs; /* while closed by polling: blocks of other heaps were taken in before */
    uint8_t marks; /* NULLs among the blocks in the bin (cache/cache.c) */
    uint8_t ramp; /* refills since the class began or was flushed; stops counting when batches are whole */
    uint32_t warm_hits_then; /* what warm_hits was when the pool was last found empty */
    hak_counter refilled, drained, collected, misses, span_count, mallocs, frees;
    hak_counter warm_hits, warm_prefilled;
};
_Static_assert(sizeof(struct hak_heap_class) == 128, "two cache lines");

enum {
    HAK_MODE_EXACT = 1,
    HAK_MODE_REDIRECTED = 2,
    HAK_MODE_SENTINEL = 4,
    HAK_MODE_POLLING = 8,
    HAK_MODE_HARDENED = 16,
    HAK_MODE_PROFILED = 128,
    HAK_MODE_EXITED = 256
};

/* Why every malloc and free of a class takes the slow path; 0: its bin is open. A large class is closed for good, a class
 * without capacity until it gets some; the others are the heap's mode. malloc_slow.c, kinds/plain.c
 * and, under the heap lock, guard/exact.c act on the reasons. Samples close nothing: they are marks in open bins. */
enum hak_closed_reason {
    HAK_CLOSED_EXACT = HAK_MODE_EXACT,
    HAK_CLOSED_NO_HEAP = HAK_MODE_SENTINEL,
    HAK_CLOSED_POLLING = HAK_MODE_POLLING,
    HAK_CLOSED_HARDENED = HAK_MODE_HARDENED,
    HAK_CLOSED_UNCACHED = 32,
    HAK_CLOSED_LARGE = 64,
    HAK_CLOSED_PROFILED = HAK_MODE_PROFILED, /* of large classes only: their calls are counted (profile/profile.h) */
    HAK_CLOSED_REDIRECTED = HAK_MODE_REDIRECTED, /* the thread's requests go to a heap of one's own (userheap/defaults.c) */
    HAK_CLOSED_BY_MODE = HAK_CLOSED_EXACT | HAK_CLOSED_POLLING | HAK_CLOSED_HARDENED | HAK_CLOSED_REDIRECTED,
};

/* --- parts of the layers above ------------------------------------------------------------------------------------------ */

/* Where the slots of the bins lie (cache/tune.c). */
struct hak_slots {
    /* the slots, with their guards, of the classes for which the options ask it; else the beginning of the slot area */
    void *local[HAK_CLASS_LOCAL_LAST - HAK_CLASS_LOCAL_FIRST + 1][1 + HAK_LOCAL_SLOTS];
    void **next, **end; /* what is left of the slot area behind the heap's struct */
    size_t mapped; /* bytes of HAK_HEAP_STRIDE that are */
    void **free[10]; /* given back slot areas, by power of two */
};

/* How much the bins may hold (cache/tune.c). */
struct hak_budget {
    size_t bytes; /* capacity * size above the first capacities, summed */
    size_t process_bytes; /* capacity * size, summed, and large_cache.charged */
    bool in_process; /* ... and counted in the process's sum; not while parked */
    uint32_t pause; /* refused growths to come before the budget is looked at again */
    uint32_t hand; /* the class at which the search for idle capacity goes on */
    uint64_t shrink_ms; /* when idle bins last gave back */
    uint32_t moved_seen[HAK_CLASSES]; /* blocks refilled and drained then, modulo 2^32 */
};

/* When a thread that only hits reads the clock (upkeep/polling.c). */
struct hak_polling {
    uint32_t calls; /* slow paths since the clock was last looked at */
    uint32_t left; /* calls until a polling heap is looked at again */
    uint32_t refills, overflows; /* modulo 2^32 */
    uint32_t refills_seen, overflows_seen; /* when the heap began to poll */
    uint64_t begun_ms, count_ms; /* when that was, and when its calls were last counted anew */
    uint64_t much_ms; /* since when idle_bytes has been large; 0: it is not */
    hak_counter idle_bytes; /* given to spans beyond what was taken, since memory went back */
};

/* The large blocks that the thread has freed (cache/large_cache.c). Its time is the number of blocks that have come so far, modulo
 * 2^32. */
struct hak_large_cache {
    _Atomic uint32_t owner_turns; /* odd while the owner is inside without the heap lock; counts up at both ends */
    _Atomic uint32_t asked_ms; /* a sweeper wants the blocks since then, modulo 2^32, or 1; 0: none does */
    uint64_t classes; /* bit c: there are blocks of class c */
    size_t bytes, charged; /* of the blocks, and what the process has been charged for them */
    size_t sure; /* so many may stay for the time being */
    size_t peak; /* the most in the program's hands lately */
    uint32_t clock, seen; /* the time; when it was last aged */
    uint32_t absent_share; /* how much of the blocks freed is not resident, in 256ths */
    uint32_t weighed; /* when a block was last looked at for that */
    uint32_t pass; /* agings until the next look */
    uint32_t oldest[HAK_LARGE_CLASSES]; /* when the lowest block of the stack came */
};

/* Marks among the blocks of open bins (cache/cache.c). */
struct hak_sample_marks {
    uint64_t left; /* requests until the next mark; 0: not drawn */
    hak_counter seen; /* requests that were counted for marks */
};

/* Frees of other heaps' blocks, gathered by slab (cache/outbox.h). */
struct hak_outbox {
    _Atomic uint32_t used; /* bit b: bucket b may hold blocks; the owner changes it */
    uint32_t misses; /* refills since the outbox was last flushed */
    uint32_t single; /* blocks published at once, while the thread had freed few; stops counting then */
};

/* Blocks of one slab of another heap, freed here: those from `taken` on are not yet published. */
struct hak_outbox_bucket {
    uint32_t slab; /* the slab's number plus one; 0: unused */
    _Atomic uint16_t count; /* blocks here; only the owner changes it */
    _Atomic uint16_t limit; /* where count stops; 0: the next one takes the slow path */
    void *blocks[HAK_OUTBOX_BLOCKS];
    _Atomic uint16_t taken; /* blocks published out of it meanwhile, from the first; changes under `lock` */
    uint16_t reserved[3]; /* makes the bucket four cache lines */
};
_Static_assert(sizeof(struct hak_outbox_bucket) == 256, "buckets begin at cache lines");
_Static_assert(HAK_WINDOW_SUPERS * HAK_SUPER_SLABS < UINT32_MAX, "slab numbers fit 32 bits");

/* --- shares -------------------------------------------------------------------------------------------------------------
 *
 * A share is a hak_heap that belongs to a user heap (userheap/userheap.h) instead of a thread. The slabs that it holds count against the
 * heap's limit, and all its spans are in one list, full ones too, so that the heap can end without a look at any block. */

struct hak_heap;
struct hak_uheap;

struct hak_account {
    _Atomic size_t used, peak;
    _Atomic size_t limit; /* SIZE_MAX: none */
    _Atomic uint64_t refused; /* times that the limit has kept slabs from the heap */
};

struct hak_share {
    struct hak_account *account; /* NULL: this is a thread's heap, or a share that is of no heap just now */
    struct hak_heap *next; /* of a share: the next of the same heap, or of those that nobody has */
    struct hak_heap *attached; /* of a thread's heap: the shares that the thread has, by last use; of a share: the next there */
    _Atomic(struct hak_heap *) user; /* of a share: the heap of the thread that has it; NULL: none has */
    struct hak_uheap *standard; /* of a thread's heap in HAK_MODE_REDIRECTED: where requests go */
    uint32_t first_span; /* all spans of a share: the first one's slab, plus one */
    bool merged; /* of a share without a heap: its bins may hold blocks that are the process's now */
    struct hak_robust_thread robust; /* of a thread's heap: for the locks of regions (userheap/region.h) */
};

/* Counts `bytes` against the limit; false, and nothing is counted: it does not allow them. Relaxed: the figure guards nothing. */
hak_inline bool hak__account_take(struct hak_account *account, size_t bytes)
{
    size_t used = hak_load(&account->used, HAK_RELAXED);
    do {
        size_t limit = hak_load(&account->limit, HAK_RELAXED);
        if (hak_unlikely(bytes > limit || used > limit - bytes)) {
            hak_fetch_add(&account->refused, 1, HAK_RELAXED);
            return false;
        }
    } while (!hak_cas_weak(&account->used, &used, used + bytes, HAK_RELAXED, HAK_RELAXED));
    if (used + bytes > hak_load(&account->peak, HAK_RELAXED)) /* of two at once the lower may stay: it is a figure for people */
        hak_store(&account->peak, used + bytes, HAK_RELAXED);
    return true;
}

hak_inline void hak__account_give(struct hak_account *account, size_t bytes)
{
    size_t before = hak_fetch_sub(&account->used, bytes, HAK_RELAXED);
    hak_assert(before >= bytes, "no more goes back than was counted");
    (void)before;
}

/* A span or huge block of the slab joins or leaves a list that begins at *first. The caller holds the list's lock. */
hak_inline void hak__owned_add(uint32_t *first, size_t slab)
{
    struct hak_span *span = &hak__spans[slab];
    span->prev_owned = 0;
    span->next_owned = *first;
    if (*first != 0)
        hak__spans[*first - 1].prev_owned = (uint32_t)slab + 1;
    *first = (uint32_t)slab + 1;
}

hak_inline void hak__owned_remove(uint32_t *first, size_t slab)
{
    const struct hak_span *span = &hak__spans[slab];
    hak_assert(span->prev_owned != 0 || *first == slab + 1, "the slab is in this list");
    if (span->prev_owned != 0)
        hak__spans[span->prev_owned - 1].next_owned = span->next_owned;
    else
        *first = span->next_owned;
    if (span->next_owned != 0)
        hak__spans[span->next_owned - 1].prev_owned = span->prev_owned;
}

/* --- where spans come from ---------------------------------------------------------------------------------------------- */

enum { HAK_BITMAP_UNIT = 128, HAK_BITMAP_SIZES = 8 };

/* Where slabs for a new span are looked for, cheapest first (sources.c). */
enum hak_stage { HAK_STAGE_OWN_HINT, HAK_STAGE_OWN_EMPTY, HAK_STAGE_ADOPTED, HAK_STAGE_CLAIMED, HAK_STAGE_LOCKED, HAK_STAGES };

/* A heap's memory of its sources. */
struct hak_sources {
    void *bitmaps[HAK_BITMAP_SIZES]; /* given back, by size */
    uint64_t idle_classes; /* bit c: the only listed span of class c may be empty */
    size_t home; /* the single slab that was taken last, plus one; 0: none yet */
    uint32_t swept; /* the heap that was looked at last, by id (hak__heaps_sweep) */
    uint32_t clean_slabs; /* claimed since memory was trimmed, that were not resident */
    bool no_new_span; /* no SuperSlab is to be opened now */
};

enum { HAK_ASSIGNED_MAX = 16, HAK_ASSIGNED_SPARES = 1 };

/* SuperSlabs that serve the heap's large blocks (large.c). */
struct hak_assigned {
    uint32_t supers[HAK_ASSIGNED_MAX], count; /* in the order in which they serve */
    uint32_t spare[HAK_ASSIGNED_SPARES]; /* ... that emptied lately */
    uint32_t moves, moves_seen; /* requests for runs of them, modulo 2^32; when upkeep looked last */
};

/* --- the heap ----------------------------------------------------------------------------------------------------------- */

enum hak_heap_state { HAK_HEAP_NEW, HAK_HEAP_ACTIVE, HAK_HEAP_PARKED, HAK_HEAP_UNUSABLE, HAK_HEAP_SHARE };
enum hak_heap_user { HAK_OWNER, HAK_SWEEPER };
enum hak_heap_left { HAK_LEFT_NOTHING, HAK_LEFT_NOW, HAK_LEFT_BEFORE }; /* before the last step of upkeep */

enum { HAK_WARM_MAX = 16 };

/* The part that the fast paths read; the sentinel has no other (cache/cache.h). */
#define HAK_HEAP_FRONT \
    uint32_t tag; /* id << HAK_CLASS_OFFSET_BITS */ \
    uint32_t id; \
    uint32_t mode; /* HAK_MODE_... */ \
    _Atomic uint32_t lock; /* who is inside a slow path: a word as in base/lock.h; marked if as a HAK_SWEEPER */ \
    int64_t profile_left; /* bytes until the next request that is sampled (profile/sampler.c) */ \
    uint32_t profile_session; /* that profile's number */ \
    uint32_t share_tag; /* the tag of the share that the thread used last ^ this one; 0: none (userheap/userheap.h) */ \
    intptr_t to_share; /* it lies so many bytes from here */ \
    struct hak_uheap *own; /* of a share: the heap it is of now; NULL: of none */ \
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
    hak_counter common_taken; /* blocks that the common heaps have given */
    hak_counter runs_claimed; /* runs of slabs found in SuperSlabs that were in slabs already */
    hak_counter stages[HAK_STAGES]; /* spans obtained, by where they came from */
    hak_counter slabs; /* of spans */
    hak_counter huge_allocated, huge_freed, huge_bytes; /* by way of a run that waited (huge/huge.c); the last modulo 2^64 */
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
    size_t large_out; /* bytes of large blocks that are allocated, and large_remote_freed */
    struct hak_quarantine *quarantine; /* hardened mode: freed blocks that are not used again yet */
    _Atomic uint64_t thread; /* process << 32 | its thread's number; 0: none, or not asked */
    bool ending; /* the thread has begun to run its destructors */
    uint32_t left; /* blocks in the bins of a parked heap: enum hak_heap_left */
    _Atomic uint32_t state; /* enum hak_heap_state */
    _Atomic uint32_t parked_next; /* id of the next parked heap */
    struct hak_share share; /* heaps of one's own */
    /* the line that other threads write */
    hak_line_aligned _Atomic(struct hak_span *) pending;
    _Atomic size_t large_remote_freed; /* bytes of large blocks that others have freed, spans and all */
    hak_line_aligned struct hak_heap_class classes[HAK_CLASSES];
    /* the warm pools, by slab; of each as much is touched as is used */
    uint32_t warm[HAK_CLASSES][HAK_WARM_MAX];
    /* last, because few threads ever touch it */
    hak_line_aligned struct hak_outbox_bucket outbox_buckets[HAK_OUTBOX_BUCKETS];
};
_Static_assert(sizeof(struct hak_heap) + 64 < HAK_HEAP_FIRST, "the slot area follows in the same stride");
