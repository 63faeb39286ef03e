/*
 * bench_mixture [FIRST [MIXTURES [ROUNDS [MOST_MIB]]]]
 *
 * Exercises large buffers in turn: a mixture is two to six buffers of 256 KiB to 64 MiB, drawn by its number, which are made,
 * touched page by page and freed in one random order, the same in every round.  Each mixture has a process of its own.
 * Reports, for each, rate and page faults of its warm rounds, its buffers' bytes together and the most that live at once.
 * A warm round needs no fault where all of its memory may stay.
 * Knobs: FIRST and MIXTURES choose the mixtures, MOST_MIB bounds their bytes.
 */
#include "alloc_libc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEAST_BUFFERS = 2, MOST_BUFFERS = 6, LEAST_SHIFT = 18, DOUBLINGS = 8, PAGE = 4096 };

static const struct bench_arg mixture_args[] = {
    {"FIRST", "number of the first mixture", 1, 0, BENCH_COUNT_MAX, NULL},
    {"MIXTURES", "how many", 20, 1, 100000, NULL},
    {"ROUNDS", "cold rounds of each, and then as many warm ones", 30, 1, 1000000, NULL},
    {"MOST_MIB", "bytes of its buffers together", 150, 2, 4096, NULL},
};

static const struct bench_spec mixture_spec =
    BENCH_SPEC("Mixtures of large buffers that are made, touched and freed in turn; a line for each, and one for all.\n"
               "Beside the usual fields: faults_per_100 (warm rounds), sum_kb, live_kb, buffers.",
               mixture_args);

struct mixture {
    size_t bytes[MOST_BUFFERS], sum, peak;
    unsigned buffers, turns[2 * MOST_BUFFERS]; /* a buffer's first turn makes it, its second one frees it */
};

static void draw_turns(struct mixture *of, uint64_t *state)
{
    unsigned count = 2 * of->buffers, made = 0;
    size_t live = 0;
    for (unsigned i = 0; i < count; i++)
        of->turns[i] = i / 2;
    for (unsigned i = count; i > 1; i--) {
        unsigned other = (unsigned)(bench_random(state) % i), turn = of->turns[other];
        of->turns[other] = of->turns[i - 1];
        of->turns[i - 1] = turn;
    }
    for (unsigned i = 0; i < count; i++) {
        unsigned bit = 1u << of->turns[i];
        live += (made & bit) == 0 ? of->bytes[of->turns[i]] : 0 - of->bytes[of->turns[i]];
        made ^= bit;
        of->peak = live > of->peak ? live : of->peak;
    }
}

/* Sizes are even on a scale of doublings. */
static struct mixture draw_mixture(uint64_t number, size_t most)
{
    uint64_t state = number;
    struct mixture of;
    do {
        of = (struct mixture){ .buffers = LEAST_BUFFERS + (unsigned)(bench_random(&state) % (MOST_BUFFERS - LEAST_BUFFERS + 1)) };
        for (unsigned i = 0; i < of.buffers; i++) {
            size_t octave = (size_t)1 << (LEAST_SHIFT + bench_random(&state) % DOUBLINGS);
            of.bytes[i] = octave + (size_t)(bench_random(&state) % octave);
            of.sum += of.bytes[i];
        }
    } while (of.sum > most);
    draw_turns(&of, &state);
    return of;
}

static void play(const struct mixture *of)
{
    char *buffers[MOST_BUFFERS] = { NULL };
    for (unsigned i = 0; i < 2 * of->buffers; i++) {
        unsigned turn = of->turns[i];
        if (buffers[turn] != NULL) {
            bench_free(buffers[turn]);
            buffers[turn] = NULL;
            continue;
        }
        buffers[turn] = bench_alloc(of->bytes[turn]);
        if (buffers[turn] == NULL)
            bench_die("out of memory");
        for (size_t at = 0; at < of->bytes[turn]; at += PAGE)
            ((volatile char *)buffers[turn])[at] = 1;
    }
}

static uint64_t faults_so_far(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_minflt;
}

struct result {
    double seconds;
    uint64_t faults;
};

static struct result measure(const struct mixture *of, uint64_t rounds)
{
    struct result out;
    for (uint64_t i = 0; i < rounds; i++)
        play(of);
    uint64_t before = faults_so_far();
    double began = bench_now();
    for (uint64_t i = 0; i < rounds; i++)
        play(of);
    out.seconds = bench_now() - began;
    out.faults = faults_so_far() - before;
    return out;
}

static void report(struct bench_run *run, const char *part, uint64_t rounds, struct result got, const struct mixture *of)
{
    run->extra[0] = 0;
    bench_extra(run, "faults_per_100", got.faults * 100 / rounds);
    if (of != NULL) {
        bench_extra(run, "sum_kb", of->sum >> 10);
        bench_extra(run, "live_kb", of->peak >> 10);
        bench_extra(run, "buffers", of->buffers);
    }
    bench_report(run, part, rounds, got.seconds);
}

/* In a process of its own, which reports, so that the peak of memory is the mixture's. */
static struct result measure_apart(struct bench_run *run, uint64_t number)
{
    struct result got;
    int status = 1, ends[2];
    pid_t child = pipe(ends) == 0 ? fork() : -1;
    if (child == 0) {
        struct mixture of = draw_mixture(number, (size_t)run->value[3] << 20);
        char part[32];
        snprintf(part, sizeof part, "%" PRIu64, number);
        got = measure(&of, run->value[2]);
        report(run, part, run->value[2], got, &of);
        _exit(write(ends[1], &got, sizeof got) != sizeof got);
    }
    if (child < 0 || read(ends[0], &got, sizeof got) != sizeof got || waitpid(child, &status, 0) != child || status != 0)
        bench_die("a mixture's process has failed");
    close(ends[0]);
    close(ends[1]);
    return got;
}

int main(int argc, char **argv)
{
    struct bench_run run;
    struct result all = { 0, 0 };
    bench_parse(&run, "mixture", &mixture_spec, argc, argv);
    for (uint64_t i = 0; i < run.value[1]; i++) {
        struct result got = measure_apart(&run, run.value[0] + i);
        all.seconds += got.seconds;
        all.faults += got.faults;
    }
    report(&run, "all", run.value[1] * run.value[2], all, NULL);
    return 0;
}
