/*
 * larson [SECONDS [MIN [MAX [CHUNKS [ROUNDS [SEED [THREADS]]]]]]]
 *
 * Exercises a server: long-lived arrays of blocks that outlive the threads working on them, so memory of
 * ended threads has to be found and used again.
 * Knobs: CHUNKS decides how much is alive, ROUNDS how often threads are replaced.
 */
#include "alloc_libc.h"
#include "loop_larson.h"

int main(int argc, char **argv)
{
    return larson_main("larson", argc, argv);
}
