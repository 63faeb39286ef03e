/*
 * return_memory [MIB [PERIOD_MS [BURSTS [SIZE [IDLE [IDLE_MS]]]]]]
 *
 * Exercises how memory goes back to the system. The program allocates MIB MiB in blocks of SIZE bytes, writes all of them, frees all,
 * and rests until PERIOD_MS milliseconds have passed; BURSTS times. Then it is idle for IDLE_MS.
 *
 *   mean_mib        resident memory on the mean of the bursts, beyond what was resident before the first
 *   cost_percent    processor time in the kernel during the bursts, as a share of the time: faults and calls that return memory
 *   back_ms         after the last free, until a tenth of the burst is resident; -1: never
 *   kept_mib        resident at the end of the idle time
 *   gib_seconds     mean_mib times the time of the bursts
 * Knobs: IDLE is `calls` (one thread, which while it rests allocates and frees a small block every 10 ms), `sleep` (it makes no call),
 * or `thread` (a second thread with a heap sleeps too, which lets allocators start threads of their own).
 */
#include "common.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { CALLS, SLEEP, THREAD, TICK_MS = 10, SMALL = 100 };

static const char *const idles[] = {"calls", "sleep", "thread", NULL};
static const struct bench_arg return_args[] = {
    {"MIB", "MiB that a burst uses", 64, 1, 65536, NULL},
    {"PERIOD_MS", "milliseconds from burst to burst", 1000, 10, 600000, NULL},
    {"BURSTS", "how many", 20, 1, 100000, NULL},
    {"SIZE", "bytes of a block", 1000, 16, BENCH_SIZE_MAX, NULL},
    {"IDLE", "calls, sleep or thread", CALLS, CALLS, THREAD, idles},
    {"IDLE_MS", "milliseconds without bursts at the end", 3000, 0, 600000, NULL},
};
static const struct bench_spec return_spec =
    BENCH_SPEC("Bursts of memory, and rest between them; how much stays resident and what its return costs.", return_args);

static long before_kb;
static double resident_seconds; /* MiB * s */
static double last_look;

static double resident_mib(void)
{
    long kb = bench_rss_kb() - before_kb;
    return kb > 0 ? (double)kb / 1024 : 0;
}

/* Counts what has been resident since the last look. */
static double look(void)
{
    double now = bench_now(), mib = resident_mib();
    resident_seconds += mib * (now - last_look);
    last_look = now;
    return mib;
}

static void tick(uint64_t idle)
{
    nanosleep(&(struct timespec){0, TICK_MS * 1000000}, NULL);
    if (idle == CALLS) {
        void *block = malloc(SMALL);
        bench_touch(block, SMALL);
        free(block);
    }
}

static void rest_until(double end, uint64_t idle)
{
    do {
        tick(idle);
        look();
    } while (bench_now() < end);
}

static void burst(void **block, size_t blocks, size_t size)
{
    for (size_t i = 0; i < blocks; i++) {
        if ((block[i] = malloc(size)) == NULL) {
            bench_die("out of memory");
        }
        memset(block[i], 1, size);
    }
    look();
    for (size_t i = 0; i < blocks; i++) {
        free(block[i]);
    }
}

static double kernel_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6;
}

static pthread_barrier_t meet;

static void *sleeper(void *argument)
{
    void *block = malloc(SMALL);
    bench_touch(block, SMALL);
    free(block);
    pthread_barrier_wait(&meet);
    for (;;) {
        nanosleep(&(struct timespec){3600, 0}, NULL);
    }
    return argument;
}

static void begin_thread(void)
{
    pthread_t thread;
    pthread_barrier_init(&meet, NULL, 2);
    if (pthread_create(&thread, NULL, sleeper, NULL) != 0) {
        bench_die("no thread");
    }
    pthread_barrier_wait(&meet);
}

/* Milliseconds until a tenth is left, or -1. */
static long idle_at_end(double bound, uint64_t idle, uint64_t ms)
{
    double begun = bench_now();
    long back = -1;
    while (bench_now() - begun < (double)ms / 1000) {
        if (back < 0 && resident_mib() <= bound) {
            back = (long)((bench_now() - begun) * 1000);
        }
        tick(idle);
    }
    return back;
}

int main(int argc, char **argv)
{
    static char line[512];
    struct bench_run run;
    bench_parse(&run, "return_memory", &return_spec, argc, argv);
    const uint64_t *value = run.value;
    size_t size = value[3], blocks = (value[0] << 20) / size;
    void **block = bench_map((blocks + 1) * sizeof *block);
    memset(block, 0xff, blocks * sizeof *block);
    if (value[4] == THREAD) {
        begin_thread();
    }
    free(malloc(SMALL));
    before_kb = bench_rss_kb();
    double begun = last_look = bench_now(), kernel = kernel_seconds();
    for (uint64_t i = 0; i < value[2]; i++) {
        burst(block, blocks, size);
        if (i + 1 < value[2]) {
            rest_until(begun + (double)((i + 1) * value[1]) / 1000, value[4]);
        }
    }
    double took = last_look - begun, share = took > 0 ? (kernel_seconds() - kernel) / took : 0;
    long back = idle_at_end((double)value[0] / 10, value[4], value[5]);
    snprintf(line, sizeof line,
             "return_memory mean_mib=%.1f cost_percent=%.2f back_ms=%ld kept_mib=%.1f gib_seconds=%.2f args=\"%s\"\n",
             took > 0 ? resident_seconds / took : 0, share * 100, back, resident_mib(), resident_seconds / 1024, run.text);
    bench_print(line);
    return 0;
}
