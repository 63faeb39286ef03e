/* Stress: user heaps as threads' default heaps.
 *
 * Exercises: malloc's and free's own paths while a user heap takes the place of the thread's: every size and function, blocks of the
 * thread's own heap, of other threads, of other heaps; the default switched at any time, left by hak_collect, merged, reset and
 * destroyed; a heap that is the default of all threads; signal handlers that allocate between requests; forks from these; threads that
 * end, or begin, with a default.
 * Expects: a block is of the heap that was the default when it was made, and has its contents until it is freed; nothing is live at the
 * end, and every invariant holds.
 *
 * Knobs (environment)        default        long run
 *   HAK_STRESS_SECONDS       2              60
 *   HAK_STRESS_THREADS       4              16 */
// test: check timeout=600
#include <errno.h>
#include <signal.h>

#include "hakmem.h"
#include "support/stress.h"

enum { SHARED = 3, OWN = 4, SLOTS = 200, BOXES = 64, THREADS_MAX = 64, CHILD_SECONDS = 60 };

static hak_heap_t *shared[SHARED];
static _Atomic(struct stress_block *) boxes[BOXES]; /* blocks on their way to another thread */
static _Atomic bool stop;
static _Atomic uint64_t switches, children, handled;

static void expect_default(const void *p)
{
    STRESS_EXPECT(p != NULL && hak_heap_of(p) == hak_heap_get_default(), "%p is not of the default heap", p);
}

static struct stress_block make(struct stress_random *random)
{
    size_t n = stress_size(random) / (stress_below(random, 3) == 0 ? 1 : 16) + 1;
    size_t how = stress_below(random, 6);
    unsigned char *p = how == 0 ? hak_calloc(1, n)
                     : how == 1 ? hak_aligned_alloc(256, n)
                     : how == 2 ? hak_realloc(NULL, n)
                                : hak_malloc(n);
    expect_default(p);
    struct stress_block block = { p, n };
    stress_fill(block);
    return block;
}

/* The heap that realloc is to keep the block in. */
static void resize(struct stress_random *random, struct stress_block *block)
{
    const hak_heap_t *heap = hak_heap_of(block->p);
    stress_realloc(block, stress_size(random) / 8 + 1);
    STRESS_EXPECT(hak_heap_of(block->p) == heap, "realloc has changed the heap of %p", (void *)block->p);
}

/* Leaves the block in a box, and frees what was there. */
static void pass_on(struct stress_random *random, struct stress_block *block)
{
    hak_heap_t *former = hak_heap_set_default(NULL);
    struct stress_block *parcel = hak_malloc(sizeof *parcel);
    *parcel = *block;
    block->p = NULL;
    hak_heap_set_default(former);
    parcel = atomic_exchange(&boxes[stress_below(random, BOXES)], parcel);
    if (parcel != NULL) {
        stress_free(parcel);
        hak_free(parcel);
    }
}

static void in_child(const void *argument)
{
    struct stress_random random = { (uint64_t)(uintptr_t)argument };
    for (int i = 0; i < 50; i++) {
        struct stress_block block = make(&random);
        if (i % 10 == 0)
            hak_heap_set_default(i % 20 == 0 ? shared[0] : NULL);
        stress_free(&block);
    }
    STRESS_EXPECT(hak_check_heap() == 1, "an invariant is broken in a child");
}

/* Between the thread's requests: it raises the signal itself. */
static void on_signal(int number)
{
    void *p = hak_malloc(300);
    (void)number;
    expect_default(p);
    hak_free(p);
    hak_fetch_add(&handled, 1, HAK_RELAXED);
}

struct thread {
    struct stress_random random;
    hak_heap_t *own[OWN]; /* no other thread allocates from these */
    struct stress_block blocks[SLOTS];
};

static void forget(struct thread *me, const hak_heap_t *heap)
{
    for (int i = 0; i < SLOTS; i++)
        if (me->blocks[i].p != NULL && hak_heap_of(me->blocks[i].p) == heap)
            me->blocks[i].p = NULL;
}

/* Ends or empties a heap of the thread's; its blocks never leave the thread. */
static void end_one(struct thread *me)
{
    hak_heap_t **heap = &me->own[stress_below(&me->random, OWN)];
    switch (stress_below(&me->random, 3)) {
    case 0:
        forget(me, *heap);
        hak_heap_reset(*heap); /* perhaps the default */
        break;
    case 1: STRESS_EXPECT(hak_heap_merge_into_default(*heap) == 0, "heap %p is not merged", (void *)*heap); break;
    default:
        if (hak_heap_get_default() == *heap)
            hak_heap_set_default(NULL);
        forget(me, *heap);
        hak_heap_destroy(*heap);
        *heap = hak_heap_new(NULL);
    }
}

static void switch_default(struct thread *me)
{
    size_t which = stress_below(&me->random, SHARED + OWN + 1);
    hak_heap_set_default(which < SHARED ? shared[which] : which < SHARED + OWN ? me->own[which - SHARED] : NULL);
    hak_fetch_add(&switches, 1, HAK_RELAXED);
}

static bool is_own(const struct thread *me, const hak_heap_t *heap)
{
    bool found = false;
    for (int i = 0; i < OWN; i++)
        found |= me->own[i] == heap;
    return found;
}

static void step(struct thread *me)
{
    struct stress_block *block = &me->blocks[stress_below(&me->random, SLOTS)];
    size_t what = stress_below(&me->random, 1000);
    if (what < 10)
        switch_default(me);
    else if (what < 13)
        end_one(me);
    else if (what < 14)
        hak_collect();
    else if (what < 20)
        raise(SIGUSR1);
    else if (block->p == NULL)
        *block = make(&me->random);
    else if (what < 200)
        resize(&me->random, block);
    else if (what < 400 && !is_own(me, hak_heap_of(block->p)))
        pass_on(&me->random, block);
    else
        stress_free(block);
}

static void *worker(void *argument)
{
    static _Atomic uint64_t seed;
    struct thread *me = calloc(1, sizeof *me);
    STRESS_EXPECT(me != NULL && hak_heap_get_default() == argument, "a thread begins with another default");
    me->random.state = (hak_fetch_add(&seed, 1, HAK_RELAXED) + 1) * 7919;
    for (int i = 0; i < OWN; i++)
        me->own[i] = hak_heap_new(NULL);
    for (int i = 0; i < 20000 && !hak_load(&stop, HAK_RELAXED); i++)
        step(me);
    if (!HAK_TSAN && stress_below(&me->random, 4) == 0) {
        stress_in_child(in_child, me, CHILD_SECONDS, "a child");
        hak_fetch_add(&children, 1, HAK_RELAXED);
    }
    for (int i = 0; i < SLOTS; i++)
        stress_free(&me->blocks[i]);
    hak_heap_set_default(shared[0]); /* the thread ends with it */
    for (int i = 0; i < OWN; i++)
        hak_heap_destroy(me->own[i]);
    free(me);
    return NULL;
}

int main(void)
{
    pthread_t running[THREADS_MAX];
    uint64_t threads = (uint64_t)stress_knob("HAK_STRESS_THREADS", 4), born = 0;
    double until = stress_now() + stress_knob("HAK_STRESS_SECONDS", 2);
    signal(SIGUSR1, on_signal);
    for (int i = 0; i < SHARED; i++)
        shared[i] = hak_heap_new(NULL);
    while (stress_now() < until) {
        hak_heap_t *begins = born % 2 == 0 ? shared[1] : NULL;
        hak_heap_set_default_of_new_threads(begins);
        for (uint64_t i = 0; i < threads; i++, born++)
            running[i] = stress_thread(worker, begins);
        for (uint64_t i = 0; i < threads; i++)
            pthread_join(running[i], NULL);
        hak_store(&stop, stress_now() > until, HAK_RELAXED);
    }
    hak_heap_set_default_of_new_threads(NULL);
    for (int i = 0; i < BOXES; i++) {
        struct stress_block *parcel = atomic_exchange(&boxes[i], NULL);
        if (parcel != NULL)
            stress_free(parcel);
        hak_free(parcel);
    }
    for (int i = 0; i < SHARED; i++) {
        struct hak_heap_figures figures;
        hak_heap_stats(shared[i], &figures, sizeof figures);
        STRESS_EXPECT(figures.live_blocks == 0, "%u blocks are live", (unsigned)figures.live_blocks);
        hak_heap_destroy(shared[i]);
    }
    printf("threads=%u switches=%u handled=%u children=%u peak_rss=%zu\n", (unsigned)born,
           (unsigned)hak_load(&switches, HAK_RELAXED), (unsigned)hak_load(&handled, HAK_RELAXED),
           (unsigned)hak_load(&children, HAK_RELAXED), stress_rss_peak());
    STRESS_EXPECT(hak_load(&switches, HAK_RELAXED) > 100, "too few switches");
    stress_expect_empty();
    return 0;
}
