/* The parts of a heap that belong to the layers above it: slots, budget, outbox, large cache and marks to cache/, polling to upkeep/.
 * heap/ itself reads only a figure or two of them. */
#pragma once

#include "heap/bin.h"

/* Where the slots of the bins lie (cache/slots.c). */
struct hak_slots {
    /* the slots, with their guards, of the classes for which the options ask it; else the beginning of the slot area */
    void *local[HAK_CLASS_LOCAL_LAST - HAK_CLASS_LOCAL_FIRST + 1][1 + HAK_LOCAL_SLOTS];
    void **next, **end;         /* what is left of the slot area behind the heap's struct */
    size_t mapped;              /* bytes of HAK_HEAP_STRIDE that are */
    void **free[10];            /* given back slot areas, by power of two */
};

/* How much the bins may hold (cache/tune.c). */
struct hak_budget {
    size_t bytes;                       /* capacity * size above the first capacities, summed */
    size_t process_bytes;               /* capacity * size, summed, and large_cache.charged */
    bool in_process;                    /* ... and counted in the process's sum; not while parked */
    uint32_t pause;                     /* refused growths to come before the budget is looked at again */
    uint32_t hand;                      /* the class at which the search for idle capacity goes on */
    uint64_t shrink_ms;                 /* when idle bins last gave back */
    uint32_t moved_seen[HAK_CLASSES];   /* blocks refilled and drained then, modulo 2^32 */
};

/* When a thread that only hits reads the clock (upkeep/polling.c). */
struct hak_polling {
    uint32_t calls;                             /* slow paths since the clock was last looked at */
    uint32_t left;                              /* calls until a polling heap is looked at again */
    uint32_t refills, overflows;                /* modulo 2^32 */
    uint32_t refills_seen, overflows_seen;      /* when the heap began to poll */
    uint64_t begun_ms, count_ms;                /* when that was, and when its calls were last counted anew */
    uint64_t much_ms;                           /* since when idle_bytes has been large; 0: it is not */
    hak_counter idle_bytes;                     /* given to spans beyond what was taken, since memory went back */
};

/* The large blocks that the thread has freed (cache/large_cache.c). Its time is the number of blocks that have come so far, modulo
 * 2^32. */
struct hak_large_cache {
    _Atomic uint32_t owner_turns;           /* odd while the owner is inside without the heap lock; counts up at both ends */
    _Atomic uint32_t asked_ms;              /* a sweeper wants the blocks since then, modulo 2^32, or 1; 0: none does */
    uint64_t classes;                       /* bit c: there are blocks of class c */
    size_t bytes, charged;                  /* of the blocks, and what the process has been charged for them */
    size_t sure;                            /* so many may stay for the time being */
    size_t peak;                            /* the most in the program's hands lately */
    uint32_t clock, seen;                   /* the time; when it was last aged */
    uint32_t absent_share;                  /* how much of the blocks freed is not resident, in 256ths */
    uint32_t weighed;                       /* when a block was last looked at for that */
    uint32_t pass;                          /* agings until the next look */
    uint32_t oldest[HAK_LARGE_CLASSES];     /* when the lowest block of the stack came */
};

/* Marks among the blocks of open bins (cache/mark.c). */
struct hak_sample_marks {
    uint64_t left;          /* requests until the next mark; 0: not drawn */
    hak_counter seen;       /* requests that were counted for marks */
};

/* Frees of other heaps' blocks, gathered by slab (cache/outbox.h). */
struct hak_outbox {
    _Atomic uint32_t used;      /* bit b: bucket b may hold blocks; the owner changes it */
    uint32_t misses;            /* refills since the outbox was last flushed */
    uint32_t single;            /* blocks published at once, while the thread had freed few; stops counting then */
};

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
