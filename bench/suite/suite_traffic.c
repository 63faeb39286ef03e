/*
 * suite_traffic [THREADS [CONCURRENT [REQUESTS [SEED]]]]
 *
 * Exercises what a server does: threads come, serve REQUESTS requests and go.  Sizes follow a table of what
 * programs ask for (two thirds up to 64 bytes, one in 500 above 32 KiB); most blocks die young, some live as
 * long as the thread, a few outlive it and are freed by a later one; one request in 16 grows a block by
 * realloc, one in 16 asks for cleared memory.
 * Knobs: few REQUESTS weigh the coming and going of threads.
 */
#include "alloc_libc.h"
#include "common.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { TRAFFIC_YOUNG = 64, TRAFFIC_OLD = 1024, TRAFFIC_LEFT = 64 };

static const struct bench_arg traffic_args[] = {
    {"THREADS", "threads in all", 300, 1, BENCH_COUNT_MAX, NULL},
    {"CONCURRENT", "threads alive at a time", 2, 1, BENCH_THREADS_MAX, NULL},
    {"REQUESTS", "requests that a thread serves", 20000, 1, BENCH_COUNT_MAX, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
};

static const struct bench_spec traffic_spec =
    BENCH_SPEC("Threads come and go and serve requests of many sizes.", traffic_args);

/* Of 1000 requests, how many are above the row before and at most of this size. */
static const struct {
    uint32_t parts;
    uint32_t size;
} traffic_mix[] = {
    {130, 16}, {290, 32}, {240, 64}, {130, 128}, {80, 256}, {50, 512}, {40, 1024}, {25, 4096}, {13, 32768}, {2, 262144},
};

struct traffic_worker {
    BENCH_APART pthread_t thread;
    char *left[TRAFFIC_LEFT]; /* by the thread that ended here last; its successor frees them */
    uint64_t requests;
    uint64_t seed;
    uint64_t bytes;
    int running;
};

static size_t traffic_size(uint64_t random)
{
    uint32_t part = (uint32_t)(random % 1000), from = 1;
    size_t row = 0;
    while (part >= traffic_mix[row].parts) {
        part -= traffic_mix[row].parts;
        from = traffic_mix[row].size + 1;
        row++;
    }
    return bench_size(random, from, traffic_mix[row].size);
}

static char *traffic_block(uint64_t random, uint64_t *bytes)
{
    const size_t size = traffic_size(random);
    char *block = (random >> 20 & 15) == 0 ? calloc(1, size) : bench_alloc(size);
    if (block == NULL || ((random >> 20 & 15) == 0 && (block[0] != 0 || block[size - 1] != 0))) {
        bench_die(block == NULL ? "out of memory" : "calloc gave memory that is not zero");
    }
    memset(block, (int)size, size < 256 ? size : 256);
    bench_touch(block, size);
    *bytes += size;
    if ((random >> 24 & 15) == 0) {
        const char before = block[size / 2];
        block = realloc(block, size + size / 2 + 1);
        if (block == NULL || block[size / 2] != before) {
            bench_die(block == NULL ? "out of memory" : "realloc lost what the block held");
        }
    }
    return block;
}

static void put(char **place, char *block)
{
    bench_free(*place);
    *place = block;
}

static void *traffic_thread(void *arg)
{
    struct traffic_worker *worker = arg;
    char *young[TRAFFIC_YOUNG] = {NULL}, *old[TRAFFIC_OLD] = {NULL};
    for (uint64_t i = 0; i < worker->requests; i++) {
        uint64_t random = bench_random(&worker->seed);
        char *block = traffic_block(random, &worker->bytes);
        uint64_t where = bench_random(&worker->seed);
        if ((where & 15) == 0) {
            put(&old[(where >> 8) % TRAFFIC_OLD], block);
        } else if ((where & 1023) == 1) {
            put(&worker->left[(where >> 16) % TRAFFIC_LEFT], block);
        } else {
            put(&young[(where >> 8) % TRAFFIC_YOUNG], block);
        }
    }
    for (unsigned i = 0; i < TRAFFIC_YOUNG; i++) {
        bench_free(young[i]);
    }
    for (unsigned i = 0; i < TRAFFIC_OLD; i++) {
        bench_free(old[i]);
    }
    return NULL;
}

static void traffic_end(struct traffic_worker *worker)
{
    if (worker->running) {
        pthread_join(worker->thread, NULL);
        worker->running = 0;
    }
}

static void traffic_begin(struct traffic_worker *worker)
{
    traffic_end(worker);
    if (pthread_create(&worker->thread, NULL, traffic_thread, worker) != 0) {
        bench_die("a thread could not be created");
    }
    worker->running = 1;
}

int main(int argc, char **argv)
{
    static struct traffic_worker worker[BENCH_THREADS_MAX];
    struct bench_run run;
    bench_parse(&run, "suite_traffic", &traffic_spec, argc, argv);
    const uint64_t threads = run.value[0], concurrent = run.value[1];
    for (unsigned i = 0; i < concurrent; i++) {
        worker[i].requests = run.value[2];
        worker[i].seed = bench_seed(run.value[3], i);
    }
    double start = bench_now();
    for (uint64_t i = 0; i < threads; i++) {
        traffic_begin(&worker[i % concurrent]);
    }
    uint64_t digest = 0;
    for (unsigned i = 0; i < concurrent; i++) {
        traffic_end(&worker[i]);
        digest = bench_mix(digest, worker[i].bytes);
    }
    double seconds = bench_now() - start;
    bench_check(&run, digest);
    bench_report(&run, NULL, threads * run.value[2], seconds);
    return 0;
}
