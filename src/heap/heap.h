/* What one thread owns: its bins (worked by cache/), its spans by class, its outbox, its pending stack.
 * Called by cache/, large/, malloc_slow.c, free_slow.c, thread.c. A heap outlives its thread: it is parked and taken over whole.
 *
 * Who may touch what:
 *   bins                     the owner thread; while the heap is parked, who holds `lock`
 *   classes, bitmaps            who holds `lock`: the owner in its slow paths, or a thread that sweeps idle heaps (before
 *                               it asks for new memory, or in a step of upkeep); a forked child's only thread takes
 *                               over heaps that were not busy
 *   outbox                      the owner appends without `lock`; all else under it (cache/cache.h)
 *   pending, and the remote bits of the heap's spans   any thread
 *   counters                    written by the owner, read by anyone (base/atomic.h, "shared plain")
 *
 * Invariants:
 *   1. a span is listed <=> it is this heap's and has blocks to give
 *   2. live blocks of a class, summed over all heaps = refilled - drained - collected - (top - bottom) - outbox
 *   3. bottom[-1] == NULL, bottom <= top <= end = bottom + capacity, unless the class is closed
 *   4. a span in the warm pool of its class is listed and good for a refill (warm.h); its `warm` says where it stands */
#ifndef HAK_HEAP_HEAP_H
#define HAK_HEAP_HEAP_H

#include "base/forked.h"
#include "heap/share.h"
#include "slab/span.h"

/* A class's stack of ready blocks: the two words that a pop or a push needs, and nothing else. The word below the
 * bottom is NULL, so "empty" is the same test as "no pointer". */
struct hak_bin {
    void **top;     /* where the next push goes; top[-1] is the next block, or NULL */
    void **end;     /* top == end: full */
};
_Static_assert(sizeof(struct hak_bin) == HAK_BIN_SIZE, "codes are record offsets; one line per operation");

/* The rest of a class, off the fast path. */
struct hak_heap_class {
    struct hak_bin hidden;   /* the real bin while the visible one is closed */
    void **bottom;
    struct hak_span *spans;     /* those with blocks to give */
    uint16_t capacity;          /* 0: nothing is cached, the bin is closed */
    uint16_t ceiling;           /* capacity may grow to this */
    uint8_t local;              /* its slots are heap->local's, of fixed capacity */
    uint8_t returned_lately;    /* blocks were drained or collected since the capacity last grew */
    uint8_t missed_lately;      /* the bin was found empty since the capacity last grew */
    uint8_t common_left;        /* blocks that the common heaps may still give (common.c) */
    uint8_t dry;                /* misses since blocks were last drained or collected; stops counting at its end */
    uint16_t moves;             /* refills and drains since the budget was last looked at */
    uint16_t warm_need;         /* blocks that make a span good for a refill; 0: there is no warm pool */
    uint8_t warm_count;         /* spans in the warm pool */
    uint8_t warm_budget;        /* spans that the next miss puts there at most, while that is adaptive */
    uint8_t warm_rate;          /* hit rate of late, in 256ths */
    uint8_t absorbs;            /* while closed by arming: blocks of other heaps were taken in before */
    uint8_t marks;              /* NULLs among the blocks in the bin (cache/mark.c) */
    uint8_t ramp;               /* refills since the class began or was flushed; stops counting when batches are whole */
    uint32_t warm_hits_then;    /* what warm_hits was when the pool was last found empty */
    hak_counter refilled, drained, collected, misses, span_count, mallocs, frees;
    hak_counter warm_hits, warm_prefilled;
};
_Static_assert(sizeof(struct hak_heap_class) == 128, "two cache lines");

/* Blocks of one slab of another heap, freed here: those from `taken` on are not yet published. */
struct hak_outbox_bucket {
    uint32_t slab;              /* the slab's number plus one; 0: unused */
    _Atomic uint16_t count;     /* blocks here; only the owner changes it */
    _Atomic uint16_t limit;     /* where count stops; 0: the next one takes the slow path */
    void *blocks[HAK_OUTBOX_BLOCKS];
    _Atomic uint16_t taken;     /* blocks published out of it meanwhile, from the first; changes under `lock` */
    uint16_t reserved[3];       /* makes the bucket four cache lines */
};
_Static_assert(sizeof(struct hak_outbox_bucket) == 256, "buckets begin at cache lines");
_Static_assert(HAK_WINDOW_SUPERS * HAK_SUPER_SLABS < UINT32_MAX, "slab numbers fit 32 bits");

enum hak_heap_state { HAK_HEAP_NEW, HAK_HEAP_ACTIVE, HAK_HEAP_PARKED, HAK_HEAP_UNUSABLE, HAK_HEAP_SHARE };
enum hak_heap_user { HAK_NOBODY, HAK_OWNER, HAK_SWEEPER };
enum hak_heap_left { HAK_LEFT_NOTHING, HAK_LEFT_NOW, HAK_LEFT_BEFORE };   /* before the last step of upkeep */
enum { HAK_MODE_EXACT = 1, HAK_MODE_EXITED = 2, HAK_MODE_SENTINEL = 4, HAK_MODE_POLLING = 8, HAK_MODE_HARDENED = 16,
       HAK_MODE_REDIRECTED = 128 };

/* Why every malloc and free of a class takes the slow path; 0: its bin is open. A large class is closed for good, a class
 * without capacity until it gets some; the others are the heap's mode. What the reasons lead to stands in malloc_slow.c,
 * free_slow.c, and for an entered heap in guard/exact.c. Samples close nothing: they are marks in open bins. */
enum hak_closed_reason {
    HAK_CLOSED_EXACT = HAK_MODE_EXACT, HAK_CLOSED_NO_HEAP = HAK_MODE_SENTINEL, HAK_CLOSED_POLLING = HAK_MODE_POLLING,
    HAK_CLOSED_HARDENED = HAK_MODE_HARDENED, HAK_CLOSED_UNCACHED = 32, HAK_CLOSED_LARGE = 64,
    HAK_CLOSED_REDIRECTED = HAK_MODE_REDIRECTED,   /* the thread's requests go to a heap of one's own (own/standard.c) */
    HAK_CLOSED_BY_MODE = HAK_CLOSED_EXACT | HAK_CLOSED_POLLING | HAK_CLOSED_HARDENED | HAK_CLOSED_REDIRECTED,
};

enum { HAK_BITMAP_UNIT = 128, HAK_BITMAP_SIZES = 8 };

/* Where slabs for a new span are looked for, cheapest first (sources.c). */
enum hak_stage {
    HAK_STAGE_OWN_HINT, HAK_STAGE_OWN_EMPTY, HAK_STAGE_ADOPTED, HAK_STAGE_CLAIMED, HAK_STAGE_LOCKED, HAK_STAGES
};

enum { HAK_WARM_MAX = 16 };
enum { HAK_ASSIGNED_MAX = 16, HAK_HELD_SPARES = 1 };

/* What the fast paths read, and all that the sentinels of thread.h have. */
#define HAK_HEAP_FRONT \
    uint32_t tag; /* id << HAK_CLASS_OFFSET_BITS */ \
    uint32_t id; \
    uint32_t mode; /* HAK_MODE_... */ \
    _Atomic uint32_t lock; /* who is inside a slow path: enum hak_heap_user */ \
    intptr_t to_share; /* the share that the thread used last lies so many bytes from here; 0: none (own/own.h) */ \
    uint32_t share_tag; /* its tag ^ this one; 0: none */ \
    struct hak_own *own; /* of a share: the heap it is of now; NULL: of none */ \
    hak_line_aligned struct hak_bin bins[HAK_CLASS_LIMIT]; \
    void **absorb[HAK_CLASS_LIMIT]; /* while top is below this, blocks of other heaps are taken in; NULL: never */ \
    uint8_t foreign[HAK_CLASS_LIMIT]; /* the bin may hold blocks of other heaps */ \
    uint8_t closed_reasons[HAK_CLASS_LIMIT]; /* enum hak_closed_reason; 0: the bin is open */

struct hak_heap_front {
    HAK_HEAP_FRONT
};

struct hak_heap {
    HAK_HEAP_FRONT
    /* the slots, with their guards, of the classes for which the options ask it; else the beginning of the slot area
     * (cache/tune.c) */
    void *local[HAK_CLASS_LOCAL_LAST - HAK_CLASS_LOCAL_FIRST + 1][1 + HAK_LOCAL_SLOTS];
    /* slow paths */
    _Atomic uint32_t outbox_used;                   /* bit b: bucket b may hold blocks; the owner changes it */
    uint32_t outbox_misses;                         /* refills since the outbox was last flushed */
    size_t cache_bytes;                             /* capacity * size above the first capacities, summed */
    size_t process_bytes;                           /* capacity * size, summed, and large_cache_charged */
    bool in_process_bytes;                          /* ... and counted in the process's sum; not while parked */
    void **slots_next, **slots_end;                 /* what is left of the slot area behind this struct */
    size_t mapped;                                  /* bytes of HAK_HEAP_STRIDE that are */
    void **slots_free[10];                          /* given back slot areas, by power of two */
    void *bitmaps_free[HAK_BITMAP_SIZES];           /* given back bitmaps, by size */
    uint32_t upkeep_calls;                          /* slow paths since the clock was last looked at */
    uint32_t polling_left;                            /* calls until a polling heap is looked at again (upkeep/polling.h) */
    uint32_t refills, overflows;                    /* modulo 2^32 */
    uint32_t refills_seen, overflows_seen;          /* when the heap was polling */
    uint64_t polling_ms, count_ms;                    /* when that was, and when its calls were last counted anew */
    uint64_t much_ms;                               /* since when idle_bytes has been much; 0: it is not */
    uint64_t shrink_ms;                             /* when idle bins last gave back */
    uint32_t moved_seen[HAK_CLASSES];               /* blocks refilled and drained then, modulo 2^32 */
    hak_counter idle_bytes;                         /* given to spans beyond what was taken, since memory went back */
    uint32_t ending;                                /* the thread has begun to run its destructors */
    _Atomic uint64_t thread;                        /* process << 32 | its thread's number; 0: none, or not asked */
    uint32_t left;                                  /* blocks in the bins of a parked heap: enum hak_heap_left */
    uint32_t clean_slabs;                           /* claimed since memory was trimmed, that were not resident */
    size_t home;                                    /* the single slab that was taken last, plus one; 0: none yet */
    bool no_new_span;                                /* no SuperSlab is to be opened now */
    uint32_t assigned[HAK_ASSIGNED_MAX], assigned_count;        /* SuperSlabs held for large blocks (assigned.c) */
    uint32_t held_spare[HAK_HELD_SPARES];           /* that emptied lately; any numbers before */
    uint32_t held_moves, held_seen;                 /* requests for runs of them, modulo 2^32; when upkeep looked last */
    uint64_t large_cache_classes;                          /* bit c: large blocks of class c are kept (cache/large_cache.c) */
    size_t large_cache_bytes, large_cache_charged;                /* what is kept, and what the process has been charged for it */
    size_t large_cache_sure;                               /* so much may be kept for the time being */
    size_t large_out;                               /* bytes of large blocks outside of their spans, and large_remote_freed */
    size_t large_peak;                              /* the most in the program's hands lately */
    uint32_t large_cache_clock, large_cache_seen, large_cache_stepped;   /* blocks kept so far, modulo 2^32; at the last looks for old ones */
    uint32_t large_cache_hollow;                           /* of the large blocks freed, how much is not resident: in 256ths */
    uint32_t large_cache_weighed;                          /* large_cache_clock when a block was last looked at for that */
    uint32_t large_cache_pass;                             /* looks for old blocks until the next one is */
    uint32_t large_cache_oldest[HAK_LARGE_CLASSES];        /* large_cache_clock when the lowest block of the stack came */
    uint32_t grow_pause;                            /* refused growths to come before the budget is looked at again */
    uint32_t budget_hand;                           /* the class at which the search for idle capacity goes on */
    _Atomic uint32_t state;                         /* enum hak_heap_state */
    _Atomic uint32_t parked_next;                   /* id of the next parked heap */
    hak_counter remote_frees, remote_published, forwarded, adopted;
    hak_counter common_taken;                       /* blocks that the common heaps have given */
    hak_counter runs_claimed;                       /* runs of slabs found in SuperSlabs that were in slabs already */
    hak_counter stages[HAK_STAGES];                 /* spans obtained, by where they came from */
    struct hak_quarantine *quarantine;              /* hardened mode: freed blocks that are not used again yet */
    uint64_t sample_left;                           /* requests until the next mark (cache/mark.c); 0: not drawn */
    hak_counter sample_seen;                        /* requests that were counted for marks */
    uint64_t idle_classes;                          /* bit c: the only listed span of class c may be empty */
    hak_counter slab_count;                         /* slabs of spans; like all counters, a sum over all heaps */
    struct hak_share share;                         /* heaps of one's own */
    /* the line that other threads write */
    hak_line_aligned _Atomic(struct hak_span *) pending;
    _Atomic size_t large_remote_freed;                      /* bytes of large blocks that others have freed, spans and all */
    hak_line_aligned struct hak_heap_class classes[HAK_CLASSES];
    /* the warm pools, by slab; of each as much is touched as is used */
    uint32_t warm[HAK_CLASSES][HAK_WARM_MAX];
    /* last, because few threads ever touch it */
    hak_line_aligned struct hak_outbox_bucket outbox[HAK_OUTBOX_BUCKETS];
};
_Static_assert(sizeof(struct hak_heap) + 64 < HAK_HEAP_FIRST, "the slot area follows in the same stride");

/* The stack that really holds the class's blocks, visible or hidden. */
hak_inline struct hak_bin *hak__heap_bin(struct hak_heap *heap, uint32_t class)
{
    return heap->closed_reasons[class] != 0 ? &heap->classes[class].hidden : &heap->bins[class];
}

/* Blocks of so many bytes were given back, or taken. Under `lock`, or by the owner; should both do so at once, the figure
 * is a little wrong, and only decides how soon upkeep comes. */
hak_inline void hak__heap_idle_more(struct hak_heap *heap, size_t bytes) { hak_count(&heap->idle_bytes, bytes); }
hak_inline void hak__heap_idle_less(struct hak_heap *heap, size_t bytes)
{
    uint64_t idle = hak_counted(&heap->idle_bytes);
    hak_store(&heap->idle_bytes, bytes < idle ? idle - bytes : 0, HAK_RELAXED);
}

hak_inline bool hak__heap_is_share(const struct hak_heap *heap) { return heap->share.account != NULL; }

/* Whether a forked child has given the heap up, because it was half done. */
hak_inline bool hak__heap_is_lost(struct hak_heap *heap) { return hak_load(&heap->state, HAK_RELAXED) == HAK_HEAP_UNUSABLE; }

/* Slow paths run between these two. The owner rarely waits: only while another thread collects for it. */
hak_cold void hak__heap_wait(struct hak_heap *heap);

hak_inline bool hak__heap_try_lock(struct hak_heap *heap, enum hak_heap_user user)
{
    uint32_t nobody = HAK_NOBODY;
    /* acquire: pairs with the release in hak__heap_unlock. */
    return hak_cas_strong(&heap->lock, &nobody, user, HAK_ACQUIRE, HAK_RELAXED);
}
hak_inline void hak__heap_lock(struct hak_heap *heap)
{
    if (hak_unlikely(!hak__heap_try_lock(heap, HAK_OWNER)))
        hak__heap_wait(heap);
}
hak_inline void hak__heap_unlock(struct hak_heap *heap) { hak_store(&heap->lock, HAK_NOBODY, HAK_RELEASE); }

/* The way into a heap for its own thread, which a fork check or a signal may have brought into a child: false there if the heap
 * had to be left, half done by a sweeper that does not exist any more. The thread has another one then, or a sentinel. (The bare
 * hak__heap_lock is for a heap that has just been attached, taken up from the parked ones, or is shared under a lock.) */
hak_inline bool hak__enter_own(struct hak_heap *heap)
{
    hak__fork_check();
    if (hak_unlikely(hak__heap_is_lost(heap)))
        return false;
    hak__heap_lock(heap);
    return true;
}

/* The way into another thread's heap, as a sweeper: false if the heap is not in use, or busy at each of so many tries. The owner may
 * be the one who was interrupted by the caller, so nobody tries for ever. */
bool hak__enter_foreign(struct hak_heap *heap, unsigned tries);

/* Collects for the heaps whose owners are not in a slow path, and for parked ones, so that spans that have emptied can
 * serve others. `mine` is entered by the caller. */
void hak__heaps_sweep(const struct hak_heap *mine);

/* The same for one heap, which is not the caller's. */
void hak__heap_sweep(struct hak_heap *heap);

/* Starts the layer once the arena runs. */
void hak__heap_init(void);

/* A new heap, mapped and named, in state NEW: its classes and bins are still zero. NULL when the system refuses. */
struct hak_heap *hak__heap_new(void);

hak_inline struct hak_heap *hak__heap_by_id(uint32_t id) { return hak__heap_address(id); }
extern _Atomic uint32_t hak__heap_last;
uint32_t hak__heap_last_id(void);      /* heaps 1..this exist */

/* Takes up to `want` blocks of a class into out[0..], which afterwards pops (from the end) in ascending order: from the
 * warm pool; when that is empty the remote frees that wait are collected, then come spans with blocks, then a further
 * span. 0 when the system refuses. */
uint32_t hak__heap_take(struct hak_heap *heap, uint32_t class, void **out, uint32_t want);

/* A large block from what the heap has at hand: a listed span, or a run in a SuperSlab that it holds; in any that is open,
 * if it holds none. NULL: there is none. */
void *hak__heap_take_at_hand(struct hak_heap *heap, uint32_t class);

/* Blocks of the large pool have left their spans, or come back: then `count` is negative. */
hak_inline void hak__heap_large_moved(struct hak_heap *heap, uint32_t class, size_t count)
{
    if (class >= HAK_CLASS_FIRST_LARGE)
        heap->large_out += count * hak__classes[class].size;
}

/* One block that is known to be zero if that costs nothing, else NULL. */
void *hak__heap_take_zeroed(struct hak_heap *heap, uint32_t class);

/* Ends a listed span of which no block is outside, whether or not it is the last of its class; its slabs count as idle
 * for as long as their SuperSlab has been. */
hak_cold void hak__heap_end_idle(struct hak_heap *heap, struct hak_span *span);

/* Gives back blocks of this heap, of any classes. `function` names the public call for reports of misuse. */
void hak__heap_give(struct hak_heap *heap, void *const *blocks, uint32_t count, const char *function);

/* Ends a span of one block on behalf of another thread that has freed the block: its slabs go to the pool at once and
 * do not wait for their owner, who holds nothing but counters of such a span. `heap` is the freeing thread's (NULL: it has
 * none), `word` the slab's owner word as it was found. */
void hak__heap_end_foreign(struct hak_heap *heap, void *block, uint32_t word, const char *function);

/* Collects the spans on which other threads have freed blocks. */
void hak__heap_collect(struct hak_heap *heap);

/* --- looking for a free block (find.c) ---------------------------------------------------------------------------------- */

/* Whether p, a block of the class, is free in a bin, the outbox or a span of the heap, which the caller has entered; the
 * second: whether it is in a span. */
hak_cold bool hak__heap_has_free(struct hak_heap *heap, uint32_t class, const void *p);
hak_cold bool hak__heap_has_in_span(const struct hak_heap *heap, uint32_t class, const void *p);

/* Asks a heap that the caller has not entered; false if it is busy at each of so many tries. And all heaps but one until one says
 * yes. Who has entered a heap himself tries once: he may be what the others wait for. */
enum { HAK_HEAP_ASK_TRIES = 1000 };
typedef bool hak_heap_question(struct hak_heap *heap, uint32_t class, const void *p);
hak_cold bool hak__heap_ask(struct hak_heap *heap, hak_heap_question *question, uint32_t class, const void *p,
                            unsigned tries);
hak_cold bool hak__heaps_ask(const struct hak_heap *except, hak_heap_question *question, uint32_t class, const void *p,
                             unsigned tries);

/* --- sources of spans (sources.c) ------------------------------------------------------------------------------------- */

/* A span of the class with blocks to give, for a heap that has none listed; NULL when the system refuses. */
struct hak_span *hak__heap_new_span(struct hak_heap *heap, uint32_t class);

/* A block of a class whose spans have just one: such a span is never listed. NULL when the system refuses. */
void *hak__heap_take_single(struct hak_heap *heap, uint32_t class);

/* Ends a span that is wholly free, and gives its slabs to the pool. */
void hak__heap_end_span(struct hak_heap *heap, struct hak_span *span);

/* Bitmaps of a span that has ended, for the next one. */
void hak__bitmaps_give(struct hak_heap *heap, void *memory, size_t bytes);

/* Ends the empty spans of other classes, and has the rest give up what they have ahead of need: there is no other memory.
 * HAK_CLASSES: of all. */
hak_cold void hak__heap_spare(struct hak_heap *heap, uint32_t class);

/* --- assigned SuperSlabs (assigned.c) ------------------------------------------------------------------------------------------ */

/* A span of large blocks in a run of a SuperSlab that the heap holds: listed unless it is for one block; or NULL. */
struct hak_span *hak__heap_assigned_span(struct hak_heap *heap, uint32_t class);

/* A run of slabs of a SuperSlab that the heap holds, or HAK_NO_RUN. */
size_t hak__assigned_take(struct hak_heap *heap, unsigned count, bool *fresh);

/* Holds the SuperSlab in which the slab lies, unless somebody does, or the heap has little in large blocks. */
void hak__assigned_add(struct hak_heap *heap, size_t slab);

/* The SuperSlab of this slab, which the heap holds, has emptied. */
void hak__assigned_emptied(struct hak_heap *heap, size_t slab);

void hak__assigned_let_go(struct hak_heap *heap);

/* --- the common heaps (common.c) --------------------------------------------------------------------------------------- */

/* Makes a heap that has just been opened a common one, if the process has so many that there should be one more. */
bool hak__common_add(struct hak_heap *heap);

/* Blocks of the class that they may give to a heap that is opened now. */
uint32_t hak__common_first(uint32_t class);

/* A few blocks of a class with common_left, no more than its capacity, into out[0..], as hak__heap_take gives them; 0 when
 * there are none just now. */
uint32_t hak__common_take(struct hak_heap *heap, uint32_t class, void **out);

/* In a forked child, before hak__heaps_fork_child: they are heaps of threads that do not exist, like others. */
void hak__common_fork_child(void);

/* --- remote frees (remote.c) ------------------------------------------------------------------------------------ */

/* From any thread: publishes frees of blocks of one word of a span, and tells the owner. */
void hak__remote_publish(struct hak_span *span, uint32_t word, uint64_t bits, const char *function);

/* Takes the whole pending stack and calls collect for each span that is the heap's; others are sent on. */
void hak__remote_receive(struct hak_heap *heap, void (*collect)(struct hak_heap *, struct hak_span *));

/* --- parked heaps (park.c) --------------------------------------------------------------------------------------- */

void hak__heap_park(struct hak_heap *heap);
struct hak_heap *hak__heap_unpark(void);      /* NULL if none is parked */

/* The same for a new thread, which waits a little while one is borrowed: taken off the list by an adopter, who says so before
 * the first and after the last of those that he takes and parks again. */
struct hak_heap *hak__heap_take_up(void);
void hak__heaps_borrow(bool begin);

/* Whether one of the first few parked heaps is wanted, without taking any off the list; just now, and perhaps not any more. */
bool hak__heap_any_parked(bool (*wanted)(struct hak_heap *, uint32_t), uint32_t class, unsigned most);

/* Takes over the spans of a class that have free blocks from parked heaps; whether there were any (adopt.c). */
bool hak__heap_adopt(struct hak_heap *heap, uint32_t class);

/* A span enters or leaves the list of those with blocks to give. */
void hak__heap_list(struct hak_heap *heap, struct hak_span *span);
void hak__heap_unlist(struct hak_heap *heap, struct hak_span *span);

/* In a forked child: the heaps of the threads that do not exist there are parked, or lost if they were busy; `mine` and
 * `shared` (either may be NULL) stay in use. */
void hak__heaps_fork_child(const struct hak_heap *mine, const struct hak_heap *shared);

/* The same where nobody can tell which heap is still in use: only those in which a sweeper was are lost. False if a thread may
 * still take one of them for its own. */
bool hak__heaps_fork_further(void);

/* --- checks ------------------------------------------------------------------------------------------------------- */

hak_cold bool hak__heap_is_valid(struct hak_heap *heap);

#endif
