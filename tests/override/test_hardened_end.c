/* Hardened mode's look at the heap at exit finds nothing in programs that are right, however they end: each case runs in a
 * process of its own that has to end as it would without the library, and to say nothing. */
// test: ordinary timeout=240
#include "expect.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { BUSY_THREADS = 3, INTERRUPTIONS = 60, STATUS = 7 };

static void *(*volatile take)(size_t) = malloc;
static void (*volatile drop)(void *) = free;
static void *(*volatile resize)(void *, size_t) = realloc;
static char self[4096];
static unsigned seed;

/* --- what threads are at ---------------------------------------------------------------------------------------------------- */

/* Blocks of all kinds, taken, written, resized and freed for ever. */
static void work(unsigned n)
{
    static const size_t sizes[] = { 1, 24, 98, 1000, 5000, 40000, 100000, 200000, 700000, 3 << 20 };
    for (;; n = n * 1664525 + 1013904223) {
        size_t size = sizes[(n >> 20) % (n % 64 == 0 ? 10 : 6)];
        char *p = take(size);
        memset(p, 0x5a, size);
        if (n >> 28 < 4)
            p = resize(p, size + size / 3);
        drop(p);
        drop(take(0));
    }
}

static void *run_work(void *argument)
{
    work((unsigned)(uintptr_t)argument);
    return NULL;
}

static void start_threads(void)
{
    pthread_t thread;
    for (uintptr_t i = 0; i < BUSY_THREADS; i++)
        expect(pthread_create(&thread, NULL, run_work, (void *)(seed + i)) == 0);
    usleep(2000 + seed % 7 * 500);
}

/* --- ends ------------------------------------------------------------------------------------------------------------------- */

static void *live;

static void at_threads(void)
{
    start_threads();
    exit(STATUS);
}

static void end_now(int number)
{
    (void)number;
    exit(STATUS);
}

static void end_soon(void)
{
    struct itimerval soon = { { 0, 0 }, { 0, 500 + (int)(seed * 7919 % 3000) } };
    signal(SIGALRM, end_now);
    setitimer(ITIMER_REAL, &soon, NULL);
}

/* The handler interrupts whatever malloc, realloc or free is at. */
static void in_handler(void)
{
    end_soon();
    work(seed);
}

static void pause_for_ever(int number)
{
    (void)number;
    for (;;)
        pause();
}

/* A thread that was stopped in the middle of malloc or free, as collectors of garbage do. */
static void at_stopped_thread(void)
{
    pthread_t thread;
    signal(SIGUSR1, pause_for_ever);
    expect(pthread_create(&thread, NULL, run_work, (void *)(uintptr_t)seed) == 0);
    usleep(1000 + seed * 7919 % 3000);
    pthread_kill(thread, SIGUSR1);
    usleep(1000);
    exit(STATUS);
}

static void allocate_late(void)
{
    for (size_t n = 1; n < 4000; n += 31) {
        char *p = take(n);
        memset(p, 1, n);
        if (n % 2 == 0)
            drop(p);
    }
}

static void at_handlers(void)
{
    expect(atexit(allocate_late) == 0);
    live = take(100);
    exit(STATUS);
}

static void at_children(void)
{
    int status;
    if (seed % 2 == 0)
        start_threads();
    for (unsigned i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0) {
            allocate_late();
            exit(STATUS);
        }
        expect(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == STATUS);
    }
    exit(STATUS);
}

/* What the program has made inaccessible is not read; nor are large blocks that wait. */
static void with_inaccessible_pages(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (unsigned i = 1; i < 20; i++) {
        void *p = NULL;
        expect(posix_memalign(&p, page, i * page) == 0 && mprotect(p, page * i, PROT_NONE) == 0);
        drop(take(150000 + i * 20000));
    }
    exit(STATUS);
}

static void at_once(void) { _exit(STATUS); }

static void by_exec(void)
{
#if defined(__GLIBC__)
    if (getenv("HAK_TEST_EMULATOR") != NULL)
#endif
        unsetenv("LD_PRELOAD"); /* the shell may be of another C library, or another processor's */
    execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
    _exit(1);
}

static const struct ending {
    const char *name;
    void (*end)(void);
    unsigned rounds;
} endings[] = {
    { "threads", at_threads, 10 },
    { "handler", in_handler, INTERRUPTIONS },
    { "stopped", at_stopped_thread, INTERRUPTIONS / 2 },
    { "handlers", at_handlers, 2 },
    { "children", at_children, 8 },
    { "inaccessible", with_inaccessible_pages, 1 },
    { "once", at_once, 1 },
    { "exec", by_exec, 1 },
};
enum { ENDINGS = sizeof endings / sizeof *endings };

/* --- each in a process -------------------------------------------------------------------------------------------------------- */

static void check(const struct ending *ending, unsigned round)
{
    char said[2000], number[16];
    int pipe_ends[2], status;
    snprintf(number, sizeof number, "%u", round);
    expect(pipe(pipe_ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        setenv("HAKMEM_HARDEN", "1", 1);
        dup2(pipe_ends[1], 2);
        close(pipe_ends[0]);
        close(pipe_ends[1]);
        execl(self, self, ending->name, number, (char *)NULL);
        _exit(3);
    }
    close(pipe_ends[1]);
    ssize_t length = read(pipe_ends[0], said, sizeof said);
    close(pipe_ends[0]);
    expect(child > 0 && waitpid(child, &status, 0) == child);
    if (length != 0 || !WIFEXITED(status) || WEXITSTATUS(status) != STATUS)
        fprintf(stderr, "%s, round %u: status %#x: %.*s\n", ending->name, round, (unsigned)status, (int)length, said);
    expect(length == 0 && WIFEXITED(status) && WEXITSTATUS(status) == STATUS);
}

int main(int argc, char **argv)
{
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    expect(length > 0);
    if (argc == 3)
        seed = (unsigned)atoi(argv[2]);
    for (unsigned i = 0; i < ENDINGS; i++) {
        if (argc == 3 && strcmp(argv[1], endings[i].name) == 0)
            endings[i].end();
        if (argc == 1 && endings[i].end == at_children && not_told_of_children())
            continue;
        for (unsigned round = 0; argc == 1 && round < endings[i].rounds; round++)
            check(&endings[i], round);
    }
    return argc == 1 ? 0 : 1;
}
