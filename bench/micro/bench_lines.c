/*
 * bench_lines LOOP [ARGUMENTS...]
 *
 * Runs the loops of the other benchmarks on malloc and free, each operation announced by a call of bench_op, for
 * the counting of cache lines in bench/lines.  Alone it measures nothing that the other programs don't.
 */
#include "alloc_lines.h"

#include "loop_large_mt.h"
#include "loop_larson.h"
#include "loop_mid_large_mt.h"
#include "loop_remote.h"

#include <string.h>

struct lines_loop {
    const char *name;
    const char *title;
    int (*run)(const char *name, int argc, char **argv);
};

#define LINES_LOOP(name) {#name, "bench_lines/" #name, name##_main}

static const struct lines_loop lines_loops[] = {
    LINES_LOOP(mid_large_mt), LINES_LOOP(large_mt), LINES_LOOP(larson), LINES_LOOP(remote),
};

enum { LINES_LOOPS = sizeof lines_loops / sizeof lines_loops[0] };

/* Stays a call of its own: the assembly keeps the compiler from seeing that it does nothing. */
__attribute__((noinline)) void bench_op(void)
{
    __asm__ volatile("" : : : "memory");
}

int main(int argc, char **argv)
{
    for (unsigned i = 0; argc > 1 && i < LINES_LOOPS; i++) {
        if (strcmp(argv[1], lines_loops[i].name) == 0) {
            return lines_loops[i].run(lines_loops[i].title, argc - 1, argv + 1);
        }
    }
    bench_print("usage: bench_lines LOOP [ARGUMENTS...]\n       bench_lines LOOP --help\n\nLOOP is one of");
    for (unsigned i = 0; i < LINES_LOOPS; i++) {
        bench_print(" ");
        bench_print(lines_loops[i].name);
    }
    bench_print("\n");
    return argc < 2 || strcmp(argv[1], "--help") != 0 ? 2 : 0;
}
