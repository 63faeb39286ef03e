/* hak__heap_end_foreign (heap/heap.c), every schedule within the bounds: spans of one block are ended by threads that do
 * not own them, at the same time, by two who both free the same block, and under a publisher of a former life of the
 * span who is late in queueing it (the `queued` mark of heap/give.c). */
// test: check timeout=300
#include "heaps_world.h"

static _Atomic(void *) handed;       /* a large block on its way from one thread to another */
static _Atomic unsigned reports;     /* double frees that were noticed */
static jmp_buf reported[EXPLORE_THREADS];
static bool expects_report;

/* Where the program would end, only the thread does. */
void world_double_free(void)
{
    if (!expects_report)
        return;
    atomic_fetch_add_explicit(&reports, 1, HAK_RELAXED);
    longjmp(reported[explore_thread()], 1);
}

static void begin_end(bool report)
{
    begin();
    expects_report = report;
    atomic_store(&handed, NULL);
    atomic_store(&reports, 0);
}

/* --- spans of one block, ended by others --------------------------------------------------------------------------------- */

static void two_large(void)
{
    begin_end(false);
    begin_span(0, LARGE, 1, 1, 0);
    begin_span(8, LARGE, 1, 1, 0);
    begin_unused(16, 16);
}

static void end_first(void) { end_foreign(2, block_at(0, 0)); }
static void end_second(void) { end_foreign(3, block_at(8, 0)); }
static void take_large(void) { take(1, LARGE); }
static void take_small(void) { take(1, SMALL); }

/* --- the same block freed by two -------------------------------------------------------------------------------------------- */

static void one_large(void)
{
    begin_end(true);
    begin_span(0, LARGE, 1, 1, 0);
    begin_unused(16, 16);
}

/* The word was read while the block was live, as free() does. */
static void end_twice(uint32_t id, uint32_t word)
{
    if (setjmp(reported[explore_thread()]) == 0)
        hak__heap_end_foreign(heap(id), block_at(0, 0), word, "free");
}

static uint32_t large_word(void) { return hak__owner_word(1, LARGE); }
static void end_twice_2(void) { end_twice(2, large_word()); }
static void end_twice_3(void) { end_twice(3, large_word()); }

static void check_twice(void)
{
    EXPLORE_EXPECT(atomic_load(&reports) == 1, "of two frees of one block, not exactly one was reported");
    atomic_store(&out[0], 0);
    check();
}

/* --- a late publisher ---------------------------------------------------------------------------------------------------------- */

/* Of the span at slab 0 one block is out; when it is back the span ends, since another one is listed, and slabs 0 to 7
 * become a span of one block. */
static void nearly_empty(void)
{
    begin_end(false);
    begin_span(0, SMALL, 1, 2, 0);
    publish(block_at(0, 1));
    begin_span(8, SMALL, 1, 1, 1);
    begin_unused(1, 7);
}

static void publish_last(void) { publish(block_at(0, 0)); }
static void owner_collects(void) { collect(1); }

static void take_and_hand(void)
{
    void *block = NULL;
    bool fresh;
    EXPLORE_EXPECT(hak__heap_lock(heap(2)), "nobody has given the heap up");
    size_t slab = hak__pool_take(LARGE_SLABS, &fresh);
    if (slab != HAK_NO_RUN) {
        hak__span_create(slab, hak__classes[LARGE].slabs, LARGE, 2, NULL, fresh);
        hak_count(&heap(2)->classes[LARGE].span_count, 1);
        block = hak__span_take_fresh(span(slab));
        note_taken(block);
    }
    hak__heap_unlock(heap(2));
    hak_store(&handed, block, HAK_RELEASE);
    collect(2);
}

static void end_handed(void)
{
    void *block = hak_load(&handed, HAK_ACQUIRE);
    if (block == NULL)
        return;
    end_foreign(3, block);
    take(3, SMALL);   /* the third life of the slab, if it is this one that serves */
}

static const struct explore_case cases[] = {
    { "two spans are ended by others", 3, 2, two_large, { end_first, end_second }, check },
    { "two are ended while their owner takes slabs", 2, 3, two_large, { end_first, end_second, take_large }, check, 1, 1 },
    { "one is ended while its slabs are wanted", 3, 2, two_large, { end_first, take_small }, check },
    { "one block freed by two", EXPLORE_ALL, 2, one_large, { end_twice_2, end_twice_3 }, check_twice },
    { "a late publisher, the span reborn and ended", 3, 4, nearly_empty,
      { publish_last, owner_collects, take_and_hand, end_handed }, check, 2, 1 },
};

int main(int argc, char **argv) { return explore_main(cases, sizeof cases / sizeof cases[0], argc, argv); }
