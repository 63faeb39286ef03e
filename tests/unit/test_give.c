/* heap/give.c, and what collecting makes of it: two frees of one block, in each order in which the owner O and the others A and B
 * can meet. A free by another thread leaves the block as it is; the owner looks at it when it collects. */
#include "cache/cache.h"
#include "support/heaps.h"

enum { CLASS_64 = 3, COUNT = 20 };

struct world {
    struct hak_heap *o, *a, *b;
    void *p;                  /* a block of O's, in use */
    void *blocks[COUNT];      /* among these */
};

static struct world start(void)
{
    struct world w;
    heaps_start();
    w.o = heap_open(0);
    w.a = heap_open(0);
    w.b = heap_open(0);
    heap_malloc_many(w.o, CLASS_64, w.blocks, COUNT);
    for (unsigned i = 0; i < COUNT; i++)
        hak__mark_live(w.blocks[i]);
    w.p = w.blocks[7];
    return w;
}

/* As hak_free frees them, but for the checks that it makes beforehand. */
static void free_own(struct world *w)
{
    hak__mark_freed(w->p);
    heap_free(w->o, CLASS_64, w->p);
}
static void free_other(struct hak_heap *heap, void *p)
{
    if (!hak__outbox_add(heap, p))
        hak__outbox_add_slow(heap, p, hak__owner_of(p), "free");
}
static void publish(struct hak_heap *heap) { hak__outbox_flush(heap, "free"); }

static void use_again(struct world *w)
{
    void *again = NULL;
    for (unsigned i = 0; i < 4096 && again != w->p; i++)
        again = heap_malloc(w->o, CLASS_64);
    expect_ptr(again, w->p);
    hak__mark_live(again);
}

static void a_twice(void *world)
{
    struct world *w = world;
    free_other(w->a, w->p);
    free_other(w->a, w->p);
    publish(w->a);
}

static void a_then_b_before_the_collection(void *world)
{
    struct world *w = world;
    free_other(w->a, w->p);
    free_other(w->b, w->p);
    publish(w->b);
    publish(w->a);
}

static void a_then_b_after_the_collection(void *world)
{
    struct world *w = world;
    free_other(w->a, w->p);
    publish(w->a);
    hak__heap_collect(w->o);
    free_other(w->b, w->p);
    publish(w->b);
    hak__heap_collect(w->o);
}

/* The block lies in a bin of O's, taken from its span as one of a batch. */
static void a_then_b_when_it_is_ready(void *world)
{
    struct world *w = world;
    free_other(w->a, w->p);
    publish(w->a);
    hak__heap_collect(w->o);
    use_again(w);
    free_own(w);
    free_other(w->b, w->p);
    publish(w->b);
    hak__heap_collect(w->o);
}

static void o_then_a(void *world)
{
    struct world *w = world;
    free_own(w);
    free_other(w->a, w->p);
    publish(w->a);
    hak__heap_collect(w->o);
}

static void a_then_o(void *world)
{
    struct world *w = world;
    free_other(w->a, w->p);
    free_own(w);
    publish(w->a);
    hak__heap_collect(w->o);
}

static void a_then_o_which_drains(void *world)
{
    struct world *w = world;
    free_other(w->a, w->p);
    free_own(w);
    hak__cache_flush(w->o);
    publish(w->a);
    hak__heap_collect(w->o);
}

static void a_then_b_which_keeps_it(void *world)
{
    struct world *w = world;
    (void)heap_malloc(w->b, CLASS_64);
    while (hak__cache_pop(&w->b->bins[CLASS_64]) != NULL)
        continue;
    free_other(w->a, w->p);
    expect(heap_absorb(w->b, CLASS_64, w->p));
    publish(w->a);
    hak__heap_collect(w->o);
}

static void a_then_a_thread_without_a_heap(void *world)
{
    struct world *w = world;
    free_other(w->a, w->p);
    publish(w->a);
    hak__outbox_bypass(w->p, hak__owner_of(w->p), "free");
}

FRESH_TEST(two_frees_are_found)
{
    static check_body *const orders[] = { a_twice, a_then_b_before_the_collection, a_then_b_after_the_collection,
        a_then_b_when_it_is_ready, o_then_a, a_then_o, a_then_o_which_drains, a_then_b_which_keeps_it,
        a_then_a_thread_without_a_heap };
    char line[200];
    (void)argument;
    if (!HAK_PROTECT)
        return;
    struct world w = start();
    snprintf(line, sizeof line, "hakmem: free(): double free of %p (64-byte block)", w.p);
    for (unsigned i = 0; i < sizeof orders / sizeof *orders; i++)
        expect_abort(orders[i], &w, line);
}

/* What is not found: the block is handed out between the second free and the collection, so that the first free looks like one of the
 * block in use (docs/security.md). */
FRESH_TEST(not_when_handed_out_between)
{
    (void)argument;
    struct world w = start();
    free_other(w.a, w.p);
    free_own(&w);
    use_again(&w);
    publish(w.a);
    hak__heap_collect(w.o);
}

/* A program's own words are no reason for a report: the key in a block in use, which goes each of the ways. */
FRESH_TEST(the_key_as_data)
{
    (void)argument;
    struct world w = start();
    for (unsigned i = 0; i < COUNT; i++)
        *(hak_key *)w.blocks[i] = hak__freed_key;
    for (unsigned i = 0; i < COUNT; i++)
        free_other(i % 2 ? w.a : w.b, w.blocks[i]);
    publish(w.a);
    publish(w.b);
    hak__heap_collect(w.o);
    hak__cache_flush(w.o);
    expect_eq(heap_live(w.o, CLASS_64), 0);
    expect_heap_valid(w.o);
}

/* After the collection a block bears the mark, so that a later free by its owner is found at once. */
FRESH_TEST(collected_blocks_are_marked)
{
    (void)argument;
    struct world w = start();
    free_other(w.a, w.p);
    expect(!hak__looks_freed(w.p));
    publish(w.a);
    expect(!hak__looks_freed(w.p));
    hak__heap_collect(w.o);
    expect_eq(hak__looks_freed(w.p), HAK_PROTECT);
    expect(hak__cache_has_freed(w.o, CLASS_64, w.p));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_frees_are_found),
        cmocka_unit_test(not_when_handed_out_between),
        cmocka_unit_test(the_key_as_data),
        cmocka_unit_test(collected_blocks_are_marked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
