/* arena/retained.h: pages that a block before has used stay behind the next, and serve again when it is freed or changes its size; they go
 * back by age, and where unused memory may not stay; and what the system refuses. After each step the arena's sums hold. */
#include "arena/retained.h"
#include "arena/runs.h"

#include "diag/options.h"
#include "harden/mode.h"
#include "huge/huge.h"
#include "support/fake_os.h"
#include "support/figures.h"

enum { MIB = 1 << 20, PART = 640 << 10 };

static size_t super_of(const char *p) { return hak__slab_of(p) / HAK_SUPER_SLABS; }

static void expect_sums(void)
{
    struct arena_figures figures;
    arena_figures(&figures);
    expect(hak__arena_is_valid());
    expect_eq(fake.mapped, figures.mapped + figures.meta);
}

static char *alloc(size_t n)
{
    char *p = hak__huge_alloc(n, 1, NULL);
    expect(p != NULL);
    memset(p, 1, n);
    expect_sums();
    return p;
}

static void release(char *p)
{
    hak__huge_free(p, "free");
    expect_sums();
}

/* A SuperSlab with pages everywhere; then a block of PART bytes in it. */
static char *start(void)
{
    fake_install();
    expect_eq(hak__arena_init(), 0);
    char *p = alloc(HAK_SUPER_SIZE - hak__page_size());
    release(p);
    return p;
}

static char *start_with_tail(void)
{
    char *before = start(), *p = alloc(PART);
    size_t guard = hak__page_size();
    expect(p == before);
    expect_eq(hak__super_tail(super_of(p)), HAK_SUPER_SIZE - guard - PART);
    expect_eq(hak__arena_state.tails, HAK_SUPER_SIZE - guard - PART);
    return p;
}

static void expect_no_tail(char *p)
{
    expect_eq(hak__super_tail(super_of(p)), 0);
    expect_eq(hak__arena_state.tails, 0);
    expect_sums();
}

FRESH_TEST(it_serves_the_next_block)
{
    (void)argument;
    char *p = start_with_tail();
    unsigned unmaps = fake.unmaps;
    hak__huge_free(p, "free");
    expect_no_tail(p);
    expect_eq(hak__supers[super_of(p)].dirty, HAK_SUPER_SIZE - hak__page_size());
    unsigned maps = fake.maps;
    expect_eq(fake.unmaps, unmaps);
    expect(alloc(HAK_SUPER_SIZE - hak__page_size()) == p);   /* which writes to all of it */
    expect_eq(fake.maps, maps);
}

FRESH_TEST(a_block_grows_and_shrinks_over_its_tail)
{
    (void)argument;
    char *p = start_with_tail();
    expect(hak__huge_resize(p, MIB) == p);
    memset(p, 2, MIB);
    expect_eq(hak__super_tail(super_of(p)), HAK_SUPER_SIZE - hak__page_size() - hak__huge_usable(p));
    expect_sums();
    expect(hak__huge_resize(p, PART / 2) == p);
    expect_eq(hak__super_tail(super_of(p)), HAK_SUPER_SIZE - hak__page_size() - PART / 2);
    expect_eq(p[PART / 2 - 1], 2);
    expect_sums();
    expect(hak__huge_resize(p, 5 * MIB) != NULL);
    expect_no_tail(p);
}

FRESH_TEST(an_old_tail_goes_back)
{
    (void)argument;
    char *p = start_with_tail();
    uint64_t delay = hak__option(HAK_OPTION_purge_delay);
    fake.now += delay - 1;
    hak__arena_purge(fake.now, false);
    expect(hak__arena_state.tails != 0);
    fake.now++;
    expect_eq(hak__arena_purge(fake.now, false), HAK_SUPER_SIZE - hak__page_size() - PART);
    expect_no_tail(p);
    expect(!is_mapped(p + PART));
    expect_eq(p[PART - 1], 1);
    release(p);
}

FRESH_TEST(all_go_back_when_asked)
{
    (void)argument;
    char *p = start_with_tail();
    hak__arena_purge(fake.now, true);
    expect_no_tail(p);
    expect(!is_mapped(p + PART));
}

/* Emptied SuperSlabs and tails together are as much as emptied ones alone may be. */
FRESH_TEST(no_more_than_may_stay)
{
    (void)argument;
    fake_install();
    expect_eq(hak__arena_init(), 0);
    expect_eq(hak__option_set("dirty_limit", "1M"), 0);   /* 4 MiB, of what was in use before */
    char *p[3];
    for (unsigned i = 0; i < 3; i++)
        p[i] = alloc(HAK_SUPER_SIZE - hak__page_size());
    for (unsigned i = 0; i < 3; i++) {
        release(p[i]);
        p[i] = alloc(PART);
    }
    size_t one = HAK_SUPER_SIZE - hak__page_size() - PART;
    expect_eq(hak__arena_state.tails, 2 * one);
    for (unsigned i = 0; i < 3; i++)
        release(p[i]);
    expect_eq(hak__arena_state.tails, 0);
}

/* What becomes a tail is no longer in use: it fills what its own block leaves of the recent peak. */
FRESH_TEST(a_tail_counts_once)
{
    (void)argument;
    char *before = start();
    expect_eq(hak__option_set("dirty_limit", "512K"), 0);
    char *p = alloc(PART);
    expect(p == before);
    expect_eq(hak__super_tail(super_of(p)), HAK_SUPER_SIZE - hak__page_size() - PART);
}

/* Of a page, too. */
FRESH_TEST(a_little_tail)
{
    (void)argument;
    char *before = start();
    unsigned unmaps = fake.unmaps;
    char *p = alloc(HAK_SUPER_SIZE - 2 * hak__page_size());
    expect(p == before);
    expect_eq(hak__super_tail(super_of(p)), hak__page_size());
    expect_eq(fake.unmaps, unmaps);
}

/* The SuperSlab behind a block of whole ones would only have its guard. If it has pages, it stays free with them. */
FRESH_TEST(pages_stay_behind_whole_superslabs)
{
    (void)argument;
    fake_install();
    expect_eq(hak__arena_init(), 0);
    char *before = alloc(3 * HAK_SUPER_SIZE);
    release(before);
    unsigned unmaps = fake.unmaps;
    char *p = alloc(2 * HAK_SUPER_SIZE);
    expect(p == before);
    expect_eq(hak__supers[super_of(p) + 2].dirty, HAK_SUPER_SIZE);
    expect_eq(hak__arena_state.dirty, HAK_SUPER_SIZE);
    expect_eq(fake.unmaps, unmaps);
    release(p);
    expect_eq(hak__arena_state.dirty, 3 * HAK_SUPER_SIZE);
}

FRESH_TEST(none_where_nothing_may_stay)
{
    (void)argument;
    char *p = start();
    expect_eq(hak__option_set("purge_delay", "0"), 0);
    expect(alloc(PART) == p);
    expect_no_tail(p);
    expect(!is_mapped(p + PART));
}

FRESH_TEST(none_in_hardened_mode)
{
    (void)argument;
    char *p = start();
    hak__hardened.on = true;
    bool zero;
    expect(hak__huge_alloc(PART, 1, &zero) == p);
    expect_no_tail(p);
    expect(!is_mapped(p + PART));
}

/* What the block before has not touched is no page that could be saved. */
FRESH_TEST(none_without_pages)
{
    (void)argument;
    fake_install();
    expect_eq(hak__arena_init(), 0);
    bool zero;
    char *p = hak__huge_alloc(PART, 1, &zero);
    expect(p != NULL && zero);
    expect_no_tail(p);
    expect(!is_mapped(p + PART));
}

FRESH_TEST(a_purge_that_is_refused)
{
    (void)argument;
    char *p = start_with_tail();
    fake.refuse_unmap = true;
    hak__arena_purge(fake.now, true);
    expect(hak__arena_state.tails != 0);
    expect_sums();
    fake.refuse_unmap = false;
    release(p);
    expect_no_tail(p);
}

static void *locks_for_ever(void *argument)
{
    hak__arena_lock();
    return argument;
}

FRESH_TEST(a_child_has_the_tails)
{
    (void)argument;
    char *p = start_with_tail();
    run_threads(1, locks_for_ever, p, 1);
    hak__arena_state.tails = 1;   /* as of a thread that was changing it */
    hak__arena_fork_child();
    expect_eq(hak__arena_state.tails, hak__super_tail(super_of(p)));
    release(p);
    expect_no_tail(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_serves_the_next_block),
        cmocka_unit_test(a_block_grows_and_shrinks_over_its_tail),
        cmocka_unit_test(an_old_tail_goes_back),
        cmocka_unit_test(all_go_back_when_asked),
        cmocka_unit_test(a_tail_counts_once),
        cmocka_unit_test(a_little_tail),
        cmocka_unit_test(pages_stay_behind_whole_superslabs),
        cmocka_unit_test(no_more_than_may_stay),
        cmocka_unit_test(none_where_nothing_may_stay),
        cmocka_unit_test(none_in_hardened_mode),
        cmocka_unit_test(none_without_pages),
        cmocka_unit_test(a_purge_that_is_refused),
        cmocka_unit_test(a_child_has_the_tails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
