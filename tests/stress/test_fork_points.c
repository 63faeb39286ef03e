/* Fork in the middle of every call to the system that another thread makes: just before the kernel does it and just after,
 * when the caller has not noted the result yet. The child finds the arena's lock held by nobody and must repair whatever
 * was going on. Deterministic: the other thread stops inside the call until the fork is over.
 *
 * Expects of each child: frees of inherited blocks, allocation in all pools, threads, hak_collect, no block twice.
 *
 * Knobs (environment)      default    meaning
 *   HAK_FORK_STRIDE        15         try every so many-th point only (sanitizers: 31); the long run is 1 */
// test: timeout=300
#include <semaphore.h>
#include <sys/mman.h>

#include "support/fault_os.h"
#include "support/stress.h"

#if HAK_TSAN
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }
#endif

enum { BLOCKS = 300, CHILD_SECONDS = 30 };

static struct stress_block mine[BLOCKS], theirs[BLOCKS];
static uint64_t stop_at;
static bool stop_done;
static __thread bool interrupted;   /* this thread's calls are stopped */
static sem_t reached, go_on;

static void observe(uint64_t call, bool done)
{
    if (call != stop_at || done != stop_done || !interrupted)
        return;
    sem_post(&reached);
    while (sem_wait(&go_on) != 0)
        ;
}

static void fill(struct stress_block *blocks, uint64_t seed)
{
    struct stress_random random = { seed };
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = i % 20 == 0 ? ((size_t)1 << 20) + stress_below(&random, 4 << 20) : stress_size(&random) / 4;
        blocks[i] = stress_alloc(&random, size);
    }
}

static void empty(struct stress_block *blocks, int step)
{
    for (int i = 0; i < BLOCKS; i += step)
        stress_free(&blocks[i]);
}

/* Growth and shrinkage of everything: data, metadata, huge blocks in place and moved, purges. */
static void *work(void *unused)
{
    (void)unused;
    interrupted = true;
    struct stress_random random = { 99 };
    fill(theirs, 1);
    for (int i = 0; i < BLOCKS; i += 20)
        stress_realloc(&theirs[i], theirs[i].size * 3);
    for (int i = 0; i < BLOCKS; i += 40)
        stress_realloc(&theirs[i], theirs[i].size / 2);
    empty(theirs, 2);
    hak_collect();
    for (int i = 0; i < BLOCKS; i += 2)
        theirs[i] = stress_alloc(&random, stress_size(&random));
    empty(theirs, 1);
    hak_collect();
    return NULL;
}

static void *thread_of_child(void *argument)
{
    static struct stress_block own[BLOCKS];
    (void)argument;
    fill(own, 7);
    empty(own, 1);
    return NULL;
}

static void child_works(void)
{
    static struct stress_block own[BLOCKS];
    fault_observer = NULL;
    empty(mine, 2);
    fill(own, 5);
    if (!stress_emulated())
        pthread_join(stress_thread(thread_of_child, NULL), NULL);
    empty(own, 2);
    empty(mine, 1);
    hak_collect();
    empty(own, 1);
    fill(own, 6);
    empty(own, 1);
    hak_collect();
}

/* In a process of its own: one interrupted call, one fork there. */
static void one_point(const void *argument)
{
    stop_at = *(const uint64_t *)argument / 2;
    stop_done = *(const uint64_t *)argument % 2;
    sem_init(&reached, 0, 0);
    sem_init(&go_on, 0, 0);
    fill(mine, 3);
    fault_install((struct fault_plan){ FAULT_NEVER, 0, 0 });
    fault_observer = observe;
    pthread_t worker = stress_thread(work, NULL);
    while (sem_wait(&reached) != 0)
        ;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        child_works();
        _exit(0);
    }
    stress_await_child(child, CHILD_SECONDS, "the child");
    sem_post(&go_on);
    pthread_join(worker, NULL);
    empty(mine, 1);
    stress_expect_empty();
}

/* The calls that the worker makes when nobody interrupts it. */
static uint64_t *calls;

static void count_calls(const void *argument)
{
    (void)argument;
    fill(mine, 3);
    fault_install((struct fault_plan){ FAULT_NEVER, 0, 0 });
    pthread_join(stress_thread(work, NULL), NULL);
    *calls = fault_calls();
}

int main(void)
{
    char what[80];
    uint64_t points = 0, failures = 0, stride = (uint64_t)stress_knob("HAK_FORK_STRIDE", STRESS_SANITIZED ? 31 : 15);
    hak_option_set("background", "0");   /* its calls would be counted with the worker's */
    calls = mmap(NULL, sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    stress_in_child(count_calls, NULL, 60, "the count");
    STRESS_EXPECT(*calls > 20, "%u calls", (unsigned)*calls);
    for (uint64_t point = 2; point < 2 * (*calls - 2); point += stride, points++) {
        snprintf(what, sizeof what, "fork %s call %u", point % 2 ? "after" : "before", (unsigned)point / 2);
        failures += !stress_passes_in_child(one_point, &point, 60, what);
    }
    printf("calls=%u points=%u failures=%u\n", (unsigned)*calls, (unsigned)points, (unsigned)failures);
    return failures != 0;
}
