/*
 * bench_floor LOOP [ARGUMENTS...]
 *
 * Runs the loops of the other benchmarks on the ideal allocator of alloc_floor.h: thread-local LIFO
 * arrays per class, the class of a freed pointer found by one table look-up, no refill in the timed
 * part, no checks, no ownership.  It is the limit that a real allocator can approach and must not be
 * made more useful than that.  Its memory figures mean nothing.
 */
#include "alloc_floor.h"

#include "loop_large_mt.h"
#include "loop_larson.h"
#include "loop_mid_large_mt.h"
#include "loop_random_mixed.h"
#include "loop_remote.h"
#include "loop_tiny_hot.h"
#include "loop_tree.h"

struct floor_loop {
    const char *name;
    const char *title;
    int (*run)(const char *name, int argc, char **argv);
};

#define FLOOR_LOOP(name) {#name, "bench_floor/" #name, name##_main}

static const struct floor_loop floor_loops[] = {
    FLOOR_LOOP(random_mixed), FLOOR_LOOP(mid_large_mt), FLOOR_LOOP(tiny_hot), FLOOR_LOOP(large_mt),
    FLOOR_LOOP(larson),       FLOOR_LOOP(tree),         FLOOR_LOOP(remote),
};

enum { FLOOR_LOOPS = sizeof floor_loops / sizeof floor_loops[0] };

static void print_usage(void)
{
    bench_print("usage: bench_floor LOOP [ARGUMENTS...]\n       bench_floor LOOP --help\n\n"
                "Runs a benchmark's loop on an ideal allocator without refill, checks or ownership:\n"
                "the limit of what malloc and free could reach.  LOOP is one of\n");
    for (unsigned i = 0; i < FLOOR_LOOPS; i++) {
        bench_print("  ");
        bench_print(floor_loops[i].name);
        bench_print("\n");
    }
}

int main(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_usage();
        return argc < 2 ? 2 : 0;
    }
    for (unsigned i = 0; i < FLOOR_LOOPS; i++) {
        if (strcmp(argv[1], floor_loops[i].name) == 0) {
            return floor_loops[i].run(floor_loops[i].title, argc - 1, argv + 1);
        }
    }
    print_usage();
    return 2;
}
