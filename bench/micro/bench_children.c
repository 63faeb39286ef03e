/*
 * bench_children [PATTERN [MIB [MIN [MAX [SEED]]]]]
 *
 * What a forked child copies that only frees: the parent fills MIB of blocks of random sizes, forks, and the child
 * frees all of them, every second one, or a random half in random order.  Only the child's own pages count: those that
 * it got because it, or the allocator in it, has written to a page that it shared with its parent.
 * Reports, beside the time of the frees: freed_kb; copied_kb; stays_kb, the resident memory above what the program used
 * before the blocks, once all is freed; and rested_kb, the same after a second of light use.
 */
#include "alloc_libc.h"
#include "block.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ALL, SECOND, HALF };
enum { REST_PIECES = 50, REST_OPERATIONS = 500, REST_SIZE = 100, REST_NS = 20000000 };

static const char *const patterns[] = { "all", "second", "half", NULL };
static const struct bench_arg children_args[] = {
    {"PATTERN", "which blocks the child frees", ALL, ALL, HALF, patterns},
    {"MIB", "bytes of blocks", 200, 1, 65536, NULL},
    {"MIN", "smallest block", 16, 16, 1 << 20, NULL},
    {"MAX", "largest block", 512, 16, 1 << 20, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
};
static const struct bench_spec children_spec =
    BENCH_SPEC("A forked child frees what its parent has allocated.\n"
               "Beside the usual fields: freed_kb, copied_kb, stays_kb, and rested_kb after a second of light use.",
               children_args);

static long smaps_kb(const char *field)
{
    return bench_field_kb("/proc/self/smaps_rollup", field);
}

static void shuffle(void **blocks, size_t count, uint64_t *seed)
{
    for (size_t i = count; i > 1; i--) {
        size_t other = bench_below((uint32_t)bench_random(seed), i);
        void *block = blocks[i - 1];
        blocks[i - 1] = blocks[other];
        blocks[other] = block;
    }
}

static void rest(void)
{
    const struct timespec piece = { 0, REST_NS };
    for (unsigned i = 0; i < REST_PIECES; i++) {
        for (unsigned n = 0; n < REST_OPERATIONS; n++)
            bench_free(bench_block(REST_SIZE));
        nanosleep(&piece, NULL);
    }
}

/* The blocks to be freed stand at the front, with the bytes that were asked for. */
static int child(struct bench_run *run, void **blocks, size_t count, uint64_t bytes, long before_kb)
{
    long copied_kb = smaps_kb("Private_Dirty:");
    double start = bench_now();
    for (size_t i = 0; i < count; i++)
        bench_free(blocks[i]);
    double seconds = bench_now() - start;
    copied_kb = smaps_kb("Private_Dirty:") - copied_kb;
    long stays_kb = smaps_kb("Rss:") - before_kb;
    rest();
    bench_extra(run, "freed_kb", bytes >> 10);
    bench_extra(run, "copied_kb", (uint64_t)(copied_kb > 0 ? copied_kb : 0));
    bench_extra(run, "stays_kb", (uint64_t)(stays_kb > 0 ? stays_kb : 0));
    bench_extra(run, "rested_kb", (uint64_t)(smaps_kb("Rss:") - before_kb));
    bench_report(run, NULL, count, seconds);
    return 0;
}

int main(int argc, char **argv)
{
    struct bench_run run;
    bench_parse(&run, "bench_children", &children_spec, argc, argv);
    const uint64_t bytes = run.value[1] << 20, least = run.value[2], most = run.value[3];
    bench_require(&run, least <= most, "MIN is at most MAX");
    uint64_t seed = bench_seed(run.value[4], 0), allocated = 0, freed = 0;
    size_t room = bytes / least + 1, count = 0, kept = 0;
    void **blocks = bench_map(room * sizeof *blocks), **others = bench_map(room * sizeof *others);
    memset(blocks, 0, room * sizeof *blocks);
    memset(others, 0, room * sizeof *others);
    bench_free(bench_block(least));
    long before_kb = smaps_kb("Rss:");
    for (size_t i = 0; allocated < bytes; i++) {
        size_t size = bench_size(bench_random(&seed), least, most);
        void *block = bench_block(size);
        memset(block, 1, size);
        allocated += size;
        bool goes = run.value[0] == ALL || (run.value[0] == SECOND ? i % 2 != 0 : (bench_random(&seed) & 1) != 0);
        if (!goes) {
            others[kept++] = block;
            continue;
        }
        blocks[count++] = block;
        freed += size;
    }
    if (run.value[0] == HALF)
        shuffle(blocks, count, &seed);
    pid_t process = fork();
    if (process == 0)
        _exit(child(&run, blocks, count, freed, before_kb));
    int status;
    if (process < 0 || waitpid(process, &status, 0) != process || status != 0)
        bench_die("the child has failed");
    return 0;
}
