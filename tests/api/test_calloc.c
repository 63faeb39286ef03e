/* calloc: all bytes are zero whatever was in the memory before, for sizes of every pool, alone and among other blocks,
 * and where the memory has just come back from the system or from another thread. */
#include "hakmem.h"
#include "size/size.h"
#include "support/check.h"
#include "support/memory.h"

static void expect_zeroed(char *p, size_t n)
{
    expect(p != NULL);
    if (!is_zero(p, n))
        check_failed(__FILE__, __LINE__, "calloc gave dirty memory: size, usable size", n, hak_usable_size(p));
}

/* The block is made dirty, freed and asked for again at once: the very same memory. */
static void after_dirty_reuse_of_every_size(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 3 << 20; n += n < 5000 ? 1 : n / 9) {
        for (unsigned round = 0; round < 2; round++) {
            char *p = hak_malloc(n);
            memset(p, 0xff, hak_usable_size(p));
            hak_free(p);
            p = hak_calloc(1, n);
            expect_zeroed(p, n);
            hak_free(p);
        }
    }
}

static void every_class_among_dirty_neighbours(void **state)
{
    void *dirty[64];
    (void)state;
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        size_t n = hak__classes[c].size, count = n > 100000 ? 8 : 64;
        for (size_t i = 0; i < count; i++) {
            dirty[i] = hak_malloc(n);
            memset(dirty[i], 0xff, n);
        }
        for (size_t i = 0; i < count; i += 2)
            hak_free(dirty[i]);
        for (size_t i = 0; i < count; i += 2) {
            dirty[i] = hak_calloc(n / 16, 16);
            expect_zeroed(dirty[i], n);
            memset(dirty[i], 0xff, n);
        }
        for (size_t i = 0; i < count; i++)
            hak_free(dirty[i]);
    }
}

/* With everything returned in between, so that fresh, purged and dirty memory mix. */
static void random_mix_with_collection(void **state)
{
    struct {
        char *p;
        size_t n;
    } slots[50] = { { NULL, 0 } };
    struct rng rng = { 13 };
    (void)state;
    for (unsigned step = 0; step < 5000; step++) {
        size_t i = rng_below(&rng, 50), n = 1 + (rng_next(&rng) >> (43 + rng_below(&rng, 14)));
        hak_free(slots[i].p);
        slots[i].n = n;
        slots[i].p = rng_below(&rng, 3) ? hak_calloc(n, 1) : hak_malloc(n);
        if (rng_below(&rng, 3))
            slots[i].p = hak_realloc(slots[i].p, n);
        memset(slots[i].p, 0xff, n);
        char *p = hak_calloc(1, n);
        expect_zeroed(p, n);
        memset(p, 0xff, n);
        hak_free(p);
        if (step % 256 == 0)
            hak_collect();
    }
    for (unsigned i = 0; i < 50; i++)
        hak_free(slots[i].p);
}

static void *free_dirty(void *argument)
{
    void **blocks = argument;
    for (unsigned i = 0; i < 100; i++)
        hak_free(blocks[i]);
    return NULL;
}

static void after_frees_by_another_thread(void **state)
{
    static const size_t sizes[] = { 16, 200, 3000, 20000, 70000, 300000 };
    void *blocks[100];
    (void)state;
    for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (unsigned i = 0; i < 100; i++) {
            blocks[i] = hak_malloc(sizes[s]);
            memset(blocks[i], 0xff, sizes[s]);
        }
        run_threads(1, free_dirty, blocks, sizeof blocks);
        for (unsigned i = 0; i < 100; i++) {
            blocks[i] = hak_calloc(sizes[s], 1);
            expect_zeroed(blocks[i], sizes[s]);
        }
        free_dirty(blocks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_dirty_reuse_of_every_size),
        cmocka_unit_test(every_class_among_dirty_neighbours),
        cmocka_unit_test(random_mix_with_collection),
        cmocka_unit_test(after_frees_by_another_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
