/* arena/window.h on a steered system: the metadata windows lie apart and grow by steps, by less where they must; the pool hands out zeroed
 * memory, heaps have places by their ids; a growth that a fork has interrupted is undone in the child. */
#include "arena/window.h"

#include "arena/runs.h"
#include "base/bits.h"
#include "support/fake_os.h"

static int ensure(enum hak_meta_window window, size_t bytes)
{
    hak__arena_lock();
    int code = hak__meta_ensure(window, bytes);
    hak__arena_unlock();
    return code;
}

FRESH_TEST(metadata_windows_lie_apart)
{
    (void)argument;
    fake_install();
    expect_eq(hak__arena_init(), 0);
    for (int w = 0; w < HAK_META_WINDOWS; w++) {
        uintptr_t end = w + 1 < HAK_META_WINDOWS ? hak__meta_start((enum hak_meta_window)(w + 1)) : hak__window.base;
        uintptr_t start = hak__meta_start((enum hak_meta_window)w);
        uintptr_t stop = start + hak__meta_mapped((enum hak_meta_window)w);
        if (w == HAK_META_WORDS) { /* the first ones are the next table's, in front of it */
            expect_eq(stop - start, 0);
            expect_ptr(hak__super_words + 1, hak__supers);
            expect_op((uintptr_t)(hak__super_words - HAK_META_FIRST_WORDS), <, end);
            continue;
        }
        expect(w == HAK_META_HEAPS ? is_mapped((void *)(start + HAK_HEAP_STRIDE)) : stop != start);
        expect(w == HAK_META_POOL ? stop == end : stop + HAK_SUPER_SIZE / 2 <= end);
        expect(!is_mapped((void *)stop) && (w == HAK_META_POOL || !is_mapped((void *)(end - 1))));
    }
    expect_eq((hak__meta_start(HAK_META_POOL) ^ hak__meta_start(HAK_META_HEAPS)) / HAK_SUPER_SIZE, 0);
    expect_eq(((uintptr_t)hak__supers ^ hak__window.base) >> 30, 0);
}

/* A step of growth that the system refuses is tried again as small as possible. */
FRESH_TEST(metadata_grows_by_less_when_it_must)
{
    (void)argument;
    fake_install();
    expect_eq(hak__arena_init(), 0);
    expect_eq(ensure(HAK_META_POOL, 100 * HAK_META_STEP), 0);
    size_t before = hak__meta_mapped(HAK_META_POOL);
    size_t page = hak__page_size();
    fake.limit = fake.mapped + page;
    expect_eq(ensure(HAK_META_POOL, before + 1), 0);
    expect_eq(hak__meta_mapped(HAK_META_POOL), before + page);
    expect_eq(ensure(HAK_META_POOL, before + page + 1), ENOMEM);
    expect_eq(hak__meta_mapped(HAK_META_POOL), before + page);
    expect_eq(ensure(HAK_META_POOL, 5), 0);
    expect_eq(ensure(HAK_META_WORDS, (size_t)1 << 60), ENOMEM);
}

FRESH_TEST(metadata_pool)
{
    char *last = NULL;
    (void)argument;
    fake_install();
    expect_eq(hak__arena_init(), 0);
    for (size_t i = 0; i < 300; i++) {
        char *p = hak__meta_alloc(i * 7 + 1);
        expect((uintptr_t)p % 64 == 0 && (last == NULL || p < last));
        expect(is_zero(p, i * 7 + 1));
        memset(p, 1, i * 7 + 1);
        last = p;
    }
    fake.limit = fake.mapped;
    while (hak__meta_alloc(1000) != NULL)
        continue;
    expect(hak__meta_alloc(1 << 20) == NULL);
    fake.limit = SIZE_MAX;
    expect(is_zero(hak__meta_alloc(1 << 20), 1 << 20));
}

FRESH_TEST(heap_memory)
{
    (void)argument;
    fake_install();
    expect_eq(hak__arena_init(), 0);
    size_t bytes, all, least = hak_align_up(HAK_HEAP_FIRST, hak__page_size());
    char *first = hak__heap_memory(1, &bytes), *second = hak__heap_memory(2, &all);
    expect_ptr(first, hak__heap_address(1));
    expect_ptr(second, first + HAK_HEAP_STRIDE);
    expect_eq(bytes, least);
    expect_eq(all, HAK_HEAP_STRIDE);
    expect(!is_mapped(first + bytes));
    expect(hak__heap_extend(1, bytes, HAK_HEAP_STRIDE - bytes));
    expect(is_zero(first, 2 * HAK_HEAP_STRIDE));
    expect_ptr(hak__heap_memory(1, &bytes), first);
    expect(hak__heap_memory(HAK_HEAPS_MAX, &bytes) == NULL);
    fake.limit = fake.mapped + least;
    expect(hak__heap_memory(3, &bytes) != NULL);
    expect_eq(bytes, least);
    expect(hak__heap_memory(5000, &bytes) == NULL);
}

/* The child of a moment in which a piece was mapped and its part not yet open unmaps it; one that is noted stays. */
FRESH_TEST(child_undoes_a_piece_that_is_not_noted)
{
    (void)argument;
    size_t offset = 8 * HAK_PART_SUPERS * HAK_SUPER_SPANS, page = hak__page_size();
    fake_install();
    expect_eq(hak__arena_init(), 0);
    char *spans = (char *)hak__meta_start(HAK_META_SPANS);
    hak__arena_lock();
    expect_eq(hak__meta_piece_begun(HAK_META_SPANS), HAK_META_NO_PIECE);
    expect_eq(hak__meta_piece(HAK_META_SPANS, offset, page), 0);
    expect_eq(hak__meta_piece_begun(HAK_META_SPANS), offset);
    expect_eq(hak__meta_piece_begun(HAK_META_HEAPS), HAK_META_NO_PIECE);
    hak__meta_fork_child();
    expect(!is_mapped(spans + offset));
    expect_eq(hak__meta_piece(HAK_META_SPANS, offset, page), 0);
    hak__meta_piece_done();
    hak__meta_fork_child();
    expect(is_mapped(spans + offset));
    hak__arena_unlock();
}

static void ensure_unlocked(void *argument)
{
    (void)argument;
    fake_install();
    hak__arena_init();
    hak__meta_ensure(HAK_META_POOL, 1 << 20);
}

static void two_pieces_at_once(void *argument)
{
    (void)argument;
    fake_install();
    hak__arena_init();
    hak__arena_lock();
    hak__meta_piece(HAK_META_SPANS, HAK_SUPER_SIZE, HAK_SUPER_SIZE);
    hak__meta_piece(HAK_META_SPANS, 2 * HAK_SUPER_SIZE, HAK_SUPER_SIZE);
}

static void contracts(void **state)
{
    (void)state;
    expect_contract(ensure_unlocked, NULL, "the caller holds the arena's lock");
    expect_contract(two_pieces_at_once, NULL, "one piece at a time is unnoted");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metadata_windows_lie_apart),
        cmocka_unit_test(metadata_grows_by_less_when_it_must),
        cmocka_unit_test(metadata_pool),
        cmocka_unit_test(heap_memory),
        cmocka_unit_test(child_undoes_a_piece_that_is_not_noted),
        cmocka_unit_test(contracts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
