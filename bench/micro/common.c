/*
 * The shared part of the micro benchmarks that is not inline: see common.h for the contracts.
 * Nothing in this file runs inside a timed loop.
 */
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* ---- output ------------------------------------------------------------------------------------ */

static void write_all(int fd, const char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        ssize_t done = write(fd, text, left);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            _exit(1);
        }
        text += done;
        left -= (size_t)done;
    }
}

void bench_print(const char *text)
{
    write_all(STDOUT_FILENO, text);
}

void bench_die(const char *message)
{
    write_all(STDERR_FILENO, "bench: ");
    write_all(STDERR_FILENO, message);
    write_all(STDERR_FILENO, "\n");
    _exit(1);
}

/* ---- command line ------------------------------------------------------------------------------ */

_Noreturn static void usage_error(const char *name, const char *message)
{
    char line[512];
    snprintf(line, sizeof line, "%s: %s (see %s --help)\n", name, message, name);
    write_all(STDERR_FILENO, line);
    exit(2);
}

static void print_arg_help(const struct bench_arg *arg)
{
    char line[512];
    if (arg->words == NULL) {
        snprintf(line, sizeof line, "  %-12s %s (%" PRIu64 ")\n", arg->name, arg->help, arg->initial);
        bench_print(line);
        return;
    }
    snprintf(line, sizeof line, "  %-12s %s (%s); one of", arg->name, arg->help,
             arg->words[arg->initial]);
    bench_print(line);
    for (size_t i = 0; arg->words[i] != NULL; i++) {
        snprintf(line, sizeof line, " %s", arg->words[i]);
        bench_print(line);
    }
    bench_print("\n");
}

static void print_help(const char *name, const struct bench_spec *spec)
{
    bench_print("usage: ");
    bench_print(name);
    for (size_t i = 0; i < spec->count; i++) {
        bench_print(" [");
        bench_print(spec->args[i].name);
    }
    for (size_t i = 0; i < spec->count; i++) {
        bench_print("]");
    }
    bench_print("\n\n");
    bench_print(spec->summary);
    bench_print("\n\nArguments, with the default in parentheses:\n");
    for (size_t i = 0; i < spec->count; i++) {
        print_arg_help(&spec->args[i]);
    }
    bench_print("\nThe result is one line: operations per second, seconds, peak resident memory in KiB,\n"
                "minor page faults of the whole process, and the arguments in force.\n");
}

static uint64_t parse_word(const char *name, const struct bench_arg *arg, const char *text)
{
    for (size_t i = 0; arg->words[i] != NULL; i++) {
        if (strcmp(arg->words[i], text) == 0) {
            return i;
        }
    }
    char message[256];
    snprintf(message, sizeof message, "\"%.64s\" is no %s", text, arg->name);
    usage_error(name, message);
}

static uint64_t parse_number(const char *name, const struct bench_arg *arg, const char *text)
{
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    int digits_only = text[0] >= '0' && text[0] <= '9' && *end == '\0';
    if (!digits_only || errno != 0 || value < arg->low || value > arg->high) {
        char message[256];
        snprintf(message, sizeof message,
                 "%s must be a whole number from %" PRIu64 " to %" PRIu64 ", not \"%.64s\"", arg->name,
                 arg->low, arg->high, text);
        usage_error(name, message);
    }
    return value;
}

static void append_text(struct bench_run *run, const struct bench_arg *arg, uint64_t value)
{
    size_t used = strlen(run->text);
    const char *gap = used > 0 ? " " : "";
    if (arg->words != NULL) {
        snprintf(run->text + used, sizeof run->text - used, "%s%s", gap, arg->words[value]);
    } else {
        snprintf(run->text + used, sizeof run->text - used, "%s%" PRIu64, gap, value);
    }
}

void bench_parse(struct bench_run *run, const char *name, const struct bench_spec *spec, int argc,
                 char **argv)
{
    memset(run, 0, sizeof *run);
    run->name = name;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(name, spec);
            exit(0);
        }
    }
    if ((size_t)argc > spec->count + 1) {
        usage_error(name, "too many arguments");
    }
    for (size_t i = 0; i < spec->count; i++) {
        const struct bench_arg *arg = &spec->args[i];
        const char *text = (int)i + 1 < argc ? argv[i + 1] : NULL;
        uint64_t value = arg->initial;
        if (text != NULL) {
            value = arg->words != NULL ? parse_word(name, arg, text) : parse_number(name, arg, text);
        }
        run->value[i] = value;
        append_text(run, arg, value);
    }
}

void bench_require(const struct bench_run *run, int holds, const char *message)
{
    if (!holds) {
        usage_error(run->name, message);
    }
}

/* ---- result line ------------------------------------------------------------------------------- */

/* -1: the file does not have it. */
static long field_kb(const char *path, const char *field)
{
    static char status[8192];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, status, sizeof status - 1);
    if (fd >= 0) {
        close(fd);
    }
    if (length <= 0) {
        return -1;
    }
    status[length] = '\0';
    const char *line = strstr(status, field);
    return line == NULL ? -1 : strtol(line + strlen(field), NULL, 10);
}

/*
 * The peak comes from VmHWM because it belongs to this program alone: ru_maxrss survives exec and would
 * show the size of a larger parent.
 */
static long peak_rss_kb(void)
{
    long peak = field_kb("/proc/self/status", "VmHWM:");
    if (peak >= 0) {
        return peak;
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

long bench_field_kb(const char *path, const char *field)
{
    long found = field_kb(path, field);
    if (found < 0) {
        static char message[256];
        snprintf(message, sizeof message, "%s has no %s", path, field);
        bench_die(message);
    }
    return found;
}

long bench_rss_kb(void)
{
    return bench_field_kb("/proc/self/status", "VmRSS:");
}

void bench_extra(struct bench_run *run, const char *field, uint64_t value)
{
    size_t used = strlen(run->extra);
    snprintf(run->extra + used, sizeof run->extra - used, " %s=%" PRIu64, field, value);
}

void bench_report(const struct bench_run *run, const char *part, uint64_t ops, double seconds)
{
    static char line[1024];
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double rate = seconds > 0 ? (double)ops / seconds : 0;
    snprintf(line, sizeof line,
             "%s%s%s ops_per_s=%.0f seconds=%.4f peak_rss_kb=%ld minor_faults=%ld%s args=\"%s\"\n",
             run->name, part != NULL ? "/" : "", part != NULL ? part : "", rate, seconds, peak_rss_kb(),
             usage.ru_minflt, run->extra, run->text);
    bench_print(line);
}

void bench_check(const struct bench_run *run, uint64_t digest)
{
    char line[128];
    snprintf(line, sizeof line, "%s check=%016" PRIx64 "\n", run->name, digest);
    bench_print(line);
}

/* ---- memory, time, teams ----------------------------------------------------------------------- */

void *bench_map(size_t bytes)
{
    void *area =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) {
        bench_die("the system refused the memory for a work area");
    }
    return area;
}

double bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

struct bench_team {
    pthread_barrier_t line;
    pthread_mutex_t lock;
    double first; /* under lock; 0 = nobody has started */
    double last;  /* under lock */
};

struct team_member {
    struct bench_team *team;
    bench_body *body;
    void *worker;
};

void bench_team_start(struct bench_team *team)
{
    pthread_barrier_wait(&team->line);
    pthread_mutex_lock(&team->lock);
    double now = bench_now();
    if (team->first == 0) {
        team->first = now;
    }
    pthread_mutex_unlock(&team->lock);
}

void bench_team_stop(struct bench_team *team)
{
    pthread_mutex_lock(&team->lock);
    team->last = bench_now();
    pthread_mutex_unlock(&team->lock);
}

static void *run_member(void *arg)
{
    struct team_member *member = arg;
    member->body(member->worker, member->team);
    return NULL;
}

double bench_team_run(unsigned threads, bench_body *body, void *workers, size_t worker_size)
{
    static struct team_member member[BENCH_THREADS_MAX];
    static pthread_t thread[BENCH_THREADS_MAX];
    struct bench_team team = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_barrier_init(&team.line, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        member[i] = (struct team_member){&team, body, (char *)workers + i * worker_size};
    }
    if (threads == 1) {
        run_member(&member[0]);
    } else {
        for (unsigned i = 0; i < threads; i++) {
            if (pthread_create(&thread[i], NULL, run_member, &member[i]) != 0) {
                bench_die("a thread could not be created");
            }
        }
        for (unsigned i = 0; i < threads; i++) {
            pthread_join(thread[i], NULL);
        }
    }
    pthread_barrier_destroy(&team.line);
    return team.last - team.first;
}
