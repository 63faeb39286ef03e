/*
 * bench_tiny_hot [SIZE [ITERATIONS [BATCH]]]
 *
 * Exercises the fast paths alone: everything is in the first-level cache, nothing is ever refilled.
 * Knobs: a BATCH beyond the capacity of a thread's cache shows refill and drain at their most regular.
 */
#include "alloc_libc.h"
#include "loop_tiny_hot.h"

int main(int argc, char **argv)
{
    return tiny_hot_main("bench_tiny_hot", argc, argv);
}
