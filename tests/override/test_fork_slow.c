/* Forks while threads are always inside slow paths: resizing huge blocks, filling and emptying heaps by handle. By a thread; and by a
 * signal handler that has interrupted malloc, whose child goes on with the interrupted call (SA_RESTART and without), at any moment:
 * also while a thread that has given its heap back allocates, and while one begins. No child hangs, crashes, or finds a block twice. */
// test: timeout=300 flavours=preload,shared
#include "cases.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "hakmem.h" /* its structures */

enum { CHILD_MS = 20000, RESIZERS = 2 };
static const size_t mib = 1 << 20;

static volatile int stop;
static volatile sig_atomic_t is_child;
static volatile pid_t last_child;
static volatile unsigned forks;
static __thread volatile int may_fork;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Its exit code is 0, in time. */
static void expect_child(pid_t child)
{
    double until = seconds() + CHILD_MS / 1000.0;
    int status = -1;
    pid_t got;
    expect(child > 0);
    while ((got = waitpid(child, &status, WNOHANG)) == 0 && seconds() < until)
        usleep(200);
    if (got == 0)
        kill(child, SIGKILL);
    expect(got == child);
    expect(status == 0);
    forks++;
}

/* --- huge blocks, by threads that never have a heap ------------------------------------------------------------------------------- */

static void *resizes(void *block)
{
    while (!stop) {
        block = realloc(block, 64 * mib);
        block = realloc(block, 3 * mib);
    }
    return block;
}

static void child_allocates(void)
{
    for (size_t n = 5; n < 12; n++) {
        char *p = malloc(n * mib);
        expect(p != NULL);
        *(volatile char *)(p + 100) = 1;
        free(p);
    }
    _exit(0);
}

static void beside_a_resize_of_a_thread_without_heap(void)
{
    pthread_t thread;
    expect(pthread_create(&thread, NULL, resizes, malloc(3 * mib)) == 0);
    usleep(2000);
    for (unsigned i = in_long_form(60, 2000); i > 0; i--) {
        pid_t child = fork();
        if (child == 0)
            child_allocates();
        expect_child(child);
    }
    stop = 1;
    pthread_join(thread, NULL);
}

/* The child's first slow path is another thread's, which has no heap either. */
static void *allocates_there(void *argument)
{
    free(malloc(7 * mib));
    return argument;
}

static void beside_a_resize_and_a_thread_of_the_child_comes_first(void)
{
    pthread_t threads[RESIZERS], there;
    for (unsigned i = 0; i < RESIZERS; i++)
        expect(pthread_create(&threads[i], NULL, resizes, malloc(3 * mib)) == 0);
    usleep(2000);
    for (unsigned i = in_long_form(40, 1000); i > 0; i--) {
        pid_t child = fork();
        if (child == 0) {
            if (pthread_create(&there, NULL, allocates_there, NULL) == 0)
                pthread_join(there, NULL);
            child_allocates();
        }
        expect_child(child);
    }
    stop = 1;
    for (unsigned i = 0; i < RESIZERS; i++)
        pthread_join(threads[i], NULL);
}

/* --- in a handler ------------------------------------------------------------------------------------------------------------------- */

#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 34)
#define make_child _Fork
#endif
#endif
#if !defined(make_child)
#define make_child fork
#endif

static void handler(int number)
{
    int saved = errno;
    (void)number;
    if (!is_child && may_fork && last_child == 0) {
        pid_t child = make_child();
        is_child = child == 0;
        if (child > 0)
            last_child = child;
    }
    errno = saved;
}

static void alarm_is_blocked(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(how, &set, NULL);
}

/* From here on the thread is interrupted, and may become a child's. */
static void may_be_interrupted(bool yes)
{
    may_fork = yes;
    alarm_is_blocked(yes ? SIG_UNBLOCK : SIG_BLOCK);
}

static void *asks_for_huge_blocks(void *argument)
{
    free(malloc(100));
    may_be_interrupted(true);
    for (unsigned i = 0; !stop; i++) {
        char *p = malloc((5 + i % 5) * mib);
        *(volatile char *)p = 1;
        free(p);
        if (is_child)
            _exit(0);
    }
    may_be_interrupted(false);
    return argument;
}

static pthread_key_t last_words;
static __thread int rounds;

/* The heap is given back in the round before. */
static void allocates_late(void *value)
{
    void *p[40];
    if (++rounds < 3) {
        pthread_setspecific(last_words, value);
        return;
    }
    may_be_interrupted(true);
    for (int i = 0; i < 40; i++) {
        p[i] = malloc(700 << 10);
        *(volatile char *)p[i] = 1;
        if (is_child)
            _exit(0);
    }
    may_be_interrupted(false);
    for (int i = 0; i < 40; i++)
        free(p[i]);
}

static void *ends(void *argument)
{
    pthread_setspecific(last_words, &last_words);
    free(malloc(100));
    return argument;
}

/* Beginning, it adopts, takes a parked heap up, makes one. In a child: its blocks are its own. */
static void *begins(void *argument)
{
    enum { BLOCKS = 64 };
    unsigned char *p[BLOCKS];
    may_be_interrupted(true);
    for (int i = 0; i < BLOCKS; i++) {
        p[i] = malloc(16 + i * 40);
        memset(p[i], i, 16 + i * 40);
    }
    may_be_interrupted(false);
    for (int i = 0; i < BLOCKS; i++) {
        for (int j = 0; j < 16 + i * 40; j++)
            expect(p[i][j] == i);
        free(p[i]);
    }
    malloc_trim(0);
    if (is_child)
        _exit(0);
    return argument;
}

static void *trims(void *argument)
{
    while (!stop) {
        malloc_trim(0);
        usleep(200);
    }
    return argument;
}

static void in_a_handler(int flags, void *(*body)(void *), bool again, unsigned wanted)
{
    pthread_t busy[RESIZERS + 1], thread;
    struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
    struct itimerval timer = { { 0, 700 }, { 0, 700 } };
    alarm_is_blocked(SIG_BLOCK);
    sigaction(SIGALRM, &action, NULL);
    for (unsigned i = 0; i < RESIZERS; i++)
        expect(pthread_create(&busy[i], NULL, resizes, malloc(3 * mib)) == 0);
    expect(pthread_create(&busy[RESIZERS], NULL, trims, NULL) == 0);
    setitimer(ITIMER_REAL, &timer, NULL);
    double until = seconds() + CASE_SECONDS / 2;
    for (bool first = true; forks < wanted && seconds() < until; first = false) {
        if (first || again)
            expect(pthread_create(&thread, NULL, body, NULL) == 0);
        if (again)
            pthread_join(thread, NULL);
        if (last_child != 0) {
            expect_child(last_child);
            last_child = 0;
        }
        if (!again)
            usleep(100);
    }
    stop = 1;
    expect(forks > 0);
    if (!again)
        pthread_join(thread, NULL);
    for (unsigned i = 0; i <= RESIZERS; i++)
        pthread_join(busy[i], NULL);
    if (last_child != 0)
        expect_child(last_child);
}

static void in_a_wait_that_restarts(void) { in_a_handler(SA_RESTART, asks_for_huge_blocks, false, in_long_form(600, 20000)); }
static void in_a_wait_that_is_interrupted(void) { in_a_handler(0, asks_for_huge_blocks, false, in_long_form(300, 20000)); }

static void in_a_late_malloc(void)
{
    expect(pthread_key_create(&last_words, allocates_late) == 0);
    in_a_handler(SA_RESTART, ends, true, in_long_form(200, 10000));
}

static void in_a_first_malloc(void) { in_a_handler(SA_RESTART, begins, true, in_long_form(300, 20000)); }

/* --- heaps by handle, looked up, so that the preloaded library serves too ----------------------------------------------------------------- */

static void *heap;
static void *volatile block;
static void *(*heap_malloc)(void *, size_t);

static void *fills_and_empties(void *argument)
{
    static void *p[3000];
    block = heap_malloc(heap, 100);
    while (!stop) {
        for (int i = 0; i < 3000; i++)
            p[i] = heap_malloc(heap, 600 + (size_t)i);
        for (int i = 0; i < 3000; i++)
            free(p[i]);
    }
    return argument;
}

static void frees_there(void) { free(block); }
static void resizes_there(void) { expect(realloc(block, 5000) != NULL); }
static void destroys_there(void) { ((void (*)(void *))dlsym(RTLD_DEFAULT, "hak_heap_destroy"))(heap); }
static void resets_there(void) { ((void (*)(void *))dlsym(RTLD_DEFAULT, "hak_heap_reset"))(heap); }

/* All blocks are malloc's then, or none. */
static void merges_there(void)
{
    int code = ((int (*)(void *))dlsym(RTLD_DEFAULT, "hak_heap_merge_into_default"))(heap);
    expect(code == 0 || code == EBUSY);
    if (block == NULL)
        return;
    expect(((void *(*)(const void *))dlsym(RTLD_DEFAULT, "hak_heap_of"))(block) == (code == 0 ? NULL : heap));
    free(block);
}

static void trims_there(void) { malloc_trim(0); }
static void allocates_in_it_there(void)
{
    for (int i = 0; i < 2000; i++)
        expect(heap_malloc(heap, 16 + (size_t)i) != NULL);
}

static void beside_a_heap_in_use(void)
{
    static void (*const there[])(void) = { frees_there,  resizes_there, destroys_there,       resets_there,
                                           merges_there, trims_there,   allocates_in_it_there };
    pthread_t thread;
    void *(*heap_new)(const void *) = (void *(*)(const void *))dlsym(RTLD_DEFAULT, "hak_heap_new");
    heap_malloc = (void *(*)(void *, size_t))dlsym(RTLD_DEFAULT, "hak_heap_malloc");
    expect(heap_new != NULL && heap_malloc != NULL && (heap = heap_new(NULL)) != NULL);
    expect(pthread_create(&thread, NULL, fills_and_empties, NULL) == 0);
    while (block == NULL)
        usleep(1000);
    for (unsigned i = 0; i < in_long_form(100, 2000); i++)
        for (unsigned what = 0; what < sizeof there / sizeof *there; what++) {
            usleep(200 + i * 37 % 500);
            pid_t child = fork();
            if (child == 0) {
                there[what]();
                _exit(0);
            }
            expect_child(child);
        }
    stop = 1;
    pthread_join(thread, NULL);
}

static void *changes_huge_ones(void *argument)
{
    void *p[3] = { NULL };
    for (unsigned i = 0; !stop; i++) {
        free(p[i % 3]);
        p[i % 3] = heap_malloc(heap, mib + mib / 4);
    }
    return argument;
}

/* Less than its memory, and so not wrapped below zero. */
static void figures_are_possible(void)
{
    struct hak_heap_figures figures;
    int (*stats)(void *, struct hak_heap_figures *, size_t) =
        (int (*)(void *, struct hak_heap_figures *, size_t))dlsym(RTLD_DEFAULT, "hak_heap_stats");
    expect(stats(heap, &figures, sizeof figures) == 0);
    expect(figures.huge_bytes < 100 * mib && figures.huge_blocks < 100 && figures.used_bytes < 100 * mib);
}

/* What the child finds in the list of the heap's huge blocks, it finds once, and counts no fewer. */
static void beside_huge_blocks_of_a_heap(void)
{
    static void (*const there[])(void) = { destroys_there, resets_there, merges_there };
    pthread_t threads[2];
    void *(*heap_new)(const void *) = (void *(*)(const void *))dlsym(RTLD_DEFAULT, "hak_heap_new");
    heap_malloc = (void *(*)(void *, size_t))dlsym(RTLD_DEFAULT, "hak_heap_malloc");
    expect(heap_new != NULL && heap_malloc != NULL && (heap = heap_new(NULL)) != NULL);
    for (int i = 0; i < 2; i++)
        expect(pthread_create(&threads[i], NULL, changes_huge_ones, NULL) == 0);
    for (unsigned i = 0; i < in_long_form(1500, 20000); i++) {
        for (volatile unsigned wait = i * 7919 % 20000; wait > 0; wait--)
            continue;
        pid_t child = fork();
        if (child == 0) {
            there[i % 3]();
            if (i % 3 != 0)
                figures_are_possible();
            _exit(0);
        }
        expect_child(child);
    }
    stop = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

static const struct test_case cases[] = {
    CASE(beside_a_resize_of_a_thread_without_heap), CASE(beside_a_resize_and_a_thread_of_the_child_comes_first),
    CASE(in_a_wait_that_restarts), CASE(in_a_wait_that_is_interrupted), CASE(in_a_late_malloc), CASE(in_a_first_malloc),
    CASE(beside_a_heap_in_use), CASE(beside_huge_blocks_of_a_heap),
};

int main(int argc, char **argv) { return argc < 2 && not_told_of_children() ? LEFT_OUT : RUN_CASES(cases); }
