/*
 * The random-replacement kernel behind random_mixed, mid_large_mt and large_mt: every thread owns an
 * array of slots; a round picks one at random, frees the block that is in it, if any, and allocates a
 * block of random size in its place.  Sizes are uniform, so all size classes in the range stay busy.
 */
#ifndef BENCH_SLOTS_H
#define BENCH_SLOTS_H

#include "block.h"

struct slots_plan {
    unsigned threads;
    uint64_t iterations; /* per thread */
    size_t working_set;  /* slots per thread */
    uint64_t seed;
    size_t min;
    size_t max;
};

struct slots_worker {
    const struct slots_plan *plan;
    uint64_t seed;
};

static void slots_loop(void **slot, const struct slots_plan *plan, uint64_t seed)
{
    const size_t working_set = plan->working_set, min = plan->min, max = plan->max;
    for (uint64_t i = plan->iterations; i > 0; i--) {
        uint64_t random = bench_random(&seed);
        void **victim = &slot[bench_below((uint32_t)random, working_set)];
        if (*victim != NULL) {
            bench_free(*victim);
        }
        *victim = bench_block(bench_size(random, min, max));
    }
}

static void slots_body(void *arg, struct bench_team *team)
{
    const struct slots_worker *worker = arg;
    const struct slots_plan *plan = worker->plan;
    void **slot = bench_map(plan->working_set * sizeof *slot);
    bench_thread_prepare((struct bench_demand){plan->min, plan->max, plan->working_set});
    bench_team_start(team);
    slots_loop(slot, plan, worker->seed);
    bench_team_stop(team);
    for (size_t i = 0; i < plan->working_set; i++) {
        if (slot[i] != NULL) {
            bench_free(slot[i]);
        }
    }
    bench_thread_done();
}

static void slots_run(const struct bench_run *run, const struct slots_plan *plan)
{
    static struct slots_worker worker[BENCH_THREADS_MAX];
    bench_require(run, plan->min <= plan->max, "MIN must not exceed MAX");
    for (unsigned i = 0; i < plan->threads; i++) {
        worker[i] = (struct slots_worker){plan, bench_seed(plan->seed, i)};
    }
    double seconds = bench_team_run(plan->threads, slots_body, worker, sizeof worker[0]);
    bench_report(run, NULL, plan->threads * plan->iterations, seconds);
}

/* The arguments of the multi-threaded variants, which differ in nothing but numbers. */
#define SLOTS_MT_ARGS(iterations, working_set, min, max)                                              \
    {                                                                                                 \
        {"THREADS", "threads, each with slots of its own", 2, 1, BENCH_THREADS_MAX, NULL},            \
        {"ITERATIONS", "rounds of the loop per thread", iterations, 1, BENCH_COUNT_MAX, NULL},        \
        {"WORKING_SET", "slots per thread", working_set, 1, BENCH_BLOCKS_MAX, NULL},                  \
        {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},                               \
        {"MIN", "smallest block in bytes", min, 1, BENCH_SIZE_MAX, NULL},                             \
        {"MAX", "largest block in bytes", max, 1, BENCH_SIZE_MAX, NULL},                              \
    }

static inline int slots_mt_main(const char *name, const struct bench_spec *spec, int argc, char **argv)
{
    struct bench_run run;
    bench_parse(&run, name, spec, argc, argv);
    struct slots_plan plan = {(unsigned)run.value[0], run.value[1], run.value[2],
                              run.value[3],           run.value[4], run.value[5]};
    slots_run(&run, &plan);
    return 0;
}

#endif
