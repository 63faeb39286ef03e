/* heap/take.c: spans with free blocks of heaps whose threads have ended serve before new slabs do, with the frees that
 * wait for them; heaps in use keep theirs; whatever is freed late finds the new owner; and the parked heaps stay
 * parked. */
#include "cache/cache.h"
#include "heap/heap.h"
#include "support/heaps.h"

enum { CLASS_1024 = HAK_CLASS_TINY_LAST, SPANS = 10, MANY = 1024 };

static void *blocks[MANY];

static uint32_t per_span(void) { return hak__classes[CLASS_1024].blocks; }

/* A heap with SPANS full spans, of which every third block has been given back and all others are outside. */
static struct hak_heap *used_heap(void)
{
    struct hak_heap *heap = heap_open(0);
    uint32_t count = SPANS * per_span();
    for (uint32_t i = 0; i < count; i++)
        blocks[i] = heap_malloc(heap, CLASS_1024);
    for (uint32_t i = 0; i < count; i += 3)
        heap_free(heap, CLASS_1024, blocks[i]);
    hak__cache_flush(heap);
    return heap;
}

static uint32_t given_back(void) { return (SPANS * per_span() + 2) / 3; }

static uint64_t spans_of(struct hak_heap *heap) { return hak_counted(&heap->classes[CLASS_1024].span_count); }

static uint32_t owner_of(const void *block) { return hak__owner_id(hak__owner_of(block)); }

FRESH_TEST(before_new_slabs)
{
    (void)argument;
    heaps_start();
    struct hak_heap *ended = used_heap(), *heap = heap_open(0);
    hak__heap_park(ended);
    for (uint32_t i = 0; i < given_back(); i++) {
        char *block = heap_malloc(heap, CLASS_1024);
        expect_eq(owner_of(block), heap->id);
        memset(block, 1, 1024);
    }
    expect_eq(hak_counted(&heap->counts.adopted), SPANS);
    expect_eq(spans_of(heap), SPANS);
    expect_eq(spans_of(ended), 0);
    expect_heap_valid(heap);
    expect_heap_valid(ended);
    expect_eq(atomic_load(&ended->state), HAK_HEAP_PARKED);
    expect_ptr(hak__heap_unpark(), ended);
}

FRESH_TEST(with_the_frees_that_wait)
{
    (void)argument;
    heaps_start();
    struct hak_heap *ended = used_heap(), *other = heap_open(0), *heap = heap_open(0);
    hak__heap_park(ended);
    for (uint32_t i = 1; i < SPANS * per_span(); i += 3)
        heap_free_remote(other, blocks[i]);
    hak__outbox_flush(other, "free");
    expect(hak__heap_adopt(heap, CLASS_1024));
    expect(atomic_load(&ended->pending) == NULL);
    uint32_t free = 0;
    for (struct hak_span *span = heap->classes[CLASS_1024].spans; span != NULL; span = span->next)
        free += span->free_count;
    expect_eq(free, given_back() + SPANS * per_span() / 3);
    expect(hak__heap_is_valid(heap));
}

FRESH_TEST(heaps_in_use_keep_theirs)
{
    (void)argument;
    heaps_start();
    struct hak_heap *busy = used_heap(), *heap = heap_open(0);
    expect(!hak__heap_adopt(heap, CLASS_1024));
    expect_eq(spans_of(busy), SPANS);
    expect_eq(owner_of(heap_malloc(heap, CLASS_1024)), heap->id);
    expect_eq(hak_counted(&heap->counts.adopted), 0);
    hak__heap_park(busy);
    expect(!hak__heap_adopt(heap, CLASS_1024 + 1));   /* a class of which it has nothing */
    expect_eq(spans_of(busy), SPANS);
    expect_eq(atomic_load(&busy->state), HAK_HEAP_PARKED);
}

/* Blocks that were outside at the time come back to the adopter, whoever frees them and whatever he knew of the owner. */
FRESH_TEST(late_frees_find_the_new_owner)
{
    (void)argument;
    heaps_start();
    struct hak_heap *ended = used_heap(), *early = heap_open(0), *other = heap_open(0), *heap = heap_open(0);
    heap_free_remote(early, blocks[1]);   /* in an outbox while the owner changes */
    hak__heap_park(ended);
    expect(hak__heap_adopt(heap, CLASS_1024));
    hak__outbox_flush(early, "free");
    expect(atomic_load(&ended->pending) == NULL && atomic_load(&heap->pending) != NULL);
    for (uint32_t i = 2; i < SPANS * per_span(); i += 3)
        heap_free_remote(other, blocks[i]);
    hak__outbox_flush(other, "free");
    for (uint32_t i = 4; i < SPANS * per_span(); i += 3)
        heap_free(heap, CLASS_1024, blocks[i]);   /* the adopter's own frees are ordinary ones */
    hak__heap_collect(heap);
    hak__cache_flush(heap);
    expect_heap_valid(heap);
    expect_op(spans_of(heap), <=, 1);   /* every block is back */
    expect_eq(heap_live(heap, CLASS_1024) + heap_live(ended, CLASS_1024), 0);
}

/* A span that a late publisher has queued on the former owner's stack is sent on by whoever looks there next. */
FRESH_TEST(queued_on_the_former_owner)
{
    (void)argument;
    heaps_start();
    struct hak_heap *ended = used_heap(), *other = heap_open(0), *heap = heap_open(0);
    hak__heap_park(ended);
    expect(hak__heap_adopt(heap, CLASS_1024));
    struct hak_span *span = hak__span_at(hak__slab_of(blocks[1]));
    atomic_store(&span->owner, ended->id);   /* as the publisher saw it a moment ago */
    heap_free_remote(other, blocks[1]);
    hak__outbox_flush(other, "free");
    atomic_store(&span->owner, heap->id);
    expect_ptr(atomic_load(&ended->pending), span);
    uint32_t after = 0;
    expect(hak__heaps_sweep(other, &after, UINT32_MAX));
    expect(!hak__heaps_sweep(other, &after, UINT32_MAX));
    hak__heap_collect(heap);
    expect_eq(hak_counted(&heap->classes[CLASS_1024].collected), 1);
    expect(hak__heap_is_valid(heap) && hak__heap_is_valid(ended));
}

/* A forked child parks heaps with what they cache. Spans go to an adopter from under cached blocks, and the thread that
 * takes the heap up drains those as another heap's. */
FRESH_TEST(below_cached_blocks)
{
    (void)argument;
    heaps_start();
    struct hak_heap *gone = used_heap(), *heap = heap_open(0);
    heap_free(gone, CLASS_1024, blocks[1]);
    heap_free(gone, CLASS_1024, blocks[(SPANS - 1) * per_span() + 2]);
    uint32_t cached = hak__cache_count(gone, CLASS_1024);
    expect_eq(cached, 2);
    hak__heaps_fork_child(heap, NULL);
    expect(hak__heap_adopt(heap, CLASS_1024));
    expect_eq(owner_of(blocks[1]), heap->id);
    expect_ptr(hak__heap_unpark(), gone);
    expect_heap_valid(gone);
    hak__cache_flush(gone);
    expect_eq(hak__cache_count(gone, CLASS_1024), 0);
    expect_eq(hak_counted(&gone->counts.remote_frees), cached);
    hak__heap_collect(heap);
    expect_eq(hak_counted(&heap->classes[CLASS_1024].collected), cached);
    expect_heap_valid(gone);
    expect_heap_valid(heap);
}

/* What a thread has left in its record for the next one goes with its span. */
FRESH_TEST(what_is_left_goes_too)
{
    (void)argument;
    heaps_start();
    struct hak_heap *ended = used_heap(), *heap = heap_open(0);
    heap_free(ended, CLASS_1024, blocks[1]);
    hak__cache_leave(ended, HAK_LEFT_AT_END);
    expect_eq(hak__cache_count(ended, CLASS_1024), 1);
    hak__heap_park(ended);
    expect(hak__heap_adopt(heap, CLASS_1024));
    expect_eq(hak__cache_count(ended, CLASS_1024), 0);
    expect_eq(ended->foreign[CLASS_1024], 0);
    expect_eq(owner_of(blocks[1]), heap->id);
    void *first = heap_malloc(heap, CLASS_1024), *second = heap_malloc(heap, CLASS_1024);
    expect(first == blocks[1] || second == blocks[1]);
    expect_heap_valid(ended);
    expect_heap_valid(heap);
}

FRESH_TEST(parked_heaps_stay_in_order)
{
    struct hak_heap *ended[6];
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0);
    for (unsigned i = 0; i < 6; i++)
        ended[i] = heap_open(0);
    for (unsigned i = 0; i < 6; i++)
        hak__heap_park(ended[i]);
    expect(!hak__heap_adopt(heap, CLASS_1024));
    for (unsigned i = 6; i-- > 0;) {
        expect_ptr(hak__heap_unpark(), ended[i]);
        hak__heap_unlock(ended[i]);
    }
    expect(hak__heap_unpark() == NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(before_new_slabs),
        cmocka_unit_test(with_the_frees_that_wait),
        cmocka_unit_test(heaps_in_use_keep_theirs),
        cmocka_unit_test(late_frees_find_the_new_owner),
        cmocka_unit_test(queued_on_the_former_owner),
        cmocka_unit_test(below_cached_blocks),
        cmocka_unit_test(what_is_left_goes_too),
        cmocka_unit_test(parked_heaps_stay_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
