/*
 * bench_tail [PATTERN [ROUNDS [THREADS [LIVE [MIN [MAX [SEED]]]]]]]
 *
 * Exercises the slowest calls: times each malloc, each free and, as often, an empty call, whose distribution
 * is what the clock, interrupts and the scheduler cost; it is taken off. The result is one line for malloc and
 * one for free: quantiles and the longest call in ns, and the share of their time that calls of 10 us and more
 * take, in thousandths.
 *   replace: a random slot is replaced; a quarter of the blocks is freed by whichever thread finds it;
 *   swing:   all slots are filled, then all are emptied, again and again;
 *   rest:    as replace, with 2 ms of sleep in every 10,000 rounds.
 */
#include "alloc_libc.h"
#include "common.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { REPLACE, SWING, REST };
enum { TAIL_SHARED = 1024, TAIL_FINE = 32, TAIL_BUCKETS = 60 * TAIL_FINE, TAIL_REST = 10000, TAIL_LONG_NS = 10000 };
enum { TAIL_MALLOC, TAIL_FREE, TAIL_EMPTY, TAIL_KINDS };

static const char *const tail_patterns[] = {"replace", "swing", "rest", NULL};

static const struct bench_arg tail_args[] = {
    {"PATTERN", "what the threads do", REPLACE, 0, 2, tail_patterns},
    {"ROUNDS", "calls of malloc per thread", 2000000, 1, BENCH_COUNT_MAX, NULL},
    {"THREADS", "threads", 2, 1, BENCH_THREADS_MAX, NULL},
    {"LIVE", "blocks per thread", 10000, 1, BENCH_BLOCKS_MAX, NULL},
    {"MIN", "smallest block in bytes", 16, 1, BENCH_SIZE_MAX, NULL},
    {"MAX", "largest block in bytes", 1040, 1, BENCH_SIZE_MAX, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
};

static const struct bench_spec tail_spec = BENCH_SPEC("The distribution of single calls, not of their mean.", tail_args);

struct tail_worker {
    BENCH_APART const struct bench_run *run;
    uint64_t seed;
    uint64_t longest[TAIL_KINDS];
    uint64_t count[TAIL_KINDS][TAIL_BUCKETS]; /* calls, by how long they took */
};

static _Atomic(void *) tail_shared[TAIL_SHARED];

/* The processor's own counter, after all that comes before it. */
static inline uint64_t tail_ticks(void)
{
#if defined(__x86_64__)
    uint32_t low, high;
    __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
    return (uint64_t)high << 32 | low;
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
#endif
}

/* Exact up to 2 * TAIL_FINE ticks, then TAIL_FINE buckets for each doubling. */
static size_t bucket_of(uint64_t ticks)
{
    unsigned above = ticks < 2 * TAIL_FINE ? 0 : 58u - (unsigned)__builtin_clzll(ticks);
    return above * TAIL_FINE + (size_t)(ticks >> above);
}

static double ticks_of(size_t bucket)
{
    size_t above = bucket < 2 * TAIL_FINE ? 0 : bucket / TAIL_FINE - 1;
    return (double)(bucket - above * TAIL_FINE) * (double)(UINT64_C(1) << above);
}

static void note(struct tail_worker *worker, int kind, uint64_t ticks)
{
    worker->count[kind][bucket_of(ticks)]++;
    worker->longest[kind] = ticks > worker->longest[kind] ? ticks : worker->longest[kind];
}

static void timed_free(struct tail_worker *worker, void *block)
{
    if (block == NULL) {
        return;
    }
    uint64_t start = tail_ticks();
    bench_free(block);
    note(worker, TAIL_FREE, tail_ticks() - start);
}

static void *timed_alloc(struct tail_worker *worker, uint64_t random)
{
    size_t size = bench_size(random, worker->run->value[4], worker->run->value[5]);
    uint64_t empty = tail_ticks(), start = tail_ticks();
    void *block = bench_alloc(size);
    uint64_t end = tail_ticks();
    note(worker, TAIL_EMPTY, start - empty);
    note(worker, TAIL_MALLOC, end - start);
    if (block == NULL) {
        bench_die("out of memory");
    }
    bench_touch(block, size);
    return block;
}

static void replace(struct tail_worker *worker, void **slot, uint64_t rounds, int rests)
{
    for (uint64_t i = 0; i < rounds; i++) {
        uint64_t random = bench_random(&worker->seed);
        void **place = &slot[bench_below((uint32_t)random, worker->run->value[3])];
        timed_free(worker, *place);
        *place = timed_alloc(worker, bench_random(&worker->seed));
        if ((random >> 32) % 4 == 0) {
            *place = atomic_exchange(&tail_shared[(random >> 34) % TAIL_SHARED], *place);
        }
        if (rests && i % TAIL_REST == 0) {
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        }
    }
}

static void swing(struct tail_worker *worker, void **slot, uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds;) {
        size_t filled = 0;
        for (; filled < worker->run->value[3] && i < rounds; i++) {
            slot[filled++] = timed_alloc(worker, bench_random(&worker->seed));
        }
        while (filled > 0) {
            timed_free(worker, slot[--filled]);
            slot[filled] = NULL;
        }
    }
}

static void tail_body(void *arg, struct bench_team *team)
{
    struct tail_worker *worker = arg;
    const uint64_t *value = worker->run->value;
    void **slot = bench_map(value[3] * sizeof *slot);
    bench_team_start(team);
    for (int warm = 0; warm < 2; warm++) { /* the first time, memory is mapped and touched: that does not count */
        memset(worker->count, 0, sizeof worker->count);
        memset(worker->longest, 0, sizeof worker->longest);
        if (value[0] == SWING) {
            swing(worker, slot, value[1]);
        } else {
            replace(worker, slot, value[1], value[0] == REST);
        }
    }
    bench_team_stop(team);
    for (size_t i = 0; i < value[3]; i++) {
        bench_free(slot[i]);
    }
}

/* Ticks of the middle empty call: what the clock itself costs. */
static size_t middle(const uint64_t *count, uint64_t all)
{
    size_t bucket = 0;
    for (uint64_t below = count[0]; below * 2 < all; below += count[++bucket]) {
    }
    return bucket;
}

static uint64_t sum(const uint64_t *count)
{
    uint64_t all = 0;
    for (size_t i = 0; i < TAIL_BUCKETS; i++) {
        all += count[i];
    }
    return all;
}

static void report(struct bench_run *run, const char *part, const uint64_t *count, uint64_t longest, const uint64_t *empty,
                   double ns_per_tick, double seconds)
{
    static const struct { const char *name; double above; } quantile[] = {
        {"p50", .5}, {"p99", 1e-2}, {"p99_9", 1e-3}, {"p99_99", 1e-4}, {"p99_999", 1e-5}};
    enum { QUANTILES = sizeof quantile / sizeof quantile[0] };
    double calls = (double)sum(count), scale = calls / (double)sum(empty), found[QUANTILES] = {0}, beyond = 0, slow = 0, total = 0;
    const double cost = ticks_of(middle(empty, sum(empty)));
    for (size_t i = TAIL_BUCKETS; i-- > 0;) { /* from the longest down; an interrupted empty call takes one off */
        double own = (double)count[i] - scale * (double)empty[i], ns = (ticks_of(i) - cost) * ns_per_tick;
        beyond += own;
        for (unsigned q = 0; q < QUANTILES; q++) {
            found[q] = found[q] == 0 && ns > 0 && beyond > quantile[q].above * calls ? ns : found[q];
        }
        total += ns > 0 ? ns * (double)count[i] : 0;
        slow += ns >= TAIL_LONG_NS && own > 0 ? ns * own : 0;
    }
    run->extra[0] = '\0';
    for (unsigned q = 0; q < QUANTILES; q++) {
        bench_extra(run, quantile[q].name, (uint64_t)(found[q] + .5));
    }
    bench_extra(run, "longest", (uint64_t)((double)longest * ns_per_tick));
    bench_extra(run, "slow", (uint64_t)(slow * 1000 / total));
    bench_report(run, part, (uint64_t)calls, seconds);
}

int main(int argc, char **argv)
{
    static struct tail_worker worker[BENCH_THREADS_MAX];
    struct bench_run run;
    bench_parse(&run, "bench_tail", &tail_spec, argc, argv);
    bench_require(&run, run.value[4] <= run.value[5], "MIN must not exceed MAX");
    const unsigned threads = (unsigned)run.value[2];
    for (unsigned i = 0; i < threads; i++) {
        worker[i].run = &run;
        worker[i].seed = bench_seed(run.value[6], i);
    }
    double began = bench_now();
    uint64_t first = tail_ticks();
    double seconds = bench_team_run(threads, tail_body, worker, sizeof worker[0]);
    const double ns_per_tick = (bench_now() - began) * 1e9 / (double)(tail_ticks() - first);
    for (unsigned i = 1; i < threads; i++) {
        for (int kind = 0; kind < TAIL_KINDS; kind++) {
            for (size_t at = 0; at < TAIL_BUCKETS; at++) {
                worker[0].count[kind][at] += worker[i].count[kind][at];
            }
            worker[0].longest[kind] = worker[i].longest[kind] > worker[0].longest[kind] ? worker[i].longest[kind] : worker[0].longest[kind];
        }
    }
    static const char *const part[] = {"malloc", "free"};
    for (int kind = TAIL_MALLOC; kind <= TAIL_FREE; kind++) {
        report(&run, part[kind], worker[0].count[kind], worker[0].longest[kind], worker[0].count[TAIL_EMPTY], ns_per_tick, seconds);
    }
    return 0;
}
