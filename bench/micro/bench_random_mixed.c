/*
 * bench_random_mixed [ITERATIONS [WORKING_SET [SEED [MIN [MAX]]]]]
 *
 * Exercises many small size classes at once with short-lived blocks in random order: the caches of ready
 * blocks and, because 400 blocks over some 65 classes come and go at random, their refill.
 * Knobs: a larger WORKING_SET leaves the processor's caches, a smaller MIN..MAX range makes it hotter.
 */
#include "alloc_libc.h"
#include "loop_random_mixed.h"

int main(int argc, char **argv)
{
    return random_mixed_main("bench_random_mixed", argc, argv);
}
