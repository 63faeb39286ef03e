/* process/request.h: with every record closed each malloc and each free is counted, none is served by the fast path, and the
 * blocks are cached all the same; a class that caches nothing goes straight to the spans. */
#include "process/request.h"

#include "diag/options.h"
#include "support/heaps.h"

enum { CLASS_64 = HAK_CLASS_64, COUNT = 1000 };

static void *blocks[COUNT];

FRESH_TEST(counts_every_call)
{
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(HAK_MODE_EXACT);
    heap_enter(heap);
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
    heap_enter(heap);
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
    heap_enter(heap);
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

/* A new heap has no bins: its classes are zero memory until they are used, and each opens for itself, for a free too. */
FRESH_TEST(classes_open_when_used)
{
    (void)argument;
    heaps_start();
    struct hak_heap *heap = hak__heap_new();
    hak__cache_open(heap, 0);
    heap_enter(heap);
    expect(is_zero((const char *)heap->classes, sizeof heap->classes));
    expect(heap->closed_reasons[CLASS_64] == HAK_CLOSED_UNCACHED);
    expect_eq(heap->closed_reasons[HAK_CLASS_FIRST_LARGE], HAK_CLOSED_UNCACHED | HAK_CLOSED_LARGE);
    expect_eq(hak__cache_process_bytes(), 0);
    expect_heap_valid(heap);
    void *block = hak__closed_malloc(heap, CLASS_64, 64);
    expect(block != NULL && heap->closed_reasons[CLASS_64] == 0 && hak__cache_count(heap, CLASS_64) != 0);
    expect_eq(hak_counted(&heap->classes[CLASS_64].mallocs), 0); /* an open class counts its moves */
    expect_eq(hak__cache_process_bytes(), heap->classes[CLASS_64].capacity * 64u);
    expect(is_zero((const char *)&heap->classes[CLASS_64 + 1], sizeof *heap->classes * (HAK_CLASSES - CLASS_64 - 1)));
    expect_heap_valid(heap);

    void *large = hak__closed_malloc(heap, HAK_CLASS_FIRST_LARGE, HAK_MID_MAX + 1);
    expect_eq(heap->closed_reasons[HAK_CLASS_FIRST_LARGE], HAK_CLOSED_LARGE);
    hak__closed_free(heap, HAK_CLASS_FIRST_LARGE, large, "free");
    expect_eq(heap->large_cache.bytes, hak__classes[HAK_CLASS_FIRST_LARGE].size);
    hak__cache_flush(heap);
    hak__cache_open(heap, 0); /* again, as a process whose options come late does */
    expect_eq(hak__cache_process_bytes(), 0);
    expect_eq(heap->closed_reasons[CLASS_64], HAK_CLOSED_UNCACHED);
    expect(heap->classes[CLASS_64].bottom == NULL);
    hak__closed_free(heap, CLASS_64, block, "free");
    expect_eq(hak__cache_count(heap, CLASS_64), 1);
    expect_ptr(hak__cache_pop(&heap->bins[CLASS_64]), block);
    expect_heap_valid(heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_every_call),
        cmocka_unit_test(caches_as_usual),
        cmocka_unit_test(a_class_that_caches_nothing),
        cmocka_unit_test(classes_open_when_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
