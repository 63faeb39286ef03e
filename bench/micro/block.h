/*
 * The step that all loops have in common: a block of the size asked for, checked and touched.
 * Included by loop headers after the program has chosen its allocator (alloc_libc.h or alloc_floor.h).
 */
#ifndef BENCH_BLOCK_H
#define BENCH_BLOCK_H

#include "common.h"

static inline void *bench_block(size_t size)
{
    void *block = bench_alloc(size);
    if (__builtin_expect(block == NULL, 0)) {
        bench_die("out of memory");
    }
    bench_touch(block, size);
    return block;
}

#endif
