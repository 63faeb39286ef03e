/* large_mt: random replacement of blocks of 64 KiB to 1 MiB by several threads. */
#ifndef BENCH_LOOP_LARGE_MT_H
#define BENCH_LOOP_LARGE_MT_H

#include "slots.h"

static const struct bench_arg large_mt_args[] = SLOTS_MT_ARGS(1000000, 16, 64 << 10, 1 << 20);

static const struct bench_spec large_mt_spec =
    BENCH_SPEC("Threads replace blocks of 64 KiB to 1 MiB in random slots of their own.", large_mt_args);

static int large_mt_main(const char *name, int argc, char **argv)
{
    return slots_mt_main(name, &large_mt_spec, argc, argv);
}

#endif
