/* Stress: threads x heaps of one's own.
 *
 * Exercises: shares that come and go, more heaps than a thread has shares; blocks freed by other threads, while their heap serves
 * others; heaps destroyed, reset and merged by one thread while the others work with the rest; steps of upkeep inside of shares;
 * forks meanwhile, whose children free, allocate and destroy; threads that end with shares.
 * Expects: every block has its contents until it is freed or its heap ends; nothing is live at the end, and every invariant holds.
 *
 * Each heap has a gate: who frees or allocates in it holds it shared, who ends its blocks alone, as the interface demands.
 *
 * Knobs (environment)        default        long run
 *   HAK_STRESS_SECONDS       2              60
 *   HAK_STRESS_THREADS       4              16 */
// test: check timeout=600
#include <time.h>

#include "hakmem.h"
#include "harden/mode.h"
#include "os/os.h"
#include "support/stress.h"
#include "upkeep/upkeep.h"

enum { HEAPS = 24, SLOTS = 60, THREADS_MAX = 64, CHILD_SECONDS = 60 };

static struct tenant {
    pthread_rwlock_t gate;
    pthread_mutex_t lock[SLOTS];
    hak_heap_t *heap;
    struct stress_block blocks[SLOTS];
} tenants[HEAPS];
static _Atomic bool stop;
static _Atomic uint64_t ended;

static void renew(struct tenant *tenant) { tenant->heap = hak_heap_new(NULL); }

static void put(struct stress_random *random, struct tenant *tenant, struct stress_block *block)
{
    size_t size = stress_size(random) / (stress_below(random, 4) == 0 ? 1 : 8) + 1;
    unsigned char *p = hak_heap_malloc(tenant->heap, size);
    STRESS_EXPECT(p != NULL, "no %zu bytes", size);
    *block = (struct stress_block){ p, size };
    stress_fill(*block);
    STRESS_EXPECT(hak_heap_of(p) == tenant->heap, "%p is of another heap", (void *)p);
}

static void work(struct stress_random *random, struct tenant *tenant)
{
    pthread_rwlock_rdlock(&tenant->gate);
    for (int i = 0; i < 20; i++) {
        size_t at = stress_below(random, SLOTS);
        pthread_mutex_lock(&tenant->lock[at]);
        struct stress_block *block = &tenant->blocks[at];
        if (block->p == NULL)
            put(random, tenant, block);
        else if (stress_below(random, 4) == 0)
            stress_realloc(block, stress_size(random) / 4 + 1);
        else
            stress_free(block);
        pthread_mutex_unlock(&tenant->lock[at]);
    }
    pthread_rwlock_unlock(&tenant->gate);
}

/* The four ends of a heap's blocks. */
static void end(struct stress_random *random, struct tenant *tenant)
{
    pthread_rwlock_wrlock(&tenant->gate);
    size_t how = stress_below(random, 4);
    for (int i = 0; i < SLOTS; i++)
        if (tenant->blocks[i].p != NULL)
            stress_check(tenant->blocks[i], tenant->blocks[i].p, tenant->blocks[i].size);
    if (how == 0) {
        hak_heap_reset(tenant->heap);
    } else {
        if (how == 1)
            STRESS_EXPECT(hak_heap_merge_into_default(tenant->heap) == 0, "heap %p is not merged", (void *)tenant->heap);
        hak_heap_destroy(tenant->heap);
        renew(tenant);
    }
    for (int i = 0; i < SLOTS; i++) {
        if (how == 1)
            stress_free(&tenant->blocks[i]);
        tenant->blocks[i].p = NULL;
    }
    hak_fetch_add(&ended, 1, HAK_RELAXED);
    pthread_rwlock_unlock(&tenant->gate);
}

static void *worker(void *argument)
{
    struct stress_random random = { (uint64_t)(uintptr_t)argument * 104729 };
    for (int i = 0; i < 400 && !hak_load(&stop, HAK_RELAXED); i++) {
        struct tenant *tenant = &tenants[stress_below(&random, HEAPS)];
        if (stress_below(&random, 12) == 0)
            end(&random, tenant);
        else
            work(&random, tenant);
    }
    return NULL;
}

/* In a child the other threads' gates and locks may be held for ever, so it asks none, and leaves alone what they guard. */
static void in_child(const void *argument)
{
    struct stress_random random = { (uint64_t)(uintptr_t)argument };
    hak_heap_t *heap = hak_heap_new(NULL);
    struct stress_block block[100];
    for (int i = 0; i < 100; i++) {
        block[i] = (struct stress_block){ hak_heap_malloc(heap, 200 + (size_t)i), 200 + (size_t)i };
        stress_fill(block[i]);
    }
    for (int i = 0; i < 100; i += 2)
        stress_free(&block[i]);
    for (int i = 0; i < HEAPS; i++)
        hak_free(hak_heap_malloc(tenants[i].heap, 1 + stress_below(&random, 5000)));
    hak_heap_destroy(heap);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(void)
{
    pthread_t running[THREADS_MAX];
    uintptr_t threads = (uintptr_t)stress_knob("HAK_STRESS_THREADS", 4), born = 0, forks = 0;
    double until = now() + (double)stress_knob("HAK_STRESS_SECONDS", 2);
    for (int i = 0; i < HEAPS; i++) {
        pthread_rwlock_init(&tenants[i].gate, NULL);
        for (int slot = 0; slot < SLOTS; slot++)
            pthread_mutex_init(&tenants[i].lock[slot], NULL);
        renew(&tenants[i]);
    }
    for (uintptr_t i = 0; i < threads; i++)
        running[i] = stress_thread(worker, (void *)++born);
    while (now() < until) {
        for (uintptr_t i = 0; i < threads; i++) {
            pthread_join(running[i], NULL);
            running[i] = stress_thread(worker, (void *)++born);
            hak__upkeep_step(hak__os->now_ms(), born % 8 == 0 ? HAK_UPKEEP_ALL : HAK_UPKEEP_BOUNDED);
        }
        if (!HAK_TSAN && born % (4 * threads) == 0) {   /* a child of a process with threads starts none there */
            for (int i = 0; i < HEAPS; i++)
                pthread_rwlock_wrlock(&tenants[i].gate);
            stress_in_child(in_child, (const void *)born, CHILD_SECONDS, "a child");
            for (int i = 0; i < HEAPS; i++)
                pthread_rwlock_unlock(&tenants[i].gate);
            forks++;
        }
    }
    hak_store(&stop, true, HAK_RELAXED);
    for (uintptr_t i = 0; i < threads; i++)
        pthread_join(running[i], NULL);
    for (int i = 0; i < HEAPS; i++)
        hak_heap_destroy(tenants[i].heap);
    printf("threads=%zu ended=%zu forks=%zu heaps=%u peak_rss=%zu\n", (size_t)born, (size_t)hak_load(&ended, HAK_RELAXED), (size_t)forks,
           hak__heap_last_id(), stress_rss_peak());
    STRESS_EXPECT(hak_load(&ended, HAK_RELAXED) > 10, "%u heaps ended", (unsigned)hak_load(&ended, HAK_RELAXED));
    stress_expect_empty();
    return 0;
}
