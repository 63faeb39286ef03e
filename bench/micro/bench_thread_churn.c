/*
 * bench_thread_churn [THREADS [CONCURRENT [BLOCKS [LEFT [SEED]]]]]
 *
 * Exercises the beginning and end of threads: many short threads allocate BLOCKS small blocks each and
 * free all but LEFT of them; the main thread frees those after the thread has ended.  An allocator whose
 * per-thread state is dear to set up, or whose ended threads' memory is not used again, shows it here.
 * Knobs: few BLOCKS weigh the set-up, many LEFT the adoption of what ended threads leave behind.
 */
#include "alloc_libc.h"
#include "block.h"

#include <pthread.h>

enum { CHURN_MIN = 16, CHURN_MAX = 1040 };

static const struct bench_arg churn_args[] = {
    {"THREADS", "threads in all", 20000, 1, BENCH_COUNT_MAX, NULL},
    {"CONCURRENT", "threads alive at a time", 2, 1, BENCH_THREADS_MAX, NULL},
    {"BLOCKS", "blocks that a thread allocates", 100, 1, BENCH_BLOCKS_MAX, NULL},
    {"LEFT", "blocks that a thread leaves to the main thread", 10, 0, BENCH_BLOCKS_MAX, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
};

static const struct bench_spec churn_spec =
    BENCH_SPEC("Short threads allocate blocks of 16 to 1040 bytes, free most and leave some.", churn_args);

struct churn_worker {
    BENCH_APART pthread_t thread;
    void **block; /* BLOCKS entries; the first LEFT outlive the thread */
    size_t blocks;
    size_t left;
    uint64_t seed;
    int running;
};

static void *churn_thread(void *arg)
{
    struct churn_worker *worker = arg;
    for (size_t i = 0; i < worker->blocks; i++) {
        worker->block[i] = bench_block(bench_size(bench_random(&worker->seed), CHURN_MIN, CHURN_MAX));
    }
    for (size_t i = worker->left; i < worker->blocks; i++) {
        bench_free(worker->block[i]);
    }
    return NULL;
}

static void churn_begin(struct churn_worker *worker)
{
    if (pthread_create(&worker->thread, NULL, churn_thread, worker) != 0) {
        bench_die("a thread could not be created");
    }
    worker->running = 1;
}

static void churn_end(struct churn_worker *worker)
{
    if (!worker->running) {
        return;
    }
    pthread_join(worker->thread, NULL);
    worker->running = 0;
    for (size_t i = 0; i < worker->left; i++) {
        bench_free(worker->block[i]);
    }
}

int main(int argc, char **argv)
{
    static struct churn_worker worker[BENCH_THREADS_MAX];
    struct bench_run run;
    bench_parse(&run, "bench_thread_churn", &churn_spec, argc, argv);
    const uint64_t threads = run.value[0], concurrent = run.value[1];
    const size_t blocks = run.value[2], left = run.value[3];
    bench_require(&run, left <= blocks, "LEFT must not exceed BLOCKS");
    for (unsigned i = 0; i < concurrent; i++) {
        worker[i] = (struct churn_worker){.block = bench_map(blocks * sizeof(void *)),
                                          .blocks = blocks,
                                          .left = left,
                                          .seed = bench_seed(run.value[4], i)};
    }
    double start = bench_now();
    for (uint64_t i = 0; i < threads; i++) {
        churn_end(&worker[i % concurrent]);
        churn_begin(&worker[i % concurrent]);
    }
    for (unsigned i = 0; i < concurrent; i++) {
        churn_end(&worker[i]);
    }
    bench_report(&run, NULL, threads * blocks, bench_now() - start);
    return 0;
}
