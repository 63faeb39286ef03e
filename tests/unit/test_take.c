/* heap/take.c: each stage serves just when the ones before it cannot, and is counted; what the first three give was in
 * use before. */
#include "diag/options.h"
#include "heap/heap.h"
#include "span/pool.h"
#include "support/fake_os.h"
#include "support/figures.h"
#include "support/heaps.h"

enum { CLASS_64 = HAK_CLASS_64, CLASS_80 = HAK_CLASS_80, CLASS_1024 = HAK_CLASS_TINY_LAST, CLASS_41088 = HAK_CLASS_41088, CLASS_49280 = HAK_CLASS_49280 };

static void *blocks[3 * HAK_SUPER_SLABS * 64];

static struct hak_heap *start(void)
{
    heaps_start();
    return heap_open(0);
}

static struct hak_span *span_of(const void *block) { return hak__span_at(hak__slab_of(block)); }

static void take_all(struct hak_heap *heap, uint32_t class, void **out, uint32_t count)
{
    for (uint32_t got = 0; got < count;) {
        uint32_t more = hak__heap_take(heap, class, out + got, count - got);
        expect(more != 0);
        got += more;
    }
    expect(hak__heap_is_valid(heap));
}

static void expect_stages(struct hak_heap *heap, const char *counts)
{
    char line[80];
    const hak_counter *s = heap->counts.stages;
    snprintf(line, sizeof line, "%llu %llu %llu %llu %llu", (unsigned long long)hak_counted(&s[HAK_STAGE_OWN_HINT]),
             (unsigned long long)hak_counted(&s[HAK_STAGE_OWN_EMPTY]),
             (unsigned long long)hak_counted(&s[HAK_STAGE_ADOPTED]),
             (unsigned long long)hak_counted(&s[HAK_STAGE_CLAIMED]),
             (unsigned long long)hak_counted(&s[HAK_STAGE_LOCKED]));
    if (strcmp(line, counts) != 0)
        print_error("stages: %s, not %s\n", line, counts);
    expect(strcmp(line, counts) == 0);
}

FRESH_TEST(a_superslab_is_opened_then_claimed_from)
{
    (void)argument;
    struct hak_heap *heap = start();
    take_all(heap, CLASS_1024, blocks, 1);
    expect_stages(heap, "0 0 0 0 1");
    take_all(heap, CLASS_1024, blocks, (HAK_SUPER_SLABS - 1) * 64 + 63);
    expect_stages(heap, "0 0 0 31 1");
    take_all(heap, CLASS_1024, blocks, 1);
    expect_stages(heap, "0 0 0 31 2");
}

/* Blocks of a class lie elsewhere with each seed, in the span and by the span's slab; none is lost or given twice. */
FRESH_TEST(a_layout_seed_moves_first_blocks)
{
    (void)argument;
    enum { SEEDS = 32 };
    struct hak_heap *heap = start();
    uint64_t offsets = 0, slabs = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        hak__option_put(HAK_OPTION_layout_seed, seed);
        take_all(heap, CLASS_64, blocks, 1);
        offsets |= 1ull << ((uintptr_t)blocks[0] % HAK_SLAB_SIZE / 64 % 64);
        slabs |= 1ull << hak__slab_of(blocks[0]) % HAK_SUPER_SLABS;
        expect_op((uintptr_t)blocks[0] % HAK_SLAB_SIZE, <=, 4096);
        void *other;
        take_all(heap, seed % 2 ? CLASS_41088 : CLASS_1024, &other, 1); /* no larger class is moved */
        hak__heap_give(heap, &other, 1, "free");
        take_all(heap, CLASS_64, blocks + 1, 1023);
        expect_eq(hak_counted(&heap->classes[CLASS_64].span_count), 1);
        hak__heap_give(heap, blocks, 1024, "free"); /* a block that came twice would be reported */
        expect(hak__heap_is_valid(heap));
        hak__heap_spare(heap, HAK_CLASSES);
    }
    expect_op(hak_popcount64(offsets), >=, SEEDS / 3);
    expect_op(hak_popcount64(slabs), >=, SEEDS / 4);
}

FRESH_TEST(slabs_in_use_before_come_first)
{
    (void)argument;
    struct hak_heap *heap = start();
    take_all(heap, CLASS_1024, blocks, 3 * 64);
    struct hak_span *second = span_of(blocks[64]);
    hak__heap_give(heap, blocks, 1, "free");         /* keeps its span listed, so that the next one may end */
    hak__heap_give(heap, blocks + 64, 64, "free");
    expect_eq(atomic_load(&second->owner), 0);
    void *next;
    take_all(heap, CLASS_64, &next, 1);
    expect_ptr(span_of(next), second);
    expect(!second->fresh);
    expect_stages(heap, "1 0 0 2 1");
}

FRESH_TEST(an_empty_span_of_another_class_serves)
{
    void *next;
    (void)argument;
    struct hak_heap *heap = start();
    take_all(heap, CLASS_64, blocks, 20);
    struct hak_span *span = span_of(blocks[0]);
    hak__heap_give(heap, blocks, 20, "free");
    expect_ptr(heap->classes[CLASS_64].spans, span);   /* kept, being the last */
    take_all(heap, CLASS_41088, &next, 1);              /* needs two slabs at the least */
    expect_stages(heap, "0 0 0 1 1");
    take_all(heap, CLASS_80, &next, 1);
    expect_ptr(span_of(next), span);
    expect_eq(span->class, CLASS_80);
    expect(heap->classes[CLASS_64].spans == NULL);
    expect_eq(hak_counted(&heap->classes[CLASS_64].span_count), 0);
    expect_stages(heap, "0 1 0 1 1");
    take_all(heap, CLASS_64, &next, 1);
    expect_stages(heap, "0 1 0 2 1");
}

/* A span that was empty and is in use again is not taken. */
FRESH_TEST(a_span_in_use_again_stays)
{
    void *next;
    (void)argument;
    struct hak_heap *heap = start();
    take_all(heap, CLASS_64, blocks, 20);
    hak__heap_give(heap, blocks, 20, "free");
    take_all(heap, CLASS_64, blocks, 1);
    take_all(heap, CLASS_80, &next, 1);
    expect(span_of(next) != span_of(blocks[0]));
    expect_eq(hak__owner_of(blocks[0]), hak__owner_word(heap->id, CLASS_64));
    expect_stages(heap, "0 0 0 1 1");
}

FRESH_TEST(adoption_is_counted_and_comes_before_unused_slabs)
{
    void *next;
    (void)argument;
    struct hak_heap *ended = start(), *heap = heap_open(0);
    take_all(ended, CLASS_64, blocks, 20);
    hak__heap_park(ended);
    take_all(heap, CLASS_64, &next, 1);
    expect_ptr(span_of(next), span_of(blocks[0]));
    expect_stages(heap, "0 0 1 0 0");
    take_all(heap, CLASS_80, &next, 1);
    expect_stages(heap, "0 0 1 1 0");
}

/* Who takes a SuperSlab's worth of slabs that are not resident has others trimmed, as if one had been opened. */
FRESH_TEST(slabs_that_are_not_resident_count)
{
    enum { SPAN = 64, HALF = HAK_SUPER_SLABS / 2 };
    void *next;
    (void)argument;
    struct hak_heap *heap = start();
    expect_eq(hak__option_set("dirty_limit", "0"), 0);
    take_all(heap, CLASS_1024, blocks, 3 * HAK_SUPER_SLABS * SPAN);
    for (size_t super = 0; super < 2; super++)
        hak__heap_give(heap, blocks + (super * HAK_SUPER_SLABS + HALF) * SPAN, HALF * SPAN, "free");
    expect_op(hak__pool_purge(UINT64_MAX, SIZE_MAX), >, 0);
    for (size_t i = 0; i < HALF; i++)
        hak__heap_give(heap, blocks + (2 * HAK_SUPER_SLABS + 2 * i) * SPAN, SPAN, "free");
    fake.now += 100;
    uint32_t before = heap->sources.clean_slabs = 0;
    for (; heap->sources.clean_slabs >= before && before < HAK_SUPER_SLABS - 2; before = heap->sources.clean_slabs)
        take_all(heap, CLASS_41088, &next, 1);
    expect_eq(before, HAK_SUPER_SLABS - 2);
    uint64_t word = hak_load(&hak__supers[2].slabs, HAK_RELAXED);
    expect((hak__slabs_unused(word) & hak__slabs_dirty(word)) != 0);
    take_all(heap, CLASS_49280, &next, 1);
    expect_eq(heap->sources.clean_slabs, 0);
    word = hak_load(&hak__supers[2].slabs, HAK_RELAXED);
    expect_eq(hak__slabs_unused(word) & hak__slabs_dirty(word), 0);
}

/* Where the last single slab was is where the next one comes from, whatever longer runs were claimed in between. */
FRESH_TEST(longer_runs_do_not_lead_single_ones)
{
    void *next;
    (void)argument;
    struct hak_heap *heap = start();
    take_all(heap, CLASS_64, blocks, 1);
    size_t home = heap->sources.home;
    expect_eq(home, hak__slab_of(blocks[0]) + 1);
    take_all(heap, CLASS_41088, &next, 1);
    expect_op(span_of(next)->slabs, >, 1);
    expect_eq(heap->sources.home, home);
    take_all(heap, CLASS_80, &next, 1);
    expect_eq(heap->sources.home, hak__slab_of(next) + 1);
}

/* A heap holds SuperSlabs from 512 KiB of large blocks on; those that others have freed do not count. */
FRESH_TEST(little_holds_nothing)
{
    enum { HALF = 256 << 10, CLASS_256K = HAK_CLASS_262144 };
    (void)argument;
    struct hak_heap *heap = start();
    take_all(heap, CLASS_256K, blocks, 2);
    expect_eq(heap->assigned.count, 0);
    hak_fetch_add(&heap->large_remote_freed, HALF, HAK_RELAXED);
    take_all(heap, CLASS_256K, blocks + 2, 1);
    expect_eq(heap->large_out, 3 * HALF);
    expect_eq(heap->assigned.count, 0);
    take_all(heap, CLASS_256K, blocks + 3, 2);
    expect_op(heap->assigned.count, >, 0);
    hak_fetch_sub(&heap->large_remote_freed, HALF, HAK_RELAXED);
    hak__heap_give(heap, blocks, 5, "free");
    expect(hak__heap_is_valid(heap));
}

/* While nothing is held, what is at hand is any run of an open SuperSlab, and none is opened for it. */
FRESH_TEST(at_hand_opens_nothing)
{
    enum { CLASS_1M = HAK_CLASSES - 1 };
    struct arena_figures before, after;
    (void)argument;
    struct hak_heap *heap = start();
    take_all(heap, CLASS_64, blocks, 1);
    arena_figures(&before);
    blocks[1] = hak__heap_take_at_hand(heap, CLASS_1M);
    expect(blocks[1] != NULL);
    expect_eq(hak__slab_of(blocks[1]) / HAK_SUPER_SLABS, hak__slab_of(blocks[0]) / HAK_SUPER_SLABS);
    expect(hak__heap_take_at_hand(heap, CLASS_1M) == NULL);   /* 15 slabs are left */
    arena_figures(&after);
    expect_eq(after.taken, before.taken);
    take_all(heap, CLASS_1M, blocks + 2, 1);
    arena_figures(&after);
    expect_eq(after.taken, before.taken + 1);
    hak__heap_give(heap, blocks, 3, "free");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_superslab_is_opened_then_claimed_from),
        cmocka_unit_test(a_layout_seed_moves_first_blocks),
        cmocka_unit_test(slabs_in_use_before_come_first),
        cmocka_unit_test(an_empty_span_of_another_class_serves),
        cmocka_unit_test(a_span_in_use_again_stays),
        cmocka_unit_test(adoption_is_counted_and_comes_before_unused_slabs),
        cmocka_unit_test(slabs_that_are_not_resident_count),
        cmocka_unit_test(longer_runs_do_not_lead_single_ones),
        cmocka_unit_test(little_holds_nothing),
        cmocka_unit_test(at_hand_opens_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
