/*
 * bench_remote [MODE [PAIRS [ITERATIONS [MIN [MAX [RING [SEED]]]]]]]
 *
 * Exercises frees of blocks that belong to another thread.
 * Knobs: MODE oneway or exchange; MIN < MAX mixes sizes; RING bounds the blocks under way.
 */
#include "alloc_libc.h"
#include "loop_remote.h"

int main(int argc, char **argv)
{
    return remote_main("bench_remote", argc, argv);
}
