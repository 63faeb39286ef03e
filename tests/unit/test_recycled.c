/* arena/retained.h on a steered system: freed runs are the next requests' of just their sizes; every request for a run, every step of
 * upkeep and every count of what is in use has it back first, whole, with its guard; what the policy does not allow does not
 * wait; figures and the ledger take it for free; a second free is stopped. */
#include "arena/retained.h"
#include "arena/runs.h"

#include "cache/cache.h"
#include "diag/options.h"
#include "huge/huge.h"
#include "span/pool.h"
#include "stats/stats.h"
#include "support/fake_os.h"
#include "support/figures.h"
#include "support/heaps.h"
#include "upkeep/upkeep.h"

static const size_t mib = 1 << 20;
static struct hak_heap *mine;

static void start(void)
{
    fake_install();
    heaps_start();
    mine = heap_open(0);
}

static char *slowly(size_t n)
{
    bool zero;
    char *p = hak__huge_alloc(n, HAK_SUPER_SIZE, &zero);
    expect(p != NULL);
    return p;
}

static uint64_t supers_taken(void)
{
    struct arena_figures out;
    arena_figures(&out);
    expect(hak__arena_is_valid());
    return out.taken;
}

/* A block of so many bytes that its thread has freed, and that waits. */
static char *waits(size_t n)
{
    char *p = slowly(n);
    memset(p, 1, n);
    expect(hak__huge_free_quickly(mine, p));
    expect_eq(hak__owner_of(p), 0);
    return p;
}

static void given_back(void)
{
    expect(hak__huge_alloc_quickly(mine, 3 * mib) == NULL);
    expect_eq(supers_taken(), 0);
}

FRESH_TEST(just_its_size_is_served)
{
    (void)argument;
    start();
    size_t page = hak__page_size();
    char *p = waits(3 * mib);
    expect(hak__huge_alloc_quickly(mine, 3 * mib + 1) == NULL);
    expect(hak__huge_alloc_quickly(mine, 3 * mib - page) == NULL);
    expect(hak__huge_alloc_quickly(mine, 5 * mib) == NULL);
    expect(hak__huge_alloc_quickly(mine, SIZE_MAX) == NULL);
    expect(hak__huge_alloc_quickly(mine, ((size_t)1 << 52) + 3 * mib) == NULL);
    expect_ptr(hak__huge_alloc_quickly(mine, 3 * mib - page + 1), p);
    expect_eq(hak__huge_usable(p), 3 * mib);
    expect(!is_mapped(p + 3 * mib));
    expect(hak__huge_alloc_quickly(mine, 3 * mib) == NULL);   /* there is one */
    expect(hak__huge_alloc_quickly(mine, SIZE_MAX) == NULL);  /* nor is nothing a run */
    hak__huge_free(p, "free");
    given_back();
}

FRESH_TEST(several_wait_as_far_as_there_is_room)
{
    (void)argument;
    start();
    char *blocks[HAK_WAITING_RUNS + 1], *last;
    for (unsigned i = 0; i <= HAK_WAITING_RUNS; i++)
        blocks[i] = slowly((2 + i % 2) * mib);
    for (unsigned i = 0; i < HAK_WAITING_RUNS; i++)
        expect(hak__huge_free_quickly(mine, blocks[i]));
    last = blocks[HAK_WAITING_RUNS];
    expect(!hak__huge_free_quickly(mine, last));
    expect_eq(hak__huge_usable(last), (2 + HAK_WAITING_RUNS % 2) * mib);
    expect_ptr(hak__huge_alloc_quickly(mine, 3 * mib), blocks[1]);
    expect_ptr(hak__huge_alloc_quickly(mine, 3 * mib), blocks[3]);
    expect_ptr(hak__huge_alloc_quickly(mine, 2 * mib), blocks[0]);
    expect(hak__huge_free_quickly(mine, last));
    for (unsigned i = 0; i <= 3; i += i == 0 ? 1 : 2)
        hak__huge_free(blocks[i], "free");
    hak__waiting_end();
    given_back();
}

FRESH_TEST(lines_share_what_may_wait)
{
    (void)argument;
    start();
    struct hak_heap *other = heap_open(1);
    expect(hak__waiting_line(other->id) != hak__waiting_line(mine->id));
    char *p = slowly(40 * mib), *q = slowly(23 * mib), *r = slowly(2 * mib), *s = slowly(65 * mib);
    expect(!hak__huge_free_quickly(mine, s));   /* more than may wait in all */
    expect(hak__huge_free_quickly(mine, p));
    expect(hak__huge_free_quickly(other, q));
    expect(!hak__huge_free_quickly(mine, r));
    expect_ptr(hak__huge_alloc_quickly(other, 23 * mib), q);
    expect(hak__huge_free_quickly(other, r));   /* of what this line has drawn already */
    hak__huge_free(q, "free");
    hak__huge_free(s, "free");
    hak__waiting_end();
    given_back();
    waits(64 * mib);                            /* and then one may have all of it */
    hak__waiting_end();
    given_back();
}

FRESH_TEST(a_request_has_it_back)
{
    bool fresh;
    (void)argument;
    start();
    size_t before = fake.mapped;
    char *p = waits(3 * mib);
    expect_ptr(slowly(2 * mib + 5), p);   /* in the same place, so that no peak is higher */
    hak__huge_free(p, "free");
    p = waits(3 * mib);
    size_t mapped = fake.mapped;
    size_t slab = hak__pool_open(1, HAK_OPEN_SMALL, &fresh);
    expect_eq(slab, hak__slab_of(p));   /* the first one of the run */
    hak__pool_give(slab, 1);
    p = waits(2 * mib);
    char *wall = slowly(2 * mib);
    expect(hak__huge_free_quickly(mine, wall));
    expect_ptr(hak__huge_resize(p = slowly(2 * mib), 4 * mib), p);   /* what waited behind it made room */
    hak__huge_free(p, "free");
    given_back();
    expect_op(fake.mapped, <=, mapped + 4 * mib);
    expect_op(before, <, fake.mapped);
}

FRESH_TEST(a_step_has_it_back)
{
    (void)argument;
    start();
    waits(3 * mib);
    expect_eq(supers_taken(), 2);
    hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);
    given_back();
    waits(3 * mib);
    expect_op(hak__upkeep_step(fake.now, HAK_UPKEEP_ALL), >=, 3 * mib);   /* and its pages go */
    given_back();
}

FRESH_TEST(it_stays_for_the_purge_delay)
{
    (void)argument;
    start();
    char *p = waits(3 * mib);
    hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);
    unsigned purges = fake.purges;
    expect_ptr(slowly(3 * mib), p);
    expect(hak__huge_free_quickly(mine, p));
    hak__upkeep_step(fake.now += 200, HAK_UPKEEP_BOUNDED);
    expect_eq(fake.purges, purges);
    hak__upkeep_step(fake.now += hak__option(HAK_OPTION_purge_delay), HAK_UPKEEP_BOUNDED);
    expect_op(fake.purges, >, purges);
    given_back();
}

FRESH_TEST(what_the_policy_forbids_does_not_wait)
{
    (void)argument;
    start();
        static const char *const options[][3] = { { "dirty_limit", "0", "16M" }, { "purge_delay", "0", "800" }, { "limit", "100M", "0" } };
    for (unsigned i = 0; i < sizeof options / sizeof *options; i++) {
        expect_eq(hak__option_set(options[i][0], options[i][1]), 0);
        hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);
        char *p = slowly(3 * mib);
        expect(!hak__huge_free_quickly(mine, p));
        hak__huge_free(p, "free");
        expect_eq(hak__option_set(options[i][0], options[i][2]), 0);
        hak__upkeep_step(fake.now, HAK_UPKEEP_BOUNDED);   /* and then it does again */
        waits(3 * mib);
        hak__waiting_end();
    }
}

FRESH_TEST(figures_take_it_for_free)
{
    static struct hak_stats stats;
    (void)argument;
    start();
    waits(3 * mib);
    for (unsigned i = 0; i < 10; i++)
        expect(hak__huge_free_quickly(mine, hak__huge_alloc_quickly(mine, 3 * mib)));
    hak__snapshot(&stats);
    expect_eq(stats.huge_allocated, 11);
    expect_eq(stats.huge_freed, 11);
    expect_eq(stats.huge_live, 0);
    expect_eq(stats.bytes_huge, 0);
    hak__ledger(&stats);
    expect_eq(stats.ledger_huge, 0);
    expect_op(stats.ledger_empty, >=, 3 * mib);
    char *p = hak__huge_alloc_quickly(mine, 3 * mib);
    hak__snapshot(&stats);
    expect_eq(stats.huge_live, 1);
    expect_eq(stats.bytes_huge, 3 * mib);
    hak__ledger(&stats);
    expect_eq(stats.ledger_huge, 3 * mib);
    expect_eq(stats.ledger_empty, 0);
    hak__huge_free(p, "free");
}

/* Between a thread's look at the room and its put all lines are given back: nothing more may wait for it than before. */
FRESH_TEST(an_end_between_look_and_put_frees_no_room)
{
    (void)argument;
    start();
    struct hak_waiting_line *line = hak__waiting_line(mine->id);
    char *p = slowly(3 * mib);
    size_t first = hak__slab_of(p) / HAK_SUPER_SLABS, bytes = hak__huge_usable(p);
    _Atomic uint64_t *word = hak__waiting_word(line, bytes);
    expect(word != NULL);
    hak_store(&hak__waiting_rules.any, true, HAK_RELAXED);
    hak__waiting_end();
    expect_eq(hak_load(&line->room, HAK_RELAXED), 0);
    expect(hak__waiting_put(word, first, bytes));
    expect(hak__waiting_word(line, (size_t)1 << 40) == NULL);
    expect_op(hak_load(&line->room, HAK_RELAXED), <, (size_t)1 << 40);
}

static void free_it(void *argument) { hak__huge_free(argument, "free"); }

FRESH_TEST(misuse_is_stopped)
{
    (void)argument;
    start();
    char line[200], *p = waits(3 * mib);
    snprintf(line, sizeof line, "hakmem: free(): invalid pointer %p: not the start of a block", (void *)p);
    expect_abort(free_it, p, line);
    expect(!hak__huge_free_quickly(mine, p + 4096));
    expect_eq(hak__huge_usable(p), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(just_its_size_is_served),
        cmocka_unit_test(several_wait_as_far_as_there_is_room),
        cmocka_unit_test(lines_share_what_may_wait),
        cmocka_unit_test(a_request_has_it_back),
        cmocka_unit_test(a_step_has_it_back),
        cmocka_unit_test(it_stays_for_the_purge_delay),
        cmocka_unit_test(what_the_policy_forbids_does_not_wait),
        cmocka_unit_test(figures_take_it_for_free),
        cmocka_unit_test(an_end_between_look_and_put_frees_no_room),
        cmocka_unit_test(misuse_is_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
