/*
 * huge_pages [MIB [SIZE [CHASES [SEED]]]]
 *
 * Exercises which part of a growing heap huge pages back. The program allocates MIB MiB in blocks of SIZE bytes, writes them, links them
 * in a random circle and follows CHASES links.
 *
 *   half_percent, huge_percent    resident memory in huge pages, when half and when all of the blocks exist
 *   resident_mib                  when all exist
 *   chase_ns                      per link
 * Huge pages depend on /sys/kernel/mm/transparent_hugepage/enabled; the program prints it as thp.
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct bench_arg huge_args[] = {
    {"MIB", "MiB of blocks", 256, 1, 65536, NULL},
    {"SIZE", "bytes of a block", 200, 16, BENCH_SIZE_MAX, NULL},
    {"CHASES", "links that are followed", 2000000, 1, BENCH_COUNT_MAX, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
};
static const struct bench_spec huge_spec = BENCH_SPEC("Huge pages of a growing heap, and the time of chasing pointers.", huge_args);

static double huge_percent(void)
{
    long rss = bench_field_kb("/proc/self/smaps_rollup", "Rss:");
    return 100.0 * (double)bench_field_kb("/proc/self/smaps_rollup", "AnonHugePages:") / (double)rss;
}

/* The word in brackets. */
static const char *setting(void)
{
    static char text[128];
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    char *at = file != NULL && fgets(text, sizeof text, file) != NULL ? strchr(text, '[') : NULL;
    if (file != NULL) {
        fclose(file);
    }
    if (at == NULL) {
        return "none";
    }
    char *end = strchr(at, ']');
    if (end != NULL) {
        *end = 0;
    }
    return at + 1;
}

static void fill(char **block, size_t from, size_t to, size_t size)
{
    for (size_t i = from; i < to; i++) {
        if ((block[i] = malloc(size)) == NULL) {
            bench_die("out of memory");
        }
        memset(block[i], 1, size);
    }
}

/* One circle through all blocks, in random order. */
static void link_all(char **block, size_t blocks, uint64_t seed)
{
    for (size_t i = blocks - 1; i > 0; i--) {
        size_t other = (size_t)(bench_random(&seed) % (i + 1));
        char *kept = block[i];
        block[i] = block[other];
        block[other] = kept;
    }
    for (size_t i = 0; i < blocks; i++) {
        *(char **)block[i] = block[(i + 1) % blocks];
    }
}

int main(int argc, char **argv)
{
    static char line[512];
    struct bench_run run;
    bench_parse(&run, "huge_pages", &huge_spec, argc, argv);
    size_t size = run.value[1], blocks = (run.value[0] << 20) / size;
    char **block = bench_map((blocks + 1) * sizeof *block);
    fill(block, 0, blocks / 2, size);
    double half = huge_percent();
    fill(block, blocks / 2, blocks, size);
    double whole = huge_percent();
    long rss = bench_rss_kb();
    link_all(block, blocks, run.value[3]);
    double begun = bench_now();
    char *at = block[0];
    for (uint64_t i = 0; i < run.value[2]; i++) {
        at = *(char **)at;
    }
    double took = bench_now() - begun;
    snprintf(line, sizeof line,
             "huge_pages half_percent=%.1f huge_percent=%.1f resident_mib=%.1f chase_ns=%.1f thp=%s end=%d args=\"%s\"\n", half, whole,
             (double)rss / 1024, took * 1e9 / (double)run.value[2], setting(), at != NULL, run.text);
    bench_print(line);
    return 0;
}
