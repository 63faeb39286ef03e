/* cache/large_cache.c: a large block that was freed serves the next request of its class or of a smaller one of which it fills
 * no more than twice the size; bytes are bounded over all classes together, by the budget, the share, and the most that
 * was in use; the oldest go first; a block of another class makes room before the heap grows; what is not touched between
 * two looks goes back; a block freed by another thread does not count as in use for good. */
#include "cache/cache.h"

#include "arena/returned.h"
#include "base/bits.h"
#include "cache/large_cache.h"
#include "diag/options.h"
#include "os/os.h"
#include "support/figures.h"
#include "support/heaps.h"

enum { CLASS_64K = HAK_CLASS_FIRST_LARGE, CLASS_128K = HAK_CLASS_131072, CLASS_512K = HAK_CLASS_524288, CLASS_640K = HAK_CLASS_655360, CLASS_1M = HAK_CLASSES - 1, MANY = 64 };

static void *blocks[MANY];

static struct hak_heap *start(void)
{
    heaps_start();
    return heap_open(0);
}

static void set(const char *name, const char *value) { expect_eq(hak__option_set(name, value), 0); }

/* A heap whose thread may keep 2 MiB when nothing else is in use: a third of that is the share of what it holds. */
static struct hak_heap *start_with_2m(void)
{
    heaps_start();
    set("thread_budget", "1405109");
    expect_eq(hak__option(HAK_OPTION_thread_budget) + hak__retain_share(2 << 20), 2 << 20);
    return heap_open(0);
}

static uint32_t kept(struct hak_heap *heap, uint32_t class) { return hak__cache_count(heap, class); }

/* What is not resident does not count. */
static void touch(uint32_t class, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        for (size_t at = 0; at < hak__classes[class].size; at += MEMORY_STEP)
            ((char *)blocks[i])[at] = 1;
}

/* The one that was freed last comes first, and no span ends or begins meanwhile. */
FRESH_TEST(last_freed_first)
{
    (void)argument;
    struct hak_heap *heap = start();
    for (uint32_t c = CLASS_64K; c < HAK_CLASSES; c++) {
        heap_malloc_many(heap, c, blocks, 2);
        void *first = blocks[0], *second = blocks[1];
        heap_free_many(heap, c, blocks, 2);
        uint64_t misses = hak_counted(&heap->classes[c].misses), drained = hak_counted(&heap->classes[c].drained);
        expect_ptr(heap_malloc(heap, c), second);
        expect_ptr(heap_malloc(heap, c), first);
        expect_eq(hak_counted(&heap->classes[c].misses), misses);
        expect_eq(hak_counted(&heap->classes[c].drained), drained);
        heap_free_many(heap, c, blocks, 2);
        hak__cache_flush(heap);
        expect_eq(heap->large_cache.bytes, 0);
        expect_eq(heap_live(heap, c), 0);
        expect_heap_valid(heap);
    }
    expect_eq(heap->large_out, 0);
}

/* Whatever is cached serves just those requests that fill more than half of it; single-block spans those of their kind. */
FRESH_TEST(near_classes_serve)
{
    (void)argument;
    struct hak_heap *heap = start();
    for (uint32_t c = CLASS_64K; c < HAK_CLASSES; c++) {
        for (uint32_t wanted = CLASS_64K; wanted < HAK_CLASSES; wanted++) {
            void *block = heap_malloc(heap, c);
            heap_free(heap, c, block);
            bool single = hak__classes[c].blocks == 1, alike = single || hak__classes[wanted].blocks != 1;
            bool serves = wanted == c || (wanted < c && wanted + 3 >= c && alike);
            void *got = hak__large_cache_pop_near(heap, wanted);
            expect_ptr(got, serves ? block : NULL);
            /* the smallest request of the class is what realloc and sized frees would leave in such a block */
            expect(!serves || hak__classes[wanted - 1].size + 1 > hak__classes[c].size / 2);
            expect_heap_valid(heap);
            if (serves)
                heap_free(heap, c, block);
            hak__cache_flush(heap);
        }
    }
}

FRESH_TEST(nearest_class_serves)
{
    (void)argument;
    struct hak_heap *heap = start();
    void *larger = heap_malloc(heap, CLASS_640K), *same = heap_malloc(heap, CLASS_512K);
    heap_free(heap, CLASS_640K, larger);
    heap_free(heap, CLASS_512K, same);
    expect_ptr(hak__large_cache_pop_near(heap, CLASS_512K), same);
    expect_ptr(hak__large_cache_pop_near(heap, CLASS_512K), larger);
    expect(hak__large_cache_pop_near(heap, CLASS_512K) == NULL);
    heap_free(heap, CLASS_512K, same);
    heap_free(heap, CLASS_640K, larger);
}

/* With nothing in use any more no more than the budget is kept, and a share of what is there when the last block comes; the blocks that
 * were freed last. */
FRESH_TEST(bytes_are_bounded)
{
    (void)argument;
    struct hak_heap *heap = start_with_2m();
    size_t budget = hak__option(HAK_OPTION_thread_budget);
    for (uint32_t c = CLASS_64K; c < HAK_CLASSES; c++) {
        heap_malloc_many(heap, c, blocks, 20);
        touch(c, 20);
        heap_free_many(heap, c, blocks, 20);
        expect_op(heap->large_cache.bytes, <=, budget + hak__retain_share(heap->large_cache.bytes + hak__classes[c].size));
        expect_op(heap->large_cache.bytes + hak__classes[c].size, >, hak_min(16 * hak__classes[c].size, 2 << 20));
        expect_ptr(heap_malloc(heap, c), blocks[19]);
        heap_free(heap, c, blocks[19]);
    }
    set("thread_budget", "0");
    heap->large_cache.sure = 0;
    heap_malloc_many(heap, CLASS_128K, blocks, 3);
    heap_free_many(heap, CLASS_128K, blocks, 3);
    hak__cache_flush(heap);
    heap_malloc_many(heap, CLASS_128K, blocks, 3);
    heap_free_many(heap, CLASS_128K, blocks, 3);
    expect_eq(heap->large_cache.bytes, 0);
}

/* A thread with much in use may keep more, but no more than it has had in use lately and the share of that. */
FRESH_TEST(share_follows_what_is_in_use)
{
    (void)argument;
    heaps_start();
    set("thread_budget", "1M");
    struct hak_heap *heap = heap_open(0);
    heap_malloc_many(heap, CLASS_1M, blocks, MANY);
    touch(CLASS_1M, MANY);
    for (uint32_t i = 0; i < 12; i++)
        heap_free(heap, CLASS_1M, blocks[i]);
    expect_eq(kept(heap, CLASS_1M), 12);
    for (uint32_t i = 12; i < MANY; i++) {
        heap_free(heap, CLASS_1M, blocks[i]);
        size_t used = heap->large_out - heap->large_cache.bytes;
        expect_op(heap->large_cache.bytes, <=, (1 << 20) + (used + heap->large_cache.bytes) / 3 + (1 << 20));
        expect_op(heap->large_cache.bytes + used, <=, ((size_t)MANY << 20) * 4 / 3 + (1 << 20));
    }
    expect_op(kept(heap, CLASS_1M), <=, 3);
    expect_heap_valid(heap);
}

/* Allocates and frees 16 blocks at a time, written to or not. */
static void replace(struct hak_heap *heap, uint32_t rounds, bool touched)
{
    while (rounds-- > 0) {
        heap_malloc_many(heap, CLASS_512K, blocks, 16);
        if (touched)
            touch(CLASS_512K, 16);
        heap_free_many(heap, CLASS_512K, blocks, 16);
    }
}

/* Blocks of which nothing is resident may be kept up to four times as many, until they are written to. */
FRESH_TEST(resident_bytes_count)
{
    (void)argument;
    struct hak_heap *heap = start_with_2m();
    for (uint32_t round = 0; round < 8; round++) {
        replace(heap, 1, false);
        expect_op(heap->large_cache.bytes, <=, 8 << 20);
        expect_heap_valid(heap);
    }
    expect_op(kept(heap, CLASS_512K), >, 8);
    replace(heap, 128, true);
    expect_op(kept(heap, CLASS_512K), <=, 4);
    expect_heap_valid(heap);
}

/* Of a thread that has freed many no further block is looked at, however many more would be kept than may be; looks for
 * old ones go on until nothing is a surprise, and then one in four. */
FRESH_TEST(looks_end)
{
    (void)argument;
    struct hak_heap *heap = start_with_2m();
    replace(heap, 600, false);
    uint64_t looks = atomic_load(&hak__os_calls[HAK_OS_LOOK]);
    uint32_t purged_mapped = heap->large_cache.absent_share;
    expect_op(looks, >, 0);
    replace(heap, 64, true);
    expect_eq(atomic_load(&hak__os_calls[HAK_OS_LOOK]), looks);
    expect_eq(heap->large_cache.absent_share, purged_mapped);
    for (uint32_t round = 0; round < 16; round++) {
        replace(heap, 1, false);
        hak__large_cache_age(heap);
        if (round == 4)   /* as many as were surprises */
            expect_op(heap->large_cache.absent_share, <, purged_mapped / 2);
    }
    expect_op(atomic_load(&hak__os_calls[HAK_OS_LOOK]), >=, looks + 6);
    expect_op(atomic_load(&hak__os_calls[HAK_OS_LOOK]), <=, looks + 9);
    expect_op(heap->large_cache.absent_share, <, purged_mapped / 4);
    replace(heap, 1, false);
    expect_op(kept(heap, CLASS_512K), <=, 5);
    expect_heap_valid(heap);
}

/* Of several classes the block that was freed first goes first. */
FRESH_TEST(oldest_go_first)
{
    (void)argument;
    struct hak_heap *heap = start_with_2m();
    void *a = heap_malloc(heap, CLASS_512K), *b = heap_malloc(heap, CLASS_1M), *c = heap_malloc(heap, CLASS_512K);
    void *d = heap_malloc(heap, CLASS_512K);
    blocks[0] = d;
    touch(CLASS_512K, 1);
    heap_free(heap, CLASS_512K, a);
    heap_free(heap, CLASS_1M, b);
    heap_free(heap, CLASS_512K, c);
    expect_eq(heap->large_cache.bytes, 2 << 20);
    heap_free(heap, CLASS_512K, d);   /* instead of a */
    expect_eq(kept(heap, CLASS_512K), 2);
    expect_eq(kept(heap, CLASS_1M), 1);
    expect_ptr(heap_malloc(heap, CLASS_512K), d);
    expect_ptr(heap_malloc(heap, CLASS_512K), c);
    heap_free(heap, CLASS_512K, c);
    heap_free(heap, CLASS_512K, d);
    expect_heap_valid(heap);
}

/* Blocks are given up before the heap grows by another SuperSlab. */
FRESH_TEST(large_cache_blocks_make_room)
{
    struct arena_figures before, after;
    (void)argument;
    struct hak_heap *heap = start();
    heap_malloc_many(heap, CLASS_512K, blocks, 4);   /* one SuperSlab */
    arena_figures(&before);
    heap_free_many(heap, CLASS_512K, blocks, 3);
    expect_eq(kept(heap, CLASS_512K), 3);
    void *other = heap_malloc(heap, CLASS_1M);
    arena_figures(&after);
    expect_eq(after.taken, before.taken);
    expect_op(kept(heap, CLASS_512K), <=, 1);
    heap_free(heap, CLASS_1M, other);
    heap_free(heap, CLASS_512K, blocks[3]);
    expect_heap_valid(heap);
}

/* The first look notes what is there, the second gives back what has not moved since. */
FRESH_TEST(what_is_not_touched_goes_back)
{
    (void)argument;
    struct hak_heap *heap = start();
    heap_malloc_many(heap, CLASS_128K, blocks, 4);
    void *late = blocks[3];
    heap_free_many(heap, CLASS_128K, blocks, 3);
    hak__large_cache_age(heap);
    expect_eq(kept(heap, CLASS_128K), 3);
    heap_free(heap, CLASS_128K, late);
    hak__large_cache_age(heap);
    expect_eq(kept(heap, CLASS_128K), 1);
    expect_ptr(heap_malloc(heap, CLASS_128K), late);
    heap_free(heap, CLASS_128K, late);
    hak__large_cache_age(heap);
    hak__large_cache_age(heap);
    expect_eq(heap->large_cache.bytes, 0);
    expect_eq(heap->large_cache.charged, 0);
    expect_heap_valid(heap);
}

/* A sweeper gets the blocks of an owner that has not come by since it was asked, and not before 10 ms are over. */
FRESH_TEST(a_silent_owner_is_relieved)
{
    (void)argument;
    struct hak_heap *heap = start();
    struct hak_large_cache *cache = &heap->large_cache;
    heap_malloc_many(heap, CLASS_128K, blocks, 4);
    heap_free_many(heap, CLASS_128K, blocks, 3);
    expect(!hak__large_cache_reclaim(heap, 1000, true));    /* it asks; nobody has before */
    expect(!hak__large_cache_reclaim(heap, 1009, false));
    expect_eq(hak__large_cache_begin(cache), 0);
    expect(!hak__large_cache_is_busy(cache));
    heap_free(heap, CLASS_128K, blocks[3]);                 /* it comes by */
    uint32_t turns = hak__large_cache_begin(cache);
    expect(turns != 0);
    hak__large_cache_end(cache, turns);
    expect(!hak__large_cache_reclaim(heap, 1020, false));
    expect_eq(kept(heap, CLASS_128K), 4);
    expect(hak__large_cache_reclaim(heap, 1030, false));
    expect_eq(kept(heap, CLASS_128K), 0);
    expect_eq(cache->bytes, 0);
    expect_heap_valid(heap);
}

/* Nor of one that is interrupted inside; the invariants are not looked at meanwhile. The time is counted modulo 2^32. */
FRESH_TEST(an_owner_inside_is_left_alone)
{
    (void)argument;
    struct hak_heap *heap = start();
    struct hak_large_cache *cache = &heap->large_cache;
    heap_malloc_many(heap, CLASS_128K, blocks, 2);
    heap_free_many(heap, CLASS_128K, blocks, 2);
    uint32_t turns = hak__large_cache_begin(cache);
    expect(turns != 0);
    size_t bytes = cache->bytes;
    cache->bytes = 1;
    expect(hak__large_cache_is_valid(heap));
    cache->bytes = bytes;
    expect(!hak__large_cache_reclaim(heap, 1ull << 32, false));
    expect(!hak__large_cache_reclaim(heap, (1ull << 32) + 100, true));
    expect_eq(kept(heap, CLASS_128K), 2);
    hak__large_cache_end(cache, turns);
    expect(hak__large_cache_reclaim(heap, (1ull << 32) + 100, false));
    expect_eq(kept(heap, CLASS_128K), 0);
    expect_heap_valid(heap);
}

/* A block that lies there while more than 2^31 others are freed goes all the same: at the thread's end nothing may be left. */
FRESH_TEST(clock_wraps)
{
    (void)argument;
    struct hak_heap *heap = start();
    heap_malloc_many(heap, CLASS_128K, blocks, 3);
    heap_free_many(heap, CLASS_128K, blocks, 2);
    heap->large_cache.clock += (uint32_t)INT32_MAX + 10;
    heap_free(heap, CLASS_128K, blocks[2]);
    hak__cache_flush(heap);
    expect_eq(heap->large_cache.bytes, 0);
    expect_eq(heap->large_cache.charged, 0);
    expect_heap_valid(heap);
}

/* Blocks that others free are in use no longer, so nothing is kept on their account. */
FRESH_TEST(freed_by_others)
{
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0), *other = heap_open(0);
    for (unsigned round = 0; round < 50; round++) {
        heap_malloc_many(heap, CLASS_64K + 1, blocks, 4);   /* several in a span: collected */
        for (uint32_t i = 0; i < 4; i++)
            heap_free_remote(other, blocks[i]);
        heap_malloc_many(heap, CLASS_1M, blocks, 4);
        for (uint32_t i = 0; i < 4; i++)
            heap_free_remote(other, blocks[i]);
        hak__heap_collect(heap);
        expect_eq(heap->large_out - heap->large_remote_freed, 0);
    }
    expect_eq(other->large_out, 0);
    expect_heap_valid(heap);
}

/* The process's budget is charged for what is kept. */
FRESH_TEST(process_is_charged)
{
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0);
    size_t first = hak__cache_process_bytes();
    heap_malloc_many(heap, CLASS_1M, blocks, 4);
    heap_free_many(heap, CLASS_1M, blocks, 3);
    expect_op(hak__cache_process_bytes(), >=, first + heap->large_cache.bytes);
    expect_eq(hak__cache_process_bytes(), heap->budget.process_bytes);
    hak__cache_flush(heap);
    expect_eq(hak__cache_process_bytes(), first);
    set("process_budget", "1");
    heap_free(heap, CLASS_1M, blocks[3]);
    expect_eq(heap->large_cache.bytes, 0);
    expect_eq(hak__cache_process_bytes(), first);
}

/* No more blocks of a class than the option says. */
FRESH_TEST(ring_cap_holds)
{
    (void)argument;
    heaps_start();
    set("l25_ring_cap", "3");
    struct hak_heap *heap = heap_open(0);
    heap_malloc_many(heap, CLASS_64K, blocks, 8);
    heap_free_many(heap, CLASS_64K, blocks, 8);
    expect_eq(kept(heap, CLASS_64K), 3);
    for (uint32_t i = 8; i-- > 5;)
        expect_ptr(heap_malloc(heap, CLASS_64K), blocks[i]);
    set("l25_ring_cap", "256");
    heap = heap_open(0);
    heap_malloc_many(heap, CLASS_64K, blocks, 40);
    heap_free_many(heap, CLASS_64K, blocks, 40);
    expect_eq(kept(heap, CLASS_64K), 40);
    expect_heap_valid(heap);
    set("l25_ring_cap", "0");
    heap = heap_open(0);
    heap_malloc_many(heap, CLASS_64K, blocks, 3);
    heap_free_many(heap, CLASS_64K, blocks, 3);
    expect_eq(heap->large_cache.bytes, 0);
}

/* A full stack sends every free the slow way, which is not to bring upkeep any sooner: what counts are the frees that went
 * the quick way meanwhile. */
FRESH_TEST(full_stack_counts_once)
{
    (void)argument;
    struct hak_heap *heap = start();
    heap_malloc_many(heap, CLASS_64K, blocks, MANY);
    uint32_t calls = heap->polling.calls;
    heap_free_many(heap, CLASS_64K, blocks, MANY);
    expect_eq(kept(heap, CLASS_64K), 16);
    expect_eq(heap->large_cache.clock, MANY);
    expect_op(heap->polling.calls - calls, >=, MANY / 2);
    expect_op(heap->polling.calls - calls, <=, 2 * MANY);
    expect_heap_valid(heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_freed_first),
        cmocka_unit_test(near_classes_serve),
        cmocka_unit_test(nearest_class_serves),
        cmocka_unit_test(bytes_are_bounded),
        cmocka_unit_test(share_follows_what_is_in_use),
        cmocka_unit_test(resident_bytes_count),
        cmocka_unit_test(looks_end),
        cmocka_unit_test(oldest_go_first),
        cmocka_unit_test(large_cache_blocks_make_room),
        cmocka_unit_test(what_is_not_touched_goes_back),
        cmocka_unit_test(a_silent_owner_is_relieved),
        cmocka_unit_test(an_owner_inside_is_left_alone),
        cmocka_unit_test(clock_wraps),
        cmocka_unit_test(freed_by_others),
        cmocka_unit_test(process_is_charged),
        cmocka_unit_test(ring_cap_holds),
        cmocka_unit_test(full_stack_counts_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
