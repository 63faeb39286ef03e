/*
 * bench_realloc [PATTERN [PERCENT [SEED]]]
 *
 * Exercises realloc on growing buffers, in three patterns, each a measurement of its own:
 * `vector`: 16 vectors double from 16 bytes to 256 KiB; `append`: 64 strings grow to 4 KiB by 1 to 32
 * bytes at a time; `big`: one buffer grows from 1 to 64 MiB in steps of 1 MiB.  In each pattern the
 * buffers grow in turn, new bytes are written page by page, and what was there before is checked.
 * Knobs: PERCENT scales the number of rounds.  An operation is one call of realloc.
 */
#include "common.h"

#include <stdlib.h>

enum { BUFFERS_MAX = 64, PAGE = 4096, MARK = 0x5a };

struct pattern {
    const char *name;
    unsigned rounds;
    unsigned buffers;
    size_t first;  /* bytes to begin with */
    size_t limit;  /* bytes at which a round ends */
    int doubling;  /* whether a buffer doubles, or grows by step_min .. step_max bytes */
    size_t step_min;
    size_t step_max;
};

static const struct pattern patterns[] = {
    {"vector", 1800, 16, 16, 256 << 10, 1, 0, 0},
    {"append", 2000, 64, 16, 4 << 10, 0, 1, 32},
    {"big", 15, 1, 1 << 20, 64 << 20, 0, 1 << 20, 1 << 20},
};

enum { PATTERNS = sizeof patterns / sizeof patterns[0] };

static const char *const pattern_words[] = {"vector", "append", "big", "all", NULL};

static const struct bench_arg realloc_args[] = {
    {"PATTERN", "which buffers grow", PATTERNS, 0, 0, pattern_words},
    {"PERCENT", "rounds, in percent of the usual number", 100, 1, 100000, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
};

static const struct bench_spec realloc_spec =
    BENCH_SPEC("One thread grows buffers with realloc.", realloc_args);

struct buffer {
    char *bytes;
    size_t size;
};

static void buffer_resize(struct buffer *buffer, size_t size)
{
    const size_t old = buffer->size;
    char *bytes = realloc(buffer->bytes, size);
    if (bytes == NULL) {
        bench_die("out of memory");
    }
    if (old > 0 && (bytes[0] != MARK || bytes[old - 1] != MARK)) {
        bench_die("realloc lost the content of a block");
    }
    for (size_t at = old; at < size; at += PAGE) {
        bytes[at] = MARK;
    }
    bytes[size - 1] = MARK;
    *buffer = (struct buffer){bytes, size};
}

static size_t next_size(const struct pattern *pattern, size_t size, uint64_t *seed)
{
    if (size == 0) {
        return pattern->first;
    }
    if (pattern->doubling) {
        return 2 * size;
    }
    return size + bench_size(bench_random(seed), pattern->step_min, pattern->step_max);
}

/* Grows all buffers in turn until each has reached the limit, then frees them; returns the calls. */
static uint64_t one_round(const struct pattern *pattern, uint64_t *seed)
{
    struct buffer buffer[BUFFERS_MAX] = {{NULL, 0}};
    uint64_t calls = 0;
    for (unsigned growing = pattern->buffers; growing > 0;) {
        growing = 0;
        for (unsigned i = 0; i < pattern->buffers; i++) {
            if (buffer[i].size < pattern->limit) {
                buffer_resize(&buffer[i], next_size(pattern, buffer[i].size, seed));
                calls++;
                growing++;
            }
        }
    }
    for (unsigned i = 0; i < pattern->buffers; i++) {
        free(buffer[i].bytes);
    }
    return calls;
}

static void measure(const struct bench_run *run, const struct pattern *pattern)
{
    const uint64_t rounds = (pattern->rounds * run->value[1] + 99) / 100;
    uint64_t seed = bench_seed(run->value[2], 0), calls = 0;
    double start = bench_now();
    for (uint64_t i = 0; i < rounds; i++) {
        calls += one_round(pattern, &seed);
    }
    bench_report(run, pattern->name, calls, bench_now() - start);
}

int main(int argc, char **argv)
{
    struct bench_run run;
    bench_parse(&run, "bench_realloc", &realloc_spec, argc, argv);
    for (unsigned i = 0; i < PATTERNS; i++) {
        if (run.value[0] == i || run.value[0] == PATTERNS) {
            measure(&run, &patterns[i]);
        }
    }
    return 0;
}
