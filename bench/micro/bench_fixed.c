/*
 * bench_fixed [PROCESSES [THREADS [FORKS [MIB]]]]
 *
 * The fixed part: what a process and a thread cost before they have done anything, whatever they go on to do.
 * Reports, beside the time of all, in ns:
 *   process       from the call that starts a program that does nothing to its end, the mean of PROCESSES;
 *   first_malloc  the process's first call of malloc;
 *   first_thread  start and end of its first other thread, which allocates one block;
 *   thread        the same of later threads, one after the other, the mean of THREADS;
 *   fork          the call, and the child's end, beside MIB of blocks of 1 KiB, the mean of FORKS.
 */
#include "alloc_libc.h"
#include "common.h"

#include <pthread.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIXED_BLOCK = 1024, FIXED_FIRST = 100 };

extern char **environ;

static const struct bench_arg fixed_args[] = {
    {"PROCESSES", "programs started", 200, 1, 100000, NULL},
    {"THREADS", "threads started", 2000, 1, 1000000, NULL},
    {"FORKS", "children forked", 10, 1, 100000, NULL},
    {"MIB", "bytes of blocks while children are forked", 1024, 1, 65536, NULL},
};
static const struct bench_spec fixed_spec =
    BENCH_SPEC("What a process and a thread cost before they do anything.\n"
               "Beside the usual fields, in ns: process, first_malloc, first_thread, thread, fork.",
               fixed_args);

static void await(pid_t process)
{
    int status;
    if (process <= 0 || waitpid(process, &status, 0) != process || status != 0) {
        bench_die("a child did not end as it should");
    }
}

static void start_process(void)
{
    char *const command[] = {"bench_fixed", "nothing", NULL};
    pid_t process;
    if (posix_spawn(&process, "/proc/self/exe", NULL, NULL, command, environ) != 0) {
        bench_die("a program could not be started");
    }
    await(process);
}

static void *one_block(void *arg)
{
    void *block = bench_alloc(FIXED_FIRST);
    if (block == NULL) {
        bench_die("out of memory");
    }
    bench_touch(block, FIXED_FIRST);
    bench_free(block);
    return arg;
}

static void start_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, one_block, NULL) != 0 || pthread_join(thread, NULL) != 0) {
        bench_die("a thread could not be started");
    }
}

static void fork_once(void)
{
    pid_t process = fork();
    if (process == 0) {
        _exit(0);
    }
    await(process);
}

static void *chain_of_blocks(uint64_t mib)
{
    void *last = NULL;
    for (uint64_t i = 0; i < mib * FIXED_BLOCK; i++) {
        void **block = bench_alloc(FIXED_BLOCK);
        if (block == NULL) {
            bench_die("out of memory");
        }
        memset(block, 1, FIXED_BLOCK);
        *block = last;
        last = block;
    }
    return last;
}

static void note(struct bench_run *run, const char *field, double began, uint64_t times)
{
    bench_extra(run, field, (uint64_t)((bench_now() - began) * 1e9 / (double)times));
}

static void repeat(struct bench_run *run, const char *field, void (*act)(void), uint64_t times)
{
    double began = bench_now();
    for (uint64_t i = 0; i < times; i++) {
        act();
    }
    note(run, field, began, times);
}

int main(int argc, char **argv)
{
    struct bench_run run;
    if (argc == 2 && strcmp(argv[1], "nothing") == 0) {
        return 0;
    }
    double began = bench_now();
    void *first = bench_alloc(FIXED_FIRST);
    double served = bench_now();
    bench_parse(&run, "bench_fixed", &fixed_spec, argc, argv);
    bench_extra(&run, "first_malloc", (uint64_t)((served - began) * 1e9));
    repeat(&run, "first_thread", start_thread, 1);
    repeat(&run, "thread", start_thread, run.value[1]);
    repeat(&run, "process", start_process, run.value[0]);
    void *last = chain_of_blocks(run.value[3]);
    repeat(&run, "fork", fork_once, run.value[2]);
    while (last != NULL) {
        void *block = last;
        last = *(void **)block;
        bench_free(block);
    }
    bench_free(first);
    bench_report(&run, NULL, run.value[0] + run.value[1] + run.value[2], bench_now() - began);
    return 0;
}
