/* random_mixed: random replacement of small blocks of mixed size by one thread. */
#ifndef BENCH_LOOP_RANDOM_MIXED_H
#define BENCH_LOOP_RANDOM_MIXED_H

#include "slots.h"

static const struct bench_arg random_mixed_args[] = {
    {"ITERATIONS", "rounds of the loop", 20000000, 1, BENCH_COUNT_MAX, NULL},
    {"WORKING_SET", "slots, hence blocks alive at most", 400, 1, BENCH_BLOCKS_MAX, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
    {"MIN", "smallest block in bytes", 16, 1, BENCH_SIZE_MAX, NULL},
    {"MAX", "largest block in bytes", 1040, 1, BENCH_SIZE_MAX, NULL},
};

static const struct bench_spec random_mixed_spec = BENCH_SPEC(
    "One thread replaces blocks of random size in random slots and touches their first and last byte.",
    random_mixed_args);

static int random_mixed_main(const char *name, int argc, char **argv)
{
    struct bench_run run;
    bench_parse(&run, name, &random_mixed_spec, argc, argv);
    struct slots_plan plan = {1, run.value[0], run.value[1], run.value[2], run.value[3], run.value[4]};
    slots_run(&run, &plan);
    return 0;
}

#endif
