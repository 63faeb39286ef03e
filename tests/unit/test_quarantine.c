/* harden/quarantine.h: what a forked child finds where another thread was taking a block out at the moment of the fork. The block
 * has left its place, and the queue has not gone on. override.test_hardened has the rest, by its effects. */
#include "harden/quarantine.h"

#include "support/heaps.h"

FRESH_TEST(a_place_just_emptied)
{
    struct hak_quarantine waiting = { .next = 1 };
    (void)argument;
    heaps_start();
    struct hak_heap *heap = heap_open(0);
    heap->quarantine = &waiting;
    expect(hak__quarantine_flush(heap, "free"));
    expect_eq(hak__quarantine_queued(&waiting), 0);
    expect_eq(hak_load(&heap->outbox.used, HAK_RELAXED), 0);
    heap->quarantine = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_place_just_emptied) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
