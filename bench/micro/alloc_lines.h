/*
 * malloc and free of whatever library serves the process, as in alloc_libc.h, with an empty function before each
 * malloc: bench/lines counts operations by its entry.
 */
#ifndef BENCH_ALLOC_H
#define BENCH_ALLOC_H

#include "common.h"

#include <stdlib.h>

enum { BENCH_NEEDS_BALANCE = 0 };

void bench_op(void);

static inline void *bench_alloc(size_t size)
{
    bench_op();
    return malloc(size);
}

static inline void bench_free(void *block)
{
    free(block);
}

static inline void bench_thread_prepare(struct bench_demand demand)
{
    (void)demand;
}

static inline void bench_thread_done(void)
{
}

#endif
