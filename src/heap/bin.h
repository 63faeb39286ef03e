/* Bins: a class's stack of ready blocks, two words for the fast path and a struct for the rest, and why a bin is closed. Part of the
 * heap; used by cache/. */
#pragma once

#include "span/span.h"

/* A class's stack of ready blocks: the two words that a pop or a push needs, and nothing else. The word below the
 * bottom is NULL, so "empty" is the same test as "no pointer". */
struct hak_bin {
    void **top;     /* where the next push goes; top[-1] is the next block, or NULL */
    void **end;     /* top == end: full */
};
_Static_assert(sizeof(struct hak_bin) == HAK_BIN_SIZE, "class offsets are those of bins; one line per operation");

/* The rest of a class, off the fast path. */
struct hak_heap_class {
    struct hak_bin hidden;   /* the real bin while the visible one is closed */
    void **bottom;
    struct hak_span *spans;     /* those with blocks to give */
    uint16_t capacity;          /* 0: nothing is cached, the bin is closed */
    uint16_t ceiling;           /* capacity may grow to this */
    uint8_t local;              /* its slots are heap->slots.local's, of fixed capacity */
    uint8_t returned_lately;    /* blocks were drained or collected since the capacity last grew */
    uint8_t missed_lately;      /* the bin was found empty since the capacity last grew */
    uint8_t common_left;        /* blocks that the common heaps may still give (common.c) */
    uint8_t dry;                /* misses since blocks were last drained or collected; stops counting at its end */
    uint16_t moves;             /* refills and drains since the budget was last looked at */
    uint16_t warm_need;         /* blocks that make a span good for a refill; 0: there is no warm pool */
    uint8_t warm_count;         /* spans in the warm pool */
    uint8_t warm_budget;        /* spans that the next miss puts there at most, while that is adaptive */
    uint8_t warm_rate;          /* hit rate of late, in 256ths */
    uint8_t absorbs;            /* while closed by polling: blocks of other heaps were taken in before */
    uint8_t marks;              /* NULLs among the blocks in the bin (cache/mark.c) */
    uint8_t ramp;               /* refills since the class began or was flushed; stops counting when batches are whole */
    uint32_t warm_hits_then;    /* what warm_hits was when the pool was last found empty */
    hak_counter refilled, drained, collected, misses, span_count, mallocs, frees;
    hak_counter warm_hits, warm_prefilled;
};
_Static_assert(sizeof(struct hak_heap_class) == 128, "two cache lines");

enum { HAK_MODE_EXACT = 1, HAK_MODE_REDIRECTED = 2, HAK_MODE_SENTINEL = 4, HAK_MODE_POLLING = 8, HAK_MODE_HARDENED = 16,
       HAK_MODE_PROFILED = 128, HAK_MODE_EXITED = 256 };

/* Why every malloc and free of a class takes the slow path; 0: its bin is open. A large class is closed for good, a class
 * without capacity until it gets some; the others are the heap's mode. malloc_slow.c, free_slow.c
 * and, under the heap lock, guard/exact.c act on the reasons. Samples close nothing: they are marks in open bins. */
enum hak_closed_reason {
    HAK_CLOSED_EXACT = HAK_MODE_EXACT, HAK_CLOSED_NO_HEAP = HAK_MODE_SENTINEL, HAK_CLOSED_POLLING = HAK_MODE_POLLING,
    HAK_CLOSED_HARDENED = HAK_MODE_HARDENED, HAK_CLOSED_UNCACHED = 32, HAK_CLOSED_LARGE = 64,
    HAK_CLOSED_PROFILED = HAK_MODE_PROFILED,   /* of large classes only: their calls are counted (profile/profile.h) */
    HAK_CLOSED_REDIRECTED = HAK_MODE_REDIRECTED,   /* the thread's requests go to a heap of one's own (own/standard.c) */
    HAK_CLOSED_BY_MODE = HAK_CLOSED_EXACT | HAK_CLOSED_POLLING | HAK_CLOSED_HARDENED | HAK_CLOSED_REDIRECTED,
};
