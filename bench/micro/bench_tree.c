/*
 * bench_tree [DEPTH [ROUNDS]]
 *
 * Exercises bursts: 2^17 allocations without a free, then as many frees without an allocation.
 * Knobs: DEPTH decides how far beyond every cache the burst goes.
 */
#include "alloc_libc.h"
#include "loop_tree.h"

int main(int argc, char **argv)
{
    return tree_main("bench_tree", argc, argv);
}
