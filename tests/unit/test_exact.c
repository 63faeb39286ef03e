/* guard/exact.h: with every record closed each malloc and each free is counted, none is served by the fast path, and the
 * blocks are cached all the same; a class that caches nothing goes straight to the spans. */
#include "guard/exact.h"

#include "diag/options.h"
#include "support/heaps.h"

enum { CLASS_64 = HAK_CLASS_64, COUNT = 1000 };

static void *blocks[COUNT];

FRESH_TEST(counts_every_call)
{
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(HAK_MODE_EXACT);
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        const struct hak_heap_class *class = &heap->classes[c];
        uint32_t count = c < 30 ? COUNT : 5;
        expect((heap->closed_reasons[c] & HAK_CLOSED_EXACT) != 0);
        for (uint32_t i = 0; i < count; i++) {
            expect(hak__cache_pop(&heap->bins[c]) == NULL);   /* every call comes here */
            blocks[i] = hak__closed_malloc(heap, c, hak__classes[c].size);
            expect_eq(hak_counted(&class->mallocs), i + 1);
        }
        expect_heap_valid(heap);
        for (uint32_t i = 0; i < count; i++) {
            expect(!hak__cache_push(&heap->bins[c], blocks[i]));
            hak__closed_free(heap, c, blocks[i], "free");
            expect_eq(hak_counted(&class->frees), i + 1);
        }
        expect_op(hak_counted(&class->misses), >, 0);
        expect(hak_counted(&class->misses) < count || hak__classes[c].size > HAK_TINY_MAX);
        expect(hak__cache_count(heap, c) > 0 || class->capacity == 0);
        expect_heap_valid(heap);
        expect_eq(heap_live(heap, c), 0);
    }
}

/* The hidden record is the same stack as the visible one: the newest block comes first. */
FRESH_TEST(caches_as_usual)
{
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(HAK_MODE_EXACT);
    void *a = hak__closed_malloc(heap, CLASS_64, 64), *b = hak__closed_malloc(heap, CLASS_64, 64);
    expect(b > a);
    hak__closed_free(heap, CLASS_64, b, "free");
    hak__closed_free(heap, CLASS_64, a, "free");
    expect_ptr(hak__closed_malloc(heap, CLASS_64, 64), a);
    expect_ptr(hak__closed_malloc(heap, CLASS_64, 64), b);
    expect_eq(hak_counted(&heap->classes[CLASS_64].misses), 1);
}

FRESH_TEST(a_class_that_caches_nothing)
{
    (void)argument;
    heaps_start();
    expect_eq(hak__option_set("tiny_unified_c3", "0"), 0);
    struct hak_heap *heap = heap_open(0);
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = hak__closed_malloc(heap, CLASS_64, 64);
        expect(i == 0 || blocks[i] > blocks[i - 1] || hak__slab_of(blocks[i]) != hak__slab_of(blocks[i - 1]));
        expect_eq(hak__cache_count(heap, CLASS_64), 0);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        hak__closed_free(heap, CLASS_64, blocks[i], "free");
        expect_eq(heap_live(heap, CLASS_64), COUNT - 1 - i);
    }
    expect_heap_valid(heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_every_call),
        cmocka_unit_test(caches_as_usual),
        cmocka_unit_test(a_class_that_caches_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
