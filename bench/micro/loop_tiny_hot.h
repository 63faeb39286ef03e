/*
 * tiny_hot: the cost of a warm malloc and free with everything in the first-level cache: a small batch
 * of blocks of one size is allocated and freed again, over and over.
 */
#ifndef BENCH_LOOP_TINY_HOT_H
#define BENCH_LOOP_TINY_HOT_H

#include "block.h"

enum { TINY_HOT_BATCH_MAX = 256 };

static const struct bench_arg tiny_hot_args[] = {
    {"SIZE", "size of the blocks in bytes", 16, 1, BENCH_SIZE_MAX, NULL},
    {"ITERATIONS", "blocks allocated and freed", 100000000, 1, BENCH_COUNT_MAX, NULL},
    {"BATCH", "blocks alive at a time", 8, 1, TINY_HOT_BATCH_MAX, NULL},
};

static const struct bench_spec tiny_hot_spec = BENCH_SPEC(
    "One thread allocates a small batch of blocks of one size and frees it, over and over.",
    tiny_hot_args);

static uint64_t tiny_hot_loop(size_t size, uint64_t iterations, unsigned batch)
{
    void *block[TINY_HOT_BATCH_MAX];
    uint64_t done = 0;
    for (; done < iterations; done += batch) {
        for (unsigned i = 0; i < batch; i++) {
            block[i] = bench_block(size);
        }
        for (unsigned i = 0; i < batch; i++) {
            bench_free(block[i]);
        }
    }
    return done;
}

static int tiny_hot_main(const char *name, int argc, char **argv)
{
    struct bench_run run;
    bench_parse(&run, name, &tiny_hot_spec, argc, argv);
    size_t size = run.value[0];
    bench_thread_prepare((struct bench_demand){size, size, run.value[2]});
    double start = bench_now();
    uint64_t ops = tiny_hot_loop(size, run.value[1], (unsigned)run.value[2]);
    bench_report(&run, NULL, ops, bench_now() - start);
    return 0;
}

#endif
