/* Stress: fork, again and again, while other threads allocate, free, start and end.
 *
 * Exercises: the child's repair of locks and heaps; frees of inherited blocks, whoever had them; allocation in every
 * pool; threads in the child; a fork in the child; the parent going on meanwhile. Each child has a time limit, so
 * that a lock inherited from nobody is a failure and not a hang.
 *
 * Knobs (environment)      default                        long run
 *   HAK_STRESS_SECONDS     2                              60
 *   HAK_STRESS_FORKS       17 x seconds, at least 100     1000
 *   HAK_STRESS_THREADS     4                              8      threads that allocate; as many again start and end */
// test: timeout=300
#include "support/stress.h"

/* ThreadSanitizer would end a forked child of a process with threads when it starts one itself. */
#if HAK_TSAN
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }
#endif

enum { OWN = 64, INHERITED = 400, THREADS_MAX = 64, CHILD_SECONDS = 30 };

static struct stress_block inherited[INHERITED];   /* the main thread's: every child may free them */
static _Atomic bool stop;

static void step(struct stress_random *random, struct stress_block *own)
{
    struct stress_block *block = &own[stress_below(random, OWN)];
    if (block->p == NULL)
        *block = stress_alloc(random, stress_size(random));
    else if (stress_below(random, 4) == 0)
        stress_realloc(block, stress_size(random));
    else
        stress_free(block);
}

static void some_steps(struct stress_random *random, int steps)
{
    struct stress_block own[OWN] = { { NULL, 0 } };
    for (int i = 0; i < steps; i++)
        step(random, own);
    for (int i = 0; i < OWN; i++)
        stress_free(&own[i]);
}

static void *allocates(void *argument)
{
    struct stress_random random = { (uint64_t)(uintptr_t)argument };
    struct stress_block own[OWN] = { { NULL, 0 } };
    while (!hak_load(&stop, HAK_RELAXED)) {
        for (int i = 0; i < 64; i++)
            step(&random, own);
        if (stress_below(&random, 50) == 0)
            hak_collect();
    }
    for (int i = 0; i < OWN; i++)
        stress_free(&own[i]);
    return NULL;
}

static void *short_life(void *argument)
{
    struct stress_random random = { (uint64_t)(uintptr_t)argument };
    some_steps(&random, 40);
    return NULL;
}

static void *starts_threads(void *argument)
{
    for (uintptr_t i = 0; !hak_load(&stop, HAK_RELAXED); i++)
        pthread_join(stress_thread(short_life, (void *)((uintptr_t)argument * 1000 + i)), NULL);
    return NULL;
}

/* Not under sanitizers: their own allocators hold locks across a fork when threads of the parent start or end then, and
 * starting a thread needs these. (test_fork_points starts threads in forked children under sanitizers too.) */
static void child_starts_threads(void)
{
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2 && !STRESS_SANITIZED; i++)
        threads[i] = stress_thread(short_life, (void *)(i + 1));
    for (int i = 0; i < 2 && !STRESS_SANITIZED; i++)
        pthread_join(threads[i], NULL);
}

/* What a child does with what it inherited. */
static void child_works(struct stress_random *random)
{
    for (int i = 0; i < INHERITED; i += 2)
        stress_free(&inherited[i]);
    some_steps(random, 300);
    child_starts_threads();
    for (int i = 1; i < INHERITED; i += 2)
        stress_free(&inherited[i]);
    hak_collect();
    some_steps(random, 50);
}

static pid_t forked(struct stress_random *random, int generation)
{
    pid_t child = fork();
    STRESS_EXPECT(child >= 0, "fork: %s", strerror(errno));
    if (child != 0)
        return child;
    if (generation > 0)
        stress_await_child(forked(random, generation - 1), CHILD_SECONDS, "a grandchild");
    child_works(random);
    _exit(0);
}

int main(void)
{
    pthread_t threads[2 * THREADS_MAX];
    struct stress_random random = { (uint64_t)time(NULL) };
    int count = 0, most = (int)stress_knob("HAK_STRESS_THREADS", 4);
    double seconds = stress_knob("HAK_STRESS_SECONDS", 2);
    int forks = (int)stress_knob("HAK_STRESS_FORKS", seconds * 17 > 100 ? seconds * 17 : 100);
    if (stress_emulated()) {
        puts("skipped: qemu: children forked under load hang in its locks");
        return 77;
    }
    for (int i = 0; i < INHERITED; i++)
        inherited[i] = stress_alloc(&random, stress_size(&random));
    for (int i = 0; i < most; i++) {
        threads[count++] = stress_thread(allocates, (void *)(uintptr_t)(i + 1));
        threads[count++] = stress_thread(starts_threads, (void *)(uintptr_t)(i + 1));
    }
    for (int i = 0; i < forks; i++) {
        pid_t child = forked(&random, i % 10 == 0 ? 2 : 0);
        some_steps(&random, 100);
        stress_await_child(child, CHILD_SECONDS, "a child");
    }
    hak_store(&stop, true, HAK_RELAXED);
    while (count > 0)
        pthread_join(threads[--count], NULL);
    for (int i = 0; i < INHERITED; i++)
        stress_free(&inherited[i]);
    printf("forks=%d heaps=%u\n", forks, hak__heap_last_id());
    stress_expect_empty();
    return 0;
}
