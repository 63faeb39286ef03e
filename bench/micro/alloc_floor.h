/*
 * The floor: not an allocator, but the least work that anything called malloc and free could do.
 *
 * malloc is one look-up from size to class and one pop, free one look-up from address to class and one
 * push, both on a thread-local LIFO array per class.  There is no refill in the timed part (a thread
 * gets its blocks in bench_thread_prepare), no check and no ownership: a freed block goes to the thread
 * that frees it.  Its figures are a limit to compare with; to keep them one, don't make it safer.
 *
 * Invariants: 1. every 64 KiB grain of the window holds blocks of one class.  2. The lowest word of an
 * array is NULL, so an exhausted class yields NULL, which the loops check for any allocator.  3. All
 * threads together have fewer than FLOOR_DEEP blocks of a class, so no array overflows.
 */
#ifndef BENCH_ALLOC_H
#define BENCH_ALLOC_H

#include "common.h"

#include <pthread.h>
#include <string.h>

/* Non-zero because a thread that only allocates would run dry. */
enum { BENCH_NEEDS_BALANCE = 1 };

enum {
    FLOOR_MAX = 1 << 20,    /* largest block */
    FLOOR_CLASSES = 128,    /* 16-byte steps to 256 B, then 8 classes per doubling: 1 .. 112 */
    FLOOR_DEEP = 1 << 20,   /* words of an array, one of them the NULL below the blocks */
    FLOOR_GRAIN_SHIFT = 16, /* 64 KiB */
    FLOOR_GRAINS = 1 << 20, /* a window of 64 GiB */
};

/* A thread's arrays between the end of one thread and the beginning of the next. */
struct floor_record {
    struct floor_record *next;
    void **top[FLOOR_CLASSES];
};

static uint8_t floor_size_class[FLOOR_MAX / 16 + 1];
static uint8_t floor_grain_class[FLOOR_GRAINS];
static char *floor_window;
static _Thread_local void **floor_top[FLOOR_CLASSES];
static _Thread_local struct floor_record *floor_mine;

/* Everything from here on belongs to the untimed part; the lock covers these variables. */
static pthread_mutex_t floor_lock = PTHREAD_MUTEX_INITIALIZER;
static size_t floor_class_bytes[FLOOR_CLASSES];
static size_t floor_carved[FLOOR_CLASSES];
static size_t floor_next_grain;
static struct floor_record *floor_idle;

static inline void *bench_alloc(size_t size)
{
    return *floor_top[floor_size_class[(size + 15) >> 4]]--;
}

static inline void bench_free(void *block)
{
    *++floor_top[floor_grain_class[((char *)block - floor_window) >> FLOOR_GRAIN_SHIFT]] = block;
}

static void floor_init_locked(void)
{
    size_t bytes = 0, step = 16;
    unsigned class = 0;
    floor_window = bench_map((size_t)FLOOR_GRAINS << FLOOR_GRAIN_SHIFT);
    for (size_t unit = 0; unit <= FLOOR_MAX / 16; unit++) {
        if (unit * 16 > bytes || unit == 0) {
            bytes += step;
            step = bytes % (16 * step) == 0 ? 2 * step : step;
            floor_class_bytes[++class] = bytes;
        }
        floor_size_class[unit] = (uint8_t)class;
    }
}

/* Adds `blocks` blocks to a new array of a class; the lowest addresses come out first. */
static void **floor_carve_locked(unsigned class, size_t blocks)
{
    const size_t bytes = floor_class_bytes[class];
    const size_t grains = (blocks * bytes >> FLOOR_GRAIN_SHIFT) + 1;
    floor_carved[class] += blocks;
    if (floor_carved[class] >= FLOOR_DEEP || floor_next_grain + grains > FLOOR_GRAINS) {
        bench_die("the floor has no room for so many blocks: take a smaller working set");
    }
    char *first = floor_window + (floor_next_grain << FLOOR_GRAIN_SHIFT);
    memset(floor_grain_class + floor_next_grain, (int)class, grains);
    floor_next_grain += grains;
    void **top = bench_map(FLOOR_DEEP * sizeof *top);
    for (size_t i = blocks; i-- > 0;) {
        *++top = first + i * bytes;
    }
    return top;
}

static void floor_fill_locked(struct bench_demand demand)
{
    const unsigned last = floor_size_class[(demand.max + 15) >> 4];
    for (unsigned class = floor_size_class[(demand.min + 15) >> 4]; class <= last; class++) {
        floor_top[class] = floor_carve_locked(class, demand.blocks);
    }
}

/* Gives the thread the arrays of an ended thread if there are any, else arrays for its demand. */
static void bench_thread_prepare(struct bench_demand demand)
{
    if (demand.max > FLOOR_MAX) {
        bench_die("the floor has no blocks above 1 MiB");
    }
    pthread_mutex_lock(&floor_lock);
    if (floor_window == NULL) {
        floor_init_locked();
    }
    floor_mine = floor_idle;
    if (floor_mine != NULL) {
        floor_idle = floor_mine->next;
        memcpy(floor_top, floor_mine->top, sizeof floor_top);
    } else {
        floor_mine = bench_map(sizeof *floor_mine);
        floor_fill_locked(demand);
    }
    pthread_mutex_unlock(&floor_lock);
}

/* Leaves the thread's arrays to the next thread that prepares. */
static void bench_thread_done(void)
{
    memcpy(floor_mine->top, floor_top, sizeof floor_top);
    pthread_mutex_lock(&floor_lock);
    floor_mine->next = floor_idle;
    floor_idle = floor_mine;
    pthread_mutex_unlock(&floor_lock);
}

#endif
