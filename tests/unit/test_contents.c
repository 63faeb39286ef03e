/* cache/contents.c: a freed block is found wherever it is: in a stack, visible, hidden or moved to a larger area, its own or
 * another heap's, in an outbox, as a remote bit, in a bitmap, above the frontier, in a span that was adopted or has
 * ended; and a block in use is found nowhere, whatever stale pointers to it are left above a top or a count. */
#include "cache/cache.h"
#include "heap/heap.h"
#include "support/heaps.h"

enum { CLASS_64 = HAK_CLASS_64, CLASS_LARGE = HAK_CLASS_FIRST_LARGE + 4, MANY = 4096 };

static void *blocks[MANY];

struct pair {
    struct hak_heap *owner, *other;
};

static struct pair start(void)
{
    heaps_start();
    struct hak_heap *owner = heap_open(0);
    return (struct pair){ owner, heap_open(0) };
}

static void malloc_many(struct hak_heap *heap, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        blocks[i] = heap_malloc(heap, CLASS_64);
}

/* What each of the two threads, and one without a heap, are told. */
static void expect_freed(struct pair p, const void *block, bool freed)
{
    expect_eq(hak__cache_has_freed(p.owner, CLASS_64, block), freed);
    expect_eq(hak__cache_has_freed(p.other, CLASS_64, block), freed);
    expect_eq(hak__cache_has_freed(NULL, CLASS_64, block), freed);
}

FRESH_TEST(in_the_owners_stack)
{
    (void)argument;
    struct pair p = start();
    malloc_many(p.owner, 8);
    expect_freed(p, blocks[3], false);
    heap_free(p.owner, CLASS_64, blocks[3]);
    heap_free(p.owner, CLASS_64, blocks[4]);
    expect_freed(p, blocks[3], true);
    expect_freed(p, blocks[4], true);
    expect_ptr(heap_malloc(p.owner, CLASS_64), blocks[4]);   /* its slot keeps the pointer, above the top */
    expect_freed(p, blocks[4], false);
    expect_freed(p, blocks[3], true);
}

/* The area that a bin has grown out of keeps its pointers too. */
FRESH_TEST(after_growth)
{
    (void)argument;
    struct pair p = start();
    malloc_many(p.owner, MANY);
    uint32_t before = p.owner->classes[CLASS_64].capacity;
    for (uint32_t i = 0; i < MANY; i++)
        heap_free(p.owner, CLASS_64, blocks[i]);
    malloc_many(p.owner, MANY);
    for (uint32_t i = 0; i < MANY; i++)
        heap_free(p.owner, CLASS_64, blocks[i]);
    expect_op(p.owner->classes[CLASS_64].capacity, >, before);
    for (uint32_t i = 0; i < MANY; i += 7)
        expect_freed(p, blocks[i], true);
    malloc_many(p.owner, MANY);
    for (uint32_t i = 0; i < MANY; i += 7)
        expect_freed(p, blocks[i], false);
}

FRESH_TEST(in_a_hidden_record)
{
    (void)argument;
    heaps_start();
    struct pair p = { heap_open(HAK_MODE_EXACT), heap_open(0) };
    expect(p.owner->closed_reasons[CLASS_64] == HAK_CLOSED_EXACT);
    void *block = hak__cache_refill(p.owner, CLASS_64);
    expect_freed(p, block, false);
    expect(hak__cache_push(hak__heap_bin(p.owner, CLASS_64), block));
    expect_freed(p, block, true);
}

FRESH_TEST(absorbed_by_another)
{
    (void)argument;
    struct pair p = start();
    malloc_many(p.owner, 4);
    (void)heap_malloc(p.other, CLASS_64);
    while (hak__cache_pop(&p.other->bins[CLASS_64]) != NULL)
        continue;
    expect(heap_absorb(p.other, CLASS_64, blocks[2]));
    expect_freed(p, blocks[2], true);
    expect_freed(p, blocks[1], false);
    expect_ptr(hak__cache_pop(&p.other->bins[CLASS_64]), blocks[2]);
    expect_freed(p, blocks[2], false);
}

/* From the other's outbox into the owner's span and back into use. */
FRESH_TEST(on_its_way_home)
{
    (void)argument;
    struct pair p = start();
    malloc_many(p.owner, 100);
    while (hak__cache_pop(&p.owner->bins[CLASS_64]) != NULL)
        continue;
    for (unsigned i = 0; i < 3; i++)
        heap_free_remote(p.other, blocks[i]);
    expect_freed(p, blocks[2], true);
    expect_freed(p, blocks[3], false);
    expect(hak__heap_try_lock(p.other, HAK_SWEEPER));
    expect_eq(hak__outbox_sweep(p.other), 3);   /* remote bits; the bucket keeps the pointers */
    hak__heap_unlock(p.other);
    expect_freed(p, blocks[2], true);
    hak__heap_collect(p.owner);           /* free bits */
    expect_freed(p, blocks[2], true);
    void *again = NULL;
    for (unsigned i = 0; i < MANY && again != blocks[2]; i++)
        again = heap_malloc(p.owner, CLASS_64);
    expect_ptr(again, blocks[2]);         /* in use; the bucket keeps the pointer, below what was published */
    expect_freed(p, blocks[2], false);
}

FRESH_TEST(drained_and_above_the_frontier)
{
    (void)argument;
    struct pair p = start();
    malloc_many(p.owner, 4);
    heap_free(p.owner, CLASS_64, blocks[0]);
    hak__cache_flush(p.owner);
    expect_freed(p, blocks[0], true);
    expect_freed(p, blocks[1], false);
    struct hak_span *span = hak__span_at(hak__slab_of(blocks[0]));
    expect_op(span->frontier, <, span->blocks);
    expect_freed(p, hak__span_start(span) + (size_t)span->frontier * 64, true);
}

/* A refill takes more than it hands out: what waits in the stack for the first time bears the key and is found. */
FRESH_TEST(never_handed_out)
{
    (void)argument;
    struct pair p = start();
    char *block = heap_malloc(p.owner, CLASS_64);
    expect_op(hak__cache_count(p.owner, CLASS_64), >, 0);
    char *next = p.owner->bins[CLASS_64].top[-1];
    expect_eq(hak__looks_freed(next), HAK_PROTECT);
    expect_freed(p, next, true);
    expect_freed(p, block, false);
}

FRESH_TEST(adopted)
{
    (void)argument;
    struct pair p = start();
    malloc_many(p.owner, 100);
    heap_free(p.owner, CLASS_64, blocks[5]);
    hak__cache_flush(p.owner);
    hak__heap_park(p.owner);
    expect_freed(p, blocks[5], true);   /* its heap is parked */
    expect(hak__heap_adopt(p.other, CLASS_64));
    expect_eq(hak__owner_id(hak__owner_of(blocks[5])), p.other->id);
    expect_freed(p, blocks[5], true);
    expect_freed(p, blocks[6], false);
}

/* A span of one block has no owner in its descriptor; the map's word counts. */
FRESH_TEST(lone_and_ended)
{
    (void)argument;
    struct pair p = start();
    void *block;
    expect_eq(hak__heap_take(p.owner, CLASS_LARGE, &block, 1), 1);
    expect(!hak__cache_has_freed(p.owner, CLASS_LARGE, block));
    expect(!hak__cache_has_freed(p.other, CLASS_LARGE, block));
    hak__heap_give(p.owner, &block, 1, "free");
    expect(hak__cache_has_freed(p.owner, CLASS_LARGE, block));
    expect(hak__cache_has_freed(NULL, CLASS_LARGE, block));
}

/* Nobody looks into a heap that is busy for good: then there is no proof, and no endless wait either. */
FRESH_TEST(busy_heaps_are_left_alone)
{
    (void)argument;
    struct pair p = start();
    malloc_many(p.owner, 4);
    heap_free(p.owner, CLASS_64, blocks[0]);
    expect(hak__heap_try_lock(p.owner, HAK_OWNER));
    expect(!hak__cache_has_freed(p.other, CLASS_64, blocks[0]));
    hak__heap_unlock(p.owner);
    expect(hak__cache_has_freed(p.other, CLASS_64, blocks[0]));
    hak_store(&p.owner->state, HAK_HEAP_UNUSABLE, HAK_RELAXED);
    expect(!hak__cache_has_freed(p.other, CLASS_64, blocks[0]));
}

/* What is free in a span whose pages went back is found by the span's bits; taking gives blocks their keys back, and the
 * limit says something again when nothing is left that may have lost its key. */
FRESH_TEST(purged)
{
    (void)argument;
    struct pair p = start();
    malloc_many(p.owner, 1024);
    struct hak_span *span = hak__span_at(hak__slab_of(blocks[0]));
    const struct hak_slab *slab = &hak__window.map[hak__span_slab(span)];
    for (uint32_t i = 100; i < 400; i++)
        heap_free(p.owner, CLASS_64, blocks[i]);
    hak__cache_flush(p.owner);
    for (uint32_t i = 100; i < 400; i++)
        memset(blocks[i], 0, 64);
    hak__span_lose_keys(span);
    expect_eq(hak__start_bound_is_lost(hak__start_bound(slab)), HAK_PROTECT);
    expect(hak__cache_has_purged(CLASS_64, blocks[200]));
    expect(!hak__cache_has_purged(CLASS_64, blocks[0]));
    while (span->free_count != 0) {
        expect_eq(hak__start_bound_is_lost(hak__start_bound(slab)), HAK_PROTECT);
        void *taken = heap_malloc(p.owner, CLASS_64);
        expect_eq(hak__looks_freed(taken), HAK_PROTECT);   /* until malloc takes the key away */
        expect(!hak__cache_has_purged(CLASS_64, taken));
    }
    expect(!hak__start_bound_is_lost(hak__start_bound(slab)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_the_owners_stack),   cmocka_unit_test(after_growth),
        cmocka_unit_test(in_a_hidden_record),    cmocka_unit_test(absorbed_by_another),
        cmocka_unit_test(on_its_way_home),       cmocka_unit_test(drained_and_above_the_frontier),
        cmocka_unit_test(never_handed_out),      cmocka_unit_test(adopted),
        cmocka_unit_test(lone_and_ended),        cmocka_unit_test(busy_heaps_are_left_alone),
        cmocka_unit_test(purged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
