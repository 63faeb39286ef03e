/* stats/stats.h: resident bytes go to the states of the blocks that lie in them; a heap that somebody is inside is
 * not read. The sum over everything against the kernel's figure is tested on whole programs (override/test_ledger.c). */
#include "stats/stats.h"

#include "cache/cache.h"
#include "huge/huge.h"
#include "support/heaps.h"

enum { CLASS_64 = HAK_CLASS_64, CLASS_4096 = HAK_CLASS_4096, CLASS_LARGE = HAK_CLASS_FIRST_LARGE, MANY = 16 };

static struct hak_stats stats;
static void *blocks[MANY];

static void look(void)
{
    hak__snapshot(&stats);
    expect(hak__ledger(&stats));
    expect_eq(stats.flags & HAK_STATS_HAS_LEDGER, HAK_STATS_HAS_LEDGER);
}

/* Blocks of a page each, of which the touched ones are resident. */
FRESH_TEST_OF_SMALL_PAGES(states_of_blocks)
{
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0);
    size_t size = hak__classes[CLASS_4096].size;
    for (unsigned i = 0; i < MANY; i++) {
        blocks[i] = heap_malloc(heap, CLASS_4096);
        if (i % 2 == 0)
            memset(blocks[i], 1, size);
    }
    look();
    uint64_t held = stats.classes[CLASS_4096].live + stats.classes[CLASS_4096].cached;
    expect_eq(stats.ledger_live, MANY / 2 * size * MANY / held);
    expect_eq(stats.ledger_live + stats.ledger_cached, MANY / 2 * size);
    expect_eq(stats.ledger_free_in_slabs, 0);
    expect_eq(stats.ledger_unread_spans, 0);
    for (unsigned i = 1; i < MANY; i++)
        heap_free(heap, CLASS_4096, blocks[i]);
    hak__cache_flush(heap);
    look();
    expect_eq(stats.ledger_live, size);
    expect_eq(stats.ledger_cached, 0);
    expect_eq(stats.ledger_free_in_slabs, (MANY / 2 - 1) * size);
    expect_eq(stats.classes[CLASS_4096].pinned, (MANY / 2 - 1) * size);
}

/* A touched page belongs to the blocks in it that were handed out, and to the frontier's slack. */
FRESH_TEST(within_a_page)
{
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0);
    *(char *)(blocks[0] = heap_malloc(heap, CLASS_64)) = 1;
    look();
    uint64_t out = hak__span_allocated(hak__span_at(hak__slab_of(blocks[0]))) * 64;
    expect_eq(stats.ledger_live, 64);
    expect_eq(stats.ledger_cached, out - 64);
    expect_eq(stats.ledger_frontier_slack, hak__page_size() - out);
}

FRESH_TEST_OF_SMALL_PAGES(runs_of_slabs_and_superslabs)
{
    bool zero;
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0);
    size_t page = hak__page_size();
    char *large = heap_malloc(heap, CLASS_LARGE), *huge = hak__huge_alloc(3 << 20, HAK_SUPER_SIZE, &zero);
    memset(large, 1, 2 * page);
    memset(huge + (2 << 20), 1, 5 * page);
    look();
    expect_eq(stats.ledger_live, 2 * page);
    expect_eq(stats.ledger_huge, 5 * page);
    expect_eq(stats.ledger_empty, 0);
    heap_free(heap, CLASS_LARGE, large);
    hak__cache_flush(heap);
    hak__huge_free(huge, "free");
    look();
    expect_eq(stats.ledger_live, 0);
    expect_eq(stats.ledger_huge, 0);
    expect_op(stats.ledger_empty, <=, 7 * page);   /* what has not been purged at once */
    expect_op(stats.ledger_metadata, >, 0);
    expect_op(stats.ledger_not_ours, >, 0);
}

FRESH_TEST(an_occupied_heap_is_left_alone)
{
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0);
    *(char *)(blocks[0] = heap_malloc(heap, CLASS_64)) = 1;
    expect(hak__heap_lock(heap));
    look();
    expect_eq(stats.ledger_unread_spans, 1);
    expect_eq(stats.ledger_live + stats.ledger_cached, hak__page_size());
    expect(hak__lock_word_is_mine(&heap->lock));
    hak__heap_unlock(heap);
    look();
    expect_eq(stats.ledger_unread_spans, 0);
    expect_eq(hak_load(&heap->lock, HAK_RELAXED), HAK_LOCK_FREE);
}

/* Each look reads all heaps' words, which makes no page of them resident. */
FRESH_TEST(tables_that_were_only_read)
{
    (void)argument;
    heaps_start();
    for (unsigned i = 0; i < 300; i++)
        blocks[0] = heap_malloc(heap_open(0), CLASS_64);
    look();
    look();
    expect_op(stats.ledger_sum, <=, stats.ledger_rss + stats.ledger_rss / 32 + (96 << 10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_of_blocks),
        cmocka_unit_test(within_a_page),
        cmocka_unit_test(runs_of_slabs_and_superslabs),
        cmocka_unit_test(tables_that_were_only_read),
        cmocka_unit_test(an_occupied_heap_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
