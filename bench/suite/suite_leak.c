/*
 * suite_leak [THREADS [CONCURRENT [BLOCKS [LEFT [SEED]]]]]
 *
 * Exercises threads that end untidily: each allocates BLOCKS blocks of 16 to 512 bytes in random order of
 * size, frees all but LEFT of them, and ends; nobody ever frees the rest.  What an ended thread had cached,
 * and the holes between what it left, should serve the next one.
 * Knobs: LEFT against BLOCKS decides how much of the memory is holes.
 */
#include "alloc_libc.h"
#include "common.h"

#include <pthread.h>

enum { LEAK_MIN = 16, LEAK_MAX = 512, LEAK_BLOCKS_MAX = 65536 };

static const struct bench_arg leak_args[] = {
    {"THREADS", "threads in all", 4000, 1, BENCH_COUNT_MAX, NULL},
    {"CONCURRENT", "threads alive at a time", 4, 1, BENCH_THREADS_MAX, NULL},
    {"BLOCKS", "blocks that a thread allocates", 200, 1, LEAK_BLOCKS_MAX, NULL},
    {"LEFT", "blocks that it leaves for ever", 50, 0, LEAK_BLOCKS_MAX, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
};

static const struct bench_spec leak_spec = BENCH_SPEC("Threads end and leave blocks for ever.", leak_args);

struct leak_worker {
    BENCH_APART pthread_t thread;
    void **block;
    size_t blocks;
    size_t left;
    uint64_t seed;
    uint64_t bytes;
    int running;
};

static void *leak_thread(void *arg)
{
    struct leak_worker *worker = arg;
    for (size_t i = 0; i < worker->blocks; i++) {
        const size_t size = bench_size(bench_random(&worker->seed), LEAK_MIN, LEAK_MAX);
        worker->block[i] = bench_alloc(size);
        if (worker->block[i] == NULL) {
            bench_die("out of memory");
        }
        bench_touch(worker->block[i], size);
        worker->bytes += size;
    }
    /* The ones that stay are spread evenly over the ones that go. */
    for (size_t i = 0; i < worker->blocks; i++) {
        if (i * worker->left / worker->blocks == (i + 1) * worker->left / worker->blocks) {
            bench_free(worker->block[i]);
        }
    }
    return NULL;
}

static void leak_end(struct leak_worker *worker)
{
    if (worker->running) {
        pthread_join(worker->thread, NULL);
        worker->running = 0;
    }
}

static void leak_begin(struct leak_worker *worker)
{
    leak_end(worker);
    if (pthread_create(&worker->thread, NULL, leak_thread, worker) != 0) {
        bench_die("a thread could not be created");
    }
    worker->running = 1;
}

int main(int argc, char **argv)
{
    static struct leak_worker worker[BENCH_THREADS_MAX];
    struct bench_run run;
    bench_parse(&run, "suite_leak", &leak_spec, argc, argv);
    const uint64_t threads = run.value[0], concurrent = run.value[1], blocks = run.value[2];
    bench_require(&run, run.value[3] <= blocks, "LEFT must not exceed BLOCKS");
    for (unsigned i = 0; i < concurrent; i++) {
        worker[i] = (struct leak_worker){.block = bench_map(blocks * sizeof(void *)),
                                         .blocks = blocks,
                                         .left = run.value[3],
                                         .seed = bench_seed(run.value[4], i)};
    }
    double start = bench_now();
    for (uint64_t i = 0; i < threads; i++) {
        leak_begin(&worker[i % concurrent]);
    }
    uint64_t digest = 0;
    for (unsigned i = 0; i < concurrent; i++) {
        leak_end(&worker[i]);
        digest = bench_mix(digest, worker[i].bytes);
    }
    double seconds = bench_now() - start;
    bench_check(&run, digest);
    bench_report(&run, NULL, threads * blocks, seconds);
    return 0;
}
