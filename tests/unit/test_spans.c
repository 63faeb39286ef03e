/* heap/heap.h: a refill takes from a span that is known to be good; what is used up leaves the pool, what gets blocks back
 * returns to it, by a drain or from other threads; an empty pool is filled as far as the budget says, and the budget
 * follows the hit rate; freed blocks come before fresh ones; the pool can be switched off and on. */
#include "heap/heap.h"

#include "cache/experiments.h"
#include "diag/options.h"
#include "support/heaps.h"

enum { CLASS_16 = HAK_CLASS_16, CLASS_64 = HAK_CLASS_64, CLASS_LARGE = HAK_CLASS_FIRST_LARGE, SPANS = 24, BATCH = 32, NEED = BATCH / 4 };

static void *blocks[SPANS * 1024];

static struct hak_heap *start(const char *prefill)
{
    heaps_start();
    if (prefill != NULL)
        expect_eq(hak__option_set("warm_pool_prefill", prefill), 0);
    return heap_open(0);
}

static uint32_t per_span(void) { return hak__classes[CLASS_64].blocks; }
static struct hak_span *span_of(const void *block) { return hak__span_at(hak__slab_of(block)); }

static void take_all(struct hak_heap *heap, uint32_t class, void **out, uint32_t count)
{
    for (uint32_t got = 0; got < count;) {
        uint32_t more = hak__heap_take(heap, class, out + got, (uint32_t)hak_min(count - got, BATCH));
        expect(more != 0);
        got += more;
        expect(hak__heap_is_valid(heap));
    }
}

static void give_all(struct hak_heap *heap, void *const *some, uint32_t count)
{
    hak__heap_give(heap, some, count, "free");
    expect(hak__heap_is_valid(heap));
}

static void publish_all(void *const *some, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index;
        expect_eq(hak__span_index(span_of(some[i]), some[i], &index), HAK_SPAN_OK);
        hak__remote_publish(span_of(some[i]), index / 64, 1ull << index % 64, "free");
    }
}

static const struct hak_heap_class *class_64(const struct hak_heap *heap) { return &heap->classes[CLASS_64]; }
static uint64_t hits(const struct hak_heap *heap) { return hak_counted(&class_64(heap)->warm_hits); }
static uint64_t prefilled(const struct hak_heap *heap) { return hak_counted(&class_64(heap)->warm_prefilled); }

/* SPANS full spans, one after another in blocks[]. */
static struct hak_heap *full_heap(const char *prefill)
{
    struct hak_heap *heap = start(prefill);
    take_all(heap, CLASS_64, blocks, SPANS * per_span());
    expect_eq(class_64(heap)->warm_count, 0);
    expect(class_64(heap)->spans == NULL);
    return heap;
}

static void **of_span(uint32_t i) { return &blocks[i * per_span()]; }

/* --- in and out ------------------------------------------------------------------------------------------------------ */

FRESH_TEST(a_new_span_serves_until_it_is_used_up)
{
    (void)argument;
    struct hak_heap *heap = start(NULL);
    uint32_t refills = per_span() / BATCH;
    take_all(heap, CLASS_64, blocks, BATCH);
    struct hak_span *span = span_of(blocks[0]);
    expect_eq(span->warm, 1);
    expect_eq(hits(heap), 0);
    expect_eq(prefilled(heap), 1);
    take_all(heap, CLASS_64, blocks, (refills - 1) * BATCH);
    expect_eq(hits(heap), refills - 1);
    expect_eq(span->warm, 0);
    expect(!span->listed);
    expect_eq(class_64(heap)->warm_count, 0);
}

FRESH_TEST(too_few_blocks_are_not_good)
{
    (void)argument;
    struct hak_heap *heap = full_heap(NULL);
    give_all(heap, of_span(3), NEED - 1);
    expect(span_of(*of_span(3))->listed);
    expect_eq(span_of(*of_span(3))->warm, 0);
    give_all(heap, of_span(3) + NEED, 2);
    expect_eq(span_of(*of_span(3))->warm, 1);
    void *out[BATCH];
    uint64_t before = hits(heap);
    expect_eq(hak__heap_take(heap, CLASS_64, out, 3), 3);   /* what is left is not good any more */
    expect_eq(hits(heap), before + 1);
    expect(span_of(*of_span(3))->listed);
    expect_eq(span_of(*of_span(3))->warm, 0);
    expect(hak__heap_is_valid(heap));
}

FRESH_TEST(blocks_that_are_drained_bring_a_span_back)
{
    (void)argument;
    struct hak_heap *heap = full_heap(NULL);
    for (uint32_t i = 0; i < SPANS; i++) {
        give_all(heap, of_span(i), BATCH);
        expect_eq(span_of(*of_span(i))->warm, i < HAK_WARM_MAX ? i + 1 : 0);
    }
    expect_eq(prefilled(heap), SPANS);   /* the new spans; none of these */
    void *out[BATCH];
    uint64_t before = hits(heap);
    for (uint32_t i = HAK_WARM_MAX; i-- > 0;) {   /* the newest first, and each is left for good when it has given its all */
        expect_eq(hak__heap_take(heap, CLASS_64, out, BATCH), BATCH);
        expect_ptr(span_of(out[0]), span_of(*of_span(i)));
        expect(!span_of(out[0])->listed);
    }
    expect_eq(hits(heap), before + HAK_WARM_MAX);
}

FRESH_TEST(blocks_that_others_freed_bring_a_span_back)
{
    (void)argument;
    struct hak_heap *heap = full_heap(NULL);
    publish_all(of_span(5), BATCH);
    publish_all(of_span(7), NEED - 1);
    hak__heap_collect(heap);
    expect_eq(class_64(heap)->warm_count, 1);
    expect_eq(span_of(*of_span(5))->warm, 1);
    expect(span_of(*of_span(7))->listed && hak__heap_is_valid(heap));
}

/* A heap that begins anew drops its lists: no span may think that it is still in one. */
FRESH_TEST(all_leave_at_once)
{
    (void)argument;
    struct hak_heap *heap = full_heap(NULL);
    for (uint32_t i = 0; i < SPANS; i++)
        give_all(heap, of_span(i), BATCH);
    expect_eq(class_64(heap)->warm_count, HAK_WARM_MAX);
    hak__heap_unlist_all(heap, CLASS_64);
    expect(class_64(heap)->spans == NULL && class_64(heap)->warm_count == 0);
    for (uint32_t i = 0; i < SPANS; i++)
        expect(!span_of(*of_span(i))->listed && span_of(*of_span(i))->warm == 0);
    for (uint32_t i = 0; i < SPANS; i++)
        give_all(heap, of_span(i) + BATCH, BATCH);
    expect_eq(class_64(heap)->warm_count, HAK_WARM_MAX);
}

FRESH_TEST(spans_that_end_leave)
{
    (void)argument;
    struct hak_heap *heap = full_heap(NULL);
    for (uint32_t i = 0; i < 3; i++)
        give_all(heap, of_span(i), BATCH);
    expect_eq(class_64(heap)->warm_count, 3);
    give_all(heap, of_span(0) + BATCH, per_span() - BATCH);   /* the oldest of three: another one takes its place */
    expect_eq(atomic_load(&span_of(*of_span(0))->owner), 0);
    expect_eq(class_64(heap)->warm_count, 2);
    give_all(heap, of_span(1) + BATCH, per_span() - BATCH);
    expect_eq(class_64(heap)->warm_count, 1);
    expect_ptr(hak__warm_newest(heap, CLASS_64), span_of(*of_span(2)));
}

FRESH_TEST(adopted_spans_leave)
{
    (void)argument;
    struct hak_heap *ended = full_heap(NULL), *heap = heap_open(0);
    for (uint32_t i = 0; i < 5; i++)
        give_all(ended, of_span(i), BATCH);
    hak__heap_park(ended);
    expect(hak__heap_adopt(heap, CLASS_64));
    expect_eq(class_64(ended)->warm_count, 0);
    expect(hak__heap_is_valid(heap) && hak__heap_is_valid(ended));
    void *out[BATCH];
    expect_eq(hak__heap_take(heap, CLASS_64, out, BATCH), BATCH);
    expect_eq(class_64(heap)->warm_count, 2);   /* three were prefilled, of which one is used up */
}

/* --- prefill --------------------------------------------------------------------------------------------------------- */

/* Spans with freed blocks that the pool does not know: they came back while it was off. */
static struct hak_heap *listed_heap(const char *prefill)
{
    struct hak_heap *heap = full_heap("0");
    for (uint32_t i = 0; i < SPANS; i++)
        give_all(heap, of_span(i), 2 * BATCH);
    expect_eq(class_64(heap)->warm_count, 0);
    expect_eq(hits(heap) + prefilled(heap), 0);
    expect_eq(hak__option_set("warm_pool_prefill", prefill), 0);
    hak__experiments_open(heap);
    return heap;
}

static void expect_prefill(unsigned budget, const char *text)
{
    void *out[BATCH];
    struct hak_heap *heap = listed_heap(text);
    expect_eq(hak__heap_take(heap, CLASS_64, out, BATCH), BATCH);
    expect_eq(hits(heap), 0);
    expect_eq(prefilled(heap), budget);
    expect_eq(class_64(heap)->warm_count, budget);
    expect_ptr(span_of(out[0]), class_64(heap)->spans);   /* the first of the list */
    for (unsigned i = 1; i < 2 * budget; i++)
        expect_eq(hak__heap_take(heap, CLASS_64, out, BATCH), BATCH);
    expect_eq(hits(heap), 2 * budget - 1);
    expect_eq(class_64(heap)->warm_count, 0);
    expect(hak__heap_is_valid(heap));
}

FRESH_TEST(prefill_by_one)
{
    (void)argument;
    expect_prefill(1, "1");
}

FRESH_TEST(prefill_by_three)
{
    (void)argument;
    expect_prefill(3, "3");
}

FRESH_TEST(prefill_by_sixteen)
{
    (void)argument;
    expect_prefill(16, "16");
}

FRESH_TEST(prefill_looks_only_so_far)
{
    (void)argument;
    struct hak_heap *heap = full_heap("0");
    for (uint32_t i = 0; i < SPANS; i++)
        give_all(heap, of_span(i), i == 0 ? 2 * BATCH : 1);   /* the one good span is the last of the list */
    expect_eq(hak__option_set("warm_pool_prefill", "1"), 0);
    hak__experiments_open(heap);
    void *out[2];
    expect_eq(hak__heap_take(heap, CLASS_64, out, 2), 2);   /* a search, of two spans with a block each */
    expect_eq(prefilled(heap), 0);
    expect_eq(class_64(heap)->warm_count, 0);
    expect_eq(hak__option_set("warm_pool_prefill", "16"), 0);
    hak__experiments_open(heap);
    expect_eq(hak__heap_take(heap, CLASS_64, out, 2), 2);
    expect_eq(prefilled(heap), 1);
    expect_ptr(span_of(out[0]), span_of(*of_span(0)));
    expect(hak__heap_is_valid(heap));
}

FRESH_TEST(switched_off)
{
    void *out[BATCH];
    (void)argument;
    struct hak_heap *heap = full_heap("0");
    for (uint32_t i = 0; i < SPANS; i++)
        give_all(heap, of_span(i), BATCH);
    for (uint32_t i = 0; i < SPANS; i++)
        expect_eq(hak__heap_take(heap, CLASS_64, out, BATCH), BATCH);
    expect_eq(hits(heap) + prefilled(heap) + class_64(heap)->warm_count, 0);
}

/* --- the budget ------------------------------------------------------------------------------------------------------- */

FRESH_TEST(the_budget_falls_while_refills_hit)
{
    (void)argument;
    struct hak_heap *heap = start(NULL);
    uint8_t highest = 0;
    for (unsigned span = 0; span < 12; span++) {   /* one miss for each */
        take_all(heap, CLASS_16, blocks, hak__classes[CLASS_16].blocks);
        highest = (uint8_t)hak_max(highest, heap->classes[CLASS_16].warm_budget);
    }
    expect_eq(highest, 3);
    expect_eq(heap->classes[CLASS_16].warm_budget, 1);
    expect_op(heap->classes[CLASS_16].warm_rate, >, 243);
}

FRESH_TEST(the_budget_rises_while_refills_miss)
{
    (void)argument;
    struct hak_heap *heap = start(NULL);
    for (unsigned i = 0; i < 12; i++)   /* spans that serve just the refill which found none */
        hak__warm_missed(heap, CLASS_64);
    expect_eq(heap->classes[CLASS_64].warm_budget, HAK_WARM_MAX);
    expect_op(heap->classes[CLASS_64].warm_rate, <, 50);
    for (unsigned i = 0; i < 12; i++)   /* those of one block are never looked for there */
        take_all(heap, CLASS_LARGE, &blocks[i], 1);
    expect_eq(hak_counted(&heap->classes[CLASS_LARGE].warm_hits), 0);
    expect_eq(heap->classes[CLASS_LARGE].warm_count, 0);
}

/* --- freed before fresh ----------------------------------------------------------------------------------------------- */

FRESH_TEST(what_others_freed_comes_before_a_frontier)
{
    void *out[BATCH];
    (void)argument;
    struct hak_heap *heap = full_heap(NULL);
    take_all(heap, CLASS_64, out, BATCH);   /* a further span, of which the rest is fresh */
    struct hak_span *fresh = span_of(out[0]);
    take_all(heap, CLASS_64, out, BATCH);
    expect_ptr(span_of(out[0]), fresh);
    publish_all(of_span(9), BATCH);
    uint64_t before = hits(heap);
    expect_eq(hak__heap_take(heap, CLASS_64, out, BATCH), BATCH);
    expect_ptr(span_of(out[0]), span_of(*of_span(9)));
    expect_eq(hits(heap), before + 1);
    expect_eq(hak__heap_take(heap, CLASS_64, out, BATCH), BATCH);
    expect_ptr(span_of(out[0]), fresh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_span_serves_until_it_is_used_up),
        cmocka_unit_test(too_few_blocks_are_not_good),
        cmocka_unit_test(blocks_that_are_drained_bring_a_span_back),
        cmocka_unit_test(blocks_that_others_freed_bring_a_span_back),
        cmocka_unit_test(all_leave_at_once),
        cmocka_unit_test(spans_that_end_leave),
        cmocka_unit_test(adopted_spans_leave),
        cmocka_unit_test(prefill_by_one),
        cmocka_unit_test(prefill_by_three),
        cmocka_unit_test(prefill_by_sixteen),
        cmocka_unit_test(prefill_looks_only_so_far),
        cmocka_unit_test(switched_off),
        cmocka_unit_test(the_budget_falls_while_refills_hit),
        cmocka_unit_test(the_budget_rises_while_refills_miss),
        cmocka_unit_test(what_others_freed_comes_before_a_frontier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
