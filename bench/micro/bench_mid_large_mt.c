/*
 * bench_mid_large_mt [THREADS [ITERATIONS [WORKING_SET [SEED [MIN [MAX]]]]]]
 *
 * Exercises the mid pool: blocks of 8 to 32 KiB, replaced at random by every thread in slots of its own.
 * Knobs: a WORKING_SET beyond a thread's cache capacity shows the shared path behind it.
 */
#include "alloc_libc.h"
#include "loop_mid_large_mt.h"

int main(int argc, char **argv)
{
    return mid_large_mt_main("bench_mid_large_mt", argc, argv);
}
