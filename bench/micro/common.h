/*
 * What the micro benchmarks share: the command line, the clock, random numbers, thread teams and the
 * result line.  Nothing here allocates through malloc, so that a result shows the allocator's own cost
 * and memory: work areas come from bench_map, output goes through a static buffer and write(2).
 *
 * One operation ("op") is one block that is allocated and, sooner or later, freed; bench_realloc counts
 * one call of realloc instead.
 */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>

enum { BENCH_ARGS_MAX = 8, BENCH_THREADS_MAX = 256 };

/* Bounds that several argument tables share. */
#define BENCH_COUNT_MAX (UINT64_C(1) << 40)
#define BENCH_BLOCKS_MAX (UINT64_C(1) << 24)
#define BENCH_SIZE_MAX (UINT64_C(1) << 30)

/* One positional argument: a whole number from low to high, or one of `words` (its value is the index). */
struct bench_arg {
    const char *name;
    const char *help;
    uint64_t initial;
    uint64_t low;
    uint64_t high;
    const char *const *words;
};

/* What a program says about itself; --help is printed from it. */
struct bench_spec {
    const char *summary;
    const struct bench_arg *args;
    size_t count;
};

#define BENCH_SPEC(text, table) {(text), (table), sizeof(table) / sizeof((table)[0])}

/* The arguments in force, and the same as text for the result line. */
struct bench_run {
    const char *name;
    uint64_t value[BENCH_ARGS_MAX];
    char text[256];
    char extra[256]; /* further fields of the result line, see bench_extra */
};

/* What a thread will hold at most, so that an allocator which cannot refill prepares that much. */
struct bench_demand {
    size_t min;
    size_t max;
    size_t blocks;
};

/* Fills `run` from the command line; exits with 0 after --help and with 2 after a wrong argument. */
void bench_parse(struct bench_run *run, const char *name, const struct bench_spec *spec, int argc,
                 char **argv);

/* Exits with 2 and the message when two arguments contradict each other. */
void bench_require(const struct bench_run *run, int holds, const char *message);

#ifdef __cplusplus
#define BENCH_NORETURN [[noreturn]]
#else
#define BENCH_NORETURN _Noreturn
#endif

/* Prints one message with the prefix "bench: " and exits with 1. */
BENCH_NORETURN void bench_die(const char *message);

/* Writes the whole text to standard output. */
void bench_print(const char *text);

/* Prints the result line; `part` names one measurement of several, or is NULL. */
void bench_report(const struct bench_run *run, const char *part, uint64_t ops, double seconds);

/* Adds a field to the result lines that follow; at most a few short ones. */
void bench_extra(struct bench_run *run, const char *field, uint64_t value);

/* A field of a file under /proc, in KiB; the end of the program where there is none. Allocates nothing. */
long bench_field_kb(const char *path, const char *field);

/* Resident memory of the process now, in KiB; the end of the program where the system does not say. */
long bench_rss_kb(void);

/* Prints "check=" and a digest of what the program computed: it depends on the arguments, never on the allocator. */
void bench_check(const struct bench_run *run, uint64_t digest);

/* Mixes a value into a digest. */
static inline uint64_t bench_mix(uint64_t digest, uint64_t value)
{
    digest = (digest ^ value) * UINT64_C(0x9fb21c651e98df25);
    return digest ^ (digest >> 32);
}

/* Zeroed memory straight from the system, or the end of the program. */
void *bench_map(size_t bytes);

/* Seconds on a clock that only goes forward. */
double bench_now(void);

/* What each thread writes in its loop lies at least so many bytes from what another does: two cache lines, which some
 * processors fetch together. Else the loop measures how often its own line moves, and not the allocator. */
#define BENCH_APART alignas(128)

/*
 * A team runs `body` once per worker, all at the same time.  A body prepares, calls bench_team_start,
 * does the timed part and calls bench_team_stop; the time runs from the first start to the last stop.
 * A team of one runs in the calling thread, so that single-threaded results are exactly that.
 */
struct bench_team;
typedef void bench_body(void *worker, struct bench_team *team);
double bench_team_run(unsigned threads, bench_body *body, void *workers, size_t worker_size);
void bench_team_start(struct bench_team *team);
void bench_team_stop(struct bench_team *team);

/* SplitMix64: the state advances by one addition, so consecutive numbers don't wait for each other. */
static inline uint64_t bench_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* A seed per thread that leaves their sequences unrelated. */
static inline uint64_t bench_seed(uint64_t seed, unsigned thread)
{
    uint64_t state = seed + thread * UINT64_C(0xd1342543de82ef95);
    return bench_random(&state);
}

/* Scales 32 random bits to 0 .. bound-1 by a multiplication; a division would cost as much as a malloc. */
static inline size_t bench_below(uint32_t bits, size_t bound)
{
    return (size_t)(((uint64_t)bits * bound) >> 32);
}

/* A size from min to max, drawn from the upper half of a random number. */
static inline size_t bench_size(uint64_t random, size_t min, size_t max)
{
    return min + bench_below((uint32_t)(random >> 32), max - min + 1);
}

/*
 * Writes the first and the last byte.  The empty assembly makes the block visible to the outside, so
 * that no compiler may remove a pair of malloc and free whose block is otherwise unused.
 */
static inline void bench_touch(void *block, size_t size)
{
    char *bytes = (char *)block;
    bytes[0] = 1;
    bytes[size - 1] = 1;
    __asm__ volatile("" : : "r"(block) : "memory");
}

#endif
