/*
 * bench_idle [THREADS [BLOCKS [MIN [MAX [REST_MS [SEED [GENERATIONS]]]]]]]
 *
 * Exercises what a sleeping thread costs: THREADS threads each allocate BLOCKS blocks of random size, free
 * them all, and sleep.  What has become resident meanwhile, by the number of threads, is the result, once
 * right after the last free (idle_bytes) and once after REST_MS milliseconds in which nothing happens
 * (rested_bytes).  Stacks, and what creating a thread allocates, were resident before and do not count.
 * Knobs: BLOCKS and MAX decide how many size classes a thread comes to use, REST_MS whether an allocator
 * that returns memory as time goes by has had time for it.  Of several GENERATIONS only the last sleeps: the
 * earlier ones have done the same and ended.
 */
#include "alloc_libc.h"
#include "block.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { IDLE_THREADS_MAX = 10000, IDLE_BLOCKS_MAX = 4096, IDLE_STACK = 128 << 10, IDLE_STACK_USED = 32 << 10 };

static const struct bench_arg idle_args[] = {
    {"THREADS", "threads that sleep", 1000, 1, IDLE_THREADS_MAX, NULL},
    {"BLOCKS", "blocks that each of them allocates and frees before", 100, 1, IDLE_BLOCKS_MAX, NULL},
    {"MIN", "smallest block in bytes", 16, 1, BENCH_SIZE_MAX, NULL},
    {"MAX", "largest block in bytes", 1040, 1, BENCH_SIZE_MAX, NULL},
    {"REST_MS", "milliseconds of sleep before memory is looked at again", 2500, 0, 600000, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
    {"GENERATIONS", "threads, one after the other, in place of each; the last sleeps", 1, 1, 1000, NULL},
};

static const struct bench_spec idle_spec =
    BENCH_SPEC("Threads allocate a little, free it, and sleep; memory per thread is the result.", idle_args);

struct idle_worker {
    const struct bench_run *run;
    uint64_t seed;
    void **block;
};

/* All workers and the main thread meet here: before the work, after it, and before the end. */
static pthread_barrier_t idle_line;

/* Makes the part of the stack resident that any allocator may need. */
static __attribute__((noinline)) void touch_stack(void)
{
    volatile char room[IDLE_STACK_USED];
    for (size_t i = 0; i < sizeof room; i += 1024) {
        room[i] = 1;
    }
}

static void work(struct idle_worker *worker)
{
    const uint64_t *value = worker->run->value;
    for (size_t i = 0; i < value[1]; i++) {
        worker->block[i] = bench_block(bench_size(bench_random(&worker->seed), value[2], value[3]));
    }
    for (size_t i = 0; i < value[1]; i++) {
        bench_free(worker->block[i]);
    }
}

static void *idle_thread(void *arg)
{
    touch_stack();
    pthread_barrier_wait(&idle_line);
    pthread_barrier_wait(&idle_line);
    work(arg);
    pthread_barrier_wait(&idle_line);
    pthread_barrier_wait(&idle_line);
    return NULL;
}

/* Room for all workers' pointers, resident before anything is measured. */
static void **make_slots(const struct bench_run *run)
{
    const size_t size = run->value[0] * run->value[1] * sizeof(void *);
    return memset(bench_map(size), 1, size);
}

static void start(pthread_t *thread, struct idle_worker *worker, void **slots, const struct bench_run *run)
{
    const size_t threads = run->value[0], blocks = run->value[1];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, IDLE_STACK) != 0) {
        bench_die("the system refused the size of the threads' stacks");
    }
    for (size_t i = 0; i < threads; i++) {
        worker[i] = (struct idle_worker){ run, bench_seed(run->value[5], (unsigned)i), &slots[i * blocks] };
        if (pthread_create(&thread[i], &attributes, idle_thread, &worker[i]) != 0) {
            bench_die("a thread could not be created");
        }
    }
    pthread_attr_destroy(&attributes);
}

static void end(const pthread_t *thread, uint64_t threads)
{
    pthread_barrier_wait(&idle_line);
    for (uint64_t i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
    }
}

static void rest(uint64_t ms)
{
    struct timespec left = { .tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000 };
    while (nanosleep(&left, &left) != 0) {
    }
}

static uint64_t per_thread(long before_kb, long now_kb, uint64_t threads)
{
    return now_kb > before_kb ? (uint64_t)(now_kb - before_kb) * 1024 / threads : 0;
}

int main(int argc, char **argv)
{
    static pthread_t thread[IDLE_THREADS_MAX];
    static struct idle_worker worker[IDLE_THREADS_MAX];
    struct bench_run run;
    bench_parse(&run, "bench_idle", &idle_spec, argc, argv);
    bench_require(&run, run.value[2] <= run.value[3], "MIN must not exceed MAX");
    const uint64_t threads = run.value[0];
    pthread_barrier_init(&idle_line, NULL, (unsigned)threads + 1);
    void **slots = make_slots(&run);
    long before = 0;
    double began = 0;
    for (uint64_t left = run.value[6]; left != 0; left--) {
        start(thread, worker, slots, &run);
        pthread_barrier_wait(&idle_line);
        before = before != 0 ? before : bench_rss_kb();
        began = bench_now();
        pthread_barrier_wait(&idle_line);
        pthread_barrier_wait(&idle_line);
        if (left > 1) {
            end(thread, threads);
        }
    }
    double seconds = bench_now() - began;
    bench_extra(&run, "idle_bytes", per_thread(before, bench_rss_kb(), threads));
    rest(run.value[4]);
    bench_extra(&run, "rested_bytes", per_thread(before, bench_rss_kb(), threads));
    end(thread, threads);
    bench_report(&run, NULL, threads * run.value[1], seconds);
    return 0;
}
