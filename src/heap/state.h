/* The parts of a heap: its bins, its classes, and the state of the layers above. Functions are in heap.h.
 *
 * Invariants:
 *   1. a span is listed <=> it is this heap's and has blocks to give
 *   2. live blocks of a class, summed over all heaps = refilled - drained - collected - (top - bottom) - outbox
 *   3. bottom[-1] == NULL, bottom <= top <= end = bottom + capacity, unless the class is closed
 *   4. a span in the warm pool of its class is listed and good for a refill (spans.h); its `warm` says where it stands
 *   5. of a share: account.used = bytes that the frontiers of all spans of its user heap's shares have reached, or that hardened spans
 *      awake have (hak__span_charge), of its huge blocks and of its samples; used <= limit, unless that was lowered */
#pragma once

#include "base/assert.h"
#include "span/span.h"

/* --- bins --------------------------------------------------------------------------------------------------------------- */

/* The stack of a class's ready blocks: just the two words that a pop or a push needs. The word below the bottom is NULL, so "empty"
 * is the same test as "no pointer". */
struct hak_bin {
    void **top; /* where the next push goes; top[-1] is the next block, or NULL */
    void **end; /* top == end: full */
};
_Static_assert(sizeof(struct hak_bin) == HAK_BIN_SIZE, "class offsets are those of bins; one line per operation");

enum { HAK_WARM_MAX = 16 };

/* The rest of a class, off the fast path. All of it is zero until the thread first uses the class (cache/tune.c), so that a thread
 * touches only what its sizes need. */
struct hak_heap_class {
    struct hak_bin hidden; /* the real bin while the visible one is closed */
    void **bottom; /* NULL: the class has not been opened, and its bin is closed */
    struct hak_span *spans; /* those with blocks to give */
    uint16_t capacity; /* 0: nothing is cached, the bin is closed */
    uint16_t ceiling; /* capacity may grow to this */
    uint8_t local : 1; /* its slots are heap->local_slots', of fixed number */
    uint8_t absorbs : 1; /* while closed by polling: whether it took in blocks of other heaps before */
    uint8_t returned_lately; /* blocks were drained or collected since the capacity last grew; or a share builds up (take.c) */
    uint8_t missed_lately; /* the bin was found empty since the capacity last grew */
    uint8_t common_left; /* blocks that the common heaps may still give (take.c) */
    uint8_t dry; /* misses since blocks were last drained or collected; stops counting at its maximum */
    uint8_t ramp; /* refills since the class began or was flushed; stops counting when batches are whole */
    uint16_t moves; /* refills and drains since the budget was last checked */
    uint16_t moved_seen; /* blocks refilled and drained when idle bins last gave back, modulo 2^16 */
    uint16_t warm_need; /* blocks that make a span good for a refill; 0: no warm pool */
    uint8_t warm_count; /* spans in the warm pool */
    uint8_t warm_budget; /* the most spans that the next miss puts there */
    uint8_t warm_rate; /* hit rate of late, in 256ths */
    bool sample_next; /* the request that next finds the bin empty is to be sampled (cache/refill.c) */
    uint32_t warm_hits_then; /* warm_hits when the pool was last found empty */
    uint32_t warm[HAK_WARM_MAX]; /* the warm pool, by slab */
    hak_counter refilled, drained, collected, misses, span_count, mallocs, frees;
    hak_counter warm_hits, warm_prefilled;
};
_Static_assert(sizeof(struct hak_heap_class) == 192, "three cache lines");

enum {
    HAK_MODE_EXACT = 1,
    HAK_MODE_SHARE = 2,
    HAK_MODE_SENTINEL = 4,
    HAK_MODE_POLLING = 8,
    HAK_MODE_HARDENED = 16,
    HAK_MODE_PROFILED = 128,
    HAK_MODE_EXITED = 256,
    HAK_MODE_APART = HAK_MODE_SHARE | HAK_MODE_SENTINEL /* not a thread's own heap */
};

/* Why every malloc and free of a class takes the slow path; 0: its bin is open. A large class is closed for good, a class without
 * capacity until it gets some; the other reasons are the heap's modes. malloc.c, kinds/plain.c and, under the heap lock,
 * process/request.c act on the reasons. Samples close nothing: their requests meet an empty bin. */
enum hak_closed_reason {
    HAK_CLOSED_EXACT = HAK_MODE_EXACT,
    HAK_CLOSED_NO_HEAP = HAK_MODE_SENTINEL,
    HAK_CLOSED_POLLING = HAK_MODE_POLLING,
    HAK_CLOSED_HARDENED = HAK_MODE_HARDENED,
    HAK_CLOSED_UNCACHED = 32,
    HAK_CLOSED_LARGE = 64,
    HAK_CLOSED_PROFILED = HAK_MODE_PROFILED, /* only in large classes: their calls are counted (profile/profile.h) */
    HAK_CLOSED_BY_MODE = HAK_CLOSED_EXACT | HAK_CLOSED_POLLING | HAK_CLOSED_HARDENED,
};

/* --- state of the layers above ------------------------------------------------------------------------------------------ */

enum { HAK_SLOTS_LEAST = 16, HAK_AREAS_FIRST = 5 };

/* The slots of the bins (cache/tune.c). */
struct hak_slots {
    void **next, **end; /* the rest of the slot area: `first`, then the unused local slots, then behind the heap's struct */
    uint32_t mapped; /* mapped bytes of HAK_HEAP_STRIDE */
    bool local; /* the local slots are kept for the classes that the options named when the bins were opened */
    void **free[10]; /* slot areas given back, by power of two */
    void *first[HAK_AREAS_FIRST * (1 + HAK_SLOTS_LEAST)]; /* near what every thread touches */
};

/* The budget of the bins (cache/tune.c). */
struct hak_budget {
    size_t bytes; /* capacity * size above the first capacities, summed */
    size_t process_bytes; /* capacity * size, summed, and large_cache.charged */
    bool in_process; /* ... and counted in the process's sum; not while parked */
    bool fixed; /* capacities neither grow nor shrink */
    uint32_t pause; /* refused growths before the budget is checked again */
    uint32_t hand; /* the class at which the search for idle capacity continues */
    uint64_t shrink_ms; /* when idle bins last gave back */
};

/* Decides when a thread that only hits reads the clock (upkeep/polling.c). */
struct hak_polling {
    uint32_t calls; /* slow paths since the clock was last read */
    uint32_t left; /* calls until a polling heap is checked again */
    uint32_t refills, overflows; /* modulo 2^32 */
    uint32_t refills_seen, overflows_seen; /* when the heap began to poll */
    uint64_t begun_ms, count_ms; /* the time of that, and of the last new count of its calls */
    uint64_t much_ms; /* since when idle_bytes has been large; 0: it is not */
    hak_counter idle_bytes; /* bytes given to spans minus those taken, since memory was last returned */
};

/* The large blocks that the thread has freed (cache/large_cache.c). Its clock counts the blocks that have come so far, modulo
 * 2^32. */
struct hak_large_cache {
    _Atomic uint32_t owner_turns; /* odd while the owner is inside without the heap lock; incremented at both ends */
    _Atomic uint32_t asked_ms; /* since when a sweeper wants the blocks, modulo 2^32, or 1; 0: none does */
    uint64_t classes; /* bit c: there are blocks of class c */
    size_t bytes, charged; /* bytes of the blocks; bytes charged to the process for them */
    size_t sure; /* bytes that may stay for the time being */
    size_t peak; /* the most bytes in the program's hands lately */
    uint32_t clock, seen; /* the clock; its value at the last aging */
    uint32_t absent_share; /* the part of freed blocks that is not resident, in 256ths */
    uint32_t weighed; /* when a block was last sampled for that */
    uint32_t pass; /* agings until the next sample */
    uint32_t oldest[HAK_LARGE_CLASSES]; /* when the lowest block of the stack came */
};

/* Frees of other heaps' blocks, gathered by slab (cache/cache.h). */
struct hak_outbox {
    _Atomic uint32_t used; /* bit b: bucket b may hold blocks; the owner changes it */
    uint32_t misses; /* refills since the outbox was last flushed */
    uint32_t single; /* blocks published at once while the thread had freed few; stops counting after that */
};

/* Blocks of one slab of another heap, freed here: those from `taken` on are not yet published. */
struct hak_outbox_bucket {
    uint32_t slab; /* the slab's number plus one; 0: unused */
    _Atomic uint16_t count; /* blocks here; only the owner changes it */
    _Atomic uint16_t limit; /* where count stops; 0: the next block takes the slow path */
    void *blocks[HAK_OUTBOX_BLOCKS];
    _Atomic uint16_t taken; /* blocks published from it meanwhile, from the first; changes under `lock` */
    uint16_t reserved[3]; /* makes the bucket four cache lines */
};
_Static_assert(sizeof(struct hak_outbox_bucket) == 256, "buckets begin at cache lines");
_Static_assert(HAK_WINDOW_SUPERS * HAK_SUPER_SLABS < UINT32_MAX, "slab numbers fit 32 bits");

/* --- shares -------------------------------------------------------------------------------------------------------------
 *
 * A share is a hak_heap that belongs to a user heap (userheap/userheap.h) instead of a thread. Its slabs count against the user
 * heap's limit. All its spans, full ones too, are in one list, so that the user heap can end without looking at any block. */

struct hak_heap;
struct hak_uheap;
enum { HAK_SHARE_BUCKETS = 16 };

struct hak_account {
    _Atomic size_t used, peak; /* with those of the heaps below */
    _Atomic size_t limit; /* SIZE_MAX: none */
    _Atomic uint64_t refused; /* times that the limit, or one above, has denied the heap memory */
    _Atomic(struct hak_account *) refused_by; /* the one whose limit did so last */
    struct hak_account *above; /* its heap's parent's; NULL: it has none */
    const char *name; /* its heap's */
};

/* A thread's shares by a hash of their user heaps. NULL instead of buckets: it has had none. */
struct hak_share_table {
    struct hak_heap **buckets; /* `first`, or twice as many in other memory, and so on */
    uint32_t shift; /* what leaves of a hash of 64 bits the number of a bucket */
    uint32_t count, hand; /* shares; the bucket that is tended next */
    struct hak_heap *first[HAK_SHARE_BUCKETS];
};

struct hak_share {
    struct hak_account *account; /* NULL: a thread's heap, or a share without a user heap */
    struct hak_heap *next; /* of a share: the next of the same user heap, or of the unused shares */
    struct hak_heap *chained; /* of a share: the next one in its bucket; of an idle one: the heap of the thread that has left it */
    struct hak_uheap *standard; /* of a thread's heap: the thread's default heap, or NULL */
    uint32_t first_span; /* of a share: the list of all its spans, as the first one's slab plus one */
    uint64_t classes; /* of a share: a bit for each class that has had a span since its bins were last cleared, at least */
    char *bump, *bump_end; /* of a share of a bump heap: where its next block begins, and the last must end (userheap/bump.h) */
    bool merged; /* of a share without a user heap: its bins may hold blocks that are the process's now */
};

/* Of two at once the lower peak may stay: only people read it. */
hak_inline void hak__account_note(struct hak_account *account, size_t used)
{
    if (used > hak_load(&account->peak, HAK_RELAXED))
        hak_store(&account->peak, used, HAK_RELAXED);
}

/* Forked in the middle of this or the next, a child finds that the accounts above count too much, never too little. Relaxed: the
 * figures guard nothing. */
hak_inline void hak__account_give(struct hak_account *account, size_t bytes)
{
    for (; account != NULL; account = account->above) {
        size_t before = hak_fetch_sub(&account->used, bytes, HAK_RELAXED);
        hak_assert(before >= bytes, "no more goes back than was counted");
        (void)before;
    }
}

/* Counts `bytes`, in the accounts above first, as deep as HAK_OWN_DEPTH; or returns the one whose limit does not allow it, unless no
 * limit is `asked`, because a block has become longer than was counted. */
static inline struct hak_account *hak__account_try(struct hak_account *account, size_t bytes, bool asked)
{
    size_t limit = asked ? hak_load(&account->limit, HAK_RELAXED) : SIZE_MAX, used = hak_load(&account->used, HAK_RELAXED);
    bool room = bytes <= limit && used <= limit - bytes;
    struct hak_account *full = !room ? account : account->above == NULL ? NULL : hak__account_try(account->above, bytes, asked);
    if (hak_unlikely(full != NULL))
        return full;
    while (!hak_cas_weak(&account->used, &used, used + bytes, HAK_RELAXED, HAK_RELAXED))
        if (used > limit - bytes) {
            hak__account_give(account->above, bytes);
            return account;
        }
    hak__account_note(account, used + bytes);
    return NULL;
}

/* The same with the limits, and counts a refusal. */
hak_inline bool hak__account_take(struct hak_account *account, size_t bytes)
{
    struct hak_account *full = hak__account_try(account, bytes, true);
    if (hak_likely(full == NULL))
        return true;
    hak_store(&account->refused_by, full, HAK_RELAXED);
    hak_fetch_add(&account->refused, 1, HAK_RELAXED);
    if (full != account)
        hak_fetch_add(&full->refused, 1, HAK_RELAXED);
    return false;
}

/* Adds a span or huge block, by its slab, to a list that begins at *first, or removes it. The caller holds the list's lock. A child forked
 * in the middle finds each that is in the list once; the added or removed one, of a thread that it lacks, may be gone too soon. */
hak_inline void hak__owned_add(uint32_t *first, size_t slab)
{
    struct hak_span *span = &hak__spans[slab];
    uint32_t next = *first;
    span->prev_owned = 0;
    span->next_owned = next;
    hak_owner_store(first, (uint32_t)slab + 1);
    if (next != 0)
        hak_owner_store(&hak__spans[next - 1].prev_owned, (uint32_t)slab + 1);
}

hak_inline void hak__owned_remove(uint32_t *first, size_t slab)
{
    const struct hak_span *span = &hak__spans[slab];
    if (span->next_owned != 0)
        hak_owner_store(&hak__spans[span->next_owned - 1].prev_owned, span->prev_owned);
    if (span->prev_owned != 0)
        hak_owner_store(&hak__spans[span->prev_owned - 1].next_owned, span->next_owned);
    else
        hak_owner_store(first, span->next_owned);
}

/* --- where spans come from ---------------------------------------------------------------------------------------------- */

enum { HAK_BITMAP_UNIT = 128, HAK_BITMAP_SIZES = 8 };

/* The sources of slabs for a new span, cheapest first (take.c). */
enum hak_stage { HAK_STAGE_OWN_HINT, HAK_STAGE_OWN_EMPTY, HAK_STAGE_ADOPTED, HAK_STAGE_CLAIMED, HAK_STAGE_LOCKED, HAK_STAGES };

/* A heap's notes on its sources. */
struct hak_sources {
    void *bitmaps[HAK_BITMAP_SIZES]; /* given back, by size */
    uint64_t idle_classes; /* bit c: the only listed span of class c may be empty */
    size_t home; /* the single slab that was taken last, plus one; 0: none yet */
    uint32_t swept; /* id of the heap that was last visited (hak__heaps_sweep) */
    uint32_t clean_slabs; /* slabs claimed since memory was last trimmed that were not resident */
    bool no_new_span; /* no SuperSlab may be opened now */
};

enum { HAK_ASSIGNED_MAX = 16, HAK_ASSIGNED_SPARES = 1 };

/* SuperSlabs that serve the heap's large blocks (large.c). */
struct hak_assigned {
    uint32_t supers[HAK_ASSIGNED_MAX], count; /* in the order in which they serve */
    uint32_t spare[HAK_ASSIGNED_SPARES]; /* ... those that emptied lately */
    uint32_t moves, moves_seen; /* requests for runs in them, modulo 2^32; when upkeep last looked */
};

/* --- the heap ----------------------------------------------------------------------------------------------------------- */

enum hak_heap_state { HAK_HEAP_NEW, HAK_HEAP_ACTIVE, HAK_HEAP_PARKED, HAK_HEAP_UNUSABLE, HAK_HEAP_SHARE };
enum hak_heap_user { HAK_OWNER, HAK_SWEEPER };
enum hak_heap_left { HAK_LEFT_NOTHING, HAK_LEFT_NOW, HAK_LEFT_BEFORE }; /* before the last step of upkeep */

#define hak_heap_aligned __attribute__((aligned(1024)))   /* of heaps, and of sentinels, which are seen as heaps */

/* The part that the fast paths read; the sentinel has only this (cache/cache.h). */
#define HAK_HEAP_FRONT \
    uint32_t tag; /* id << HAK_CLASS_OFFSET_BITS */ \
    uint32_t id; \
    uint32_t mode; /* HAK_MODE_... */ \
    _Atomic uint32_t lock; /* the thread in a slow path: a word as in base/lock.h; marked for a HAK_SWEEPER */ \
    int64_t profile_left; /* bytes until the next sampled request (profile/sampler.c) */ \
    uint32_t profile_session; /* the number of that profile */ \
    uint32_t share_tag; /* the tag of the share that the thread used last ^ this one; 0: none (userheap/userheap.h) */ \
    intptr_t to_share; /* its distance from here in bytes */ \
    struct hak_uheap *own; /* of a share: its user heap now; NULL: none */ \
    _Atomic(struct hak_heap *) user; /* of a share: the heap of the thread that uses it; NULL: none does */ \
    hak_line_aligned struct hak_bin bins[HAK_CLASS_LIMIT]; \
    uint16_t absorb[HAK_CLASS_LIMIT]; /* while top is below this, in words from here on, blocks of other heaps are absorbed; 0: never */ \
    uint8_t foreign[HAK_CLASS_LIMIT]; /* the bin may hold blocks of other heaps */ \
    uint8_t closed_reasons[HAK_CLASS_LIMIT]; /* enum hak_closed_reason; 0: the bin is open */

struct hak_heap_front {
    HAK_HEAP_FRONT
};

/* Raised under the heap's lock; figures are sums over all heaps. */
struct hak_heap_counts {
    hak_counter remote_frees, remote_published, forwarded, adopted;
    hak_counter common_taken; /* blocks given by the common heaps */
    hak_counter runs_claimed; /* runs of slabs taken from SuperSlabs already in slabs */
    hak_counter stages[HAK_STAGES]; /* spans obtained, by source */
    hak_counter slabs; /* of spans */
    hak_counter huge_allocated, huge_freed, huge_bytes; /* in runs that waited (huge/huge.c); the last modulo 2^64 */
};

struct hak_heap {
    HAK_HEAP_FRONT
    /* slow paths */
    struct hak_slots slots;
    struct hak_outbox outbox;
    struct hak_budget budget;
    struct hak_polling polling;
    uint16_t refill_count; /* blocks of a refill that bytes do not limit */
    bool warm_fixed; /* the classes' warm_budget does not change */
    uint32_t news; /* that the heap has heard (upkeep/polling.c) */
    uint64_t sample_left; /* refilled blocks up to the next sample; 0: not drawn (cache/refill.c) */
    struct hak_sources sources;
    struct hak_heap_counts counts;
    size_t large_out; /* bytes of large blocks allocated, including large_remote_freed */
    struct hak_quarantine *quarantine; /* hardened mode: freed blocks that are not reused yet */
    _Atomic uint64_t thread; /* process << 32 | its thread's number; 0: none, or not known yet */
    bool ending; /* the thread has begun to run its destructors */
    uint32_t first_ms; /* when its threads' first blocks were last counted anew, modulo 2^32 */
    bool takes_common; /* made when common heaps existed: they give the first blocks of each class (take.c) */
    uint32_t generation; /* in which the heap began, or its bins were emptied because of inherited blocks (kinds/plain.c) */
    uint32_t left; /* blocks in the bins of a parked heap: enum hak_heap_left */
    _Atomic uint32_t state; /* enum hak_heap_state */
    _Atomic uint32_t parked_next; /* id of the next parked heap */
    struct hak_share share; /* user heaps */
    /* the line that other threads write */
    hak_line_aligned _Atomic(struct hak_span *) pending;
    _Atomic size_t large_remote_freed; /* bytes of large blocks that other threads have freed with their spans */
    hak_line_aligned struct hak_heap_class classes[HAK_CLASSES];
    /* few threads ever touch the rest */
    struct hak_large_cache large_cache;
    struct hak_assigned assigned;
    struct hak_share_table shares; /* of a thread's heap */
    /* ... with their guards, by class; else the slot area goes on there. */
    void *local_slots[HAK_CLASS_LOCAL_LAST - HAK_CLASS_LOCAL_FIRST + 1][1 + HAK_LOCAL_SLOTS] hak_heap_aligned;
    hak_line_aligned struct hak_outbox_bucket outbox_buckets[HAK_OUTBOX_BUCKETS];
};
_Static_assert(offsetof(struct hak_heap, classes[HAK_CLASS_112 + 1]) <= 4096,
               "what every thread or share touches is one page, with its smallest classes");
_Static_assert(sizeof(struct hak_heap) + 64 < HAK_HEAP_FIRST, "the slot area follows in the same stride");
