/*
 * bench_large_mt [THREADS [ITERATIONS [WORKING_SET [SEED [MIN [MAX]]]]]]
 *
 * Exercises the large pool: blocks of 64 KiB to 1 MiB, replaced at random by every thread in slots of its
 * own.  Allocators that return such blocks to the system at once pay here in page faults.
 * Knobs: WORKING_SET decides how much memory is alive, MIN and MAX which side of a threshold is seen.
 */
#include "alloc_libc.h"
#include "loop_large_mt.h"

int main(int argc, char **argv)
{
    return large_mt_main("bench_large_mt", argc, argv);
}
