/*
 * suite_plain [MODE [ROUNDS [THREADS [SEED]]]]
 *
 * Exercises malloc and free and nothing else, in the two ways in which the C library measures itself:
 *   simple:  25, 100, 400 and 1600 blocks of one size allocated, then freed in the same order, for 16, 32
 *            and 64 bytes; ROUNDS times, one thread;
 *   threads: each thread has 8192 slots and replaces a random one ROUNDS times; sizes from 4 to 32768 bytes,
 *            each the rarer the larger, by the inverse of its square.
 */
#include "alloc_libc.h"
#include "block.h"

#include <math.h>

enum { SIMPLE, THREADS };
enum { PLAIN_SLOTS = 8192, PLAIN_SIZES = 4096, PLAIN_MIN = 4, PLAIN_MAX = 32768, PLAIN_MOST = 1600 };

static const char *const plain_modes[] = {"simple", "threads", NULL};

static const struct bench_arg plain_args[] = {
    {"MODE", "which of the two", SIMPLE, 0, 1, plain_modes},
    {"ROUNDS", "how often", 20000, 1, BENCH_COUNT_MAX, NULL},
    {"THREADS", "threads, in the mode of that name", 1, 1, BENCH_THREADS_MAX, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
};

static const struct bench_spec plain_spec = BENCH_SPEC("malloc and free and nothing else.", plain_args);

struct plain_worker {
    BENCH_APART uint64_t rounds;
    uint64_t seed;
    uint64_t bytes;
};

static uint32_t plain_size[PLAIN_SIZES]; /* drawn beforehand, so that the loop has no arithmetic of its own */

/* Sizes whose density falls with their square: the inverse of the distribution at evenly spaced places. */
static void draw_sizes(void)
{
    for (unsigned i = 0; i < PLAIN_SIZES; i++) {
        const double part = (i + 0.5) / PLAIN_SIZES;
        const double inverse = 1.0 / PLAIN_MIN - part * (1.0 / PLAIN_MIN - 1.0 / PLAIN_MAX);
        plain_size[i] = (uint32_t)floor(1.0 / inverse);
    }
}

static uint64_t simple_count(void **block, size_t count, size_t size)
{
    for (size_t i = 0; i < count; i++) {
        block[i] = bench_block(size);
    }
    for (size_t i = 0; i < count; i++) {
        bench_free(block[i]);
    }
    return count;
}

static uint64_t simple(uint64_t rounds)
{
    static const size_t size[] = {16, 32, 64}, count[] = {25, 100, 400, PLAIN_MOST};
    void **block = bench_map(PLAIN_MOST * sizeof *block);
    uint64_t blocks = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < 3; i++) {
            for (unsigned j = 0; j < 4; j++) {
                blocks += simple_count(block, count[j], size[i]);
            }
        }
    }
    return blocks;
}

static void threads_body(void *arg, struct bench_team *team)
{
    struct plain_worker *worker = arg;
    void **slot = bench_map(PLAIN_SLOTS * sizeof *slot);
    uint64_t bytes = 0;
    bench_team_start(team);
    for (uint64_t i = 0; i < worker->rounds; i++) {
        uint64_t random = bench_random(&worker->seed);
        void **place = &slot[random % PLAIN_SLOTS];
        const size_t size = plain_size[(random >> 32) % PLAIN_SIZES];
        bench_free(*place);
        *place = bench_block(size);
        bytes += size;
    }
    for (size_t i = 0; i < PLAIN_SLOTS; i++) {
        bench_free(slot[i]);
    }
    bench_team_stop(team);
    worker->bytes = bytes;
}

static void run_threads(const struct bench_run *run, unsigned threads)
{
    static struct plain_worker worker[BENCH_THREADS_MAX];
    draw_sizes();
    for (unsigned i = 0; i < threads; i++) {
        worker[i] = (struct plain_worker){run->value[1], bench_seed(run->value[3], i), 0};
    }
    double seconds = bench_team_run(threads, threads_body, worker, sizeof worker[0]);
    uint64_t digest = 0;
    for (unsigned i = 0; i < threads; i++) {
        digest = bench_mix(digest, worker[i].bytes);
    }
    bench_check(run, digest);
    bench_report(run, NULL, threads * run->value[1], seconds);
}

int main(int argc, char **argv)
{
    struct bench_run run;
    bench_parse(&run, "suite_plain", &plain_spec, argc, argv);
    if (run.value[0] == THREADS) {
        run_threads(&run, (unsigned)run.value[2]);
        return 0;
    }
    double start = bench_now();
    uint64_t blocks = simple(run.value[1]);
    double seconds = bench_now() - start;
    bench_check(&run, bench_mix(0, blocks));
    bench_report(&run, NULL, blocks, seconds);
    return 0;
}
