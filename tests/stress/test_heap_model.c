/* Stress: every function of heaps, in threads, against a model.
 *
 * Exercises: heaps that are made, reset, merged and destroyed; blocks of malloc, of NULL, of heaps, of the default heap; realloc and free
 * with and without the handle; changing defaults; collections and figures between. Each thread has heaps and blocks of its own; after
 * a round another thread goes on with them.
 * Expects: contents, sizes and owners as the model has them; the figures of a heap are those of its blocks; every invariant holds.
 *
 * Knobs (environment)        default        long run
 *   HAK_STRESS_SECONDS       2              60 */
// test: check timeout=600
#include "support/stress.h"

enum { BLOCKS = 1500, HEAPS = 12, THREADS = 3, STEPS = 4000 };

struct owned {
    struct stress_block block;
    hak_heap_t *heap;   /* NULL: malloc's */
};

static struct model {
    struct stress_random random;
    struct owned blocks[BLOCKS];
    hak_heap_t *heaps[HEAPS], *standard;
} models[THREADS];

static void expect_owned(const struct owned *owned)
{
    stress_check(owned->block, owned->block.p, owned->block.size);
    STRESS_EXPECT(hak_heap_of(owned->block.p) == owned->heap, "%p is of another heap", (void *)owned->block.p);
    if (owned->block.size > 40)
        STRESS_EXPECT(hak_heap_of(owned->block.p + 1 + owned->block.size / 3) == NULL, "the inside of %p is one", (void *)owned->block.p);
}

static void obtain(struct model *model, struct owned *owned, hak_heap_t *heap)
{
    size_t n = 1 + stress_size(&model->random) / 4;
    size_t way = stress_below(&model->random, 5);
    owned->heap = way == 0 ? model->standard : way == 1 ? NULL : heap;
    unsigned char *p = way == 0   ? hak_malloc(n)
                       : way == 2 ? hak_heap_calloc(owned->heap, 1, n)
                       : way == 3 ? hak_heap_aligned_alloc(owned->heap, (size_t)16 << stress_below(&model->random, 14), n)
                                  : hak_heap_malloc(owned->heap, n);
    STRESS_EXPECT(p != NULL && (way != 2 || (p[0] == 0 && p[n - 1] == 0)), "no %zu bytes, or not zero", n);
    owned->block = (struct stress_block){ p, n };
    stress_fill(owned->block);
    expect_owned(owned);
}

static void change(struct model *model, struct owned *owned)
{
    expect_owned(owned);
    if (stress_below(&model->random, 3) == 0) {
        stress_realloc(&owned->block, 1 + stress_size(&model->random) / 4);
        expect_owned(owned);
        return;
    }
    if (stress_below(&model->random, 2) == 0)
        hak_heap_free(owned->heap, owned->block.p);
    else
        hak_free(owned->block.p);
    owned->block.p = NULL;
}

static struct hak_heap_figures figures(hak_heap_t *heap)
{
    struct hak_heap_figures out;
    hak_heap_stats(heap, &out, sizeof out);
    return out;
}

/* The blocks of the heap are gone, or malloc's. */
static void disown(struct model *model, const hak_heap_t *heap, bool gone)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        if (model->blocks[i].block.p == NULL || model->blocks[i].heap != heap)
            continue;
        model->blocks[i].heap = NULL;
        if (gone)
            model->blocks[i].block.p = NULL;
    }
}

static void end_blocks(struct model *model, hak_heap_t **heap, size_t how)
{
    bool merge = how == 0, destroy = how == 1 && model->standard != *heap;
    if (merge)
        STRESS_EXPECT(hak_heap_merge_into_default(*heap) == 0 && figures(*heap).used_bytes == 0, "%p is not merged", (void *)*heap);
    else if (destroy)
        hak_heap_destroy(*heap);
    else
        hak_heap_reset(*heap);
    disown(model, *heap, !merge);
    if (destroy)
        *heap = hak_heap_new(NULL);
    STRESS_EXPECT(figures(*heap).live_blocks == 0, "%p has blocks", (void *)*heap);
}

static void expect_figures(const struct model *model, hak_heap_t *heap)
{
    size_t count = 0;
    for (size_t i = 0; i < BLOCKS; i++)
        count += model->blocks[i].block.p != NULL && model->blocks[i].heap == heap;
    STRESS_EXPECT(figures(heap).live_blocks == count, "%zu blocks, not %zu", (size_t)figures(heap).live_blocks, count);
}

/* One of the things that are not done to a block. */
static void step_aside(struct model *model, hak_heap_t **heap)
{
    size_t way = stress_below(&model->random, 400);
    if (way < 200)
        hak_heap_set_default(model->standard = stress_below(&model->random, 2) == 0 ? NULL : *heap);
    else if (way < 320)
        end_blocks(model, heap, stress_below(&model->random, 3));
    else if (way < 390)
        expect_figures(model, *heap);
    else
        hak_collect();
}

static void step(struct model *model)
{
    struct owned *owned = &model->blocks[stress_below(&model->random, BLOCKS)];
    hak_heap_t **heap = &model->heaps[stress_below(&model->random, HEAPS)];
    if (stress_below(&model->random, 10) == 0)
        step_aside(model, heap);
    else if (owned->block.p == NULL)
        obtain(model, owned, *heap);
    else
        change(model, owned);
}

static void *run(void *argument)
{
    struct model *model = argument;
    for (int i = 0; i < STEPS; i++)
        step(model);
    model->standard = NULL;
    hak_heap_set_default(NULL);
    return NULL;
}

int main(void)
{
    double until = stress_now() + stress_knob("HAK_STRESS_SECONDS", 2);
    pthread_t running[THREADS];
    unsigned rounds = 0;
    for (size_t i = 0; i < THREADS; i++) {
        models[i].random.state = i + 1;
        for (size_t h = 0; h < HEAPS; h++)
            models[i].heaps[h] = hak_heap_new(NULL);
    }
    for (; rounds == 0 || stress_now() < until; rounds++) {
        for (size_t i = 0; i < THREADS; i++)
            running[i] = stress_thread(run, &models[i]);
        for (size_t i = 0; i < THREADS; i++)
            pthread_join(running[i], NULL);
        stress_expect_valid();
    }
    for (size_t i = 0; i < THREADS; i++) {
        for (size_t h = 0; h < HEAPS; h++) {
            disown(&models[i], models[i].heaps[h], true);
            hak_heap_destroy(models[i].heaps[h]);
        }
        for (size_t b = 0; b < BLOCKS; b++)
            stress_free(&models[i].blocks[b].block);
    }
    printf("rounds=%u heaps=%u peak_rss=%zu\n", rounds, hak__heap_last_id(), stress_rss_peak());
    stress_expect_empty();
    return 0;
}
