/*
 * bench_small [BLOCKS [SIZES]]
 *
 * Exercises what an allocator costs a small process: prints a line as `hello, world` does, allocates BLOCKS blocks whose
 * sizes rise from 16 bytes by one, and begin again after SIZES of them, writes into each, and tells what the process then
 * holds for itself: anonymous memory that was written (dirty_bytes) and page tables (table_bytes). Nothing is freed. The
 * program itself and the C library are part of both, so the figures are to be compared with those of another allocator,
 * with BLOCKS of 0, 100 and 1000.
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct bench_arg small_args[] = {
    {"BLOCKS", "blocks that stay allocated", 100, 0, 100000, NULL},
    {"SIZES", "sizes from 16 bytes on, one after the other", 512, 1, BENCH_SIZE_MAX, NULL},
};

static const struct bench_spec small_spec =
    BENCH_SPEC("A small process: its written memory and its page tables are the result.", small_args);

int main(int argc, char **argv)
{
    struct bench_run run;
    bench_parse(&run, "bench_small", &small_spec, argc, argv);
    puts("hello, world");
    fflush(stdout);
    for (uint64_t i = 0; i < run.value[0]; i++) {
        size_t size = 16 + i % run.value[1];
        char *block = malloc(size);
        if (block == NULL) {
            perror("malloc");
            return 1;
        }
        memset(block, 1, size);
    }
    long dirty = bench_field_kb("/proc/self/smaps_rollup", "Anonymous:"), tables = bench_field_kb("/proc/self/status", "VmPTE:");
    printf("bench_small blocks=%llu dirty_bytes=%ld table_bytes=%ld\n", (unsigned long long)run.value[0], dirty << 10, tables << 10);
    return 0;
}
