/*
 * larson: the server pattern of Larson and Krishnan.  The main thread fills one array of blocks per
 * server.  Each server replaces random blocks; after ROUNDS * CHUNKS replacements it hands its array to a
 * newly created thread and ends, so blocks are freed by other threads than those that allocated them.
 * The time is given, the throughput is the result.  As in the original, the blocks alive when the time
 * is up are left to the end of the process.
 */
#ifndef BENCH_LOOP_LARSON_H
#define BENCH_LOOP_LARSON_H

#include "block.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static const struct bench_arg larson_args[] = {
    {"SECONDS", "duration", 1, 1, 3600, NULL},
    {"MIN", "smallest block in bytes", 8, 1, BENCH_SIZE_MAX, NULL},
    {"MAX", "largest block in bytes", 1000, 1, BENCH_SIZE_MAX, NULL},
    {"CHUNKS", "blocks per server", 5000, 1, BENCH_BLOCKS_MAX, NULL},
    {"ROUNDS", "replacements per block in a thread's life", 100, 1, 1000000, NULL},
    {"SEED", "seed of the random numbers", 4141, 0, UINT64_MAX, NULL},
    {"THREADS", "servers running at a time", 2, 1, BENCH_THREADS_MAX, NULL},
};

static const struct bench_spec larson_spec = BENCH_SPEC(
    "Threads replace random blocks and hand their arrays on to newly created threads.", larson_args);

/* What a server's threads pass from one to the next. */
struct larson_server {
    void **block;
    size_t chunks;
    size_t min;
    size_t max;
    uint64_t life; /* replacements before the array is handed on */
    uint64_t seed;
    uint64_t ops;
    int started; /* only the first thread of a server waits for the start */
};

/* The start, the stop and the count of servers still at work. */
static pthread_barrier_t larson_line;
static atomic_int larson_stop;
static pthread_mutex_t larson_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t larson_idle = PTHREAD_COND_INITIALIZER;
static unsigned larson_working;

static void *larson_thread(void *arg);

static void larson_spawn(struct larson_server *server)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, larson_thread, server) != 0) {
        bench_die("a thread could not be created");
    }
    pthread_detach(thread);
}

/* The flag is only a hint to end soon, so a relaxed load is enough: nothing is read on its account. */
static inline int larson_stopped(void)
{
    return atomic_load_explicit(&larson_stop, memory_order_relaxed);
}

static void larson_replace(struct larson_server *server)
{
    uint64_t seed = server->seed, done = 0;
    void **block = server->block;
    const size_t chunks = server->chunks, min = server->min, max = server->max;
    for (; done < server->life && !larson_stopped(); done++) {
        uint64_t random = bench_random(&seed);
        void **victim = &block[bench_below((uint32_t)random, chunks)];
        bench_free(*victim);
        *victim = bench_block(bench_size(random, min, max));
    }
    server->seed = seed;
    server->ops += done;
}

static void larson_leave(void)
{
    pthread_mutex_lock(&larson_lock);
    if (--larson_working == 0) {
        pthread_cond_signal(&larson_idle);
    }
    pthread_mutex_unlock(&larson_lock);
}

static void *larson_thread(void *arg)
{
    struct larson_server *server = arg;
    bench_thread_prepare((struct bench_demand){server->min, server->max, server->chunks});
    if (!server->started) {
        server->started = 1;
        pthread_barrier_wait(&larson_line);
    }
    larson_replace(server);
    bench_thread_done();
    if (larson_stopped()) {
        larson_leave();
    } else {
        larson_spawn(server);
    }
    return NULL;
}

static void larson_fill(struct larson_server *server)
{
    server->block = bench_map(server->chunks * sizeof *server->block);
    for (size_t i = 0; i < server->chunks; i++) {
        server->block[i] = bench_block(bench_size(bench_random(&server->seed), server->min, server->max));
    }
}

/* Lets the servers run for the time given; returns the seconds until the last of them has ended. */
static double larson_serve(struct larson_server *server, unsigned threads, uint64_t duration)
{
    larson_working = threads;
    pthread_barrier_init(&larson_line, NULL, threads + 1);
    for (unsigned i = 0; i < threads; i++) {
        larson_spawn(&server[i]);
    }
    pthread_barrier_wait(&larson_line);
    double start = bench_now();
    nanosleep(&(struct timespec){.tv_sec = (time_t)duration}, NULL);
    atomic_store_explicit(&larson_stop, 1, memory_order_relaxed);
    pthread_mutex_lock(&larson_lock);
    while (larson_working > 0) {
        pthread_cond_wait(&larson_idle, &larson_lock);
    }
    pthread_mutex_unlock(&larson_lock);
    return bench_now() - start;
}

static int larson_main(const char *name, int argc, char **argv)
{
    static struct larson_server server[BENCH_THREADS_MAX];
    struct bench_run run;
    bench_parse(&run, name, &larson_spec, argc, argv);
    const size_t min = run.value[1], max = run.value[2], chunks = run.value[3];
    const unsigned threads = (unsigned)run.value[6];
    bench_require(&run, min <= max, "MIN must not exceed MAX");
    bench_thread_prepare((struct bench_demand){min, max, chunks * threads});
    for (unsigned i = 0; i < threads; i++) {
        server[i] = (struct larson_server){.chunks = chunks,
                                           .min = min,
                                           .max = max,
                                           .life = run.value[4] * chunks,
                                           .seed = bench_seed(run.value[5], i)};
        larson_fill(&server[i]);
    }
    double seconds = larson_serve(server, threads, run.value[0]);
    uint64_t ops = 0;
    for (unsigned i = 0; i < threads; i++) {
        ops += server[i].ops;
    }
    bench_report(&run, NULL, ops, seconds);
    return 0;
}

#endif
