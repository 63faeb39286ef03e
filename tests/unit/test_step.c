/* upkeep/, with a clock and a system of the test's own: freed memory goes back when the purge delay has passed and not
 * before, from partly used SuperSlabs as from free ones; so do pages in free blocks of idle spans, once, and idle spans
 * themselves; unused slabs when the process's peak rises; frees that wait for an idle heap are collected and its outbox is published; a poll looks at the clock only
 * now and then, and does nothing while nothing is due; the heap of a thread that has freed much polls until that has gone back,
 * and one that takes over what an ended thread has left;
 * idle records give back half; SuperSlabs are marked, collapsed and kept whole as HAKMEM_THP says. */
#include "upkeep/upkeep.h"

#include "arena/mapping.h"
#include "arena/runs.h"
#include "cache/cache.h"
#include "diag/options.h"
#include "heap/heap.h"
#include "process/process.h"
#include "span/pool.h"
#include "support/fake_os.h"
#include "support/heaps.h"

enum { CLASS_1024 = HAK_CLASS_TINY_LAST, MANY = 8192, DELAY = 800 };

static void *blocks[MANY];

static void start(void)
{
    fake_install();
    heaps_start();
    expect_eq(hak__option(HAK_OPTION_purge_delay), DELAY);
}

static struct hak_heap *filled_heap(void)
{
    struct hak_heap *heap = heap_open(0);
    for (uint32_t i = 0; i < MANY; i++)
        memset(blocks[i] = heap_malloc(heap, CLASS_1024), 1, 1024);
    return heap;
}

/* All but one block of every `keep`-th SuperSlab's worth. */
static void free_most(struct hak_heap *heap, uint32_t keep)
{
    for (uint32_t i = 0; i < MANY; i++)
        if (i % keep != 0)
            heap_free(heap, CLASS_1024, blocks[i]);
    hak__cache_flush(heap);
}

FRESH_TEST(after_the_delay)
{
    (void)argument;
    start();
    struct hak_heap *heap = filled_heap();
    free_most(heap, MANY / 4);
    uint64_t now = fake.now;
    expect_eq(hak__upkeep_step(now + DELAY - 1, HAK_UPKEEP_BOUNDED), 0);
    size_t bytes = hak__upkeep_step(now + DELAY, HAK_UPKEEP_BOUNDED);
    expect_op(bytes, >=, (size_t)MANY * 1024 / 2);
    hak__upkeep_step(now + 2 * DELAY, HAK_UPKEEP_BOUNDED);   /* pages inside of idle spans */
    expect_eq(hak__upkeep_step(now + 3 * DELAY, HAK_UPKEEP_BOUNDED), 0);   /* nothing is left to give */
    for (uint32_t i = 0; i < MANY; i += MANY / 4)
        expect_eq(*(char *)blocks[i], 1);
    expect(hak__arena_is_valid());
    expect_heap_valid(heap);
}

FRESH_TEST(at_once)
{
    (void)argument;
    start();
    struct hak_heap *heap = filled_heap();
    free_most(heap, MANY / 4);
    expect_op(hak__upkeep_step(fake.now, HAK_UPKEEP_ALL), >=, (size_t)MANY * 1024 / 2);
}

/* The clock goes on while a step runs: what the step itself gives back is younger than the time it was asked at. */
FRESH_TEST(at_once_what_is_younger_too)
{
    (void)argument;
    start();
    struct hak_heap *heap = filled_heap();
    free_most(heap, MANY / 4);
    expect_op(hak__upkeep_step(fake.now - 1, HAK_UPKEEP_ALL), >=, (size_t)MANY * 1024 / 2);
    for (uint32_t i = 0; i < MANY; i += MANY / 4)
        heap_free(heap, CLASS_1024, blocks[i]);
    hak__cache_flush(heap);
    hak__upkeep_step(fake.now - 1, HAK_UPKEEP_ALL);
    expect_eq(hak__upkeep_step(fake.now + DELAY, HAK_UPKEEP_ALL), 0);
    expect(hak__arena_is_valid());
}

/* What is used again before the delay has passed starts its time anew. */
FRESH_TEST(busy_superslabs_are_left_alone)
{
    (void)argument;
    bool fresh;
    start();
    size_t kept = hak__pool_open(1, HAK_OPEN_SMALL, &fresh), slab = hak__pool_take(4, &fresh);
    hak__pool_give(slab, 4);
    fake.now += DELAY - 1;
    expect_eq(hak__pool_take(4, &fresh), slab);
    hak__pool_give(slab, 4);
    fake.now += 1;
    expect_eq(hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED), 0);
    fake.now += DELAY;
    expect_eq(hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED), 4 * HAK_SLAB_SIZE);
    hak__pool_give(kept, 1);
}

FRESH_TEST(idle_heaps_are_swept)
{
    (void)argument;
    start();
    struct hak_heap *idle = filled_heap(), *heap = heap_open(0);
    for (uint32_t i = 0; i < MANY; i++)
        heap_free_remote(heap, blocks[i]);
    hak__outbox_flush(heap, "free");
    expect(hak__heap_lock(idle));   /* its owner is in a slow path: not to be touched */
    hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);
    expect_eq(hak_counted(&idle->classes[CLASS_1024].collected), 0);
    hak__heap_unlock(idle);
    hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);
    expect_eq(hak_counted(&idle->classes[CLASS_1024].collected), MANY);
    expect_heap_valid(idle);
}

FRESH_TEST(ticks)
{
    (void)argument;
    start();
    struct hak_heap *heap = filled_heap();
    free_most(heap, MANY / 4);
    unsigned before = fake.purges;
    for (unsigned i = 0; i < 1000; i++)
        hak__upkeep_poll(heap);
    expect_eq(fake.purges, before);   /* not due */
    fake.now += 2 * DELAY;
    unsigned ticks = 0;
    while (fake.purges == before && ticks < 1000) {
        hak__upkeep_poll(heap);
        ticks++;
    }
    expect_op(ticks, <=, 64);
}

/* --- idle spans ----------------------------------------------------------------------------------------------------- */

static uint64_t idle_delay(void) { return hak__option(HAK_OPTION_purge_delay) / 2; }

struct idle_figures {
    uint64_t ended, purges, bytes;
};

static struct idle_figures idle_figures(void)
{
    const struct hak_upkeep_counts *counts = &hak__upkeep_counts;
    return (struct idle_figures){ hak_counted(&counts->spans_ended), hak_counted(&counts->span_purges),
                                  hak_counted(&counts->span_purged) };
}

/* Every 64th block stays: each span is partly used, and of 64 pages' worth of blocks one page is needed. */
FRESH_TEST_OF_SMALL_PAGES(idle_spans_give_pages)
{
    (void)argument;
    start();
    struct hak_heap *heap = filled_heap();
    free_most(heap, 64);
    hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);   /* sees the spans as they are */
    expect_eq(idle_figures().purges, 0);
    hak__upkeep_step(fake.now + idle_delay() - 1, HAK_UPKEEP_BOUNDED);
    expect_eq(idle_figures().purges, 0);
    hak__upkeep_step(fake.now + idle_delay(), HAK_UPKEEP_DUE);
    struct idle_figures first = idle_figures();
    expect_op(first.bytes, >=, (size_t)MANY * 1024 / 64 * 50);
    for (uint32_t i = 0; i < MANY; i += 64)
        for (unsigned at = 0; at < 1024; at++)
            expect_eq(((char *)blocks[i])[at], 1);
    hak__upkeep_step(fake.now + 10 * DELAY, HAK_UPKEEP_DUE);
    expect_eq(idle_figures().purges, first.purges);   /* nothing has moved: nothing is done again */
    /* What is taken there again is a block like any other, and what calloc knows is still right. */
    void *again[64];
    for (int i = 0; i < 64; i++)
        memset(again[i] = heap_malloc(heap, CLASS_1024), 2, 1024);
    for (int i = 0; i < 64; i++)
        heap_free(heap, CLASS_1024, again[i]);
    expect_heap_valid(heap);
}

/* Of pages in swap the kernel says what it says of pages that have gone back. Here their contents are dropped unseen. */
static void swap_out(uint32_t keep)
{
    size_t page = hak__page_size();
    for (uint32_t i = 0; i < MANY; i++)
        expect_eq(madvise((void *)hak_align_down((uintptr_t)blocks[i], page), page, MADV_DONTNEED), 0);
    for (uint32_t i = 0; i < MANY; i += keep)
        memset(blocks[i], 1, 1024);
}

FRESH_TEST_OF_SMALL_PAGES(pages_in_swap_go_back)
{
    (void)argument;
    start();
    struct hak_heap *heap = filled_heap();
    free_most(heap, 64);
    swap_out(64);
    hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);
    hak__upkeep_step(fake.now + idle_delay(), HAK_UPKEEP_DUE);
    uint64_t purges = idle_figures().purges;
    expect_op(purges, >=, MANY / 64 - 16);
    expect_op(fake.purged_bytes, >=, (size_t)MANY * 1024 / 64 * 50);
    hak__upkeep_step(fake.now + 10 * DELAY, HAK_UPKEEP_DUE);
    expect_eq(idle_figures().purges, purges);
    /* What has gone back is known to have. */
    heap_free(heap, CLASS_1024, heap_malloc(heap, CLASS_1024));
    hak__cache_flush(heap);
    hak__upkeep_step(fake.now + 11 * DELAY, HAK_UPKEEP_BOUNDED);
    hak__upkeep_step(fake.now + 20 * DELAY, HAK_UPKEEP_DUE);
    expect_op(idle_figures().purges, <=, purges + 2);
    expect_heap_valid(heap);
}

/* The first page of a run is there, where a free has written a key, the others are in swap. */
FRESH_TEST_OF_SMALL_PAGES(runs_go_back_with_what_is_in_swap)
{
    (void)argument;
    start();
    struct hak_heap *heap = filled_heap();
    size_t page = hak__page_size();
    free_most(heap, 64);
    swap_out(64);
    for (uint32_t i = 0; i < MANY; i++)
        if (i % 64 == 20)
            *(volatile char *)blocks[i] = 0;
    hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);
    hak__upkeep_step(fake.now + idle_delay(), HAK_UPKEEP_DUE);
    expect_op(fake.purged_bytes, >=, idle_figures().purges * 8 * page);
    expect_op(idle_figures().purges, >=, MANY / 64 - 16);
}

/* Half of the delay, however long that is; hak_collect() does not wait. */
FRESH_TEST_OF_SMALL_PAGES(idle_time_follows_the_delay)
{
    (void)argument;
    start();
    struct hak_heap *heap = filled_heap();
    expect_eq(hak__option_set("purge_delay", "3600s"), 0);
    free_most(heap, 64);
    hak__upkeep_step(fake.now, HAK_UPKEEP_DUE);
    hak__upkeep_step(fake.now + 1799999, HAK_UPKEEP_DUE);
    expect_eq(idle_figures().purges, 0);
    expect_eq(hak__option_set("purge_delay", "200"), 0);
    hak__upkeep_step(fake.now + 99, HAK_UPKEEP_DUE);
    expect_eq(idle_figures().purges, 0);
    hak__upkeep_step(fake.now + 100, HAK_UPKEEP_DUE);
    expect_op(idle_figures().purges, >, 0);
}

FRESH_TEST_OF_SMALL_PAGES(collecting_does_not_wait)
{
    (void)argument;
    start();
    struct hak_heap *heap = filled_heap();
    expect_eq(hak__option_set("purge_delay", "3600s"), 0);
    free_most(heap, 64);
    hak__upkeep_step(fake.now, HAK_UPKEEP_DUE);
    expect_eq(idle_figures().purges, 0);
    hak__upkeep_step(fake.now, HAK_UPKEEP_ALL);
    expect_op(idle_figures().purges, >, 0);
}

/* A slow path does a part of it, and the next ones the rest. */
FRESH_TEST_OF_SMALL_PAGES(slow_paths_are_bounded)
{
    (void)argument;
    start();
    struct hak_heap *heap = filled_heap();
    free_most(heap, 8);   /* one page of two: single pages */
    hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);
    unsigned before = fake.purges;
    for (unsigned n = 1; n <= 8; n++) {
        uint64_t runs = idle_figures().purges;
        hak__upkeep_step(fake.now + n * DELAY, HAK_UPKEEP_BOUNDED);
        expect_op(idle_figures().purges - runs, <=, 1024);
    }
    expect_op(fake.purges - before, >=, MANY / 8 - 16);
}

/* What a walk has left because it had made its calls is due soon, not at the next quarter of the delay. */
FRESH_TEST_OF_SMALL_PAGES(unfinished_steps_go_on)
{
    (void)argument;
    start();
    struct hak_heap *heap = filled_heap();
    free_most(heap, 64);
    uint64_t then = fake.now;
    hak__upkeep_step(then, HAK_UPKEEP_BOUNDED);   /* sees the spans as they are */
    hak__upkeep_step(fake.now = then + idle_delay() - 1, HAK_UPKEEP_BOUNDED);
    struct hak_idle_work few = { then + idle_delay(), UINT32_MAX, 10, idle_delay(), SIZE_MAX };
    hak__idle_walk(&few);
    expect_eq(idle_figures().purges, 10);
    fake.now = then + idle_delay() - 1 + DELAY / 32 - 1;
    hak__upkeep_poll_now(heap);
    expect_eq(idle_figures().purges, 10);
    fake.now++;
    hak__upkeep_poll_now(heap);
    expect_op(idle_figures().purges, >, 10);
}

/* Asking costs as much as a few returns: while nothing may go, a walk over many spans would use up what is saved for them. */
FRESH_TEST_OF_SMALL_PAGES(what_may_not_go_is_not_asked_about)
{
    (void)argument;
    start();
    free_most(filled_heap(), 64);
    uint64_t then = fake.now;
    hak__upkeep_step(then, HAK_UPKEEP_BOUNDED);
    struct hak_idle_work none = { then + idle_delay(), UINT32_MAX, UINT32_MAX, idle_delay(), 0 };
    uint64_t looks = hak_load(&hak__os_calls[HAK_OS_LOOK], HAK_RELAXED);
    expect_eq(hak__idle_walk(&none), 0);
    expect_eq(hak_load(&hak__os_calls[HAK_OS_LOOK], HAK_RELAXED), looks);
    none.most = SIZE_MAX;
    expect_op(hak__idle_walk(&none), >, 0);
    expect_op(hak_load(&hak__os_calls[HAK_OS_LOOK], HAK_RELAXED), >, looks);
}

/* Slabs that were too young for one step are not left until the next quarter of the delay once they are old enough. */
FRESH_TEST(due_slabs_are_not_left)
{
    (void)argument;
    start();
    struct hak_heap *heap = filled_heap();
    free_most(heap, MANY / 4);
    uint64_t then = fake.now;
    hak__upkeep_step(fake.now = then + DELAY - DELAY / 8, HAK_UPKEEP_BOUNDED);
    unsigned before = fake.purges;
    fake.now = then + DELAY - 1;
    hak__upkeep_poll_now(heap);
    expect_eq(fake.purges, before);
    fake.now++;
    hak__upkeep_poll_now(heap);
    expect_op(fake.purges, >, before);
}

/* Beyond the least that is followed; the kernel remembers it. */
static void raise_peak(void)
{
    size_t bytes = hak__os_peak() + ((size_t)16 << 20);
    char *others = malloc(bytes);
    memset(others, 1, bytes);
    free(others);
}

/* However young they are, unused slabs do not add to a peak that other memory of the process raises. */
FRESH_TEST(slabs_go_back_as_the_peak_rises)
{
    (void)argument;
    start();
    struct hak_heap *heap = filled_heap();
    free_most(heap, MANY / 4);
    unsigned before = fake.purges;
    raise_peak();
    hak__upkeep_poll_now(heap);   /* the first look has nothing to compare with */
    fake.now += 8;
    hak__upkeep_poll_now(heap);
    raise_peak();
    fake.now += 7;
    hak__upkeep_poll_now(heap);   /* too soon to look again */
    expect_eq(fake.purges, before);
    fake.now++;
    hak__upkeep_poll_now(heap);
    expect_op(fake.purges, >, before);
    before = fake.purges;
    fake.now += 8;
    hak__upkeep_poll_now(heap);
    expect_eq(fake.purges, before);
}

/* The last span of a class is kept while it is in use, not for ever. */
FRESH_TEST(idle_spans_end)
{
    (void)argument;
    start();
    struct hak_heap *heap = filled_heap();
    free_most(heap, MANY);
    heap_free(heap, CLASS_1024, blocks[0]);
    hak__cache_flush(heap);
    expect_eq(hak_counted(&heap->classes[CLASS_1024].span_count), 1);
    hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);
    expect_eq(hak_counted(&heap->classes[CLASS_1024].span_count), 1);
    hak__upkeep_step(fake.now + idle_delay(), HAK_UPKEEP_BOUNDED);
    expect_eq(hak_counted(&heap->classes[CLASS_1024].span_count), 0);
    expect_eq(idle_figures().ended, 1);
    expect(heap_malloc(heap, CLASS_1024) != NULL);
    expect_heap_valid(heap);
}

/* What a thread left in its records for the next one: there for two steps, unless a thread comes, or everything is asked for. */
FRESH_TEST(what_a_thread_left_goes_back)
{
    enum { LEFT = 4 };   /* of the batch that the first miss brings */
    (void)argument;
    start();
    struct hak_heap *heap = heap_open(0);
    void *block = heap_malloc(heap, CLASS_1024);
    for (unsigned round = 0; round < 2; round++) {
        heap_free(heap, CLASS_1024, block);
        hak__cache_leave(heap, HAK_LEFT_AT_END);
        expect_eq(hak__cache_count(heap, CLASS_1024), LEFT);
        hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);   /* not parked yet: its thread's */
        hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);
        expect_eq(hak__cache_count(heap, CLASS_1024), LEFT);
        hak__heap_park(heap);
        hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);
        expect_eq(hak__cache_count(heap, CLASS_1024), LEFT);
        if (round == 0)
            hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);
        else
            hak__upkeep_step(fake.now, HAK_UPKEEP_ALL);
        expect_eq(hak__cache_count(heap, CLASS_1024), 0);
        expect_eq(heap_live(heap, CLASS_1024), 0);
        expect_ptr(hak__heap_unpark(), heap);
        hak__cache_take_up(heap);
        hak__heap_unlock(heap);
        block = heap_malloc(heap, CLASS_1024);
    }
    heap_free(heap, CLASS_1024, block);
    hak__cache_leave(heap, HAK_LEFT_AT_END);
    hak__heap_park(heap);
    hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);
    expect_ptr(hak__heap_unpark(), heap);
    hak__cache_take_up(heap);
    hak__heap_unlock(heap);
    hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);   /* a thread has come */
    expect_eq(hak__cache_count(heap, CLASS_1024), LEFT);
    expect_heap_valid(heap);
}

FRESH_TEST(outboxes_are_published)
{
    (void)argument;
    start();
    struct hak_heap *idle = filled_heap(), *heap = heap_open(0);
    heap_free_remote(heap, blocks[0]);
    heap_free_remote(heap, blocks[1]);
    hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);
    hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);   /* heaps are visited once in each, by their ids */
    expect_eq(hak_counted(&idle->classes[CLASS_1024].collected), 2);
    heap_free_remote(heap, blocks[2]);                /* the bucket begins anew */
    hak__outbox_flush(heap, "free");
    hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);
    expect_eq(hak_counted(&idle->classes[CLASS_1024].collected), 3);
    expect_heap_valid(idle);
}

/* --- the owner's part ------------------------------------------------------------------------------------------------ */

/* Freed, but for one block of each slab, and for what the record holds. */
static struct hak_heap *heap_that_freed_much(void)
{
    struct hak_heap *heap = filled_heap();
    hak__heap_idle_more(heap, HAK_POLLING_MUCH);   /* MANY blocks are not much by themselves */
    free_most(heap, 64);
    heap_free(heap, CLASS_1024, heap_malloc(heap, CLASS_1024));
    return heap;
}

static bool is_polling(const struct hak_heap *heap) { return (heap->mode & HAK_MODE_POLLING) != 0; }

FRESH_TEST_OF_SMALL_PAGES(arming)
{
    (void)argument;
    start();
    struct hak_heap *heap = heap_that_freed_much();
    expect(!is_polling(heap));
    fake.now += DELAY;   /* of the time that has to pass between two armings */
    hak__upkeep_poll_now(heap);
    expect(is_polling(heap) && heap->closed_reasons[CLASS_1024] == HAK_CLOSED_POLLING);
    expect_heap_valid(heap);
    expect(hak__cache_pop(&heap->bins[CLASS_1024]) == NULL);
    void *block = hak__polling_pop(heap, CLASS_1024);
    expect(block != NULL && hak__polling_push(heap, CLASS_1024, block));
    fake.now += 2 * DELAY;
    unsigned before = fake.purges, calls = 0;
    while (fake.purges == before && calls < 1000) {   /* calls that all hit */
        expect(hak__polling_push(heap, CLASS_1024, hak__polling_pop(heap, CLASS_1024)));
        calls += 2;
    }
    expect_op(calls, <=, HAK_POLLING_PER_LOOK);
    expect(!is_polling(heap) && heap->closed_reasons[CLASS_1024] == 0);
    expect_heap_valid(heap);
}

/* Another thread takes the heap up at once, and may take no further slow path. */
FRESH_TEST_OF_SMALL_PAGES(what_an_ended_thread_left_is_polled_for_at_once)
{
    (void)argument;
    start();
    struct hak_heap *heap = heap_that_freed_much();
    fake.now += DELAY;
    hak__upkeep_poll_now(heap);
    expect(is_polling(heap) && hak__heap_lock(heap));
    hak__polling_leave(heap);
    hak__cache_set_polling(heap, false);
    hak__heap_unlock(heap);
    hak__polling_thread_ended();
    hak__upkeep_poll(heap);
    expect(is_polling(heap));
    expect_heap_valid(heap);
}

/* The thread that has forked has no heap, and another one, made since, is the first to notice. */
FRESH_TEST(a_child_without_heaps_counts_none)
{
    (void)argument;
    start();
    expect(hak__thread_fork_child(false));
    hak__background_thread_begins();
    expect(hak__background_is_alone());
}

/* What has come and gone by batches meanwhile, and fast, is not held up. */
FRESH_TEST(polling_heaps_in_a_hurry)
{
    (void)argument;
    start();
    struct hak_heap *heap = heap_that_freed_much();
    fake.now += DELAY;
    hak__upkeep_poll_now(heap);
    expect(is_polling(heap));
    for (unsigned i = 0; i < HAK_POLLING_CALLS / 2; i++)
        expect(hak__polling_push(heap, CLASS_1024, hak__polling_pop(heap, CLASS_1024)));
    expect(is_polling(heap));   /* it only hit */
    heap->polling.refills++;       /* a refill or two do not make slow paths come by themselves */
    for (unsigned i = 0; i < HAK_POLLING_CALLS; i++)
        expect(hak__polling_push(heap, CLASS_1024, hak__polling_pop(heap, CLASS_1024)));
    expect(is_polling(heap));
    heap->polling.refills += 100;
    for (unsigned i = 0; i < HAK_POLLING_CALLS / 2; i++)
        expect(hak__polling_push(heap, CLASS_1024, hak__polling_pop(heap, CLASS_1024)));
    expect(!is_polling(heap));
    hak__upkeep_poll_now(heap);
    expect(!is_polling(heap));  /* not again at once */
    heap->polling.overflows += 8;
    heap->polling.refills++;
    hak__upkeep_poll_now(heap);
    expect(!is_polling(heap));
    heap->polling.overflows += 8;
    hak__upkeep_poll_now(heap);
    expect(is_polling(heap));   /* but when it only frees */
}

FRESH_TEST(idle_records_give_back_half)
{
    (void)argument;
    start();
    struct hak_heap *heap = heap_open(0);
    void *some[8];
    for (int i = 0; i < 8; i++)
        some[i] = heap_malloc(heap, CLASS_1024);
    for (int i = 0; i < 8; i++)
        heap_free(heap, CLASS_1024, some[i]);
    uint32_t held = hak__cache_count(heap, CLASS_1024);
    expect_op(held, >=, 8);
    hak__cache_shrink_idle(heap);   /* only notes what has moved */
    expect_eq(hak__cache_count(heap, CLASS_1024), held);
    while (held != 0) {
        hak__cache_shrink_idle(heap);
        expect_eq(hak__cache_count(heap, CLASS_1024), held / 2);
        hak__cache_shrink_idle(heap);   /* the drain was the record's own */
        held = hak__cache_count(heap, CLASS_1024);
    }
    expect_heap_valid(heap);
}

/* --- huge pages ------------------------------------------------------------------------------------------------------ */

static void full_for_long(void)
{
    for (unsigned n = 0; n < 15; n++, fake.now += DELAY)
        hak__collapse_walk(fake.now);
}

FRESH_TEST_OF_SMALL_PAGES(full_superslabs_are_collapsed)
{
    (void)argument;
    fake_install();
    fake.huge_setting = HAK_OS_HUGE_MADVISE;
    heaps_start();
    hak__thp_look();
    struct hak_heap *heap = filled_heap();
    unsigned marks = fake.advices[HAK_OS_NO_HUGE] + fake.advices[HAK_OS_HUGE];   /* by arena/mapping.c */
    hak__collapse_walk(fake.now);
    expect_eq(fake.advices[HAK_OS_COLLAPSE], 0);   /* not full for long */
    full_for_long();
    expect_op(fake.advices[HAK_OS_COLLAPSE], >=, 1);
    size_t super = (fake.advised - hak__window.base) >> HAK_SUPER_SHIFT;
    expect_eq(atomic_load(&hak__supers[super].collapsed), 1);
    expect_eq(fake.advices[HAK_OS_NO_HUGE] + fake.advices[HAK_OS_HUGE], marks);
    expect(hak__thp_must_stay(super));             /* more than half of it is used */
    free_most(heap, 64);
    expect(hak__thp_must_stay(super));
    uint64_t purges = idle_figures().purges;
    hak__upkeep_step(fake.now, HAK_UPKEEP_DUE);
    hak__upkeep_step(fake.now + DELAY, HAK_UPKEEP_DUE);
    expect_op(idle_figures().purges, >, purges);   /* elsewhere */
    expect_eq(is_mapped(hak__super_start(super)), true);
    for (uint32_t i = 0; i < MANY; i += 64)
        heap_free(heap, CLASS_1024, blocks[i]);
    hak__cache_flush(heap);
    hak__upkeep_step(fake.now + 9 * DELAY, HAK_UPKEEP_ALL);
    expect(hak__arena_is_valid());
}

FRESH_TEST(where_huge_pages_are_the_rule)
{
    (void)argument;
    fake_install();
    fake.huge_setting = HAK_OS_HUGE_ALWAYS;
    heaps_start();
    hak__thp_look();
    filled_heap();
    expect_op(fake.advices[HAK_OS_NO_HUGE], >=, 1);
    unsigned marks = fake.advices[HAK_OS_HUGE];   /* by arena/mapping.c */
    full_for_long();
    expect_op(fake.advices[HAK_OS_COLLAPSE], >=, 1);
    expect_eq(fake.advices[HAK_OS_HUGE] - marks, fake.advices[HAK_OS_COLLAPSE]);   /* unmarked first */
}

FRESH_TEST(collapse_is_given_up)
{
    (void)argument;
    fake_install();
    fake.huge_setting = HAK_OS_HUGE_MADVISE;
    fake.refuse_advise = EINVAL;   /* a kernel that does not know it */
    heaps_start();
    hak__thp_look();
    filled_heap();
    full_for_long();
    full_for_long();
    expect_eq(fake.advices[HAK_OS_COLLAPSE], 1);
}

FRESH_TEST(never_huge)
{
    (void)argument;
    char *environment[] = { "HAKMEM_THP=never", NULL };
    fake_install();
    fake.huge_setting = HAK_OS_HUGE_MADVISE;
    hak__options_read_from(NULL, environment);
    heaps_start();
    hak__thp_look();
    filled_heap();
    full_for_long();
    for (int kind = 0; kind <= HAK_OS_COLLAPSE; kind++)
        expect_eq(fake.advices[kind], 0);
}

FRESH_TEST(always_huge)
{
    (void)argument;
    char *environment[] = { "HAKMEM_THP=always", NULL };
    fake_install();
    hak__options_read_from(NULL, environment);
    heaps_start();
    hak__thp_look();
    struct hak_heap *heap = filled_heap();
    expect_op(fake.advices[HAK_OS_HUGE], >=, 1);
    free_most(heap, 64);   /* every slab is used still: nothing is split */
    hak__upkeep_step(fake.now, HAK_UPKEEP_DUE);
    hak__upkeep_step(fake.now + DELAY, HAK_UPKEEP_DUE);
    expect_eq(idle_figures().purges, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_the_delay),  cmocka_unit_test(at_once),
        cmocka_unit_test(at_once_what_is_younger_too),
        cmocka_unit_test(busy_superslabs_are_left_alone),
        cmocka_unit_test(idle_heaps_are_swept), cmocka_unit_test(ticks),
        cmocka_unit_test(idle_spans_give_pages), cmocka_unit_test(pages_in_swap_go_back),
        cmocka_unit_test(runs_go_back_with_what_is_in_swap), cmocka_unit_test(idle_time_follows_the_delay),
        cmocka_unit_test(collecting_does_not_wait),
        cmocka_unit_test(slow_paths_are_bounded), cmocka_unit_test(unfinished_steps_go_on),
        cmocka_unit_test(what_may_not_go_is_not_asked_about), cmocka_unit_test(due_slabs_are_not_left),
        cmocka_unit_test(slabs_go_back_as_the_peak_rises), cmocka_unit_test(idle_spans_end),
        cmocka_unit_test(what_a_thread_left_goes_back),
        cmocka_unit_test(outboxes_are_published), cmocka_unit_test(arming),
        cmocka_unit_test(what_an_ended_thread_left_is_polled_for_at_once),
        cmocka_unit_test(a_child_without_heaps_counts_none),
        cmocka_unit_test(polling_heaps_in_a_hurry), cmocka_unit_test(idle_records_give_back_half),
        cmocka_unit_test(full_superslabs_are_collapsed), cmocka_unit_test(where_huge_pages_are_the_rule),
        cmocka_unit_test(collapse_is_given_up), cmocka_unit_test(never_huge), cmocka_unit_test(always_huge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
