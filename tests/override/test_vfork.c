/* Children of vfork, which run in their parent's memory while the thread that made them waits, and allocate there. The standard
 * forbids it; programs do it, and glibc's malloc bears it. Expects: what the child has allocated is the parent's afterwards,
 * what it has freed can be allocated again, and nothing grows from child to child; also beside threads that allocate and free
 * all the time, in a thread other than the first, and where the child ends by exec. */
#include "cases.h"

#include <pthread.h>

enum { BLOCKS = 300, THREADS = 3 };

static unsigned char *blocks[BLOCKS];
static _Atomic bool over;

/* All pools; the huge ones are rare. */
static size_t size_of(unsigned i)
{
    static const size_t sizes[] = { 16, 100, 1000, 5000, 40000, 200000 };
    return i % 50 == 49 ? 1500000 : sizes[i % 6] + i;
}

static void fill(unsigned i)
{
    blocks[i] = malloc(size_of(i));
    if (blocks[i] == NULL)
        _exit(2);
    blocks[i][0] = blocks[i][size_of(i) - 1] = (unsigned char)i;
}

static void check_and_free(unsigned i)
{
    if (blocks[i][0] != (unsigned char)i || blocks[i][size_of(i) - 1] != (unsigned char)i)
        _exit(3);
    free(blocks[i]);
}

/* The child frees what its parent has allocated, and leaves as many blocks. */
static void __attribute__((noinline)) one_child(bool exec)
{
    static char name[] = "true", path[] = "/bin/true";
    static char *arguments[] = { name, NULL };
    pid_t child = vfork();
    if (child == 0) {
        for (unsigned i = 0; i < BLOCKS; i++)
            check_and_free(i);
        for (unsigned i = 0; i < 3 * BLOCKS; i++)
            free(malloc(size_of(i % BLOCKS)));
        for (unsigned i = 0; i < BLOCKS; i++)
            fill(i);
        if (exec)
            execv(path, arguments);
        _exit(0);
    }
    expect(child > 0);
    expect(end_of_child(child) == 0);
}

static void children(unsigned count, bool exec)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        fill(i);
    size_t before = 0;
    for (unsigned round = 0; round < count; round++) {
        one_child(exec);
        for (unsigned i = 0; i < BLOCKS; i++) {
            check_and_free(i);
            fill(i);
        }
        if (round == count / 4)
            before = resident_bytes();
    }
    expect(resident_bytes() <= before + ((size_t)8 << 20));
    for (unsigned i = 0; i < BLOCKS; i++)
        check_and_free(i);
}

static void *churn(void *argument)
{
    static void *shared[64];
    unsigned long long seed = (unsigned long long)(uintptr_t)argument;
    while (!over) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        size_t n = size_of((unsigned)(seed >> 33) % 49);
        char *p = malloc(n);
        expect(p != NULL);
        p[0] = p[n - 1] = 1;
        free(__atomic_exchange_n(&shared[seed >> 58], p, __ATOMIC_ACQ_REL));
    }
    return NULL;
}

static void beside_others(void (*body)(void))
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        expect(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
    body();
    over = true;
    for (unsigned i = 0; i < THREADS; i++)
        expect(pthread_join(threads[i], NULL) == 0);
}

static void few_children(void) { children(in_long_form(40, 2000), false); }

static void child_exits(void) { children(in_long_form(100, 5000), false); }
static void child_execs(void) { children(20, true); }
static void beside_threads(void) { beside_others(few_children); }

static void *in_thread(void *argument)
{
    beside_others(few_children);
    return argument;
}

static void from_another_thread(void)
{
    pthread_t thread;
    expect(pthread_create(&thread, NULL, in_thread, NULL) == 0);
    expect(pthread_join(thread, NULL) == 0);
}

/* The child is the first that allocates in a new thread; the heap that it makes is the thread's. */
static void *first_in_child(void *argument)
{
    pid_t child = vfork();
    if (child == 0) {
        for (unsigned i = 0; i < BLOCKS; i++)
            fill(i);
        _exit(0);
    }
    expect(child > 0 && end_of_child(child) == 0);
    for (unsigned i = 0; i < BLOCKS; i++)
        check_and_free(i);
    return argument;
}

static void first_heap_in_a_child(void)
{
    for (unsigned i = 0; i < 20; i++) {
        pthread_t thread;
        expect(pthread_create(&thread, NULL, first_in_child, NULL) == 0);
        expect(pthread_join(thread, NULL) == 0);
    }
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        CASE(child_exits),
        CASE(child_execs),
        CASE(beside_threads),
        CASE(from_another_thread),
        CASE(first_heap_in_a_child),
    };
    return argc < 2 && not_emulated("children in their parents' memory") ? LEFT_OUT : RUN_CASES(cases);
}
