/*
 * suite_sharing [MODE [THREADS [OBJECTS [WRITES [SIZE]]]]]
 *
 * Exercises cache lines: each thread allocates a small object, writes to it WRITES times, frees it, OBJECTS
 * times.  Where two threads' objects lie in one line, each write takes the line from the other thread.
 *   active:  an allocator causes it by serving two threads from one line;
 *   passive: the program has; each thread first frees an object that the main thread allocated beside the
 *            others', and an allocator that hands it out again keeps the threads on one line.
 * Knobs: SIZE below a line's 64 bytes.
 */
#include "alloc_libc.h"
#include "common.h"

enum { ACTIVE, PASSIVE };

static const char *const sharing_modes[] = {"active", "passive", NULL};

static const struct bench_arg sharing_args[] = {
    {"MODE", "whose lines are shared", ACTIVE, 0, 1, sharing_modes},
    {"THREADS", "threads", 2, 1, BENCH_THREADS_MAX, NULL},
    {"OBJECTS", "objects that a thread allocates", 20000, 1, BENCH_COUNT_MAX, NULL},
    {"WRITES", "writes to each", 2000, 1, BENCH_COUNT_MAX, NULL},
    {"SIZE", "bytes of an object", 8, 8, 4096, NULL},
};

static const struct bench_spec sharing_spec =
    BENCH_SPEC("Threads write to small objects that may lie side by side.", sharing_args);

struct sharing_worker {
    BENCH_APART const struct bench_run *run;
    void *given; /* by the main thread, or NULL */
    uint64_t sum;
};

static void sharing_body(void *arg, struct bench_team *team)
{
    struct sharing_worker *worker = arg;
    const uint64_t objects = worker->run->value[2], writes = worker->run->value[3];
    const size_t size = worker->run->value[4];
    bench_team_start(team);
    bench_free(worker->given);
    for (uint64_t i = 0; i < objects; i++) {
        volatile uint64_t *object = bench_alloc(size);
        if (object == NULL) {
            bench_die("out of memory");
        }
        *object = i;
        for (uint64_t j = 0; j < writes; j++) {
            *object = *object + j;
        }
        worker->sum = bench_mix(worker->sum, *object);
        bench_free((void *)object);
    }
    bench_team_stop(team);
}

int main(int argc, char **argv)
{
    static struct sharing_worker worker[BENCH_THREADS_MAX];
    struct bench_run run;
    bench_parse(&run, "suite_sharing", &sharing_spec, argc, argv);
    const unsigned threads = (unsigned)run.value[1];
    for (unsigned i = 0; i < threads; i++) {
        worker[i].run = &run;
        worker[i].given = run.value[0] == PASSIVE ? bench_alloc(run.value[4]) : NULL;
    }
    double seconds = bench_team_run(threads, sharing_body, worker, sizeof worker[0]);
    uint64_t digest = 0;
    for (unsigned i = 0; i < threads; i++) {
        digest = bench_mix(digest, worker[i].sum);
    }
    bench_check(&run, digest);
    bench_report(&run, NULL, threads * run.value[2], seconds);
    return 0;
}
