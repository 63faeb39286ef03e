/* kinds/: what an address is to the allocator, for every kind of place. The signals themselves are tested on
 * whole programs (misuse/crash_*.c). */
#include "kinds/kind.h"

#include "cache/cache.h"
#include "huge/huge.h"
#include "support/heaps.h"

enum { CLASS_48 = HAK_CLASS_48, CLASS_64 = HAK_CLASS_64, CLASS_LARGE = HAK_CLASS_FIRST_LARGE };

/* The description's beginning; what follows names addresses. */
static void expect_is(const void *address, const char *wanted)
{
    char text[200];
    hak__describe((uintptr_t)address, text, sizeof text);
    if (strncmp(text, wanted, strlen(wanted)) != 0)
        fprintf(stderr, "said:     %s\nexpected: %s\n", text, wanted);
    expect(strncmp(text, wanted, strlen(wanted)) == 0);
}

FRESH_TEST(elsewhere)
{
    static char mine;
    (void)argument;
    expect_is(&mine, "not from this allocator");   /* also before anything has started */
    heaps_start();
    expect_is(&mine, "not from this allocator");
    expect_is((void *)16, "NULL, or close to it");
    expect_is((void *)UINTPTR_MAX, "not from this allocator");
    expect_is(hak__spans, "in the allocator's own tables");
}

FRESH_TEST(blocks_of_classes)
{
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0), *other = heap_open(0);
    char *p = heap_malloc(heap, CLASS_64), *q = heap_malloc(heap, CLASS_64), *r = heap_malloc(heap, CLASS_48);
    expect_is(p, "inside a live block of 64 bytes, offset 0 (block 0x");
    expect_is(p + 63, "inside a live block of 64 bytes, offset 63 (block 0x");
    heap_free(heap, CLASS_64, p);
    expect_is(p + 1, "inside a free block of 64 bytes, offset 1 (block 0x");   /* in the record */
    heap_free_remote(other, q);
    expect_is(q, "inside a free block of 64 bytes");                           /* in the outbox */
    heap_collect(other);
    expect_is(q, "inside a free block of 64 bytes");                           /* published */
    heap_collect(heap);
    expect_is(q, "inside a free block of 64 bytes");                           /* in the span */
    char *end = hak__slab_start(hak__slab_of(r)) + HAK_SLAB_SIZE;
    expect_is(end - 1, "behind the last block of a slab of 48-byte blocks");
    expect_is(end - 17, "inside a never handed out block of 48 bytes");
    expect_is(hak__super_start(0) + HAK_SUPER_SIZE - 1, "in a free slab");
}

FRESH_TEST(runs)
{
    bool zero;
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0);
    char *large = heap_malloc(heap, CLASS_LARGE), *huge = hak__huge_alloc(3 << 20, HAK_SUPER_SIZE, &zero);
    size_t size = hak__classes[CLASS_LARGE].size;
    char wanted[100];
    snprintf(wanted, sizeof wanted, "inside a live block of %zu bytes, offset %zu (block 0x", size, size - 1);
    expect_is(large + size - 1, wanted);
    expect_is(huge + (2 << 20), "inside a live huge block of 3145728 bytes, offset 2097152 (block 0x");
    expect_is(huge + (3 << 20), "directly beyond the end of a huge block of 3145728 bytes (block 0x");
    expect_is(huge + (3 << 20) + 1, "1 byte beyond the end of a huge block of 3145728 bytes (block 0x");
    expect_is(huge + (3 << 20) + 5, "5 bytes beyond the end of a huge block of 3145728 bytes (block 0x");
    char *whole = hak__huge_alloc(4 << 20, HAK_SUPER_SIZE, &zero);
    expect_is(whole + (4 << 20), "directly beyond the end of a huge block of 4194304 bytes (block 0x");
    char *last = hak__huge_alloc(4 << 20, HAK_SUPER_SIZE, &zero), *between = hak__huge_alloc(6 << 20, HAK_SUPER_SIZE, &zero);
    hak__huge_free(last, "free");
    expect_is(last + (2 << 20), "in a");                                       /* free or unmapped SuperSlab */
    hak__huge_free(between, "free");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elsewhere),
        cmocka_unit_test(blocks_of_classes),
        cmocka_unit_test(runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
