/* span/pool.h: runs of slabs come from the lowest SuperSlab that has one, whatever the hints once said; a new run
 * is refused only when none exists, and opening serves it then; an empty SuperSlab goes back to the arena; runs grow
 * in place; and threads that take and give at once never share a slab nor lose one. */
#include "span/pool.h"

#include "arena/limit.h"
#include "arena/runs.h"
#include "support/fake_os.h"
#include "support/figures.h"

enum { MAX_SUPERS = 64 };

static void start(void)
{
    fake_install();
    expect_eq(hak__arena_init(), 0);
}

static struct pool_figures figures(void)
{
    struct pool_figures out;
    pool_figures(&out);
    return out;
}

static size_t take_or_open(unsigned count, bool *fresh)
{
    size_t slab = hak__pool_take(count, fresh);
    return slab != HAK_NO_RUN ? slab : hak__pool_open(count, HAK_OPEN_SMALL, fresh);
}

static size_t take(unsigned count)
{
    bool fresh;
    return take_or_open(count, &fresh);
}

FRESH_TEST(lowest_first)
{
    (void)argument;
    start();
    for (size_t i = 0; i < 70; i++)
        expect_eq(take(1), i);
    hak__pool_give(40, 1);
    hak__pool_give(3, 1);
    expect_eq(take(1), 3);
    expect_eq(take(1), 40);
    expect_eq(figures().opened, 3);
}

/* A run of three may lie where the longest run known is two, by the hints. */
FRESH_TEST(odd_runs_are_found_too)
{
    (void)argument;
    start();
    for (unsigned count = 3; count <= 15; count++) {
        size_t first = take(16), second = take(16);
        hak__pool_give(first, 16);
        expect_eq(take(16 - count), first);
        expect_eq(take(count), first + 16 - count);
        expect_eq(second, first + 16);
        hak__pool_give(first, 16);
        hak__pool_give(second, 16);
    }
    expect_op(figures().opened, <=, 13);
}

FRESH_TEST(empty_supers_close)
{
    struct arena_figures arena;
    (void)argument;
    start();
    size_t a = take(16), b = take(16), c = take(8);
    hak__pool_give(a, 16);
    expect_eq(figures().closed, 0);
    hak__pool_give(b, 16);
    expect_eq(figures().closed, 1);
    arena_figures(&arena);
    expect_eq(arena.taken, 1);
    expect_eq(atomic_load(&hak__supers[0].kind), HAK_SUPER_FREE);
    expect_eq(take(4), c + 8);   /* not from the SuperSlab that is closed, though its hints were set */
    hak__pool_give(c, 12);
    arena_figures(&arena);
    expect_eq(arena.taken, 0);
    expect(hak__arena_is_valid());
}

FRESH_TEST(fresh_is_honest)
{
    bool fresh;
    (void)argument;
    start();
    size_t a = take_or_open(4, &fresh);
    expect(fresh && is_zero(hak__slab_start(a), 4 * HAK_SLAB_SIZE));
    memset(hak__slab_start(a), 1, 4 * HAK_SLAB_SIZE);
    size_t b = take_or_open(1, &fresh);
    expect(fresh);
    hak__pool_give(a, 4);
    expect_eq(take_or_open(2, &fresh), a);
    expect(!fresh);
    hak__pool_give(a, 2);
    hak__pool_give(b, 1);   /* empty: the SuperSlab goes back dirty and comes again so */
    expect_eq(take_or_open(8, &fresh), 0);
    expect(!fresh);
    expect_eq(figures().opened, 2);
}

/* Where memory grows, unused slabs are returned down to what was used lately and is not now, and the
 * dirty limit. */
FRESH_TEST(growth_is_paid_with_unused_slabs)
{
    enum { HALF = HAK_SUPER_SLABS / 2, SUPERS = 20 };
    size_t slabs[2 * SUPERS];
    (void)argument;
    start();
    for (size_t i = 0; i < 2 * SUPERS; i++)
        slabs[i] = take(HALF);
    expect_eq(hak__pool_trim(), 0);
    for (size_t i = 0; i < SUPERS; i++)
        hak__pool_give(slabs[2 * i], HALF);
    fake.now += 800;
    expect_eq(hak__pool_trim(), 0);   /* 20 MiB are unused, where 20 more were used */
    fake.now += 800;
    expect_eq(hak__pool_trim(), 4 * HAK_SUPER_SIZE / 2);
    for (size_t i = 0; i < SUPERS; i++) {
        uint64_t word = hak_load(&hak__supers[slabs[2 * i] / HAK_SUPER_SLABS].slabs, HAK_RELAXED);
        bool stays = i < SUPERS - 4;
        expect_eq((hak__slabs_unused(word) & hak__slabs_dirty(word)) != 0, stays);
    }
    expect_eq(hak__pool_trim(), 0);
}

/* In a heap of many SuperSlabs growth looks for unused slabs now and then only. */
FRESH_TEST(large_heaps_look_seldom)
{
    enum { HALF = HAK_SUPER_SLABS / 2, MANY = 600 };
    static size_t slabs[2 * MANY];
    unsigned passed = 0;
    (void)argument;
    start();
    for (size_t i = 0; i < 2 * MANY; i++)
        slabs[i] = take(HALF);
    for (unsigned i = 0; i <= MANY / 256; i++)
        expect_eq(hak__pool_trim(), 0);
    for (size_t i = 0; i < MANY; i++)
        hak__pool_give(slabs[2 * i], HALF);
    while (hak__pool_trim() == 0)
        expect_op(++passed, <=, MANY / 256);
    expect_eq(passed, MANY / 256);
}

/* Unused slabs of a SuperSlab that is otherwise in use give their pages back when nothing was given back for a while. */
FRESH_TEST(idle_slabs_are_purged)
{
    bool fresh;
    (void)argument;
    start();
    size_t a = take(4), b = take(4), c = take(1);
    memset(hak__slab_start(a), 1, 8 * HAK_SLAB_SIZE);
    fake.now += 1000;
    uint64_t given = fake.now;
    hak__pool_give(a, 4);
    expect_eq(hak__pool_purge(given - 1, SIZE_MAX), 0);
    expect_eq(hak__pool_purge(given, SIZE_MAX), 4 * HAK_SLAB_SIZE);
    expect_eq(hak__pool_purge(given, SIZE_MAX), 0);   /* they hold nothing any more */
    expect_eq(take_or_open(4, &fresh), a);
    expect(fresh && is_zero(hak__slab_start(a), 4 * HAK_SLAB_SIZE));
    hak__pool_give(a, 4);
    fake.refuse_purge = true;
    expect_eq(hak__pool_purge(given, SIZE_MAX), 0);   /* refused: they stay dirty, and there */
    fake.refuse_purge = false;
    expect_eq(take_or_open(4, &fresh), a);
    expect(!fresh);
    hak__pool_give(a, 4);
    hak__pool_give(b, 4);
    hak__pool_give(c, 1);
    expect_eq(figures().closed, 1);
}

FRESH_TEST(extend_in_place)
{
    (void)argument;
    start();
    size_t a = take(2), b = take(2), c = take(2);
    expect(!hak__pool_extend(a, 2, 3));
    hak__pool_give(b, 2);
    expect(hak__pool_extend(a, 2, 3));
    expect(!hak__pool_extend(a, 3, 5));
    expect(hak__pool_extend(a, 3, 4));
    expect(!hak__pool_extend(a, 4, 5));
    expect(hak__pool_extend(c, 2, 16));
    hak__pool_give(c + 10, 6);
    expect_eq(take(6), c + 10);
    expect(hak__pool_extend(c, 16, 28));   /* to the SuperSlab's last slab, and not over it */
    expect(!hak__pool_extend(c, 28, 29));
}

FRESH_TEST(refused)
{
    bool fresh;
    (void)argument;
    start();
    size_t a = take(16);
    fake.limit = fake.mapped;
    size_t b = take(16);
    expect_eq(b, a + 16);
    while (take(1) != HAK_NO_RUN)
        continue;   /* what has been mapped ahead */
    expect(take_or_open(16, &fresh) == HAK_NO_RUN);
    hak__pool_give(a, 16);
    expect_eq(take(9), a);
    fake.limit = SIZE_MAX;
    expect_op(take(16), !=, HAK_NO_RUN);
}

/* --- random operations -------------------------------------------------------------------------------------------- */

static uint32_t unused[MAX_SUPERS];   /* the model's word of each SuperSlab in slabs */
static bool in_slabs[MAX_SUPERS];

static size_t model_lowest(unsigned count)
{
    for (size_t super = 0; super < MAX_SUPERS; super++)
        if (in_slabs[super] && hak_run_starts(unused[super], count) != 0)
            return super;
    return HAK_NO_SUPER;
}

static void model_take(size_t slab, unsigned count)
{
    size_t super = slab / HAK_SUPER_SLABS;
    uint32_t run = hak_ones32(count) << slab % HAK_SUPER_SLABS;
    if (!in_slabs[super])
        unused[super] = ~0u;
    in_slabs[super] = true;
    expect_eq(unused[super] & run, run);
    unused[super] &= ~run;
}

static void model_give(size_t slab, unsigned count)
{
    size_t super = slab / HAK_SUPER_SLABS;
    unused[super] |= hak_ones32(count) << slab % HAK_SUPER_SLABS;
    in_slabs[super] = unused[super] != ~0u;
}

/* Takes a run and checks that it was refused just if no SuperSlab at hand had room for it. */
static size_t fuzz_take(unsigned count)
{
    bool fresh;
    size_t had_room = model_lowest(count), slab = hak__pool_take(count, &fresh);
    expect_eq(slab == HAK_NO_RUN, had_room == HAK_NO_SUPER);
    if (slab == HAK_NO_RUN)
        slab = hak__pool_open(count, HAK_OPEN_SMALL, &fresh);
    expect(slab != HAK_NO_RUN);
    expect(had_room == HAK_NO_SUPER || hak_run_starts(unused[slab / HAK_SUPER_SLABS], count) != 0);
    model_take(slab, count);
    return slab;
}

FRESH_TEST(random_operations)
{
    struct {
        size_t slab;
        unsigned count;
    } runs[100] = { { 0, 0 } };
    struct rng rng = { 6 };
    (void)argument;
    start();
    for (unsigned step = 0; step < 6000; step++) {
        size_t i = rng_below(&rng, step / 1000 % 2 ? 30 : 100);   /* fuller and emptier times */
        if (runs[i].count == 0) {
            runs[i].count = 1 + (unsigned)rng_below(&rng, rng_below(&rng, 2) ? 16 : 4);
            runs[i].slab = fuzz_take(runs[i].count);
        } else {
            hak__pool_give(runs[i].slab, runs[i].count);
            model_give(runs[i].slab, runs[i].count);
            runs[i].count = 0;
        }
        for (size_t super = 0; super < hak_min(MAX_SUPERS, hak__arena_top()); super++) {
            uint32_t word = hak__slabs_unused(atomic_load(&hak__supers[super].slabs));
            expect_eq(word, in_slabs[super] ? unused[super] : 0);
        }
    }
    expect(hak__arena_is_valid());
}

/* --- threads -------------------------------------------------------------------------------------------------------- */

enum { THREADS = 3, ROUNDS = 3000, HELD = 20 };

static _Atomic uint32_t users[MAX_SUPERS * HAK_SUPER_SLABS];

static void use(size_t slab, unsigned count, uint32_t before, uint32_t after)
{
    expect_op(slab + count, <=, MAX_SUPERS * HAK_SUPER_SLABS);
    for (size_t i = slab; i < slab + count; i++)
        expect_eq(atomic_exchange(&users[i], after), before);
}

static void *take_and_give(void *argument)
{
    uint32_t me = *(uint32_t *)argument;
    struct rng rng = { me };
    size_t slabs[HELD];
    unsigned counts[HELD] = { 0 };
    for (unsigned round = 0; round < ROUNDS; round++) {
        size_t i = rng_below(&rng, HELD);
        if (counts[i] == 0) {
            counts[i] = 1 + (unsigned)rng_below(&rng, 16);
            slabs[i] = take(counts[i]);
            use(slabs[i], counts[i], 0, me);
        } else {
            use(slabs[i], counts[i], me, 0);
            hak__pool_give(slabs[i], counts[i]);
            counts[i] = 0;
        }
    }
    for (size_t i = 0; i < HELD; i++)
        if (counts[i] != 0) {
            use(slabs[i], counts[i], me, 0);
            hak__pool_give(slabs[i], counts[i]);
        }
    return NULL;
}

FRESH_TEST(threads_share_nothing)
{
    uint32_t names[THREADS] = { 1, 2, 3 };
    struct arena_figures arena;
    (void)argument;
    expect_eq(hak__arena_init(), 0);   /* on the real system: the fake one is for one thread */
    run_threads(THREADS, take_and_give, names, sizeof *names);
    arena_figures(&arena);
    expect_eq(arena.taken, 0);   /* every SuperSlab was closed: no slab is lost */
    expect_eq(figures().opened, figures().closed);
    expect(hak__arena_is_valid());
    size_t first = take(16);
    expect_eq(take(16), first + 16);
}

/* The next piece of a bare SuperSlab may be refused, so it serves only where no other does; unless all are bare. */
FRESH_TEST(bare_ones_come_last)
{
    (void)argument;
    bool fresh;
    start();
    size_t bare = hak__pool_open(1, HAK_OPEN_BARE, &fresh), whole = hak__pool_open(1, HAK_OPEN_SMALL, &fresh);
    expect_eq(bare / HAK_SUPER_SLABS, 0);
    expect_eq(whole / HAK_SUPER_SLABS, 1);
    expect_eq(hak__pool_take_near(bare, 1, &fresh), HAK_NO_RUN);
    expect(!hak__pool_assign(0, 1));
    expect_eq(hak__pool_take(16, &fresh), whole + 1);
    expect_eq(hak__pool_take(15, &fresh), whole + 17);
    expect_eq(hak__pool_take(1, &fresh), bare + 1);
    hak__thrift_begin();
    expect_eq(hak__pool_take_near(bare, 1, &fresh), bare + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lowest_first),      cmocka_unit_test(odd_runs_are_found_too),
        cmocka_unit_test(empty_supers_close), cmocka_unit_test(fresh_is_honest),
        cmocka_unit_test(growth_is_paid_with_unused_slabs), cmocka_unit_test(large_heaps_look_seldom),
        cmocka_unit_test(idle_slabs_are_purged), cmocka_unit_test(extend_in_place),   cmocka_unit_test(refused),
        cmocka_unit_test(random_operations), cmocka_unit_test(threads_share_nothing),
        cmocka_unit_test(bare_ones_come_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
