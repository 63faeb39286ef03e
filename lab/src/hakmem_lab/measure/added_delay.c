/* Preloaded before an allocator: adds a delay to each call, times one call in STEP, and counts all. hakmem worth builds it.
 *
 *   WORTH_TURNS  turns of the idle loop added to each call
 *   WORTH_CPU    long calls by processor time
 *   WORTH_FILE   at exit a line goes there:
 *   calls, nanoseconds in timed calls without the clock's own, timed calls, nanoseconds per page fault */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { STEP = 61, PAGES = 1024, TRIES = 1000, LONG_NS = 20000 };

struct counts {
    uint64_t calls, timed, nanoseconds, processor;
    struct counts *next;
};

static _Thread_local struct counts *noted __attribute__((tls_model("initial-exec")));
static struct counts *_Atomic all;
static struct counts lost; /* of threads without memory for theirs */
static uint64_t turns, clock_cost;
static int by_processor;

static uint64_t now_by(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t now(void) { return now_by(CLOCK_MONOTONIC); }

__attribute__((noinline)) void worth_idle(uint64_t count)
{
    while (count-- > 0)
        __asm__ volatile("" : "+r"(count));
}

/* A thread's counts outlive it: they are in pages of their own. */
static void note(void)
{
    noted = mmap(NULL, sizeof *noted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (noted == MAP_FAILED) {
        noted = &lost;
        return;
    }
    noted->next = atomic_load(&all);
    while (!atomic_compare_exchange_weak(&all, &noted->next, noted))
        continue;
}

static int begin(uint64_t *began)
{
    if (noted == NULL)
        note();
    worth_idle(turns);
    if (++noted->calls % STEP != 0)
        return 0;
    if (by_processor)
        noted->processor = now_by(CLOCK_THREAD_CPUTIME_ID);
    *began = now();
    return 1;
}

static void end(uint64_t began)
{
    uint64_t took = now() - began;
    if (by_processor && took > LONG_NS) /* others may have had their turns in it */
        took = now_by(CLOCK_THREAD_CPUTIME_ID) - noted->processor;
    noted->timed++;
    noted->nanoseconds += took > clock_cost ? took - clock_cost : 0;
}

#define WRAP(result, name, parameters, arguments) \
    result name parameters; \
    result name parameters \
    { \
        static result(*_Atomic next) parameters; \
        result(*call) parameters = atomic_load_explicit(&next, memory_order_relaxed); \
        if (call == NULL) \
            atomic_store(&next, call = (result(*) parameters)dlsym(RTLD_NEXT, #name)); \
        uint64_t began = 0; \
        int timed = begin(&began); \
        BODY_##result(call arguments) \
    }
#define void_p void *
#define BODY_void_p(call) \
    { \
        void *block = call; \
        if (timed) \
            end(began); \
        return block; \
    }
#define BODY_int(call) \
    { \
        int status = call; \
        if (timed) \
            end(began); \
        return status; \
    }
#define BODY_void(call) \
    { \
        call; \
        if (timed) \
            end(began); \
    }

WRAP(void_p, malloc, (size_t n), (n))
WRAP(void_p, calloc, (size_t count, size_t n), (count, n))
WRAP(void_p, realloc, (void *p, size_t n), (p, n))
WRAP(void_p, reallocarray, (void *p, size_t count, size_t n), (p, count, n))
WRAP(void_p, aligned_alloc, (size_t align, size_t n), (align, n))
WRAP(void_p, memalign, (size_t align, size_t n), (align, n))
WRAP(int, posix_memalign, (void **p, size_t align, size_t n), (p, align, n))
WRAP(void, free, (void *p), (p))
/* C++'s new and delete, in all forms that compilers call. */
WRAP(void_p, _Znwm, (size_t n), (n))
WRAP(void_p, _Znam, (size_t n), (n))
WRAP(void_p, _ZnwmRKSt9nothrow_t, (size_t n, const void *tag), (n, tag))
WRAP(void_p, _ZnamRKSt9nothrow_t, (size_t n, const void *tag), (n, tag))
WRAP(void_p, _ZnwmSt11align_val_t, (size_t n, size_t align), (n, align))
WRAP(void_p, _ZnamSt11align_val_t, (size_t n, size_t align), (n, align))
WRAP(void_p, _ZnwmSt11align_val_tRKSt9nothrow_t, (size_t n, size_t align, const void *tag), (n, align, tag))
WRAP(void_p, _ZnamSt11align_val_tRKSt9nothrow_t, (size_t n, size_t align, const void *tag), (n, align, tag))
WRAP(void, _ZdlPv, (void *p), (p))
WRAP(void, _ZdaPv, (void *p), (p))
WRAP(void, _ZdlPvm, (void *p, size_t n), (p, n))
WRAP(void, _ZdaPvm, (void *p, size_t n), (p, n))
WRAP(void, _ZdlPvSt11align_val_t, (void *p, size_t align), (p, align))
WRAP(void, _ZdlPvmSt11align_val_t, (void *p, size_t n, size_t align), (p, n, align))

static uint64_t fault_cost(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return 0;
    uint64_t began = now_by(CLOCK_THREAD_CPUTIME_ID); /* without others' turns */
    for (size_t i = 0; i < PAGES; i++)
        ((volatile char *)p)[i * page] = 1;
    uint64_t took = now_by(CLOCK_THREAD_CPUTIME_ID) - began;
    munmap(p, PAGES * page);
    return took / PAGES;
}

/* The parent reports what it had counted before the fork. */
static void forget(void)
{
    if (noted != NULL)
        *noted = (struct counts){ 0 };
    atomic_store(&all, noted == &lost ? NULL : noted);
}

__attribute__((constructor)) static void start(void)
{
    pthread_atfork(NULL, NULL, forget);
    const char *given = getenv("WORTH_TURNS");
    turns = given != NULL ? strtoull(given, NULL, 10) : 0;
    by_processor = getenv("WORTH_CPU") != NULL;
    clock_cost = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        uint64_t began = now(), took = now() - began;
        clock_cost = took < clock_cost ? took : clock_cost;
    }
}

__attribute__((destructor)) static void stop(void)
{
    const char *path = getenv("WORTH_FILE");
    uint64_t calls = 0, timed = 0, nanoseconds = 0;
    for (struct counts *c = atomic_load(&all); c != NULL; c = c->next)
        calls += c->calls, timed += c->timed, nanoseconds += c->nanoseconds;
    char line[128];
    int size = snprintf(line, sizeof line, "%llu %llu %llu %llu\n", (unsigned long long)calls,
                        (unsigned long long)nanoseconds, (unsigned long long)timed, (unsigned long long)fault_cost());
    int file = path == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file >= 0 && (write(file, line, (size_t)size) != size || close(file) != 0))
        turns = 0;
}
