/* Stress: threads that allocate, resize, free and hand blocks to one another, at random.
 *
 * Exercises: all pools and allocation functions, realloc between them, frees by other threads, hak_collect meanwhile.
 * Every block's content proves that nobody else had it. At the end everything is freed: the statistics must say that
 * nothing is live, and all invariants must hold.
 *
 * Knobs (environment)      default    long run
 *   HAK_STRESS_SECONDS     2          60
 *   HAK_STRESS_THREADS     8          8
 *   HAK_STRESS_SEED        time       the seed that a failure printed */
// test: check timeout=300
#include "support/stress.h"

enum { OWN = 256, SHARED = 512, THREADS_MAX = 256, STEPS = 256 };

/* A place where one thread leaves a block and another finds it. */
struct exchange { pthread_mutex_t lock; struct stress_block block; };

static struct exchange shared[SHARED];
static double deadline;

static void swap_with_shared(struct stress_random *random, struct stress_block *mine)
{
    struct exchange *place = &shared[stress_below(random, SHARED)];
    pthread_mutex_lock(&place->lock);
    struct stress_block other = place->block;
    place->block = *mine;
    pthread_mutex_unlock(&place->lock);
    *mine = other;
}

static void step(struct stress_random *random, struct stress_block *block)
{
    size_t kind = stress_below(random, 100);
    if (kind < 25)
        swap_with_shared(random, block);
    else if (block->p == NULL)
        *block = stress_alloc(random, stress_size(random));
    else if (kind < 45)
        stress_realloc(block, stress_size(random));
    else
        stress_free(block);
}

static void *work(void *argument)
{
    struct stress_random *random = argument;
    struct stress_block own[OWN] = { { NULL, 0 } };
    while (stress_now() < deadline) {
        for (int i = 0; i < STEPS; i++)
            step(random, &own[stress_below(random, OWN)]);
        if (stress_below(random, 200) == 0)
            hak_collect();
    }
    for (int i = 0; i < OWN; i++)
        stress_free(&own[i]);
    return NULL;
}

int main(void)
{
    static struct stress_random randoms[THREADS_MAX];
    static pthread_t threads[THREADS_MAX];
    int count = (int)stress_knob("HAK_STRESS_THREADS", 8);
    double seed = stress_knob("HAK_STRESS_SEED", (double)time(NULL));
    printf("threads=%d seed=%.0f\n", count, seed);
    fflush(stdout);
    deadline = stress_now() + stress_knob("HAK_STRESS_SECONDS", 2);
    for (int i = 0; i < SHARED; i++)
        pthread_mutex_init(&shared[i].lock, NULL);
    for (int i = 0; i < count; i++) {
        randoms[i].state = (uint64_t)seed * 1000 + (uint64_t)i;
        threads[i] = stress_thread(work, &randoms[i]);
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SHARED; i++)
        stress_free(&shared[i].block);
    stress_expect_empty();
    printf("heaps=%u peak_rss=%zu\n", hak__heap_last_id(), stress_rss_peak());
    return 0;
}
