/* cache/: pop and push are a stack with a guard below; a refill is a batch in ascending order; a full bin grows
 * within its ceiling and the thread's budget, else gives its oldest half back; idle classes lose capacity to busy ones;
 * a flush leaves nothing; and after all of it both validity walks hold. */
#include "cache/cache.h"
#include "cache/experiments.h"

#include "base/bits.h"
#include "diag/options.h"
#include "support/heaps.h"

enum { CLASS_16 = HAK_CLASS_16, CLASS_32 = HAK_CLASS_32, CLASS_64 = HAK_CLASS_64, CLASS_1024 = HAK_CLASS_TINY_LAST, CLASS_2048 = HAK_CLASS_2048, CLASS_LARGER = HAK_CLASS_4480, MANY = 8192 };

static void *blocks[MANY];

static struct hak_heap *start(void)
{
    heaps_start();
    return heap_open(0);
}

static void set(const char *name, const char *value) { expect_eq(hak__option_set(name, value), 0); }

/* Allocates more than the bin holds and frees it again, so that the bin overflows and may grow. */
static void churn(struct hak_heap *heap, uint32_t class, uint32_t count, unsigned rounds)
{
    while (rounds-- > 0) {
        heap_malloc_many(heap, class, blocks, count);
        heap_free_many(heap, class, blocks, count);
    }
}

static uint32_t capacity_of(struct hak_heap *heap, uint32_t class) { return heap->classes[class].capacity; }

/* --- the stack ------------------------------------------------------------------------------------------------------ */

static void stack(void **state)
{
    void *slots[5] = { NULL };
    int things[4];
    struct hak_bin bin = { slots + 1, slots + 5 };
    (void)state;
    expect(hak__cache_pop(&bin) == NULL);
    for (unsigned i = 0; i < 4; i++)
        expect(hak__cache_push(&bin, &things[i]));
    expect(!hak__cache_push(&bin, &things[0]));
    for (unsigned i = 4; i-- > 0;)
        expect_ptr(hak__cache_pop(&bin), &things[i]);
    expect(hak__cache_pop(&bin) == NULL);
    expect_ptr(bin.top, slots + 1);
}

/* A closed bin is empty to a pop and full to a push, without any test of its own. */
static void closed_record(void **state)
{
    int thing;
    struct hak_bin bin = { HAK_CLOSED_TOP, HAK_CLOSED_TOP };
    (void)state;
    expect(hak__cache_pop(&bin) == NULL);
    expect(!hak__cache_push(&bin, &thing));
}

/* --- opening and refill ------------------------------------------------------------------------------------------- */

/* A class is closed just when it caches nothing yet, which only blocks too big for a start without use do, or when its
 * blocks are kept by large_cache.c. */
FRESH_TEST(opened)
{
    (void)argument;
    struct hak_heap *heap = start();
    expect_heap_valid(heap);
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        expect_eq(heap->closed_reasons[c], (capacity_of(heap, c) == 0 ? HAK_CLOSED_UNCACHED : 0)
                                                      | (hak__is_large(c) ? HAK_CLOSED_LARGE : 0));
        expect(capacity_of(heap, c) != 0 || c > HAK_CLASS_TINY_LAST);
        expect(hak__is_large(c) || capacity_of(heap, c) * (size_t)hak__classes[c].size <= 1 << 20);
        expect_eq(hak__cache_count(heap, c), 0);
        expect(hak__cache_pop(&heap->bins[c]) == NULL);
    }
    for (uint32_t code = HAK_CLASSES; code < HAK_CLASS_LIMIT; code++)
        expect(!hak__cache_push(&heap->bins[code], blocks));
}

FRESH_TEST(options_set_ceilings)
{
    (void)argument;
    heaps_start();
    set("tiny_unified_c3", "7");
    set("tiny_unified_c7", "0");
    set("l2_ring_cap", "5");
    set("l25_ring_cap", "0");
    struct hak_heap *heap = heap_open(0);
    expect_eq(heap->classes[CLASS_64].ceiling, 7);
    expect_eq(capacity_of(heap, CLASS_64), 7);
    expect_eq(heap->classes[CLASS_2048].ceiling, 5);
    expect_eq(heap->closed_reasons[CLASS_1024], HAK_CLOSED_UNCACHED);
    expect(heap->closed_reasons[HAK_CLASS_FIRST_LARGE] != 0);
    expect_eq(heap->closed_reasons[CLASS_64], 0);
    expect_heap_valid(heap);
}

/* The presets are the ceilings of the classes of each band; fixed, they are the capacities as well. */
FRESH_TEST(presets_fixed)
{
    (void)argument;
    heaps_start();
    set("preset", "hot_2048");
    set("ring_adapt", "0");
    set("thread_budget", "64M");
    set("l25_ring_cap", "2");
    struct hak_heap *heap = heap_open(0);
    expect_eq(capacity_of(heap, CLASS_16), 64);
    expect_eq(capacity_of(heap, CLASS_32), 2048);
    expect_eq(capacity_of(heap, CLASS_64), 2048);
    expect_eq(capacity_of(heap, CLASS_1024), 64);
    expect_eq(capacity_of(heap, CLASS_2048), 48);
    expect_heap_valid(heap);
    churn(heap, CLASS_16, 500, 20);
    expect_eq(capacity_of(heap, CLASS_16), 64);
}

FRESH_TEST(fixed_within_the_budget)
{
    (void)argument;
    heaps_start();
    set("ring_adapt", "0");
    set("thread_budget", "100K");
    struct hak_heap *heap = heap_open(0);
    expect_eq(capacity_of(heap, CLASS_16), 4096);
    expect_op(heap->budget.bytes, <=, 100 << 10);
    expect_heap_valid(heap);
}

/* Local slots: exactly those of the band asked for, 64 at once and never more, in the struct; the others work on. */
FRESH_TEST(local_slots)
{
    (void)argument;
    heaps_start();
    for (int band = 2; band <= 6; band++) {
        char name[] = "tiny_cN_local_cache";
        name[6] = (char)('0' + band);
        set(name, "1");
        struct hak_heap *heap = heap_open(0);
        for (uint32_t c = 0; c < HAK_CLASSES; c++) {
            const char *bottom = (const char *)heap->classes[c].bottom;
            bool local = c <= HAK_CLASS_TINY_LAST && (int)hak__band_of(c) == band;
            bool inside = bottom >= (char *)heap->local_slots && bottom < (char *)heap->local_slots + sizeof heap->local_slots;
            expect_eq(inside, local);
            expect(!local || capacity_of(heap, c) == HAK_LOCAL_SLOTS);
        }
        for (uint32_t c = 0; c <= HAK_CLASS_LOCAL_LAST + 1; c++)
            churn(heap, c, 700, 6);
        expect_eq(capacity_of(heap, CLASS_32), band == 2 ? HAK_LOCAL_SLOTS : 1024);
        set(name, "0");
        hak__cache_flush(heap);
    }
}

/* A thread that ends leaves a few blocks of its own, those that it freed last; of larger classes, and of others', none. */
FRESH_TEST(what_is_left)
{
    (void)argument;
    struct hak_heap *heap = start(), *other = heap_open(0);
    heap_malloc_many(heap, CLASS_64, blocks, 100);
    heap_free_many(heap, CLASS_64, blocks, 100);
    void *last = blocks[99];
    heap_malloc_many(heap, CLASS_1024, blocks, 8);
    heap_free_many(heap, CLASS_1024, blocks, 8);
    heap_free(heap, CLASS_LARGER, heap_malloc(heap, CLASS_LARGER));
    void *foreign = heap_malloc(other, CLASS_2048);
    heap_free(heap, CLASS_2048, heap_malloc(heap, CLASS_2048));
    expect(heap_absorb(heap, CLASS_2048, foreign));
    hak__cache_leave(heap, HAK_LEFT_AT_END);
    expect_eq(hak__cache_count(heap, CLASS_64), 16);
    expect_eq(hak__cache_count(heap, CLASS_1024), 4);
    expect_eq(hak__cache_count(heap, CLASS_2048), 0);
    expect_eq(hak__cache_count(heap, CLASS_LARGER), 0);
    expect_eq(heap->left, HAK_LEFT_NOW);
    expect_ptr(heap_malloc(heap, CLASS_64), last);
    heap_free(heap, CLASS_64, last);
    expect_heap_valid(heap);
    hak__cache_flush(heap);
    expect_eq(hak__cache_count(heap, CLASS_64), 0);
    expect_eq(heap->left, HAK_LEFT_NOTHING);
    expect_eq(heap_live(heap, CLASS_64) + heap_live(heap, CLASS_1024), 0);
}

FRESH_TEST(process_budget)
{
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0), *other = heap_open(0);
    size_t first = hak__cache_process_bytes();
    expect_eq(first, heap->budget.process_bytes + other->budget.process_bytes);
    set("process_budget", "1");
    churn(heap, CLASS_64, 500, 20);
    expect_eq(capacity_of(heap, CLASS_64), 16);
    set("process_budget", "64M");
    heap->budget.pause = 0;
    churn(heap, CLASS_64, 500, 20);
    expect_op(capacity_of(heap, CLASS_64), >=, 256);
    expect_eq(hak__cache_process_bytes(), heap->budget.process_bytes + other->budget.process_bytes);
    hak__cache_flush(heap);
    hak__cache_park(heap);
    expect_eq(hak__cache_process_bytes(), other->budget.process_bytes);
    expect(hak__heap_lock(heap));
    hak__cache_take_up(heap);
    hak__cache_unpark(heap);
    hak__heap_unlock(heap);
    expect_op(capacity_of(heap, CLASS_64), >=, 256);
    hak__cache_park(heap);
    set("process_budget", "1");
    expect(hak__heap_lock(heap));
    hak__cache_take_up(heap);
    hak__cache_unpark(heap);   /* the budget went elsewhere: it begins anew */
    hak__heap_unlock(heap);
    expect_eq(capacity_of(heap, CLASS_64), 16);
    expect_eq(hak__cache_process_bytes(), first);
    expect_heap_valid(heap);
}

FRESH_TEST(refills_ascend)
{
    (void)argument;
    struct hak_heap *heap = start();
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        uint32_t batch = 0;
        char *first = hak__cache_refill(heap, c), *before = first, *block;
        for (; (block = hak__cache_pop(&heap->bins[c])) != NULL; before = block, batch++)
            expect(block > before);
        expect_op(batch + 1, <=, hak_max(1, hak_min(hak__classes[c].batch, capacity_of(heap, c))));
        expect_eq(hak_counted(&heap->classes[c].refilled), batch + 1);
        expect_eq(hak_counted(&heap->classes[c].misses), 1);
        expect_heap_valid(heap);
    }
}

FRESH_TEST(refill_count_is_obeyed)
{
    (void)argument;
    struct hak_heap *heap = start();
    set("refill_count", "3");
    hak__experiments_open(heap);
    hak__cache_refill(heap, CLASS_64);
    expect_eq(hak__cache_count(heap, CLASS_64), 2);
    set("refill_count", "1");
    hak__experiments_open(heap);
    hak__cache_refill(heap, CLASS_32);
    expect_eq(hak__cache_count(heap, CLASS_32), 0);
}

/* --- growth ---------------------------------------------------------------------------------------------------------- */

FRESH_TEST(doubles_up_to_the_ceiling)
{
    (void)argument;
    struct hak_heap *heap = start();
    uint32_t before = capacity_of(heap, CLASS_16), ceiling = heap->classes[CLASS_16].ceiling;
    for (unsigned round = 0; round < 12; round++) {
        heap_malloc_many(heap, CLASS_16, blocks, 4000);
        for (uint32_t i = 0; i < 4000; i++) {
            heap_free(heap, CLASS_16, blocks[i]);
            uint32_t now = capacity_of(heap, CLASS_16);
            expect(now == before || now == hak_min(2u * before, ceiling));
            before = now;
        }
        expect_heap_valid(heap);
    }
    expect_eq(before, ceiling);
    expect_eq(heap_live(heap, CLASS_16), 0);
}

/* A class that only allocates would learn nothing by growing. */
FRESH_TEST(no_growth_without_frees)
{
    (void)argument;
    struct hak_heap *heap = start();
    uint32_t before = capacity_of(heap, CLASS_64);
    heap_malloc_many(heap, CLASS_64, blocks, MANY);
    expect_eq(capacity_of(heap, CLASS_64), before);
}

FRESH_TEST(nothing_is_lost_by_growing)
{
    (void)argument;
    struct hak_heap *heap = start();
    heap_malloc_many(heap, CLASS_32, blocks, 3000);
    for (uint32_t i = 0; i < 3000; i++)
        memory_fill(blocks[i], 32, i);
    for (uint32_t i = 0; i < 3000; i += 2)
        heap_free(heap, CLASS_32, blocks[i]);
    expect_heap_valid(heap);
    for (uint32_t i = 1; i < 3000; i += 2)
        expect(memory_holds(blocks[i], 32, 32, i));
    for (uint32_t i = 0; i < 3000; i += 2) {
        blocks[i] = heap_malloc(heap, CLASS_32);
        memory_fill(blocks[i], 32, i);
    }
    for (uint32_t i = 0; i < 3000; i++)
        expect(memory_holds(blocks[i], 32, 32, i));   /* no block twice */
}

static size_t bytes_by_capacity(struct hak_heap *heap, struct hak_heap *untouched)
{
    size_t bytes = 0;
    for (uint32_t c = 0; c < HAK_CLASSES; c++)
        bytes += (capacity_of(heap, c) - capacity_of(untouched, c)) * (size_t)hak__classes[c].size;
    return bytes;
}

/* What the heap's spans of blocks up to the mid pool hold. */
static size_t bytes_in_spans(struct hak_heap *heap)
{
    size_t slabs = 0;
    for (uint32_t c = 0; c < HAK_CLASS_FIRST_LARGE; c++)
        slabs += (size_t)hak_counted(&heap->classes[c].span_count) * hak__classes[c].slabs;
    return slabs * HAK_SLAB_SIZE;
}

/* What the records have grown by never exceeds the budget and its share of the most that the spans have held, whatever the classes
 * want. */
FRESH_TEST(budget_holds)
{
    size_t held = 0;
    (void)argument;
    heaps_start();
    set("thread_budget", "200K");
    struct hak_heap *heap = heap_open(0), *untouched = heap_open(0);
    for (unsigned round = 0; round < 3; round++)
        for (uint32_t c = 0; c < HAK_CLASSES; c++) {
            uint32_t count = (uint32_t)hak_min(2000, (1 << 20) / hak__classes[c].size);
            heap_malloc_many(heap, c, blocks, count);
            held = hak_max(held, bytes_in_spans(heap));
            heap_free_many(heap, c, blocks, count);
            churn(heap, c, count, 2);
            expect_op(bytes_by_capacity(heap, untouched), <=, (200 << 10) + held * HAK_BUDGET_SHARE / 100);
        }
    expect_op(bytes_by_capacity(heap, untouched), >, 50 << 10);
    set("thread_budget", "0");
    struct hak_heap *poor = heap_open(0);
    churn(poor, CLASS_64, 2000, 4);
    expect_eq(bytes_by_capacity(poor, untouched), 0);
}

/* A thread that holds much may cache a share of it. */
FRESH_TEST(share_adds_to_the_budget)
{
    enum { CLASS_16K = HAK_CLASS_16384, FEW = 24, BLOCKS = 400, SIZE = 16 << 10 };
    (void)argument;
    heaps_start();
    set("thread_budget", "256K");
    set("l2_ring_cap", "256");
    struct hak_heap *heap = heap_open(0), *untouched = heap_open(0);
    churn(heap, CLASS_16K, FEW, 40);
    expect_op(bytes_by_capacity(heap, untouched), >, 128 << 10);
    expect_op(bytes_by_capacity(heap, untouched), <=, (256 << 10) + FEW * SIZE * HAK_BUDGET_SHARE / 100);
    for (unsigned round = 0; round < 40; round++)   /* a refused growth is not asked for again at once */
        churn(heap, CLASS_16K, BLOCKS, 8);
    expect_op(bytes_by_capacity(heap, untouched), >, 1 << 20);
    expect_op(bytes_by_capacity(heap, untouched), <=, (256 << 10) + BLOCKS * SIZE * HAK_BUDGET_SHARE / 100);
    expect_heap_valid(heap);
}

/* A class that has gone quiet gives its capacity up for one that needs it. */
FRESH_TEST(idle_classes_are_reclaimed)
{
    (void)argument;
    heaps_start();
    set("thread_budget", "64K");
    struct hak_heap *heap = heap_open(0);
    churn(heap, CLASS_64, 3000, 8);
    uint32_t grown = capacity_of(heap, CLASS_64);
    expect_op(grown * 64, >, 30 << 10);
    churn(heap, CLASS_32, 4000, 20);
    expect_op(capacity_of(heap, CLASS_64), <, grown);
    expect_op(capacity_of(heap, CLASS_32) * 32, >=, 16 << 10);
    expect_heap_valid(heap);
}

/* Capacity wanders between classes for as long as a thread lives; that must not use the slot area up. */
FRESH_TEST(slots_are_reused)
{
    static const uint32_t classes[] = { CLASS_64, CLASS_2048, 28, 33 };   /* also capacities that are no powers of two */
    (void)argument;
    heaps_start();
    set("thread_budget", "256K");
    struct hak_heap *heap = heap_open(0);
    void **settled = NULL;
    for (unsigned round = 0; round < 120; round++) {
        churn(heap, classes[round % 4], 300, 6);
        if (round == 60)
            settled = heap->slots.next;
    }
    expect_ptr(heap->slots.next, settled);
}

/* --- drain ---------------------------------------------------------------------------------------------------------- */

FRESH_TEST(oldest_half_is_drained)
{
    (void)argument;
    heaps_start();
    set("tiny_unified_c3", "8");
    struct hak_heap *heap = heap_open(0);
    heap_malloc_many(heap, CLASS_64, blocks, 16);
    hak__cache_flush(heap);
    for (unsigned i = 0; i < 8; i++)
        heap_free(heap, CLASS_64, blocks[i]);
    expect_eq(hak__cache_count(heap, CLASS_64), 8);
    uint64_t drained = hak_counted(&heap->classes[CLASS_64].drained);
    heap_free(heap, CLASS_64, blocks[8]);
    expect_eq(hak__cache_count(heap, CLASS_64), 5);
    expect_eq(hak_counted(&heap->classes[CLASS_64].drained), drained + 4);
    for (unsigned i = 8; i >= 4; i--)
        expect_ptr(hak__cache_pop(&heap->bins[CLASS_64]), blocks[i]);   /* the newest are still there */
    expect_heap_valid(heap);
}

FRESH_TEST(drain_counts)
{
    (void)argument;
    struct hak_heap *heap = start();
    hak__cache_drain(heap, CLASS_64, 5, "free");
    hak__cache_refill(heap, CLASS_64);
    uint32_t held = hak__cache_count(heap, CLASS_64);
    hak__cache_drain(heap, CLASS_64, 3, "free");
    expect_eq(hak__cache_count(heap, CLASS_64), held - 3);
    hak__cache_drain(heap, CLASS_64, 1000, "free");
    expect_eq(hak__cache_count(heap, CLASS_64), 0);
    expect_heap_valid(heap);
}

FRESH_TEST(flush_leaves_nothing)
{
    (void)argument;
    struct hak_heap *heap = start(), *other = heap_open(0);
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        void *mine = heap_malloc(heap, c), *theirs = heap_malloc(other, c);
        heap_free(heap, c, mine);
        heap_free_remote(heap, theirs);
    }
    hak__cache_flush(heap);
    for (uint32_t c = 0; c < HAK_CLASSES; c++)
        expect_eq(hak__cache_count(heap, c), 0);
    hak__heap_collect(other);
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        expect_eq(heap_live(heap, c) + heap_live(other, c), 0);
        blocks[c] = heap_malloc(heap, c);   /* and the heap goes on working */
    }
    expect_heap_valid(heap);
    expect_heap_valid(other);
}

/* --- blocks of other heaps that are kept ----------------------------------------------------------------------------- */

FRESH_TEST(absorbed_blocks_return_to_their_heap)
{
    (void)argument;
    struct hak_heap *heap = start(), *other = heap_open(0);
    heap_free(heap, CLASS_64, heap_malloc(heap, CLASS_64));   /* the thread allocates of this class itself */
    while (hak__cache_pop(&heap->bins[CLASS_64]) != NULL)
        continue;
    uint64_t refilled = hak_counted(&heap->classes[CLASS_64].refilled);
    unsigned count = 0;
    heap_malloc_many(other, CLASS_64, blocks, 64);
    while (count < 64 && heap_absorb(heap, CLASS_64, blocks[count]))
        count++;
    expect_op(count, >, 0);
    expect_op(count, <=, capacity_of(heap, CLASS_64) / 2);
    expect_heap_valid(heap);
    expect_ptr(heap_malloc(heap, CLASS_64), blocks[count - 1]);
    expect_eq(hak_counted(&heap->classes[CLASS_64].refilled), refilled);
    heap_free(heap, CLASS_64, blocks[count - 1]);
    hak__cache_flush(heap);
    hak__heap_collect(other);
    expect_eq(hak_counted(&other->classes[CLASS_64].collected), count);
    expect_heap_valid(heap);
    expect_heap_valid(other);
}

/* Empties a bin that has become deep, and gives the number of another heap's blocks that it takes in then. */
static uint32_t absorbed_by_deep(struct hak_heap *heap, struct hak_heap *other, uint32_t class)
{
    uint32_t count = 0;
    churn(heap, class, 3000, 8);
    expect_op(capacity_of(heap, class) / 2, >, HAK_ABSORB_MOST);
    while (hak__cache_pop(&heap->bins[class]) != NULL)
        continue;
    heap_malloc_many(other, class, blocks, capacity_of(heap, class));
    while (count < capacity_of(heap, class) && heap_absorb(heap, class, blocks[count]))
        count++;
    expect_heap_valid(heap);
    return count;
}

/* A thread that has enough of its own sends others' small blocks home, however deep its bin has become. */
FRESH_TEST(deep_records_absorb_few_small_blocks)
{
    (void)argument;
    struct hak_heap *heap = start(), *other = heap_open(0);
    for (uint32_t c = CLASS_64; c <= HAK_CLASS_TINY_LAST; c++) {
        bool small = hak__classes[c].size <= HAK_ABSORB_SMALL;
        uint32_t count = absorbed_by_deep(heap, other, c);
        expect_eq(count, small ? HAK_ABSORB_MOST : capacity_of(heap, c) / 2);
    }
}

/* Capacity may be reclaimed to nothing. A closed bin then takes nothing in, wherever its top happens to lie: the
 * comparison with the limit alone would write over the closed bin in programs whose constants lie below the heap. */
FRESH_TEST(closed_classes_absorb_nothing)
{
    enum { CLASS_40K = HAK_CLASS_41088 };
    (void)argument;
    heaps_start();
    set("thread_budget", "200K");
    struct hak_heap *heap = heap_open(0), *other = heap_open(0);
    churn(heap, CLASS_40K, 20, 4);
    expect_eq(heap->closed_reasons[CLASS_40K], 0);
    for (unsigned round = 0; round < 40 && heap->closed_reasons[CLASS_40K] == 0; round++)
        churn(heap, CLASS_64 + round % 8, 3000, 4);
    expect_eq(heap->closed_reasons[CLASS_40K], HAK_CLOSED_UNCACHED);
    expect(heap->absorb[CLASS_40K] == 0);
    expect(!heap_absorb(heap, CLASS_40K, heap_malloc(other, CLASS_40K)));
    expect_heap_valid(heap);
}

/* Blocks that lie several to a cache line stay with the thread that has the line's others. */
FRESH_TEST(parts_of_a_line_are_not_absorbed)
{
    (void)argument;
    struct hak_heap *heap = start(), *other = heap_open(0);
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        size_t size = hak__classes[c].size;
        heap_free(heap, c, heap_malloc(heap, c));
        while (hak__cache_pop(&heap->bins[c]) != NULL)
            continue;
        void *block = heap_malloc(other, c);
        if (size < 64)
            expect(!heap_absorb(heap, c, block));
    }
}

/* --- random operations ------------------------------------------------------------------------------------------------ */

enum { SLOTS = 2000 };

static struct {
    void *block;
    uint32_t class;
} slots[SLOTS];

FRESH_TEST(random_operations)
{
    struct rng rng = { 8 };
    (void)argument;
    heaps_start();
    set("thread_budget", "128K");
    struct hak_heap *heap = heap_open(0);
    for (unsigned step = 0; step < 40000; step++) {
        unsigned i = (unsigned)rng_below(&rng, SLOTS);
        if (slots[i].block == NULL) {
            slots[i].class = (uint32_t)rng_below(&rng, step / 8000 % 2 ? 4 : 36);
            slots[i].block = heap_malloc(heap, slots[i].class);
            memory_fill(slots[i].block, 16, i);
        } else {
            expect(memory_holds(slots[i].block, 16, 16, i));
            heap_free(heap, slots[i].class, slots[i].block);
            slots[i].block = NULL;
        }
        if (step % 512 == 0)
            expect_heap_valid(heap);
        if (step % 5000 == 0)
            hak__cache_flush(heap);
    }
    uint64_t held = 0;
    for (unsigned i = 0; i < SLOTS; i++)
        held += slots[i].block != NULL;
    expect_eq(heap_live_of_all_classes(heap), held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stack),
        cmocka_unit_test(closed_record),
        cmocka_unit_test(opened),
        cmocka_unit_test(options_set_ceilings),
        cmocka_unit_test(presets_fixed),
        cmocka_unit_test(fixed_within_the_budget),
        cmocka_unit_test(local_slots),
        cmocka_unit_test(what_is_left),
        cmocka_unit_test(process_budget),
        cmocka_unit_test(refills_ascend),
        cmocka_unit_test(refill_count_is_obeyed),
        cmocka_unit_test(doubles_up_to_the_ceiling),
        cmocka_unit_test(no_growth_without_frees),
        cmocka_unit_test(nothing_is_lost_by_growing),
        cmocka_unit_test(budget_holds),
        cmocka_unit_test(share_adds_to_the_budget),
        cmocka_unit_test(idle_classes_are_reclaimed),
        cmocka_unit_test(slots_are_reused),
        cmocka_unit_test(oldest_half_is_drained),
        cmocka_unit_test(drain_counts),
        cmocka_unit_test(flush_leaves_nothing),
        cmocka_unit_test(absorbed_blocks_return_to_their_heap),
        cmocka_unit_test(deep_records_absorb_few_small_blocks),
        cmocka_unit_test(closed_classes_absorb_nothing),
        cmocka_unit_test(parts_of_a_line_are_not_absorbed),
        cmocka_unit_test(random_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
