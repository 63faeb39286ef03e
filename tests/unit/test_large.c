/* heap/heap.h: a large block that is alone in its span changes size where it stands, both ways and to every class,
 * without a byte of it or of its neighbours changing; when the slabs behind it are taken, or other blocks share its span,
 * it stays as it is; and the counters stay true. */
#include "heap/heap.h"

#include <sys/mman.h>

#include "span/pool.h"
#include "support/figures.h"
#include "support/heaps.h"

enum { FIRST = HAK_CLASS_FIRST_LARGE, LAST = HAK_CLASSES - 1 };

static size_t size_of(uint32_t class) { return hak__classes[class].size; }

static void *take(struct hak_heap *heap, uint32_t class)
{
    void *block;
    expect_eq(hak__heap_take(heap, class, &block, 1), 1);
    memory_fill(block, size_of(class), (uint64_t)(uintptr_t)block);
    return block;
}

static bool holds(void *block, size_t n, uint32_t filled_class)
{
    return memory_holds(block, n < size_of(filled_class) ? n : size_of(filled_class), size_of(filled_class),
                        (uint64_t)(uintptr_t)block);
}

/* A block that has grown has all of the slabs that it needs: the largest class that needs no more. One that was cut has just its
 * class. */
static uint32_t resized(uint32_t from, uint32_t class)
{
    bool cut = hak__class_single_slabs(class) < hak__class_single_slabs(from);
    while (!cut && class < LAST && hak__class_single_slabs(class + 1) == hak__class_single_slabs(class))
        class++;
    return class;
}

static bool single(void *block)
{
    struct hak_span *span = hak__span_at(hak__slab_of(block));
    expect_eq(hak__span_is_single(hak__slab_of(block), span->class), span->blocks == 1);
    return span->blocks == 1;
}

static void expect_class(void *block, uint32_t class, struct hak_heap *heap)
{
    struct hak_span *span = hak__span_at(hak__slab_of(block));
    size_t slab = hak__span_slab(span);
    uint32_t word = hak__owner_word(heap->id, class), inner = single(block) ? hak__owner_inner(heap->id) : word;
    expect_eq(hak__owner_of(block), word);
    expect_eq(span->class, class);
    expect_eq(span->slabs, single(block) ? hak__class_single_slabs(class) : hak__classes[class].slabs);
    for (unsigned i = 0; i < span->slabs; i++) {
        expect_eq(hak__owner_at(slab + i), i == 0 ? word : inner);
        expect_ptr(hak__span_around(slab + i), span);
    }
}

static void resize(struct hak_heap *heap, void *block, uint32_t from, uint32_t to)
{
    bool alone = single(block);
    uint32_t now = alone ? resized(from, to) : from;
    uint64_t others = heap_live(heap, from) - 1, there = heap_live(heap, now) - (now == from);
    uint64_t slabs = hak_counted(&heap->counts.slabs) - hak__span_at(hak__slab_of(block))->slabs;
    expect_eq(hak__large_resize_owner(heap, block, to), alone);
    expect_class(block, now, heap);
    expect(holds(block, size_of(now), from));
    memset(block, 1, size_of(now));
    expect_eq(heap_live(heap, now), there + 1);
    expect_eq(heap_live(heap, from), others + (now == from));
    expect_eq(hak_counted(&heap->counts.slabs), slabs + hak__span_at(hak__slab_of(block))->slabs);
    hak__heap_give(heap, &block, 1, "free");
    expect_eq(heap_live(heap, now), there);
}

/* The first three blocks of a class are alone in their spans; the fourth one is where a full span has one block. */
FRESH_TEST(every_class_to_every_class)
{
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0);
    for (uint32_t from = FIRST; from <= LAST; from++)
        for (uint32_t to = FIRST; to <= LAST; to++) {
            void *first = take(heap, from), *more[3] = { take(heap, from), take(heap, from), take(heap, from) };
            bool whole = hak__classes[from].blocks == 1;
            expect(single(first) && single(more[0]) && single(more[1]));
            expect_eq(single(more[2]), whole);
            hak__heap_give(heap, &more[0], 1, "free");
            hak__heap_give(heap, &more[1], 1, "free");
            if (whole) {   /* once more, right behind the first */
                hak__heap_give(heap, &more[2], 1, "free");
                more[2] = take(heap, from);
            }
            resize(heap, more[2], from, to);
            resize(heap, first, from, to);
        }
    for (uint32_t c = FIRST; c <= LAST; c++)
        expect_eq(hak_counted(&heap->classes[c].span_count), 0);
    struct arena_figures figures;
    hak__assigned_let_go(heap);
    arena_figures(&figures);
    expect_eq(figures.taken, 0);   /* no slab was lost */
}

FRESH_TEST(neighbours_stay_intact)
{
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0);
    void *left = take(heap, FIRST), *middle = take(heap, FIRST + 4), *right = take(heap, FIRST);
    expect_ptr(right, (char *)middle + hak__classes[FIRST + 4].slabs * HAK_SLAB_SIZE);
    expect(!hak__large_resize_owner(heap, middle, LAST));
    expect_class(middle, FIRST + 4, heap);
    expect(hak__large_resize_owner(heap, middle, FIRST));
    expect(holds(middle, size_of(FIRST), FIRST + 4));
    void *tail = take(heap, FIRST);
    expect_ptr(tail, (char *)middle + HAK_SLAB_SIZE);   /* the slab that was let go serves at once */
    expect(!hak__large_resize_owner(heap, middle, FIRST + 4));
    hak__heap_give(heap, &tail, 1, "free");
    expect(hak__large_resize_owner(heap, middle, FIRST + 4));
    expect(holds(middle, size_of(FIRST), FIRST + 4));
    expect(holds(left, size_of(FIRST), FIRST) && holds(right, size_of(FIRST), FIRST));
    expect_class(left, FIRST, heap);
    expect_class(right, FIRST, heap);
    expect(hak__heap_is_valid(heap));
}

/* Of the last slab that a cut block keeps, what its class does not need goes back, and what it needs stays. */
FRESH_TEST(the_rest_of_a_slab_goes_back)
{
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0);
    size_t page = hak__page_size();
    for (uint32_t class = FIRST; class < LAST; class++) {
        size_t size = size_of(class), end = (size_t)hak__class_single_slabs(class) * HAK_SLAB_SIZE;
        char *block = take(heap, LAST);
        unsigned char first = 0, last = 0;
        expect(single(block) && hak__class_single_slabs(class) < hak__class_single_slabs(LAST));
        memset(block, 1, size_of(LAST));
        expect(hak__large_resize_owner(heap, block, class));
        expect_eq(mincore(block + hak_align_down(size - 1, page), page, &first), 0);
        expect_eq(mincore(block + end - page, page, &last), 0);
        expect_eq(first & 1, 1);
        expect_eq(last & 1, end - hak_align_up(size, page) < (16u << 10));
        void *freed = block;
        hak__heap_give(heap, &freed, 1, "free");
    }
    expect(hak__heap_is_valid(heap) && hak__arena_is_valid());
}

/* A block at the end of its SuperSlab has nowhere to grow, whatever begins behind it. */
FRESH_TEST(not_over_the_end_of_a_superslab)
{
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0);
    void *first = take(heap, LAST), *second = take(heap, LAST), *next = take(heap, LAST);
    expect(first < second && second < next);
    expect(hak__large_resize_owner(heap, second, FIRST));
    hak__heap_give(heap, &next, 1, "free");
    expect(hak__large_resize_owner(heap, second, LAST));
    expect_class(second, LAST, heap);
    bool fresh;
    expect(hak__pool_take(1, &fresh) == HAK_NO_RUN);   /* the two blocks fill their SuperSlab */
    expect(holds(first, size_of(LAST), LAST) && holds(second, size_of(FIRST), LAST));
}

FRESH_TEST(random_operations)
{
    struct {
        void *block;
        uint32_t class, filled;
    } slots[40] = { { NULL, 0, 0 } };
    struct rng rng = { 10 };
    unsigned grown = 0, refused = 0;
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0);
    for (unsigned step = 0; step < 2500; step++) {
        size_t i = rng_below(&rng, 40);
        uint32_t class = FIRST + (uint32_t)rng_below(&rng, LAST - FIRST + 1);
        if (slots[i].block == NULL) {
            slots[i].block = take(heap, class);
            slots[i].class = slots[i].filled = class;
        } else if (rng_below(&rng, 3) == 0) {
            expect(holds(slots[i].block, size_of(slots[i].class), slots[i].filled));
            hak__heap_give(heap, &slots[i].block, 1, "free");
            slots[i].block = NULL;
        } else {
            bool done = hak__large_resize_owner(heap, slots[i].block, class);
            expect(!done || single(slots[i].block));
            class = resized(slots[i].class, class);
            size_t kept = size_of(slots[i].class) < size_of(class) ? size_of(slots[i].class) : size_of(class);
            grown += done;
            refused += !done;
            expect(holds(slots[i].block, kept, slots[i].filled));
            slots[i].class = done ? class : slots[i].class;
            expect_class(slots[i].block, slots[i].class, heap);
            memory_fill(slots[i].block, size_of(slots[i].class), (uint64_t)(uintptr_t)slots[i].block);
            slots[i].filled = slots[i].class;
        }
    }
    expect(grown > 100 && refused > 20);   /* both ways have been taken */
    expect(hak__heap_is_valid(heap) && hak__arena_is_valid());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_class_to_every_class),
        cmocka_unit_test(neighbours_stay_intact),
        cmocka_unit_test(not_over_the_end_of_a_superslab),
        cmocka_unit_test(the_rest_of_a_slab_goes_back),
        cmocka_unit_test(random_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
