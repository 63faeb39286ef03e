/* Counts and lists the instructions that one warm malloc and one warm free execute, by single-stepping a child.
 *
 *   fast_path SIZE
 *
 * prints one line each: "malloc COUNT BYTES BYTES ..." and "free COUNT ...": the number of instructions from the
 * function's first one to its return, and the first eight bytes of each. Ends with 77 where it cannot trace.
 * Run by test_fast_path.py, linked with the library. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <sys/ptrace.h>
#include <sys/user.h>

enum { LIMIT = 4000, WARM = 200 };

static void *(*volatile call_malloc)(size_t) = malloc;
static void (*volatile call_free)(void *) = free;

/* Enough calls that records are filled and grown; then the two that are counted. */
static void child(size_t n)
{
    void *warm[WARM];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < WARM; i++)
            warm[i] = call_malloc(n);
        for (int i = 0; i < WARM; i++)
            call_free(warm[i]);
    }
    void *block = call_malloc(n);
    call_free(block);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(77);
    raise(SIGSTOP);
    block = call_malloc(n);
    call_free(block);
    _exit(0);
}

static int step(pid_t traced, struct user_regs_struct *registers)
{
    int status;
    return ptrace(PTRACE_SINGLESTEP, traced, NULL, NULL) == 0 && waitpid(traced, &status, 0) == traced
           && WIFSTOPPED(status) && ptrace(PTRACE_GETREGS, traced, NULL, registers) == 0;
}

static long word_at(pid_t traced, uintptr_t address)
{
    return ptrace(PTRACE_PEEKTEXT, traced, (void *)address, NULL);
}

/* Steps up to the function, then through it until it has returned. */
static int report(pid_t traced, const char *name, uintptr_t function)
{
    static long code[LIMIT];
    struct user_regs_struct registers;
    int count = 0;
    do
        if (!step(traced, &registers))
            return 0;
    while (registers.rip != function);
    uintptr_t back = (uintptr_t)word_at(traced, registers.rsp);
    while (registers.rip != back && count < LIMIT) {
        code[count++] = word_at(traced, registers.rip);
        if (!step(traced, &registers))
            return 0;
    }
    printf("%s %d", name, count);
    for (int i = 0; i < count; i++)
        printf(" %016lx", __builtin_bswap64((unsigned long)code[i]));
    printf("\n");
    return 1;
}

int main(int count, char **arguments)
{
    int status;
    size_t n = count > 1 ? strtoul(arguments[1], NULL, 0) : 64;
    pid_t traced = fork();
    if (traced == 0)
        child(n);
    if (traced < 0 || waitpid(traced, &status, 0) != traced || !WIFSTOPPED(status))
        return 77;
    int done = report(traced, "malloc", (uintptr_t)call_malloc) && report(traced, "free", (uintptr_t)call_free);
    kill(traced, SIGKILL);
    waitpid(traced, &status, 0);
    return done ? 0 : 1;
}
#else
int main(void) { return 77; }
#endif
