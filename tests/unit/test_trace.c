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

FRESH_TEST(blocks)
{
    uint64_t ids, asked;
    size_t n;
    (void)argument;
    start();
    const void *p = (const void *)(uintptr_t)0x123456789000, *other = (const void *)(uintptr_t)0x123456789010;
    expect(!hak__trace_known(p, &ids, &asked) && !hak__trace_asked(p, &n));
    hak__trace_allocated(p, 4, 98);
    expect(hak__trace_known(p, &ids, &asked) && ids == 4 && asked == 98);
    hak__trace_resized(p, 100);
    hak__trace_freed(p, 7);
    expect(hak__trace_known(p, &ids, &asked) && ids == (7ull << 32 | 4) && asked == 100);
    expect(hak__trace_asked(p, &n) && n == 100);
    hak__trace_freed(other, 9);
    expect(hak__trace_known(other, &ids, &asked) && ids == 9ull << 32 && !hak__trace_asked(other, &n));
    hak__trace_allocated(p, 5, 1);
    expect(hak__trace_known(p, &ids, &asked) && ids == 5 && asked == 1);
    for (uintptr_t i = 1; i <= MANY * 10; i++)   /* whichever has its place */
        hak__trace_allocated((const char *)p + i * 16, 6, 2);
    expect(!hak__trace_known(p, &ids, &asked));
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
    uint32_t alone = made_up(0x1000);   /* stack pointer 0: the set of both */
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
        cmocka_unit_test(ids_tell_stacks_apart), cmocka_unit_test(blocks), cmocka_unit_test(old_ones_make_way),
        cmocka_unit_test(alone_is_not_whole), cmocka_unit_test(without_an_allowance),  cmocka_unit_test(threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
