/* Counts and lists the instructions that warm calls of the malloc family execute, by single-stepping a child.
 *
 *   fast_path PAIR SIZE
 *
 * PAIR is a way to allocate and release a block: malloc, memalign, posix_memalign, new, new_aligned, sized, and usable, which
 * asks for the block's usable size in between. Prints one line for each call of the pair: "malloc COUNT BYTES BYTES ...": its
 * name, the number of instructions from the function's first one to its return, and the first eight bytes of each. Ends with 77
 * where it cannot trace. Run by test_fast_path.py, linked with the library. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <sys/ptrace.h>
#include <sys/user.h>

enum { LIMIT = 4000, WARM = 200, ALIGN = 64 };

void *operator_new(size_t n) __asm__("_Znwm");
void *operator_new_aligned(size_t n, size_t align) __asm__("_ZnwmSt11align_val_t");
void operator_delete(void *p, size_t n) __asm__("_ZdlPvm");
void operator_delete_aligned(void *p, size_t n, size_t align) __asm__("_ZdlPvmSt11align_val_t");
void free_sized(void *p, size_t n);

static size_t size;
static void *(*volatile call_malloc)(size_t) = malloc;
static void (*volatile call_free)(void *) = free;
static void *(*volatile call_memalign)(size_t, size_t) = memalign;
static int (*volatile call_posix_memalign)(void **, size_t, size_t) = posix_memalign;
static void *(*volatile call_new)(size_t) = operator_new;
static void *(*volatile call_new_aligned)(size_t, size_t) = operator_new_aligned;
static void (*volatile call_delete)(void *, size_t) = operator_delete;
static void (*volatile call_delete_aligned)(void *, size_t, size_t) = operator_delete_aligned;
static void (*volatile call_free_sized)(void *, size_t) = free_sized;
static size_t (*volatile call_usable)(void *) = malloc_usable_size;

/* Of a type that is aligned so. */
static size_t aligned_size(void) { return (size + ALIGN - 1) / ALIGN * ALIGN; }

static void *by_malloc(void) { return call_malloc(size); }
static void *by_memalign(void) { return call_memalign(ALIGN, size); }
static void *by_posix_memalign(void)
{
    void *block = NULL;
    return call_posix_memalign(&block, ALIGN, size) == 0 ? block : NULL;
}
static void *by_new(void) { return call_new(size); }
static void *by_new_aligned(void) { return call_new_aligned(aligned_size(), ALIGN); }
static void *by_usable(void)
{
    void *block = call_malloc(size);
    return call_usable(block) >= size ? block : NULL;
}

static void to_free(void *block) { call_free(block); }
static void to_delete(void *block) { call_delete(block, size); }
static void to_delete_aligned(void *block) { call_delete_aligned(block, aligned_size(), ALIGN); }
static void to_free_sized(void *block) { call_free_sized(block, size); }

struct watched {
    const char *name;
    uintptr_t function;
};
static struct pair {
    const char *name;
    void *(*allocate)(void);
    void (*release)(void *block);
    struct watched watched[3];
} pairs[] = {
    { "malloc", by_malloc, to_free, { { "malloc", (uintptr_t)malloc }, { "free", (uintptr_t)free } } },
    { "memalign", by_memalign, to_free, { { "memalign", (uintptr_t)memalign } } },
    { "posix_memalign", by_posix_memalign, to_free, { { "posix_memalign", (uintptr_t)posix_memalign } } },
    { "new", by_new, to_delete, { { "new", (uintptr_t)operator_new }, { "delete", (uintptr_t)operator_delete } } },
    { "new_aligned", by_new_aligned, to_delete_aligned, { { "new_aligned", (uintptr_t)operator_new_aligned },
                                                          { "delete_aligned", (uintptr_t)operator_delete_aligned } } },
    { "sized", by_malloc, to_free_sized, { { "free_sized", (uintptr_t)free_sized } } },
    { "usable", by_usable, to_free, { { "usable", (uintptr_t)malloc_usable_size } } },
};

/* Enough calls that records are filled and grown; then the two that are counted. */
static void child(const struct pair *pair)
{
    void *warm[WARM];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < WARM; i++)
            warm[i] = pair->allocate();
        for (int i = 0; i < WARM; i++)
            pair->release(warm[i]);
    }
    pair->release(pair->allocate());
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(77);
    raise(SIGSTOP);
    pair->release(pair->allocate());
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

static int report_all(pid_t traced, const struct pair *pair)
{
    for (const struct watched *watched = pair->watched; watched->name != NULL; watched++)
        if (!report(traced, watched->name, watched->function))
            return 0;
    return 1;
}

int main(int count, char **arguments)
{
    int status;
    const struct pair *pair = pairs;
    const char *name = count > 2 ? arguments[1] : "malloc";
    size = count > 2 ? strtoul(arguments[2], NULL, 0) : 64;
    while (pair < pairs + sizeof pairs / sizeof *pairs && strcmp(pair->name, name) != 0)
        pair++;
    if (pair == pairs + sizeof pairs / sizeof *pairs)
        return 2;
    pid_t traced = fork();
    if (traced == 0)
        child(pair);
    if (traced < 0 || waitpid(traced, &status, 0) != traced || !WIFSTOPPED(status))
        return 77;
    int done = report_all(traced, pair);
    kill(traced, SIGKILL);
    waitpid(traced, &status, 0);
    return done ? 0 : 1;
}
#else
int main(void) { return 77; }
#endif
