/* trace/trace.h: the same stack has the same id, another one another; what is known of a block is what was said last, and of a
 * block that another one has displaced nothing; a stack that has made way is not printed; without an allowance there is the
 * caller alone; and threads at once never mix two stacks up. */
#include "trace/trace.h"

#include <pthread.h>

#include "process/process.h"
#include "support/heaps.h"

enum { DEEP = 6, MANY = 100000, THREADS = 4 };

static struct hak_heap *heap;

static void start(void)
{
    heaps_start();
    hak__trace_begin(true);
    expect(hak__trace_tables.stacks != NULL);
    heap = heap_open(0);
}

static hak_noinline uint32_t here_now(void)
{
    struct hak_here here = HAK_HERE(&hak__thread_word);
    uint32_t id = hak__trace_take(heap, &here);
    return id;
}

/* From another depth of the stack, and back. */
static hak_noinline uint32_t deeper(unsigned levels)
{
    volatile char room[64];
    room[0] = (char)levels;
    uint32_t id = levels == 0 ? here_now() : deeper(levels - 1);
    return room[0] == (char)levels ? id : 0;
}

FRESH_TEST(ids_tell_stacks_apart)
{
    uint32_t ids[DEEP];
    (void)argument;
    start();
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < DEEP; i++) {
            uint32_t id = deeper(i);
            expect(id != 0 && (round == 0 || id == ids[i]));
            ids[i] = id;
            for (unsigned k = 0; k < i; k++)
                expect(ids[k] != id);
        }
}

/* What the table knows of a block; the ids of both calls, as 1,000 * the free's + the allocation's. */
static bool known(const void *p, unsigned shift, uint32_t ids, uint32_t asked)
{
    uint64_t rest;
    uint32_t made;
    return hak__trace_known(p, shift, &made, &rest) && made + 1000 * (rest >> 32) == ids && (uint32_t)rest == asked;
}

FRESH_TEST(blocks)
{
    uint64_t rest;
    uint32_t made;
    size_t n;
    (void)argument;
    start();
    const char *p = (const char *)(uintptr_t)0x123456789000, *other = p + 16;
    expect(!hak__trace_known(p, 4, &made, &rest) && !hak__trace_asked(p, &n));
    hak__trace_allocated(p, 4, 5, 98);
    expect(known(p, 4, 5, 98));
    hak__trace_resized(p, 4, 100);
    hak__trace_freed(p, 4, 7);
    expect(known(p, 4, 7005, 100) && hak__trace_asked(p, &n) && n == 100);
    hak__trace_freed(other, 4, 9);
    expect(known(other, 4, 9000, TRACE_ASKED_UNKNOWN) && !hak__trace_asked(other, &n));
    hak__trace_allocated(p, 4, 5, (size_t)1 << 32);
    expect(known(p, 4, 5, TRACE_ASKED_UNKNOWN) && !hak__trace_asked(p, &n));
    for (uintptr_t i = 1; i <= MANY * 10; i++)   /* whichever has its place */
        hak__trace_allocated(p + i * 16, 4, 6, 2);
    expect(!hak__trace_known(p, 4, &made, &rest));
}

/* Of addresses and shifts that share a place, each finds only what was said of itself. */
FRESH_TEST(blocks_that_share_a_place)
{
    uint64_t rest;
    uint32_t made;
    (void)argument;
    start();
    const char *p = (const char *)(uintptr_t)0x123456780000;
    hak__trace_allocated(p + 1024, 5, 3, 9);
    const struct hak_trace_block *place = hak__trace_block(p + 1024, 5);
    unsigned sharing = 0;
    for (size_t slab = 0; slab < (size_t)1 << 17; slab++)
        for (unsigned shift = 4; shift <= 16; shift++) {
            const char *other = p + slab * HAK_SLAB_SIZE + 1024;
            if (hak__trace_block(other, shift) != place || (slab == 0 && shift == 5))
                continue;
            sharing++;
            expect(!hak__trace_known(other, shift, &made, &rest));
        }
    expect(sharing >= 13 && known(p + 1024, 5, 3, 9));
}

/* Made up stacks of one frame: there are more than places. */
static uint32_t made_up(uintptr_t pc)
{
    struct hak_here here = { pc, 0, 0, 0 };
    return hak__trace_take(heap, &here);
}

FRESH_TEST(old_ones_make_way)
{
    (void)argument;
    start();
    uint32_t first = made_up(0x1000);
    expect_eq(made_up(0x1000), first);
    for (uintptr_t i = 1; i < MANY; i++)
        expect(made_up(0x1000 + i * 8) != 0);
    expect(made_up(0x1000) != first);
}

/* A stack of the caller alone is not taken for a whole one, in whichever set that belongs. */
FRESH_TEST(alone_is_not_whole)
{
    struct hak_quarantine some = { .unwinds_left = 0 };
    (void)argument;
    start();
    heap->quarantine = &some;
    uint32_t alone = made_up(0x1000);
    expect_eq(made_up(0x1000), alone);
    some.unwinds_left = 1;
    uint32_t whole = made_up(0x1000);
    expect(whole != 0 && whole != alone);
    expect_eq(made_up(0x1000), whole);
    expect_eq(some.unwinds_left, 0);
    heap->quarantine = NULL;
}

FRESH_TEST(without_an_allowance)
{
    struct hak_quarantine none = { .unwinds_left = 0 };
    (void)argument;
    start();
    heap->quarantine = &none;
    uint32_t alone = deeper(1);
    expect(alone != 0);
    expect_eq(deeper(3), alone);   /* whoever called the caller */
    none.unwinds_left = 1;
    for (uint32_t round = 0, whole = 0; round < 3; round++) {
        uint32_t id = deeper(3);
        expect(id != alone && (round == 0 || id == whole));
        expect_eq(none.unwinds_left, 0);
        whole = id;
    }
    heap->quarantine = NULL;
}

static void *many_stacks(void *argument)
{
    for (uintptr_t i = 0; i < MANY; i++) {
        uint32_t id = made_up(0x1000 + (i * 7 + (uintptr_t)argument) % 20000 * 8);
        const struct hak_trace *trace = &hak__trace_tables.stacks[id & ((1u << TRACE_INDEX_BITS) - 1)];
        uintptr_t pc = hak_peek(&trace->frames[0]);
        if (id != 0 && hak__trace_id(trace, hak_load(&trace->edition, HAK_ACQUIRE)) == id)
            expect_eq(pc, 0x1000 + (i * 7 + (uintptr_t)argument) % 20000 * 8);
    }
    return NULL;
}

FRESH_TEST(threads)
{
    pthread_t ids[THREADS];
    (void)argument;
    start();
    for (uintptr_t i = 0; i < THREADS; i++)
        expect(pthread_create(&ids[i], NULL, many_stacks, (void *)i) == 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_tell_stacks_apart), cmocka_unit_test(blocks), cmocka_unit_test(blocks_that_share_a_place), cmocka_unit_test(old_ones_make_way),
        cmocka_unit_test(alone_is_not_whole), cmocka_unit_test(without_an_allowance),  cmocka_unit_test(threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
