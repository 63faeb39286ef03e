/*
 * suite_stress [THREADS [ROUNDS [SLOTS [SEED]]]]
 *
 * Exercises everything at once: each thread replaces random blocks of its own slots, and in one round of
 * sixteen puts a block into a slot that all threads share and takes what another has left there.  Sizes are
 * mostly small, one in 1024 is large.  Each block carries its size and a stamp at both ends; they must be
 * there when it is freed, whoever frees it.
 * Knobs: more THREADS than processors let threads be interrupted inside the allocator.
 */
#include "alloc_libc.h"
#include "common.h"

#include <stdatomic.h>

enum { STRESS_SHARED = 512, STRESS_LEAST = 24 };

static const struct bench_arg stress_args[] = {
    {"THREADS", "threads", 4, 1, BENCH_THREADS_MAX, NULL},
    {"ROUNDS", "replacements per thread", 1500000, 1, BENCH_COUNT_MAX, NULL},
    {"SLOTS", "blocks per thread", 2000, 1, BENCH_BLOCKS_MAX, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
};

static const struct bench_spec stress_spec =
    BENCH_SPEC("Threads replace blocks at random and hand some over.", stress_args);

#define STRESS_STAMP UINT64_C(0x5ca1ab1e0ddba115)

struct stress_worker {
    BENCH_APART uint64_t rounds;
    size_t slots;
    uint64_t seed;
    uint64_t bytes; /* asked for in all; the threads' scheduling must not change it */
};

static _Atomic(uint64_t *) stress_shared[STRESS_SHARED];

static size_t stress_size(uint64_t random)
{
    if ((random & 1023) == 0) {
        return 16384 + (size_t)(random >> 32 & 0xffff);
    }
    unsigned steps = (unsigned)__builtin_ctzll(random >> 10 | 1 << 7);
    return STRESS_LEAST + (size_t)((random >> 20) % (UINT64_C(32) << steps));
}

/* The block's last bytes hold the stamp too, at a place that depends on its size. */
static uint64_t *stamp_at_end(uint64_t *block, size_t size)
{
    return block + size / sizeof *block - 1;
}

static uint64_t *stress_make(uint64_t random, uint64_t *bytes)
{
    const size_t size = stress_size(random);
    uint64_t *block = bench_alloc(size);
    if (block == NULL) {
        bench_die("out of memory");
    }
    *bytes += size;
    block[0] = size;
    block[1] = STRESS_STAMP ^ size;
    *stamp_at_end(block, size) = STRESS_STAMP ^ size;
    return block;
}

static void stress_free(uint64_t *block)
{
    if (block == NULL) {
        return;
    }
    const uint64_t size = block[0], stamp = STRESS_STAMP ^ size;
    if (block[1] != stamp || *stamp_at_end(block, size) != stamp) {
        bench_die("a block does not hold what was written to it");
    }
    bench_free(block);
}

static void stress_body(void *arg, struct bench_team *team)
{
    struct stress_worker *worker = arg;
    uint64_t **slot = bench_map(worker->slots * sizeof *slot), bytes = 0;
    bench_team_start(team);
    for (uint64_t i = 0; i < worker->rounds; i++) {
        uint64_t random = bench_random(&worker->seed);
        uint64_t **place = &slot[bench_below((uint32_t)random, worker->slots)];
        stress_free(*place);
        *place = stress_make(bench_random(&worker->seed), &bytes);
        if ((random >> 32) % 16 == 0) {
            *place = atomic_exchange(&stress_shared[(random >> 40) % STRESS_SHARED], *place);
        }
    }
    for (size_t i = 0; i < worker->slots; i++) {
        stress_free(slot[i]);
    }
    bench_team_stop(team);
    worker->bytes = bytes;
}

int main(int argc, char **argv)
{
    static struct stress_worker worker[BENCH_THREADS_MAX];
    struct bench_run run;
    bench_parse(&run, "suite_stress", &stress_spec, argc, argv);
    const unsigned threads = (unsigned)run.value[0];
    for (unsigned i = 0; i < threads; i++) {
        worker[i] = (struct stress_worker){run.value[1], run.value[2], bench_seed(run.value[3], i), 0};
    }
    double seconds = bench_team_run(threads, stress_body, worker, sizeof worker[0]);
    uint64_t digest = 0;
    for (unsigned i = 0; i < threads; i++) {
        digest = bench_mix(digest, worker[i].bytes);
    }
    for (unsigned i = 0; i < STRESS_SHARED; i++) {
        stress_free(stress_shared[i]);
    }
    bench_check(&run, digest);
    bench_report(&run, NULL, threads * run.value[1], seconds);
    return 0;
}
