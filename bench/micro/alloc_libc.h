/*
 * The allocator under test: plain malloc and free of whatever library serves the process.
 *
 * A loop header (loop_*.h) is written against four functions: bench_alloc, bench_free, and
 * bench_thread_prepare / bench_thread_done around a thread's share of the work.  This header gives the
 * ones of a real allocator, alloc_floor.h those of the ideal one; a program includes exactly one.
 */
#ifndef BENCH_ALLOC_H
#define BENCH_ALLOC_H

#include "common.h"

#include <stdlib.h>

/* Non-zero for an allocator whose threads must free about as many blocks as they allocate. */
enum { BENCH_NEEDS_BALANCE = 0 };

static inline void *bench_alloc(size_t size)
{
    return malloc(size);
}

static inline void bench_free(void *block)
{
    free(block);
}

/* A real allocator gets no hint of what is coming. */
static inline void bench_thread_prepare(struct bench_demand demand)
{
    (void)demand;
}

static inline void bench_thread_done(void)
{
}

#endif
