/*
 * suite_asymmetric [PRODUCERS [CONSUMERS [BLOCKS [SEED]]]]
 *
 * Exercises memory that flows one way: producers only allocate, consumers only free, in batches of 128 that
 * pass through a queue of limited length.  An allocator that keeps what a thread frees in that thread grows
 * here or moves it back under a lock.  16 to 400 bytes a block.
 * Knobs: unequal numbers of PRODUCERS and CONSUMERS.
 */
#include "alloc_libc.h"
#include "common.h"

#include <pthread.h>

enum { ASYMMETRIC_BATCH = 128, ASYMMETRIC_QUEUE = 32 };

static const struct bench_arg asymmetric_args[] = {
    {"PRODUCERS", "threads that allocate", 2, 1, 64, NULL},
    {"CONSUMERS", "threads that free", 2, 1, 64, NULL},
    {"BLOCKS", "blocks per producer", 4000000, ASYMMETRIC_BATCH, BENCH_COUNT_MAX, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
};

static const struct bench_spec asymmetric_spec =
    BENCH_SPEC("Some threads only allocate, others only free.", asymmetric_args);

struct batch {
    uint64_t *block[ASYMMETRIC_BATCH];
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    pthread_cond_t emptied;
    struct batch batch[ASYMMETRIC_QUEUE]; /* all under lock */
    unsigned first;
    unsigned count;
    uint64_t producing; /* producers that have not ended */
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .filled = PTHREAD_COND_INITIALIZER,
           .emptied = PTHREAD_COND_INITIALIZER};

struct asymmetric_worker {
    BENCH_APART int produces;
    uint64_t batches;
    uint64_t seed;
    uint64_t bytes; /* that it made or freed */
};

static void queue_put(const struct batch *batch)
{
    pthread_mutex_lock(&queue.lock);
    while (queue.count == ASYMMETRIC_QUEUE) {
        pthread_cond_wait(&queue.emptied, &queue.lock);
    }
    queue.batch[(queue.first + queue.count++) % ASYMMETRIC_QUEUE] = *batch;
    pthread_cond_signal(&queue.filled);
    pthread_mutex_unlock(&queue.lock);
}

/* Returns 0 when nothing will come any more. */
static int queue_take(struct batch *batch)
{
    pthread_mutex_lock(&queue.lock);
    while (queue.count == 0 && queue.producing > 0) {
        pthread_cond_wait(&queue.filled, &queue.lock);
    }
    int found = queue.count > 0;
    if (found) {
        *batch = queue.batch[queue.first];
        queue.first = (queue.first + 1) % ASYMMETRIC_QUEUE;
        queue.count--;
        pthread_cond_signal(&queue.emptied);
    }
    pthread_mutex_unlock(&queue.lock);
    return found;
}

static void queue_producer_ended(void)
{
    pthread_mutex_lock(&queue.lock);
    queue.producing--;
    pthread_cond_broadcast(&queue.filled);
    pthread_mutex_unlock(&queue.lock);
}

static void produce(struct asymmetric_worker *worker)
{
    struct batch batch;
    for (uint64_t i = 0; i < worker->batches; i++) {
        for (unsigned j = 0; j < ASYMMETRIC_BATCH; j++) {
            const size_t size = bench_size(bench_random(&worker->seed), 16, 400);
            uint64_t *block = bench_alloc(size);
            if (block == NULL) {
                bench_die("out of memory");
            }
            block[0] = size;
            block[size / sizeof *block - 1] = size;
            worker->bytes += size;
            batch.block[j] = block;
        }
        queue_put(&batch);
    }
    queue_producer_ended();
}

static void consume(struct asymmetric_worker *worker)
{
    struct batch batch;
    while (queue_take(&batch)) {
        for (unsigned j = 0; j < ASYMMETRIC_BATCH; j++) {
            uint64_t *block = batch.block[j];
            const uint64_t size = block[0];
            if (size < 16 || size > 400 || block[size / sizeof *block - 1] != size) {
                bench_die("a block does not hold what was written to it");
            }
            worker->bytes += size;
            bench_free(block);
        }
    }
}

static void asymmetric_body(void *arg, struct bench_team *team)
{
    struct asymmetric_worker *worker = arg;
    bench_team_start(team);
    if (worker->produces) {
        produce(worker);
    } else {
        consume(worker);
    }
    bench_team_stop(team);
}

int main(int argc, char **argv)
{
    static struct asymmetric_worker worker[128];
    struct bench_run run;
    bench_parse(&run, "suite_asymmetric", &asymmetric_spec, argc, argv);
    const unsigned producers = (unsigned)run.value[0], threads = producers + (unsigned)run.value[1];
    const uint64_t batches = run.value[2] / ASYMMETRIC_BATCH;
    for (unsigned i = 0; i < threads; i++) {
        worker[i] = (struct asymmetric_worker){i < producers, batches, bench_seed(run.value[3], i), 0};
    }
    queue.producing = producers;
    double seconds = bench_team_run(threads, asymmetric_body, worker, sizeof worker[0]);
    uint64_t made = 0, freed = 0;
    for (unsigned i = 0; i < threads; i++) {
        *(i < producers ? &made : &freed) += worker[i].bytes;
    }
    if (made != freed) {
        bench_die("not every block arrived");
    }
    bench_check(&run, bench_mix(0, made));
    bench_report(&run, NULL, producers * batches * ASYMMETRIC_BATCH, seconds);
    return 0;
}
