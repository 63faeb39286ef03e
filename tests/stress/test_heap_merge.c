/* Stress: threads x merging.
 *
 * Exercises: hak_heap_merge_into_default while every other thread frees blocks of the heap, as the interface allows: its own, which its
 * fast path pushes into the bins of its share, and the other threads'; of all pools. Half of the times the heap ends directly
 * afterwards and its handle becomes another heap's while the frees go on. At times a thread ends, and another takes its place.
 * Expects: no block is given twice; what the heap gives from then on is its own, and what it gave before is malloc's; a new heap has used
 * nothing; nothing is live at the end, and every invariant holds.
 *
 * Knobs (environment)        default        long run
 *   HAK_STRESS_SECONDS       2              60
 *   HAK_STRESS_THREADS       3              8 */
// test: check timeout=600
#include "support/stress.h"

enum { BLOCKS = 600, THREADS_MAX = 32 };

static struct worker {
    pthread_t thread;
    size_t number;
    struct stress_block before[BLOCKS], after[BLOCKS];
} workers[THREADS_MAX];
static size_t threads;
static hak_heap_t *heap;
static pthread_barrier_t barrier;
static unsigned rounds;   /* this and the next change between barriers only */
static bool over;

static void put(struct stress_random *random, struct stress_block *block)
{
    size_t n = stress_below(random, 300), size = n == 0 ? 1500000 : n < 4 ? 100000 : n < 150 ? 64 : 1 + stress_below(random, 5000);
    *block = (struct stress_block){ hak_heap_malloc(heap, size), size };
    STRESS_EXPECT(block->p != NULL, "no %zu bytes", size);
    STRESS_EXPECT(hak_heap_of(block->p) == heap, "%p is of another heap", (void *)block->p);
    stress_fill(*block);
}

/* The thread's own blocks of even places, and the next one's of every other odd place. */
static void free_beside_the_merge(struct worker *me)
{
    struct worker *next = &workers[(me->number + 1) % threads];
    for (size_t i = 0; i < BLOCKS; i += 2)
        stress_free(&me->before[i]);
    for (size_t i = 1; i < BLOCKS; i += 4)
        stress_free(&next->before[i]);
}

static void look_and_free(struct worker *me)
{
    for (size_t i = 3; i < BLOCKS; i += 4)
        STRESS_EXPECT(hak_heap_of(me->before[i].p) == NULL, "%p is not malloc's", (void *)me->before[i].p);
    for (size_t i = 3; i < BLOCKS; i += 4)
        stress_free(&me->before[i]);
    for (size_t i = 0; i < BLOCKS; i++)
        stress_free(&me->after[i]);
}

/* Round after round; a thread ends after each seventh. */
static void *worker(void *argument)
{
    struct worker *me = argument;
    struct stress_random random = { me->number * 7919 + 1 };
    for (;;) {
        pthread_barrier_wait(&barrier);
        if (over)
            return NULL;
        for (size_t i = 0; i < BLOCKS; i++)
            put(&random, &me->before[i]);
        pthread_barrier_wait(&barrier);   /* the merge begins */
        free_beside_the_merge(me);
        pthread_barrier_wait(&barrier);   /* it has ended */
        for (size_t i = 0; i < BLOCKS; i++)
            put(&random, &me->after[i]);
        look_and_free(me);
        bool ends = (rounds + me->number) % 7 == 6;
        pthread_barrier_wait(&barrier);
        if (ends)
            return NULL;
    }
}

static void merge(struct stress_random *random)
{
    struct hak_heap_figures figures;
    for (volatile size_t spin = stress_below(random, 20000); spin > 0; spin--)
        continue;
    STRESS_EXPECT(hak_heap_merge_into_default(heap) == 0, "heap %p is not merged", (void *)heap);
    if (rounds % 2 == 0)
        return;
    hak_heap_destroy(heap);
    heap = hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .limit = (size_t)1 << 40 });
    hak_heap_stats(heap, &figures, sizeof figures);
    STRESS_EXPECT(figures.used_bytes == 0, "a new heap has used %zu bytes", (size_t)figures.used_bytes);
}

/* The last blocks of the heap were freed before the last barrier, in whatever share they were. */
static void expect_unused(void)
{
    struct hak_heap_figures figures;
    hak_heap_stats(heap, &figures, sizeof figures);
    STRESS_EXPECT(figures.live_blocks == 0 && figures.huge_bytes == 0, "%zu blocks are live", (size_t)figures.live_blocks);
    STRESS_EXPECT(figures.used_bytes <= figures.slab_bytes && figures.used_bytes >= figures.cached_bytes, "used %zu, in slabs %zu", (size_t)figures.used_bytes, (size_t)figures.slab_bytes);
}

int main(void)
{
    struct stress_random random = { 1 };
    double until = stress_now() + stress_knob("HAK_STRESS_SECONDS", 2);
    threads = (size_t)stress_knob("HAK_STRESS_THREADS", 3);
    STRESS_EXPECT(threads > 1 && threads <= THREADS_MAX, "%zu threads", threads);
    heap = hak_heap_new(NULL);
    hak_free(hak_malloc(1));
    pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
    for (size_t i = 0; i < threads; i++) {
        workers[i].number = i;
        workers[i].thread = stress_thread(worker, &workers[i]);
    }
    for (; stress_now() < until || rounds < 20; rounds++) {
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        merge(&random);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        for (size_t i = 0; i < threads; i++)
            if ((rounds + i) % 7 == 6)
                pthread_join(workers[i].thread, NULL);
        expect_unused();   /* a thread's end would empty its share between two figures */
        for (size_t i = 0; i < threads; i++)
            if ((rounds + i) % 7 == 6)
                workers[i].thread = stress_thread(worker, &workers[i]);
    }
    over = true;
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    hak_heap_destroy(heap);
    printf("rounds=%u heaps=%u peak_rss=%zu\n", rounds, hak__heap_last_id(), stress_rss_peak());
    stress_expect_empty();
    return 0;
}
