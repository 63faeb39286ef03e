/* What the tests share: checks that name what went wrong, child processes, captured output, random numbers.
 *
 * A check works anywhere: in the main thread of a cmocka test it fails that test, in a thread or a forked child it
 * ends the process with a message, because cmocka's way out (longjmp) exists in the main thread only. */
#ifndef HAK_TESTS_SUPPORT_CHECK_H
#define HAK_TESTS_SUPPORT_CHECK_H

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK_UNUSED __attribute__((unused))

static pid_t check_main_process;

__attribute__((constructor)) static void check_remember_process(void) { check_main_process = getpid(); }

static inline void check_failed(const char *file, int line, const char *what, unsigned long long a,
                                unsigned long long b)
{
    fprintf(stderr, "%s:%d: %s (%llu = 0x%llx, %llu = 0x%llx)\n", file, line, what, a, a, b, b);
    fflush(stderr);
    if (getpid() == check_main_process && gettid() == getpid())
        fail();
    _exit(1);
}

#define expect(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition, 0, 1))
#define expect_op(a, op, b) \
    do { \
        unsigned long long expect_a = (unsigned long long)(a), expect_b = (unsigned long long)(b); \
        if (!(expect_a op expect_b)) \
            check_failed(__FILE__, __LINE__, #a " " #op " " #b, expect_a, expect_b); \
    } while (0)
#define expect_eq(a, b) expect_op(a, ==, b)
#define expect_ptr(a, b) expect_op((uintptr_t)(a), ==, (uintptr_t)(b))

/* For cmocka cases about what hardened mode does otherwise. */
#define skip_hardened() (getenv("HAKMEM_HARDEN") != NULL ? skip() : (void)0)

/* An emulator runs the program: slowly, and it keeps some calls of the system for itself. */
static CHECK_UNUSED bool is_emulated(void) { return getenv("HAK_TEST_EMULATED") != NULL; }
static CHECK_UNUSED unsigned limit_factor(void) { return is_emulated() ? (unsigned)atoi(getenv("HAK_TEST_EMULATED")) : 1; }

/* The most that a mapping may have there: qemu 7 notes each of its pages, used or not, in time and memory. */
#define EMULATED_MOST ((size_t)1 << 34)

/* --- random numbers: the same sequence in every run ------------------------------------------------------------- */

struct rng {
    uint64_t state;
};

static inline uint64_t rng_next(struct rng *rng)
{
    uint64_t x = rng->state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}
static inline size_t rng_below(struct rng *rng, size_t limit) { return (size_t)(rng_next(rng) % limit); }

/* --- child processes --------------------------------------------------------------------------------------------- */

enum { SAID_SIZE = 32768 };
typedef void check_body(void *argument);

/* Runs body in a forked child and keeps what it writes to stderr, as a text. Gives the wait status. */
static inline CHECK_UNUSED int run_child(check_body *body, void *argument, char *said)
{
    int file = memfd_create("stderr", 0), status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        fcntl(file, F_SETFL, O_APPEND);   /* as a log (diag/report.h) */
        dup2(file, STDERR_FILENO);
        body(argument);
        _exit(0);
    }
    waitpid(child, &status, 0);
    ssize_t length = pread(file, said, SAID_SIZE - 1, 0);
    said[length < 0 ? 0 : length] = 0;
    char *emulator = is_emulated() ? strstr(said, "qemu: uncaught target signal") : NULL;   /* it says so itself */
    if (emulator != NULL)
        *emulator = 0;
    close(file);
    return status;
}

/* Runs body in a child whose state nobody shares; its failing checks fail this test. */
static inline CHECK_UNUSED void run_fresh(check_body *body, void *argument)
{
    char said[SAID_SIZE];
    int status = run_child(body, argument, said);
    if (status != 0 || said[0] != 0)
        fprintf(stderr, "%s", said);
    expect_eq(status, 0);
}

/* The body must end with abort() after exactly this line (without its newline) on stderr. */
static inline CHECK_UNUSED void expect_abort(check_body *body, void *argument, const char *line)
{
    char said[SAID_SIZE];
    int status = run_child(body, argument, said);
    said[strcspn(said, "\n")] = 0;
    if (strcmp(said, line) != 0)
        fprintf(stderr, "said:     %s\nexpected: %s\n", said, line);
    expect_eq(strcmp(said, line), 0);
    expect(WIFSIGNALED(status));
    expect_eq(WTERMSIG(status), SIGABRT);
}

/* The body breaks a contract, which a checked build says in these words before it stops. */
static inline CHECK_UNUSED void expect_contract(check_body *body, void *argument, const char *what)
{
    static const char front[] = "hakmem: assertion failed: ";
    char said[SAID_SIZE];
    int status = run_child(body, argument, said);
    bool named = strncmp(said, front, sizeof front - 1) == 0 && strncmp(said + sizeof front - 1, what, strlen(what)) == 0;
    if (!named)
        fprintf(stderr, "said:     %s\nexpected: %s%s\n", said, front, what);
    expect(named);
    expect(WIFSIGNALED(status));
    expect_eq(WTERMSIG(status), SIGABRT);
}

/* The body must end well and say exactly this on stderr, newlines included. */
static inline CHECK_UNUSED void expect_said(check_body *body, void *argument, const char *text)
{
    char said[SAID_SIZE];
    int status = run_child(body, argument, said);
    if (strcmp(said, text) != 0)
        fprintf(stderr, "said:     %s\nexpected: %s\n", said, text);
    expect_eq(status, 0);
    expect_eq(strcmp(said, text), 0);
}

/* --- threads ------------------------------------------------------------------------------------------------------- */

typedef void *thread_body(void *argument);

/* Runs `count` threads (at most 16) with consecutive elements of an array of arguments, or with NULL, and waits for them. */
static inline CHECK_UNUSED void run_threads(unsigned count, thread_body *body, void *arguments, size_t stride)
{
    pthread_t threads[16];
    for (unsigned i = 0; i < count; i++)
        expect_eq(pthread_create(&threads[i], NULL, body, arguments == NULL ? NULL : (char *)arguments + i * stride), 0);
    for (unsigned i = 0; i < count; i++)
        expect_eq(pthread_join(threads[i], NULL), 0);
}

/* A test whose body runs in a process of its own: name##_body(void *) is what the author writes. */
#define FRESH_TEST(name) FRESH_TEST_UNLESS(name, false)

/* The same for what a page of 4 KiB is supposed in; skipped where pages are larger. */
#define FRESH_TEST_OF_SMALL_PAGES(name) FRESH_TEST_UNLESS(name, sysconf(_SC_PAGESIZE) > 4096)

#define FRESH_TEST_UNLESS(name, unfit) \
    static void name##_body(void *argument); \
    static void name(void **state) \
    { \
        (void)state; \
        if (unfit) \
            skip(); \
        run_fresh(name##_body, NULL); \
    } \
    static void name##_body(void *argument)

#endif
