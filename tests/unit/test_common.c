/* heap/common.c: threads of a process that has many take their first blocks of each class from common heaps, and give
 * what they do not need back to them at once, for any other; a class that has taken its share is its own heap's business from
 * then on, until another thread takes the heap up or time has passed; while the common heaps are busy, and in a process of few threads, nobody waits
 * for them or uses them. */
#include "cache/cache.h"
#include "diag/options.h"
#include "heap/heap.h"
#include "support/heaps.h"

enum {
    CLASS_1024 = HAK_CLASS_TINY_LAST,
    CLASS_64 = HAK_CLASS_64,
    CLASS_48 = HAK_CLASS_48,
    CLASS_4096 = HAK_CLASS_4096,
    FEW = 15,
    SHARE = 16
};

static uint32_t owner_of(const void *block) { return hak__owner_id(hak__owner_of(block)); }

/* Fifteen heaps as of a process of few threads, and the sixteenth, made a common one. */
static struct hak_heap *make_common(void)
{
    heaps_start();
    for (unsigned i = 0; i < FEW; i++)
        expect(!hak__common_add(heap_open(0)));
    struct hak_heap *common = heap_open(0);
    expect(hak__common_add(common));
    expect(!hak__common_add(common)); /* one is enough for so many */
    return common;
}

/* As kinds/plain.c frees a block of another heap. */
static void free_foreign(struct hak_heap *heap, uint32_t class, void *block)
{
    if (!heap_absorb(heap, class, block))
        heap_free_remote(heap, block);
}

FRESH_TEST(not_for_few_heaps)
{
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0);
    expect_eq(heap->classes[CLASS_1024].common_left, 0);
    expect_eq(owner_of(heap_malloc(heap, CLASS_1024)), heap->id);
    unsigned heaps = 1;
    while (!hak__common_add(heap_open(0)))
        heaps++;
    expect_eq(heaps, FEW);
    expect_eq(owner_of(heap_malloc(heap, CLASS_64)), heap->id); /* it was there before */
    expect_eq(hak_counted(&heap->counts.common_taken), 0);
}

FRESH_TEST(first_blocks_only)
{
    (void)argument;
    struct hak_heap *common = make_common(), *heap = heap_open(0);
    for (unsigned i = 0; i < SHARE; i++) {
        char *block = heap_malloc(heap, CLASS_1024);
        expect_eq(owner_of(block), common->id);
        memset(block, 1, 1024);
        expect_heap_valid(heap);
    }
    expect_eq(hak_counted(&heap->counts.common_taken), SHARE);
    expect_eq(owner_of(heap_malloc(heap, CLASS_1024)), heap->id);
    expect_eq(owner_of(heap_malloc(heap, CLASS_64)), common->id); /* each class for itself */
    expect_eq(owner_of(heap_malloc(heap, CLASS_48)), heap->id); /* lines would be shared */
    expect_eq(owner_of(heap_malloc(heap, CLASS_4096)), common->id); /* a freed one serves other threads */
    expect_eq(hak__common_first(heap, HAK_CLASS_FIRST_LARGE), 0);
    expect_heap_valid(common);
}

FRESH_TEST(frees_serve_others)
{
    (void)argument;
    struct hak_heap *common = make_common(), *first = heap_open(0), *second = heap_open(0);
    void *blocks[4], *again[4];
    for (int i = 0; i < 4; i++)
        blocks[i] = heap_malloc(first, CLASS_1024);
    for (int i = 0; i < 4; i++)
        free_foreign(first, CLASS_1024, blocks[i]);
    expect_eq(hak__cache_count(first, CLASS_1024), 0); /* one would keep a page */
    expect_eq(hak_load(&first->outbox.used, HAK_RELAXED), 0);
    expect(atomic_load(&common->pending) != NULL);
    for (int i = 0; i < 3; i++) {
        again[i] = heap_malloc(second, CLASS_1024);
        expect(again[i] == blocks[0] || again[i] == blocks[1] || again[i] == blocks[2] || again[i] == blocks[3]);
    }
    void *last = heap_malloc(first, CLASS_1024);
    expect(last == blocks[0] || last == blocks[1] || last == blocks[2] || last == blocks[3]);
    expect_eq(heap_live(common, CLASS_1024) + heap_live(first, CLASS_1024) + heap_live(second, CLASS_1024), 4);
    expect_heap_valid(first);
    expect_heap_valid(second);
    expect_heap_valid(common);
}

/* A thread that only frees never takes its share of common blocks; from some frees on they are published in batches all the same. */
FRESH_TEST(those_that_only_free_batch)
{
    (void)argument;
    enum { MANY = 1200 };
    make_common();
    struct hak_heap *producer = heap_open(0), *consumer = heap_open(0);
    void *blocks[MANY];
    heap_malloc_many(producer, CLASS_64, blocks, MANY);
    for (unsigned i = 0; i < MANY; i++)
        free_foreign(consumer, CLASS_64, blocks[i]);
    hak__outbox_flush(consumer, "free");
    expect_eq(consumer->classes[CLASS_64].common_left, SHARE);
    expect_op(hak_counted(&consumer->counts.remote_frees), >=, MANY - SHARE);
    expect_op(hak_counted(&consumer->counts.remote_published), <=, MANY / 8);
    hak__heap_collect(producer);
    expect_heap_valid(consumer);
    expect_heap_valid(producer);
}

/* What a grown class keeps of others' is what any class does. */
FRESH_TEST(grown_classes_are_as_any)
{
    (void)argument;
    make_common();
    struct hak_heap *heap = heap_open(0);
    struct hak_heap_class *class = &heap->classes[CLASS_1024];
    void *blocks[SHARE];
    blocks[0] = heap_malloc(heap, CLASS_1024);
    expect_eq((void **)heap + heap->absorb[CLASS_1024] - class->bottom, 0);
    for (unsigned i = 1; i < SHARE; i++)
        blocks[i] = heap_malloc(heap, CLASS_1024);
    expect_eq((void **)heap + heap->absorb[CLASS_1024] - class->bottom, class->capacity / 2);
    for (unsigned i = 0; i < SHARE; i++)
        free_foreign(heap, CLASS_1024, blocks[i]);
    expect_eq(hak__cache_count(heap, CLASS_1024), class->capacity / 2u);
    expect(hak_load(&heap->outbox.used, HAK_RELAXED) != 0);
    expect_heap_valid(heap);
    hak__cache_flush(heap);
    expect_heap_valid(heap);
}

/* A thread that takes a heap up gets first blocks of its own, and keeps as little of others' as a new one. */
FRESH_TEST(each_thread_anew)
{
    (void)argument;
    struct hak_heap *common = make_common(), *heap = heap_open(0);
    void *blocks[SHARE];
    for (int thread = 0; thread < 3; thread++) {
        heap_malloc_many(heap, CLASS_1024, blocks, SHARE);
        for (unsigned i = 0; i < SHARE; i++) {
            expect_eq(owner_of(blocks[i]), common->id);
            free_foreign(heap, CLASS_1024, blocks[i]);
        }
        expect_eq(heap->classes[CLASS_1024].common_left, 0);
        hak__cache_flush(heap);
        hak__cache_park(heap);
        hak__cache_unpark(heap);
        expect_eq((void **)heap + heap->absorb[CLASS_1024] - heap->classes[CLASS_1024].bottom, 0);
        expect_heap_valid(heap);
    }
    expect_eq(owner_of(heap_malloc(heap, CLASS_64)), common->id);
    expect_heap_valid(common);
}

static uint64_t clock_ms = 1000;
static uint64_t a_clock(void) { return clock_ms; }

/* A thread that takes its share slowly goes on with common blocks; one that takes it at once does not, until another class's renews all. */
FRESH_TEST(shares_by_time)
{
    (void)argument;
    struct hak_os system = *hak__os;
    system.now_ms = a_clock;
    hak__os = &system;
    struct hak_heap *common = make_common(), *heap = heap_open(0);
    clock_ms += 100;
    for (unsigned i = 0; i < SHARE; i++)
        expect_eq(owner_of(heap_malloc(heap, CLASS_1024)), common->id);
    expect_eq(heap->classes[CLASS_1024].common_left, SHARE);
    clock_ms += 10;
    for (unsigned i = 0; i < SHARE; i++)
        expect_eq(owner_of(heap_malloc(heap, CLASS_1024)), common->id);
    expect_eq(owner_of(heap_malloc(heap, CLASS_1024)), heap->id);
    clock_ms += 100;
    expect_eq(owner_of(heap_malloc(heap, CLASS_1024)), heap->id);
    for (unsigned i = 0; i < SHARE; i++)
        expect_eq(owner_of(heap_malloc(heap, CLASS_4096)), common->id);
    expect_eq(heap->classes[CLASS_1024].common_left, SHARE);
    expect_eq(heap->classes[CLASS_48].common_left, 0);
    expect_heap_valid(heap);
    expect_heap_valid(common);
}

/* A record that may hold fewer blocks than the common heaps would give at a time gets no more than it has room for. */
FRESH_TEST(small_records_are_not_overfilled)
{
    (void)argument;
    struct hak_heap *common = make_common();
    for (unsigned capacity = 1; capacity <= 9; capacity++) {
        char text[2] = { (char)('0' + capacity), 0 };
        expect_eq(hak__option_set("tiny_unified_c3", text), 0);
        struct hak_heap *heap = heap_open(0);
        void *blocks[2 * SHARE];
        heap_malloc_many(heap, CLASS_64, blocks, 1);
        expect_eq(owner_of(blocks[0]), common->id);
        expect_heap_valid(heap);
        heap_malloc_many(heap, CLASS_64, blocks + 1, 2 * SHARE - 1);
        for (unsigned i = 0; i < 2 * SHARE; i++) {
            if (owner_of(blocks[i]) == heap->id)
                heap_free(heap, CLASS_64, blocks[i]);
            else
                free_foreign(heap, CLASS_64, blocks[i]);
            expect_heap_valid(heap);
        }
    }
}

FRESH_TEST(nobody_waits)
{
    (void)argument;
    struct hak_heap *common = make_common(), *heap = heap_open(0);
    expect(hak__heap_lock(common));
    expect_eq(owner_of(heap_malloc(heap, CLASS_1024)), heap->id);
    hak__heap_unlock(common);
    expect_heap_valid(heap);
}

FRESH_TEST(a_child_has_none)
{
    (void)argument;
    struct hak_heap *common = make_common(), *heap = heap_open(0);
    expect_eq(owner_of(heap_malloc(heap, CLASS_1024)), common->id);
    hak__common_fork_child();
    hak__heaps_fork_child(heap, NULL);
    expect_eq(atomic_load(&common->state), HAK_HEAP_PARKED);
    expect_eq(owner_of(heap_malloc(heap, CLASS_1024)), heap->id); /* the page is adopted, or another taken */
    expect_eq(heap_open(0)->classes[CLASS_1024].common_left, 0);
    expect_heap_valid(heap);
}

/* --- threads ------------------------------------------------------------------------------------------------------- */

enum { THREADS = 8, ROUNDS = 2000, HELD = 8 };

static void *take_and_free(void *argument)
{
    struct hak_heap *heap = *(struct hak_heap **)argument;
    char *held[HELD] = { NULL };
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned place = round * 7 % HELD;
        uint32_t class = CLASS_64 + place % 3;
        expect(hak__heap_lock(heap));
        heap->classes[class].common_left = SHARE; /* for ever young */
        if (held[place] != NULL) {
            expect_eq(*held[place], (char)heap->id);
            if (owner_of(held[place]) == heap->id)
                heap_free(heap, class, held[place]);
            else
                free_foreign(heap, class, held[place]);
        }
        held[place] = heap_malloc(heap, class);
        hak__heap_unlock(heap);
        memset(held[place], (char)heap->id, 64);
    }
    return NULL;
}

FRESH_TEST(threads_share)
{
    (void)argument;
    struct hak_heap *heaps[THREADS], *common = make_common();
    for (unsigned i = 0; i < THREADS; i++)
        heaps[i] = heap_open(0);
    run_threads(THREADS, take_and_free, heaps, sizeof *heaps);
    uint64_t live = 0, taken = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        hak__cache_flush(heaps[i]);
        expect_heap_valid(heaps[i]);
        taken += hak_counted(&heaps[i]->counts.common_taken);
    }
    hak__heap_collect(common);
    expect_heap_valid(common);
    for (uint32_t class = CLASS_64; class < CLASS_64 + 3; class++) {
        live += heap_live(common, class);
        for (unsigned i = 0; i < THREADS; i++)
            live += heap_live(heaps[i], class);
    }
    expect_eq(live, THREADS * HELD);
    expect_op(taken, >, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(not_for_few_heaps), cmocka_unit_test(first_blocks_only), cmocka_unit_test(frees_serve_others),
        cmocka_unit_test(those_that_only_free_batch),
        cmocka_unit_test(grown_classes_are_as_any), cmocka_unit_test(each_thread_anew), cmocka_unit_test(shares_by_time),
        cmocka_unit_test(small_records_are_not_overfilled),
        cmocka_unit_test(nobody_waits), cmocka_unit_test(a_child_has_none),
        cmocka_unit_test(threads_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
