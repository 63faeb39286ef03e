/*
 * suite_blocks [ITERATIONS [SLOTS [MIN [MAX [SEED]]]]]
 *
 * Exercises large blocks: 5 to 25 MiB, replaced at random, one byte of every 4 KiB written and read back.
 * An allocator that returns memory at once pays for every page anew, one that keeps it stays large.
 * Knobs: SLOTS decides how much is alive.
 */
#include "alloc_libc.h"
#include "common.h"

enum { BLOCKS_STEP = 4096 };

static const struct bench_arg blocks_args[] = {
    {"ITERATIONS", "replacements", 400, 1, BENCH_COUNT_MAX, NULL},
    {"SLOTS", "blocks alive at most", 20, 1, 4096, NULL},
    {"MIN", "smallest block in MiB", 5, 1, 1024, NULL},
    {"MAX", "largest block in MiB", 25, 1, 1024, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
};

static const struct bench_spec blocks_spec =
    BENCH_SPEC("Large blocks are replaced at random, each page written.", blocks_args);

struct large {
    char *block;
    size_t size;
    char mark;
};

static void blocks_free(struct large *slot)
{
    for (size_t at = 0; at < slot->size; at += BLOCKS_STEP) {
        if (slot->block[at] != slot->mark) {
            bench_die("a block does not hold what was written to it");
        }
    }
    bench_free(slot->block);
}

static void blocks_make(struct large *slot, size_t size, char mark)
{
    *slot = (struct large){bench_alloc(size), size, mark};
    if (slot->block == NULL) {
        bench_die("out of memory");
    }
    for (size_t at = 0; at < size; at += BLOCKS_STEP) {
        slot->block[at] = mark;
    }
}

int main(int argc, char **argv)
{
    struct bench_run run;
    bench_parse(&run, "suite_blocks", &blocks_spec, argc, argv);
    const size_t slots = run.value[1], min = run.value[2] << 20, max = run.value[3] << 20;
    bench_require(&run, min <= max, "MIN must not exceed MAX");
    struct large *slot = bench_map(slots * sizeof *slot);
    uint64_t seed = bench_seed(run.value[4], 0), digest = 0;
    double start = bench_now();
    for (uint64_t i = 0; i < run.value[0]; i++) {
        uint64_t random = bench_random(&seed);
        struct large *place = &slot[bench_below((uint32_t)random, slots)];
        blocks_free(place);
        blocks_make(place, bench_size(random, min, max), (char)i);
        digest = bench_mix(digest, place->size);
    }
    for (size_t i = 0; i < slots; i++) {
        blocks_free(&slot[i]);
    }
    double seconds = bench_now() - start;
    bench_check(&run, digest);
    bench_report(&run, NULL, run.value[0], seconds);
    return 0;
}
