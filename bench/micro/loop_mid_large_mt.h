/* mid_large_mt: random replacement of blocks of 8 to 32 KiB by several threads. */
#ifndef BENCH_LOOP_MID_LARGE_MT_H
#define BENCH_LOOP_MID_LARGE_MT_H

#include "slots.h"

static const struct bench_arg mid_large_mt_args[] = SLOTS_MT_ARGS(20000000, 64, 8 << 10, 32 << 10);

static const struct bench_spec mid_large_mt_spec =
    BENCH_SPEC("Threads replace blocks of 8 to 32 KiB in random slots of their own.", mid_large_mt_args);

static int mid_large_mt_main(const char *name, int argc, char **argv)
{
    return slots_mt_main(name, &mid_large_mt_spec, argc, argv);
}

#endif
