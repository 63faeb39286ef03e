/* cache/outbox.c: frees of other heaps' blocks wait, bounded in number and bytes, are published when a bucket is full,
 * when another slab needs its bucket, and when flushed; large blocks do not wait; and misuse that can be seen before
 * publication is reported then. */
#include "cache/cache.h"
#include "support/heaps.h"

enum { CLASS_64 = HAK_CLASS_64, CLASS_LARGE = HAK_CLASS_FIRST_LARGE, MANY = 4096 };

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

static void malloc_many(struct hak_heap *heap, uint32_t class, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        blocks[i] = heap_malloc(heap, class);
}

static uint64_t published(struct hak_heap *heap) { return hak_counted(&heap->counts.remote_published); }
static uint64_t freed(struct hak_heap *heap) { return hak_counted(&heap->counts.remote_frees); }

static uint64_t collect(struct hak_heap *owner, uint32_t class)
{
    uint64_t before = hak_counted(&owner->classes[class].collected);
    hak__heap_collect(owner);
    expect_heap_valid(owner);
    return hak_counted(&owner->classes[class].collected) - before;
}

FRESH_TEST(waits_until_flushed)
{
    (void)argument;
    struct pair p = start();
    malloc_many(p.owner, CLASS_64, 10);
    for (unsigned i = 0; i < 10; i++)
        heap_free_remote(p.other, blocks[i]);
    expect_eq(published(p.other), 0);
    expect(atomic_load(&p.owner->pending) == NULL);
    hak__outbox_flush(p.other, "free");
    expect_eq(published(p.other), 1);   /* neighbours share one operation */
    expect_eq(freed(p.other), 10);
    expect_eq(collect(p.owner, CLASS_64), 10);
    hak__outbox_flush(p.other, "free");
    expect_eq(published(p.other), 1);
    expect_eq(collect(p.owner, CLASS_64), 0);
}

/* For every class: what waits never exceeds the bound in bytes and in number, without any flush. */
FRESH_TEST(bounded)
{
    (void)argument;
    struct pair p = start();
    for (uint32_t c = 0; c < CLASS_LARGE; c++) {
        uint32_t count = hak__classes[c].blocks < 200 ? hak__classes[c].blocks : 200;
        malloc_many(p.owner, c, count);
        uint64_t gone = 0;
        for (uint32_t i = 0; i < count; i++) {
            heap_free_remote(p.other, blocks[i]);
            gone += collect(p.owner, c);
            uint64_t waiting = i + 1 - gone;
            expect_op(waiting, <=, (uint64_t)HAK_OUTBOX_BUCKETS * HAK_OUTBOX_BLOCKS);
            expect_op(waiting * hak__classes[c].size, <=, HAK_OUTBOX_BUCKETS * HAK_OUTBOX_BYTES);
        }
        hak__outbox_flush(p.other, "free");
        expect_eq(gone + collect(p.owner, c), count);
        hak__cache_flush(p.owner);
    }
}

/* A block that is as large as what may wait does not wait at all. */
FRESH_TEST(big_blocks_do_not_wait)
{
    (void)argument;
    struct pair p = start();
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        if (hak__classes[c].size <= HAK_OUTBOX_BYTES)
            continue;
        void *block = heap_malloc(p.owner, c);
        heap_free_remote(p.other, block);
        hak__heap_collect(p.owner);
        hak__cache_flush(p.owner);
        expect_eq(heap_live(p.owner, c) + heap_live(p.other, c), 0);
        expect_eq(hak__slab_of(block) % HAK_OUTBOX_BUCKETS < HAK_OUTBOX_BUCKETS
                  && p.other->outbox_buckets[hak__slab_of(block) % HAK_OUTBOX_BUCKETS].count, 0);
    }
}

/* Blocks of many slabs meet in one bucket: none is lost. */
FRESH_TEST(collisions)
{
    (void)argument;
    struct pair p = start();
    struct rng rng = { 9 };
    uint32_t per_slab = (uint32_t)(HAK_SLAB_SIZE / hak__classes[CLASS_64].size), count = MANY;
    expect_op(count / per_slab, >, 3);
    malloc_many(p.owner, CLASS_64, count);
    for (uint32_t i = count; i > 1; i--) {
        size_t j = rng_below(&rng, i);
        void *block = blocks[j];
        blocks[j] = blocks[i - 1];
        blocks[i - 1] = block;
    }
    uint64_t gone = 0;
    for (uint32_t i = 0; i < count; i++) {
        heap_free_remote(p.other, blocks[i]);
        gone += i % 100 == 0 ? collect(p.owner, CLASS_64) : 0;
    }
    hak__outbox_flush(p.other, "free");
    expect_eq(gone + collect(p.owner, CLASS_64), count);
    hak__cache_flush(p.owner);
    expect_eq(heap_live(p.owner, CLASS_64), 0);
}

FRESH_TEST(many_owners_and_classes)
{
    struct hak_heap *owners[5];
    (void)argument;
    heaps_start();
    struct hak_heap *other = heap_open(0);
    for (unsigned o = 0; o < 5; o++)
        owners[o] = heap_open(0);
    for (unsigned i = 0; i < MANY / 2; i++)
        blocks[i] = heap_malloc(owners[i % 5], i % 40);
    for (unsigned i = 0; i < MANY / 2; i++)
        heap_free_remote(other, blocks[i * 7 % (MANY / 2)]);
    hak__outbox_flush(other, "free");
    for (unsigned o = 0; o < 5; o++) {
        hak__heap_collect(owners[o]);
        hak__cache_flush(owners[o]);
        expect_heap_valid(owners[o]);
        for (uint32_t c = 0; c < 40; c++)
            expect_eq(heap_live(owners[o], c), 0);
    }
}

FRESH_TEST(bypass)
{
    (void)argument;
    struct pair p = start();
    malloc_many(p.owner, CLASS_64, 70);
    for (unsigned i = 0; i < 70; i++)
        hak__outbox_bypass(blocks[i], hak__owner_of(blocks[i]), "free");
    expect_eq(collect(p.owner, CLASS_64), 70);
    malloc_many(p.owner, HAK_CLASS_FIRST_LARGE, 1);
    hak__outbox_bypass(blocks[0], hak__owner_of(blocks[0]), "free");   /* alone in its span: the slabs are free at once */
    expect_eq(hak__owner_of(blocks[0]), 0);
}

/* --- misuse --------------------------------------------------------------------------------------------------------- */

struct misuse {
    struct hak_heap *other;
    void *block;
};

static void free_twice(void *argument)
{
    struct misuse *misuse = argument;
    heap_free_remote(misuse->other, misuse->block);
    heap_free_remote(misuse->other, misuse->block);
    hak__outbox_flush(misuse->other, "free");
}

static void free_again_later(void *argument)
{
    struct misuse *misuse = argument;
    heap_free_remote(misuse->other, misuse->block);
    hak__outbox_flush(misuse->other, "free");
    heap_free_remote(misuse->other, misuse->block);
    hak__outbox_flush(misuse->other, "free");
}

static void free_once(void *argument)
{
    struct misuse *misuse = argument;
    heap_free_remote(misuse->other, misuse->block);
    hak__outbox_flush(misuse->other, "free");
}

static void bypass_once(void *argument)
{
    struct misuse *misuse = argument;
    hak__outbox_bypass(misuse->block, hak__owner_of(misuse->block), "free");
}

static void expect_report(check_body *body, struct hak_heap *other, void *block, const char *format)
{
    char line[200];
    snprintf(line, sizeof line, format, block);
    expect_abort(body, &(struct misuse){ other, block }, line);
}

/* A large block goes back to the pool when another thread frees the last of its span, whether that has one block or
 * several; unless the owner is in a slow path, which then finds it. */
FRESH_TEST(large_blocks_go_back_at_once)
{
    (void)argument;
    struct pair p = start();
    for (uint32_t c = CLASS_LARGE; c < HAK_CLASSES; c++)
        for (unsigned busy = 0; busy < 2; busy++) {
            uint32_t count = hak__classes[c].blocks;
            void *few[3] = { NULL };   /* the first three spans have one block each; that others end them the owner does not count */
            for (unsigned i = 0; i < 3 && !busy; i++)
                few[i] = heap_malloc(p.owner, c);
            malloc_many(p.owner, c, count);
            if (busy)
                expect(hak__heap_lock(p.owner));
            for (uint32_t i = 0; i < count; i++)
                heap_free_remote(p.other, blocks[i]);
            expect_eq(hak__owner_of(blocks[0]) != 0, busy && count > 1);
            for (unsigned i = 0; i < 3 && !busy; i++) {
                heap_free_remote(p.other, few[i]);
                expect_eq(hak__owner_of(few[i]), 0);
            }
            if (busy)
                hak__heap_unlock(p.owner);
            hak__heap_collect(p.owner);
            expect_eq(hak__owner_of(blocks[0]), 0);
            expect_eq(heap_live(p.owner, c) + heap_live(p.other, c), 0);
            expect_eq(hak_counted(&p.owner->counts.slabs) + hak_counted(&p.other->counts.slabs), 0);
        }
}

FRESH_TEST(misuse_is_reported)
{
    static const char twice[] = "hakmem: free(): double free of %p (64-byte block)";
    static const char invalid[] = "hakmem: free(): invalid pointer %p: not the start of a block";
    (void)argument;
    struct pair p = start();
    malloc_many(p.owner, CLASS_64, 20);
    expect_report(free_twice, p.other, blocks[4], twice);
    expect_report(free_again_later, p.other, blocks[4], twice);
    expect_report(free_once, p.other, (char *)blocks[4] + 16, invalid);
    expect_report(free_once, p.other, (char *)blocks[4] + 1, invalid);
    expect_report(bypass_once, p.other, (char *)blocks[4] + 8, invalid);
    void *large = heap_malloc(p.owner, CLASS_LARGE);
    expect_report(free_once, p.other, (char *)large + 4096, invalid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_until_flushed),     cmocka_unit_test(bounded),
        cmocka_unit_test(big_blocks_do_not_wait),  cmocka_unit_test(collisions),
        cmocka_unit_test(many_owners_and_classes), cmocka_unit_test(bypass),
        cmocka_unit_test(large_blocks_go_back_at_once), cmocka_unit_test(misuse_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
