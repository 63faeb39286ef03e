/*
 * bench_calloc [SIZE [BLOCKS [ROUNDS]]]
 *
 * Exercises zeroed memory: BLOCKS blocks of SIZE bytes are allocated by calloc, written through and freed,
 * ROUNDS times.  An allocator may clear a block that it has used before, or hand out pages that the system
 * has cleared; the first costs a memset, the second a page fault per page.
 * Knobs: SIZE from 1 KiB to 1 MiB is where the two ways differ; the first round is always fresh memory.
 */
#include "alloc_libc.h"
#include "common.h"

#include <stdlib.h>
#include <string.h>

static const struct bench_arg calloc_args[] = {
    {"SIZE", "bytes of a block", 65536, 1, BENCH_SIZE_MAX, NULL},
    {"BLOCKS", "blocks allocated before the first is freed", 64, 1, BENCH_BLOCKS_MAX, NULL},
    {"ROUNDS", "how often", 2000, 1, BENCH_COUNT_MAX, NULL},
};

static const struct bench_spec calloc_spec =
    BENCH_SPEC("Zeroed blocks are allocated, written and freed.", calloc_args);

static void calloc_round(char **block, size_t blocks, size_t size)
{
    for (size_t i = 0; i < blocks; i++) {
        block[i] = calloc(1, size);
        if (block[i] == NULL) {
            bench_die("out of memory");
        }
        if (block[i][0] != 0 || block[i][size / 2] != 0 || block[i][size - 1] != 0) {
            bench_die("calloc gave memory that is not zero");
        }
        memset(block[i], 1, size);
    }
    for (size_t i = 0; i < blocks; i++) {
        bench_free(block[i]);
    }
}

int main(int argc, char **argv)
{
    struct bench_run run;
    bench_parse(&run, "bench_calloc", &calloc_spec, argc, argv);
    const size_t size = run.value[0], blocks = run.value[1];
    char **block = bench_map(blocks * sizeof(char *));
    double start = bench_now();
    for (uint64_t round = 0; round < run.value[2]; round++) {
        calloc_round(block, blocks, size);
    }
    bench_report(&run, NULL, run.value[2] * blocks, bench_now() - start);
    return 0;
}
