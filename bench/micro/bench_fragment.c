/*
 * bench_fragment [ROUNDS [WORKING_MIB [KEEP_PERCENT [REST_MS [SEED]]]]]
 *
 * Exercises fragmentation: a round goes through three distributions of sizes (the small objects of a web server,
 * 16 to 1024 B and most of them below 128; then 200 to 500 B; then 2 to 8 KiB).  In each phase a working set is
 * filled, three quarters of it are replaced at random, and all but KEEP_PERCENT of the blocks are freed; the kept
 * ones live on for about ten phases, until survivors hold as much as the working set did and random ones of them
 * end.  What is left at the end is survivors of several rounds, scattered over all that was ever used.
 * Reports live bytes and, above what the program used before, resident memory at the end and after a time of light
 * use.  The work is the same under every allocator: the length is in rounds, not in seconds.
 * Knobs: ROUNDS for the length (1000 take some five minutes), KEEP_PERCENT for how sparse the survivors lie.
 */
#include "alloc_libc.h"
#include "block.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PHASES = 3, MEAN_AT_LEAST = 32, REST_PIECES = 50, PIECE_OPERATIONS = 1000, REST_SIZE = 100 };

static const struct bench_arg fragment_args[] = {
    {"ROUNDS", "rounds of three phases", 20, 1, 10000000, NULL},
    {"WORKING_MIB", "working set of a phase, and most bytes of survivors", 32, 1, 65536, NULL},
    {"KEEP_PERCENT", "of a phase's blocks that survive it", 10, 1, 100, NULL},
    {"REST_MS", "light use before the last figure, in milliseconds", 1000, 0, 3600000, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
};

static const struct bench_spec fragment_spec = BENCH_SPEC(
    "One thread cycles through distributions of sizes; a share of each phase's blocks survives it.\n"
    "Beside the usual fields: live_kb, and rss_kb at the end and rested_rss_kb after the light use.",
    fragment_args);

/* Blocks that are held, in no order. */
struct holding {
    void **block;
    uint32_t *size;
    size_t count, room;
    uint64_t bytes;
};

/* The tables are touched at once, so that they count as what the program used before. */
static struct holding holding_new(size_t room)
{
    struct holding held = {bench_map(room * sizeof(void *)), bench_map(room * sizeof(uint32_t)), 0, room, 0};
    memset(held.block, 1, room * sizeof(void *));
    memset(held.size, 1, room * sizeof(uint32_t));
    return held;
}

static void hold(struct holding *held, void *block, size_t size)
{
    held->block[held->count] = block;
    held->size[held->count++] = (uint32_t)size;
    held->bytes += size;
}

/* Takes one out; the last one fills its place. */
static void *let_go(struct holding *held, size_t index)
{
    void *block = held->block[index];
    held->bytes -= held->size[index];
    held->block[index] = held->block[--held->count];
    held->size[index] = held->size[held->count];
    return block;
}

static size_t web_size(uint64_t random)
{
    unsigned kind = (unsigned)random & 31;
    if (kind < 18)
        return bench_size(random, 16, 64);
    if (kind < 27)
        return bench_size(random, 65, 128);
    return kind < 31 ? bench_size(random, 129, 256) : bench_size(random, 257, 1024);
}

static size_t size_in_phase(unsigned phase, uint64_t random)
{
    switch (phase) {
    case 0:
        return web_size(random);
    case 1:
        return bench_size(random, 200, 500);
    default:
        return bench_size(random, 2048, 8192);
    }
}

static void allocate(struct holding *held, unsigned phase, uint64_t random)
{
    size_t size = size_in_phase(phase, random);
    hold(held, memset(bench_block(size), 1, size), size);
}

/* Gives the number of blocks allocated. */
static uint64_t run_phase(struct holding *work, unsigned phase, uint64_t bytes, uint64_t *seed)
{
    uint64_t allocated = 0;
    while (work->bytes < bytes && work->count < work->room) {
        allocate(work, phase, bench_random(seed));
        allocated++;
    }
    for (size_t left = work->count / 4 * 3; left > 0; left--) {
        bench_free(let_go(work, bench_below((uint32_t)bench_random(seed), work->count)));
        allocate(work, phase, bench_random(seed));
        allocated++;
    }
    return allocated;
}

static void end_phase(struct holding *work, struct holding *kept, unsigned percent, uint64_t bytes, uint64_t *seed)
{
    while (work->count > 0) {
        size_t size = work->size[work->count - 1];
        void *block = let_go(work, work->count - 1);
        if (bench_below((uint32_t)bench_random(seed), 100) < percent && kept->count < kept->room)
            hold(kept, block, size);
        else
            bench_free(block);
    }
    while (kept->bytes > bytes)
        bench_free(let_go(kept, bench_below((uint32_t)bench_random(seed), kept->count)));
}

static void rest(uint64_t ms)
{
    uint64_t piece_ns = ms * 1000000 / REST_PIECES;
    struct timespec piece = {(time_t)(piece_ns / 1000000000), (long)(piece_ns % 1000000000)};
    for (unsigned i = 0; i < REST_PIECES && ms != 0; i++) {
        for (unsigned n = 0; n < PIECE_OPERATIONS / 2; n++)
            bench_free(bench_block(REST_SIZE));
        nanosleep(&piece, NULL);
    }
}

int main(int argc, char **argv)
{
    struct bench_run run;
    bench_parse(&run, "bench_fragment", &fragment_spec, argc, argv);
    const uint64_t rounds = run.value[0], bytes = run.value[1] << 20;
    const unsigned percent = (unsigned)run.value[2];
    uint64_t seed = bench_seed(run.value[4], 0), ops = 0;
    struct holding work = holding_new(bytes / MEAN_AT_LEAST), kept = holding_new(2 * bytes / MEAN_AT_LEAST);
    const long before_kb = bench_rss_kb();
    double start = bench_now();
    for (uint64_t i = 0; i < rounds * PHASES; i++) {
        ops += run_phase(&work, i % PHASES, bytes, &seed);
        end_phase(&work, &kept, percent, bytes, &seed);
    }
    double seconds = bench_now() - start;
    const long after_kb = bench_rss_kb();
    rest(run.value[3]);
    bench_extra(&run, "live_kb", kept.bytes >> 10);
    bench_extra(&run, "rss_kb", (uint64_t)(after_kb - before_kb));
    bench_extra(&run, "rested_rss_kb", (uint64_t)(bench_rss_kb() - before_kb));
    bench_report(&run, NULL, ops, seconds);
    return 0;
}
