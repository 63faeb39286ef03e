/*
 * page_tables [MIB [SIZE [KEEP]]]
 *
 * Exercises how densely memory lies in addresses. The program allocates MIB MiB in blocks of SIZE bytes, writes them, and frees all but
 * every KEEP-th.
 *
 *   pte_kib, kept_pte_kib    the process's page tables, by the kernel's account (VmPTE), while all blocks live and afterwards
 *   pte_per_mib              the first by MIB
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct bench_arg page_args[] = {
    {"MIB", "MiB of blocks", 256, 1, 65536, NULL},
    {"SIZE", "bytes of a block", 200, 16, BENCH_SIZE_MAX, NULL},
    {"KEEP", "of so many blocks one is kept", 64, 1, BENCH_BLOCKS_MAX, NULL},
};
static const struct bench_spec page_spec = BENCH_SPEC("Page tables of a heap, full and mostly freed.", page_args);

static long tables_kb(void)
{
    return bench_field_kb("/proc/self/status", "VmPTE:");
}

int main(int argc, char **argv)
{
    static char line[512];
    struct bench_run run;
    bench_parse(&run, "page_tables", &page_spec, argc, argv);
    size_t size = run.value[1], blocks = (run.value[0] << 20) / size;
    char **block = bench_map((blocks + 1) * sizeof *block);
    for (size_t i = 0; i < blocks; i++) {
        if ((block[i] = malloc(size)) == NULL) {
            bench_die("out of memory");
        }
        memset(block[i], 1, size);
    }
    long full = tables_kb();
    for (size_t i = 0; i < blocks; i++) {
        if (i % run.value[2] != 0) {
            free(block[i]);
        }
    }
    snprintf(line, sizeof line, "page_tables pte_kib=%ld kept_pte_kib=%ld pte_per_mib=%.2f args=\"%s\"\n", full, tables_kb(),
             (double)full / (double)run.value[0], run.text);
    bench_print(line);
    return 0;
}
