/* heap/heap.c: parked heaps come back, the last one first, each to one taker only, with everything they hold; a forked
 * child takes over the heaps of threads that it does not have, unless they were being changed. */
#include "cache/cache.h"
#include "cache/large_cache.h"
#include "heap/heap.h"
#include "support/heaps.h"

enum { CLASS_64 = HAK_CLASS_64 };

/* As a thread locks a heap that does not exist in the child. */
enum { LEFT_BY_OWNER = 1000 << 1, LEFT_BY_SWEEPER = 1000 << 1 | HAK_LOCK_MARK };

/* Heap by heap, what is parked. */
static struct hak_heap *next_parked(void)
{
    struct hak_heap *heap = hak__heap_unpark();
    if (heap != NULL)
        hak__heap_unlock(heap);
    return heap;
}

/* A thread has taken the heap up, and ends. */
static void put_back(struct hak_heap *heap)
{
    hak__heap_unlock(heap);
    hak__heap_park(heap);
}

FRESH_TEST(last_in_first_out)
{
    struct hak_heap *heaps[5];
    (void)argument;
    heaps_start();
    expect(next_parked() == NULL);
    for (unsigned i = 0; i < 5; i++)
        heaps[i] = heap_open(0);
    for (unsigned i = 0; i < 5; i++) {
        hak__heap_park(heaps[i]);
        expect_eq(atomic_load(&heaps[i]->state), HAK_HEAP_PARKED);
    }
    for (unsigned i = 5; i-- > 0;) {
        expect_ptr(next_parked(), heaps[i]);
        expect_eq(atomic_load(&heaps[i]->state), HAK_HEAP_ACTIVE);
    }
    expect(next_parked() == NULL);
}

/* Blocks that are outside while their heap is parked are freed into it, and the next thread finds them. */
FRESH_TEST(a_parked_heap_goes_on_receiving)
{
    void *blocks[200];
    (void)argument;
    heaps_start();
    struct hak_heap *parked = heap_open(0), *other = heap_open(0);
    for (unsigned i = 0; i < 200; i++)
        blocks[i] = heap_malloc(parked, CLASS_64);
    hak__cache_flush(parked);
    hak__heap_park(parked);
    for (unsigned i = 0; i < 200; i++)
        heap_free_remote(other, blocks[i]);
    hak__outbox_flush(other, "free");
    expect_ptr(next_parked(), parked);
    unsigned taken = 1;   /* at the latest when a frontier would move */
    while (heap_malloc(parked, CLASS_64) != blocks[0] && taken < 200)
        taken++;
    expect_op(taken, <, 100);
    expect_eq(heap_live(parked, CLASS_64), taken);
    expect_heap_valid(parked);
}

static void open_heaps(struct hak_heap **heaps, unsigned count)
{
    heaps_start();
    for (unsigned i = 0; i < count; i++)
        heaps[i] = heap_open(0);
}

FRESH_TEST(forked_child)
{
    struct hak_heap *heaps[8];
    (void)argument;
    open_heaps(heaps, 8);
    struct hak_heap *mine = heaps[1], *shared = heaps[2], *changing = heaps[3], *parked = heaps[4], *swept = heaps[6];
    struct hak_heap *caching = heaps[7];
    atomic_store(&changing->lock, LEFT_BY_OWNER);
    expect(hak__heap_lock(mine));   /* fork can be called in the middle of anything, by a signal handler */
    hak__heap_park(parked);
    hak__heap_park(swept);
    atomic_store(&swept->lock, LEFT_BY_SWEEPER);
    expect(hak__large_cache_begin(&caching->large_cache));   /* without its lock */
    hak__heaps_fork_child(mine, shared);
    expect(hak__lock_word_is_mine(&mine->lock));
    hak__heap_unlock(mine);
    expect_eq(atomic_load(&mine->state), HAK_HEAP_ACTIVE);
    expect_eq(atomic_load(&shared->state), HAK_HEAP_ACTIVE);
    expect_eq(atomic_load(&changing->state), HAK_HEAP_UNUSABLE);
    expect_eq(atomic_load(&swept->state), HAK_HEAP_UNUSABLE);
    expect_eq(atomic_load(&caching->state), HAK_HEAP_UNUSABLE);
    expect_ptr(next_parked(), heaps[5]);
    expect_ptr(next_parked(), parked);
    expect_ptr(next_parked(), heaps[0]);
    expect(next_parked() == NULL);
    hak__heaps_fork_child(NULL, NULL);   /* everybody's, also in a child's child; what is lost stays lost */
    expect_eq(atomic_load(&changing->state), HAK_HEAP_UNUSABLE);
    expect_ptr(next_parked(), heaps[5]);
}

/* A child in which not the forking thread comes first: what may be that one's stays; nobody waits for a sweeper that is
 * not there. */
FRESH_TEST(forked_child_of_a_further_thread)
{
    struct hak_heap *heaps[5];
    (void)argument;
    open_heaps(heaps, 5);
    atomic_store(&heaps[1]->lock, LEFT_BY_OWNER);
    hak__heap_park(heaps[2]);
    hak__heap_park(heaps[3]);
    atomic_store(&heaps[3]->lock, LEFT_BY_SWEEPER);
    expect(hak__heaps_fork_further());
    expect_eq(atomic_load(&heaps[0]->state), HAK_HEAP_ACTIVE);
    expect_eq(atomic_load(&heaps[1]->state), HAK_HEAP_ACTIVE);
    expect_eq(atomic_load(&heaps[3]->state), HAK_HEAP_UNUSABLE);
    expect_ptr(next_parked(), heaps[2]);
    expect(next_parked() == NULL);
    atomic_store(&heaps[4]->lock, LEFT_BY_SWEEPER);   /* its owner may be the one that has forked, and has to leave it */
    expect(!hak__heaps_fork_further());
    expect_eq(atomic_load(&heaps[4]->state), HAK_HEAP_UNUSABLE);
}

/* --- threads ------------------------------------------------------------------------------------------------------- */

enum { THREADS = 3, ROUNDS = 4000, HEAPS = 4 };

static void *unpark_and_park(void *argument)
{
    uint32_t me = *(uint32_t *)argument;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct hak_heap *heap = hak__heap_unpark();
        if (heap == NULL)
            continue;
        /* Plain accesses: what one thread leaves in a heap, the next one must see. */
        expect_eq(heap->mode, 0);
        heap->mode = me;
        if (round % 64 == 0)
            sched_yield();
        expect_eq(heap->mode, me);
        heap->mode = 0;
        heap->budget.hand++;
        put_back(heap);
    }
    return NULL;
}

FRESH_TEST(one_taker_each)
{
    uint32_t names[THREADS] = { 1, 2, 3 };
    (void)argument;
    heaps_start();
    for (unsigned i = 0; i < HEAPS; i++)
        hak__heap_park(heap_open(0));
    run_threads(THREADS, unpark_and_park, names, sizeof *names);
    uint64_t taken = 0;
    for (unsigned i = 0; i < HEAPS; i++) {
        struct hak_heap *heap = next_parked();
        expect(heap != NULL);
        taken += heap->budget.hand;
    }
    expect(next_parked() == NULL);
    expect_op(taken, >, ROUNDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_in_first_out), cmocka_unit_test(a_parked_heap_goes_on_receiving),
        cmocka_unit_test(forked_child),
        cmocka_unit_test(forked_child_of_a_further_thread),
        cmocka_unit_test(one_taker_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
