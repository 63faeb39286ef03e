/* guard/check.h: a heap in use passes, with other threads at work in it too; each kind of damage to the allocator's data is
 * found, named and placed, and the check passes again when it is undone; HAKMEM_CHECK ends the program with one line. */
#include "guard/check.h"

#include "cache/cache.h"
#include "hakmem.h"
#include "process/process.h"
#include "span/pool.h"
#include "support/heaps.h"

enum { COUNT = 600, ROUNDS = 200 };

static void *blocks[COUNT];

/* Spans of several classes, half of their blocks freed, and a huge block. */
static struct hak_heap *fill(void)
{
    for (unsigned i = 0; i < COUNT; i++)
        expect((blocks[i] = hak_malloc(i % 20 * 100)) != NULL);
    for (unsigned i = 0; i < COUNT; i += 2)
        hak_free(blocks[i]);
    expect(hak_malloc(5 << 20) != NULL);
    expect(hak_check_heap());
    return hak__heap_current();
}

static void expect_found(const void *where, const char *what)
{
    struct hak_broken broken = { NULL, NULL };
    expect(!hak__check(&broken));
    expect(broken.what != NULL && strstr(broken.what, what) != NULL);
    expect(where == NULL || broken.where == where);
}

static struct hak_span *span_of(const void *p) { return hak__span_at(hak__slab_of(p)); }

FRESH_TEST(damaged_spans)
{
    (void)argument;
    struct hak_heap *heap = fill();
    heap_flush(heap);
    struct hak_span *span = span_of(blocks[1]);
    expect_op(span->free_count, >, 0);
    span->free_count++;
    expect_found(span, "as many as it says");
    span->free_count--;
    span->summary ^= 1;
    expect_found(span, "the summary");
    span->summary ^= 1;
    span->frontier = (uint16_t)(span->blocks + 1);
    expect_found(span, "within its blocks");
    expect(!hak_check_heap());
}

FRESH_TEST(damaged_map)
{
    (void)argument;
    fill();
    size_t slab = hak__slab_of(blocks[1]);
    uint32_t word = hak__owner_at(slab);
    hak__owner_set(slab, word + 3 * HAK_BIN_SIZE);
    expect_found(NULL, "");
    hak__owner_set(slab, word);
    expect(hak_check_heap());
    /* An unused slab that somebody seems to own. */
    size_t super = slab / HAK_SUPER_SLABS;
    uint32_t unused = hak__slabs_unused(hak_load(&hak__supers[super].slabs, HAK_RELAXED));
    expect(unused != 0);
    size_t free_slab = super * HAK_SUPER_SLABS + hak_ctz32(unused);
    hak__owner_set(free_slab, word);
    expect_found(hak__slab_start(free_slab), "an unused slab");
    hak__owner_set(free_slab, 0);
    expect(hak_check_heap());
}

FRESH_TEST(damaged_records)
{
    (void)argument;
    struct hak_heap *heap = fill();
    uint32_t class = hak__class_of(100);
    struct hak_bin *bin = &heap->bins[class];
    expect_op(hak__cache_count(heap, class), >, 1);
    void *block = bin->top[-1];
    bin->top[-1] = (char *)blocks[1] + (2 << 20);
    expect_found(bin->top - 1, "blocks of its class");
    bin->top[-1] = NULL;
    expect_found(bin->top - 1, "blocks of its class");
    bin->top[-1] = block;
    heap->classes[class].bottom[-1] = block;
    expect_found(bin, "has its bottom");
    heap->classes[class].bottom[-1] = NULL;
    bin->top += 4096;
    expect_found(bin, "within it");
    bin->top -= 4096;
    expect(hak_check_heap());
    /* A block that is ready and free at once would be handed out twice. */
    struct hak_span *span = span_of(block);
    uint32_t index;
    expect_eq(hak__span_index(span, block, &index), HAK_SPAN_OK);
    span->free[index / 64] |= 1ull << index % 64;
    span->summary |= 1ull << index / 64;
    span->free_count++;
    expect_found(block, "not free in its span");
}

FRESH_TEST(damaged_lists)
{
    (void)argument;
    struct hak_heap *heap = fill();
    heap_flush(heap);
    struct hak_span *span = heap->classes[hak__class_of(100)].spans;
    expect(span != NULL && span->prev == NULL);
    span->prev = span;
    expect_found(span, "linked both ways");
    span->prev = NULL;
    expect(hak_check_heap());
    struct hak_super *super = &hak__supers[hak__slab_of(blocks[1]) / HAK_SUPER_SLABS];
    super->mapped -= 4096;
    expect_found(NULL, "sums");
    super->mapped += 4096;
    expect(hak_check_heap());
}

static _Atomic bool stop;

static void *at_work(void *argument)
{
    void *mine[64] = { NULL };
    struct rng rng = { (uintptr_t)argument };
    while (!atomic_load(&stop)) {
        unsigned i = (unsigned)rng_below(&rng, 64);
        hak_free(mine[i]);
        mine[i] = hak_malloc(rng_below(&rng, rng_below(&rng, 50) == 0 ? 3 << 20 : 3000));
        if (rng_below(&rng, 1000) == 0)
            hak_collect();
    }
    for (unsigned i = 0; i < 64; i++)
        hak_free(mine[i]);
    return NULL;
}

FRESH_TEST(passes_beside_other_threads)
{
    pthread_t threads[3];
    (void)argument;
    fill();
    for (uintptr_t i = 0; i < 3; i++)
        expect_eq(pthread_create(&threads[i], NULL, at_work, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < ROUNDS; i++)
        expect(hak_check_heap());
    atomic_store(&stop, true);
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    expect(hak_check_heap());
}

static void damage_and_go_on(void *argument)
{
    (void)argument;
    hak__options_read_from("check:8", NULL);
    struct hak_heap *heap = fill();
    heap_flush(heap);
    span_of(blocks[1])->free_count++;
    for (unsigned i = 0; i < 5000; i++)
        hak_malloc(3000);
}

/* A thread that is interrupted between two stores for some milliseconds has damaged nothing. */
static _Atomic bool between, over;

static void *is_interrupted(void *argument)
{
    struct hak_super *super = argument;
    size_t bytes = hak_load(&super->huge_bytes, HAK_RELAXED);
    while (!hak_load(&over, HAK_RELAXED)) {
        hak_store(&super->huge_bytes, 0, HAK_RELAXED);
        hak_store(&between, true, HAK_RELAXED);
        usleep(3000);
        hak_store(&super->huge_bytes, bytes, HAK_RELAXED);
        usleep(3000);
    }
    return NULL;
}

FRESH_TEST(waits_for_interrupted_threads)
{
    pthread_t thread;
    (void)argument;
    fill();
    char *huge = hak_malloc(3 << 20);
    size_t super = hak__slab_of(huge) / HAK_SUPER_SLABS;
    expect_eq(pthread_create(&thread, NULL, is_interrupted, &hak__supers[super]), 0);
    while (!hak_load(&between, HAK_RELAXED))
        usleep(1000);
    for (unsigned i = 0; i < 20; i++)
        expect(hak_check_heap());
    hak_store(&over, true, HAK_RELAXED);
    pthread_join(thread, NULL);
    expect(hak_check_heap());
    hak_free(huge);
}

/* As one that a handler has interrupted for good: the check waits for it, but not at each of its slabs. */
FRESH_TEST(a_heap_locked_for_good)
{
    enum { SLABS = 400 };
    (void)argument;
    struct hak_heap *heap = fill();
    for (unsigned i = 0; i < SLABS; i++)
        expect(hak_malloc(40000) != NULL);
    uint64_t began = hak__os->now_ms();
    hak_store(&heap->lock, (hak__lock_me() + 1000) << 1, HAK_RELAXED);
    expect(hak_check_heap());
    hak_store(&heap->lock, hak__lock_me() << 1, HAK_RELAXED);
    expect(hak_check_heap());
    hak_store(&heap->lock, HAK_LOCK_FREE, HAK_RELAXED);
    expect_op(hak__os->now_ms() - began, <, 5000);
}

FRESH_TEST(option_ends_the_program)
{
    char said[SAID_SIZE];
    (void)argument;
    int status = run_child(damage_and_go_on, NULL, said);
    expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    expect(strncmp(said, "hakmem: HAKMEM_CHECK: broken at 0x", 34) == 0);
    expect(strstr(said, ": a span's free bits are as many as it says\n") != NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_spans),
        cmocka_unit_test(damaged_map),
        cmocka_unit_test(damaged_records),
        cmocka_unit_test(damaged_lists),
        cmocka_unit_test(passes_beside_other_threads),
        cmocka_unit_test(waits_for_interrupted_threads),
        cmocka_unit_test(a_heap_locked_for_good),
        cmocka_unit_test(option_ends_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
