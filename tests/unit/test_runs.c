/* arena/runs.h on a steered system: which run a request gets (the tightest dirty one, else the tightest free one, the
 * lowest of equals, else the top), whether `fresh` tells the truth, alignment, holes, growth, purging by age and by
 * amount, unmapping as the last resort, extending, trimming, moving; and random operations against a model. After each
 * step hak__arena_is_valid holds, what the arena says is mapped is mapped, and nothing else is. */
#include "arena/retained.h"
#include "arena/runs.h"

#include "arena/arena.h"
#include "arena/limit.h"
#include "arena/mapping.h"
#include "arena/window.h"
#include "base/bits.h"
#include "diag/options.h"
#include "support/fake_os.h"
#include "support/figures.h"

enum { MIB = 1 << 20, PAGE_GAP = 64 << 10 };

static void start(void)
{
    fake_install();
    expect_eq(hak__arena_init(), 0);
    expect_eq(hak__option_set("dirty_limit", "1G"), 0);   /* tests that are about it set it lower */
}

static size_t figure_mapped(void)
{
    struct arena_figures figures;
    arena_figures(&figures);
    expect_eq(fake.mapped, figures.mapped + figures.meta);
    return figures.mapped;
}

static size_t figure_dirty(void)
{
    struct arena_figures figures;
    arena_figures(&figures);
    return figures.dirty;
}

/* The mapped prefix of each SuperSlab is what the system has there, to the page. */
static void expect_mapped_as_said(void)
{
    for (size_t i = 0; i < hak__arena_top(); i++) {
        size_t mapped = hak__supers[i].mapped;
        expect(mapped == 0 || is_mapped(hak__super_start(i)));
        expect(mapped == 0 || is_mapped(hak__super_start(i) + mapped - 1));
        expect(mapped == HAK_SUPER_SIZE || !is_mapped(hak__super_start(i) + mapped));
        expect(mapped == HAK_SUPER_SIZE || !is_mapped(hak__super_start(i) + HAK_SUPER_SIZE - 1));
    }
}

static void expect_valid(void)
{
    figure_mapped();
    expect(hak__arena_is_valid());
    expect_mapped_as_said();
}

static size_t take_aligned(size_t count, size_t align, bool *fresh)
{
    size_t first = hak__supers_take(count, align, count << HAK_SUPER_SHIFT, HAK_SUPER_HUGE, fresh);
    expect(hak__arena_is_valid());
    return first;
}

static size_t take(size_t count)
{
    bool fresh;
    return take_aligned(count, 1, &fresh);
}

static void give(size_t first, size_t count)
{
    hak__supers_give(first, count);
    expect(hak__arena_is_valid());
}

static void soil(size_t first, size_t count) { memory_fill(hak__super_start(first), count << HAK_SUPER_SHIFT, first); }

/* --- which run --------------------------------------------------------------------------------------------------- */

FRESH_TEST(lowest_first)
{
    (void)argument;
    start();
    for (size_t i = 0; i < 6; i++)
        expect_eq(take(1), i);
    give(4, 1);
    give(1, 1);
    expect_eq(take(1), 1);
    expect_eq(take(1), 4);
    expect_valid();
}

FRESH_TEST(neighbours_coalesce)
{
    (void)argument;
    start();
    expect_eq(take(6), 0);
    give(3, 1);
    give(1, 1);
    give(2, 1);
    expect_eq(take(3), 1);
    expect_valid();
}

FRESH_TEST(tightest_run)
{
    (void)argument;
    start();
    expect_eq(take(10), 0);
    give(1, 3);
    give(5, 2);
    give(8, 2);
    expect_eq(take(2), 5);
    expect_eq(take(2), 8);
    expect_eq(take(2), 1);
}

FRESH_TEST(runs_across_words_of_bits)
{
    (void)argument;
    start();
    expect_eq(take(200), 0);
    give(60, 70);
    expect_eq(take(70), 60);
    give(127, 2);
    expect_eq(take(2), 127);
    expect_valid();
}

FRESH_TEST(top_joins_the_free_run_below_it)
{
    (void)argument;
    start();
    expect_eq(take(4), 0);
    give(2, 2);
    expect_eq(take(5), 2);
    expect_valid();
}

FRESH_TEST(dirty_before_clean)
{
    bool fresh;
    (void)argument;
    start();
    expect_eq(take(8), 0);
    soil(0, 8);
    give(0, 1);
    expect_eq(hak__arena_purge(fake.now, true), HAK_SUPER_SIZE);
    give(4, 1);
    expect_eq(take_aligned(1, 1, &fresh), 4);
    expect(!fresh);
    expect_eq(take_aligned(1, 1, &fresh), 0);
    expect(fresh);
    expect(is_zero(hak__super_start(0), HAK_SUPER_SIZE));
}

FRESH_TEST(fresh_is_honest_for_runs)
{
    bool fresh;
    (void)argument;
    start();
    expect_eq(take_aligned(4, 1, &fresh), 0);
    expect(fresh && is_zero(hak__super_start(0), 4 * HAK_SUPER_SIZE));
    soil(3, 1);
    give(0, 3);
    hak__arena_purge(fake.now, true);
    give(3, 1);
    expect_eq(take_aligned(4, 1, &fresh), 0);   /* three clean ones and a dirty one */
    expect(!fresh);
}

/* The first SuperSlab at or after `super` whose address is aligned so. */
static size_t next_aligned(size_t super, size_t align)
{
    while ((uintptr_t)hak__super_start(super) % (align * HAK_SUPER_SIZE) != 0)
        super++;
    return super;
}

/* Alignment is the address's, wherever the window begins, and nothing is mapped or taken for what is skipped. */
FRESH_TEST(alignment)
{
    bool fresh;
    (void)argument;
    start();
    expect_eq(take(1), 0);
    size_t four = next_aligned(1, 4), many = next_aligned(four + 2, 512);
    expect_eq(take_aligned(2, 4, &fresh), four);
    expect_eq(take_aligned(1, 512, &fresh), many);
    expect_eq(hak__arena_top(), many + 1);
    for (size_t i = 1; i < many; i++) {
        bool skipped = i != four && i != four + 1;
        expect(!skipped || (hak__supers[i].mapped == 0 && hak_load(&hak__supers[i].kind, HAK_RELAXED) == HAK_SUPER_FREE));
    }
    give(four, 2);
    expect_eq(take_aligned(1, 4, &fresh), four);
    expect(!fresh);
    expect_valid();
}

/* --- mapping ------------------------------------------------------------------------------------------------------- */

FRESH_TEST(only_the_bytes_asked_for_are_mapped)
{
    bool fresh;
    (void)argument;
    start();
    size_t bytes = 2 * HAK_SUPER_SIZE + PAGE_GAP;
    expect_eq(hak__supers_take(3, 1, bytes, HAK_SUPER_HUGE, &fresh), 0);
    expect_eq(figure_mapped(), bytes);
    memset(hak__super_start(0), 1, bytes);
    expect_valid();
    expect_eq(hak__supers_take(2, 1, 0, HAK_SUPER_HUGE, &fresh), 3);
    expect_eq(figure_mapped(), bytes);
    expect_valid();
}

FRESH_TEST(growth_takes_few_calls_and_little_ahead)
{
    (void)argument;
    bool fresh;
    start();
    for (size_t i = 0; i < 400; i++)
        expect_eq(hak__supers_take(1, 1, HAK_SUPER_SIZE, HAK_SUPER_IN_SLABS, &fresh), i);
    expect_op(fake.maps, <, 130);
    expect_op(figure_mapped(), <=, 400 * HAK_SUPER_SIZE * 9 / 8 + HAK_GROW_MAX);
    expect_valid();
}

FRESH_TEST(memory_ahead_is_fresh)
{
    bool fresh;
    (void)argument;
    start();
    for (size_t i = 0; i < 40; i++) {
        expect_eq(take_aligned(1, 1, &fresh), i);
        expect(fresh);
        expect_eq(*hak__super_start(i), 0);
        *hak__super_start(i) = 1;
    }
}

FRESH_TEST(holes_are_stepped_over)
{
    struct arena_figures figures;
    (void)argument;
    start();
    expect_eq(take(1), 0);
    fake_add_foreign(hak__super_start(2) + PAGE_GAP, PAGE_GAP);
    fake_add_foreign(hak__super_start(5) + HAK_SUPER_SIZE - 4096, 4096);
    expect_eq(take(3), 6);
    expect_eq(take(2), 3);
    expect_eq(take(1), 1);
    expect_eq(take(1), 9);
    arena_figures(&figures);
    expect_eq(figures.holes, 2);
    expect_eq(figures.taken, 8);
    expect_eq(atomic_load(&hak__supers[2].kind), HAK_SUPER_HOLE);
    give(6, 3);
    give(3, 2);
    expect_eq(take(4), 10);   /* 3, 4 and 6, 7, 8 are not adjacent */
    expect_valid();
}

/* A hole in the prefix that a block does not need is none. */
FRESH_TEST(foreign_memory_behind_the_bytes_is_no_hole)
{
    bool fresh;
    (void)argument;
    start();
    expect_eq(take(1), 0);
    fake_add_foreign(hak__super_start(1) + MIB, MIB);
    expect_eq(hak__supers_take(1, 1, MIB, HAK_SUPER_HUGE, &fresh), 1);
    expect_eq(hak__supers_extend(1, 1, 1, 2 * MIB), false);
    expect_valid();
}

/* --- giving memory back ---------------------------------------------------------------------------------------------- */

FRESH_TEST(purged_by_age)
{
    (void)argument;
    start();
    expect_eq(take(6), 0);
    soil(0, 6);
    give(1, 1);
    fake.now += 500;
    give(3, 1);
    expect_eq(hak__arena_purge(fake.now, false), 0);
    fake.now += 299;
    expect_eq(hak__arena_purge(fake.now, false), 0);
    fake.now += 1;
    expect_eq(hak__arena_purge(fake.now, false), HAK_SUPER_SIZE);
    expect_eq(figure_dirty(), HAK_SUPER_SIZE);
    expect(is_zero(hak__super_start(1), HAK_SUPER_SIZE));
    expect_eq(hak__option_set("purge_delay", "100"), 0);
    expect_eq(hak__arena_purge(fake.now, false), HAK_SUPER_SIZE);
    expect_eq(figure_dirty(), 0);
    expect_valid();
}

/* Nobody has to call purge: any give or take that follows does it. What the request can use is not returned first. */
FRESH_TEST(purged_by_what_follows)
{
    bool fresh;
    (void)argument;
    start();
    expect_eq(take(6), 0);
    give(1, 1);
    fake.now += 2000;
    give(5, 1);
    expect_eq(figure_dirty(), HAK_SUPER_SIZE);
    fake.now += 2000;
    expect_eq(take_aligned(1, 1, &fresh), 5);
    expect(!fresh);
    expect_eq(figure_dirty(), 0);
    expect_valid();
}

FRESH_TEST(dirty_limit_holds)
{
    (void)argument;
    start();
    expect_eq(hak__option_set("dirty_limit", "8M"), 0);
    expect_eq(take(64), 0);
    for (size_t i = 0; i < 64; i++) {
        give(i, 1);
        expect_op(figure_dirty(), <=, 10 * MIB + (figure_mapped() - figure_dirty()) / 3);
    }
    expect_op(figure_dirty(), >, 0);
    expect_valid();
}

/* One limit for unused slabs and emptied SuperSlabs, of which the oldest go first: 8 MiB while nothing more was in use lately. */
FRESH_TEST(room_for_unused_slabs)
{
    (void)argument;
    start();
    expect_eq(hak__option_set("dirty_limit", "8M"), 0);
    expect_eq(take(16), 0);
    for (size_t i = 0; i < 6; i++, fake.now += 100)
        give(i, 1);
    expect_eq(hak__arena_room(0, 20 * MIB, fake.now), 0);
    expect_eq(figure_dirty(), 8 * MIB);   /* of 12 */
    expect_eq(hak__supers[1].dirty, 0);
    expect_eq(hak__supers[2].dirty, HAK_SUPER_SIZE);
    expect_eq(hak__arena_room(4 * MIB, 20 * MIB, fake.now), 4 * MIB);
    expect_eq(figure_dirty(), 4 * MIB);
    expect_eq(hak__supers[4].dirty, HAK_SUPER_SIZE);
    expect_eq(hak__arena_room(64 * MIB, 20 * MIB, fake.now), 8 * MIB);   /* no more is taken than is idle */
    expect_eq(figure_dirty(), 0);
    expect_valid();
}

/* While memory grows what is unused and what is used together are no more than was used lately, and the dirty limit. */
FRESH_TEST(room_while_memory_grows)
{
    (void)argument;
    start();
    expect_eq(hak__option_set("purge_delay", "800"), 0);
    expect_eq(take(16), 0);
    for (size_t i = 0; i < 6; i++, fake.now += 100)
        give(i, 1);
    expect_eq(figure_dirty(), 12 * MIB);
    expect_eq(hak__option_set("dirty_limit", "2M"), 0);
    expect_eq(hak__arena_room(0, 64 * MIB, fake.now), 0);
    expect_eq(figure_dirty(), 2 * MIB);
    expect_eq(hak__arena_room(MIB, 60 * MIB, fake.now), 4 * MIB);   /* 64 - 60 + 2 - 2 */
    fake.now += 800;
    expect_eq(hak__arena_room(0, 60 * MIB, fake.now), 4 * MIB);
    fake.now += 800;                      /* what was used before is forgotten now */
    expect_eq(hak__arena_room(0, 60 * MIB, fake.now), 0);
    expect_eq(figure_dirty(), 2 * MIB);
    expect_valid();
}

/* A forked child makes the list anew, whatever the order was in which the SuperSlabs were emptied. */
/* A thread that does not exist in the child has the lock. */
static void *locks_for_ever(void *argument)
{
    hak__arena_lock();
    return argument;
}

FRESH_TEST(child_has_the_list_in_order)
{
    static const size_t order[] = { 2, 9, 4, 7 };
    (void)argument;
    start();
    expect_eq(take(16), 0);
    for (size_t i = 0; i < 4; i++, fake.now += 100)
        give(order[i], 1);
    run_threads(1, locks_for_ever, &fake, 1);
    hak__arena_fork_child();
    expect_valid();
    expect_eq(figure_dirty(), 4 * HAK_SUPER_SIZE);
    give(12, 1);
    expect_valid();
    fake.now += 100000;
    expect_eq(hak__arena_purge(fake.now, false), 5 * HAK_SUPER_SIZE);
    expect_valid();
}

/* As another thread leaves the sums that the fork has met between a call of the system and its booking. */
FRESH_TEST(child_has_the_sums_right)
{
    struct arena_figures before, after;
    (void)argument;
    start();
    expect_eq(take(9), 0);
    give(3, 2);
    arena_figures(&before);
    run_threads(1, locks_for_ever, &fake, 1);   /* as it was when the process forked */
    hak__arena_state.mapped += HAK_SUPER_SIZE;
    hak__arena_state.taken--;
    hak__arena_fork_child();
    expect_valid();
    give(6, 1);
    arena_figures(&after);
    expect_eq(after.mapped, before.mapped);
    expect_eq(after.taken + 1, before.taken);
}

static void set_kind(size_t super, enum hak_super_kind kind) { hak_store(&hak__supers[super].kind, kind, HAK_RELAXED); }

/* As the fork has met another thread that was about to take one (4 and 6), to give one (8 and 9), to make a hole (11), to
 * unmap one (13): each is free or taken, what may hold old data is in the list, and nothing else is taken for zero. */
FRESH_TEST(child_settles_what_was_under_way)
{
    bool fresh;
    (void)argument;
    start();
    expect_eq(take(16), 0);
    give(4, 1);
    give(6, 1);
    give(13, 1);
    hak__arena_lock();
    set_kind(4, HAK_SUPER_IN_SLABS);
    hak__retained_remove(6);
    set_kind(6, HAK_SUPER_HUGE);
    set_kind(8, HAK_SUPER_FREE);
    set_kind(9, HAK_SUPER_FREE);
    hak__retained_add(9, HAK_SUPER_SIZE, fake.now);
    set_kind(11, HAK_SUPER_HOLE);
    hak__retained_remove(13);
    hak__supers[13].mapped = 0;
    hak__arena_state.mapped -= HAK_SUPER_SIZE;
    expect_eq(hak__os_unmap((uintptr_t)hak__super_start(13), HAK_SUPER_SIZE), 0);
    hak__arena_unlock();
    run_threads(1, locks_for_ever, &fake, 1);
    hak__arena_fork_child();
    expect_valid();
    expect_eq(figure_dirty(), 4 * HAK_SUPER_SIZE);
    expect_eq(hak__arena_state.holes, 1);
    expect_eq(hak__arena_state.taken, 16 - 6);
    expect(!hak__super_is_taken(8) && !hak__super_is_taken(4) && hak__super_is_taken(11));
    for (unsigned i = 0; i < 4; i++) {
        expect(hak__supers_take(1, 1, HAK_SUPER_SIZE, HAK_SUPER_IN_SLABS, &fresh) != HAK_NO_SUPER);
        expect(!fresh);
    }
    expect_valid();
}

/* Emptied last, used first; emptied first, returned first. */
FRESH_TEST(newest_first_oldest_returned)
{
    bool fresh;
    struct arena_figures figures;
    (void)argument;
    start();
    expect_eq(take(32), 0);
    static const size_t order[] = { 20, 4, 28, 12 };
    for (size_t i = 0; i < 4; i++, fake.now += 100)
        give(order[i], 1);
    expect_eq(take_aligned(1, 1, &fresh), 12);
    expect_eq(take_aligned(1, 1, &fresh), 28);
    give(28, 1);
    expect_eq(hak__option_set("dirty_limit", "0"), 0);   /* and a third of what is in use: all stay that are there */
    arena_figures(&figures);
    expect_eq(figures.kept, 3);
    expect_eq(hak__option_set("purge_delay", "350"), 0);
    expect_eq(hak__arena_purge(fake.now, false), HAK_SUPER_SIZE);   /* only the first one is as old */
    expect_eq(hak__supers[20].dirty, 0);
    expect_eq(hak__supers[4].dirty, HAK_SUPER_SIZE);
    expect_valid();
}

/* A run of adjacent ones is found whatever their order in the list. */
FRESH_TEST(emptied_neighbours_make_runs)
{
    bool fresh;
    (void)argument;
    start();
    expect_eq(take(16), 0);
    give(6, 1);
    give(9, 1);
    give(5, 1);
    give(7, 1);
    expect_eq(take_aligned(3, 1, &fresh), 5);
    expect(!fresh);
    expect_valid();
}

/* The reserve is mapped by upkeep and not by who takes it; small heaps have none; a limit or a refusal ends it. */
FRESH_TEST(reserve_is_ready)
{
    struct arena_figures figures;
    (void)argument;
    start();
    expect_eq(hak__option_set("reserve", "4"), 0);
    expect_eq(take(1), 0);
    expect_eq(hak__reserve_refill(), 0);
    while (take(1) < 31)
        continue;
    while (hak__supers[hak__arena_top() - 1].kind == HAK_SUPER_FREE && take(1) + 1 < hak__arena_top())
        continue;   /* what growth has mapped ahead is used up */
    unsigned maps = fake.maps;
    expect_eq(hak__reserve_refill(), 4);
    expect_eq(hak__reserve_refill(), 0);
    expect_op(fake.maps, >, maps);
    maps = fake.maps;
    arena_figures(&figures);
    uint64_t waited = figures.waited;
    for (unsigned i = 0; i < 4; i++)
        expect_op(take(1), !=, HAK_NO_SUPER);
    expect_eq(fake.maps, maps);
    arena_figures(&figures);
    expect_eq(figures.waited, waited);
    expect_eq(figures.reserved, 4);
    fake.limit = fake.mapped;
    expect_eq(hak__reserve_refill(), 0);
    maps = fake.maps;
    expect_eq(hak__reserve_refill(), 0);
    expect_eq(fake.maps, maps);   /* refused once, it is not asked again */
    expect_valid();
}

/* What is reserved is unmapped before a request is refused. */
FRESH_TEST(reserve_gives_way)
{
    (void)argument;
    start();
    while (take(1) < 31)
        continue;
    expect_eq(hak__option_set("reserve", "4"), 0);
    hak__reserve_refill();
    fake.limit = fake.mapped;
    expect_op(take(3), !=, HAK_NO_SUPER);
    expect_valid();
}

FRESH_TEST(locked_pages_are_unmapped)
{
    bool fresh;
    (void)argument;
    start();
    expect_eq(take(4), 0);
    soil(0, 4);
    give(1, 2);
    fake.refuse_purge = true;
    expect_eq(hak__arena_purge(fake.now, true), 2 * HAK_SUPER_SIZE);
    expect_eq(figure_mapped(), 2 * HAK_SUPER_SIZE);
    expect_valid();
    expect_eq(take_aligned(2, 1, &fresh), 1);
    expect(fresh && is_zero(hak__super_start(1), 2 * HAK_SUPER_SIZE));
}

FRESH_TEST(what_cannot_be_returned_stays_dirty)
{
    bool fresh;
    (void)argument;
    start();
    expect_eq(take(4), 0);
    give(1, 2);
    fake.refuse_purge = fake.refuse_unmap = true;
    expect_eq(hak__arena_purge(fake.now, true), 0);
    expect_eq(figure_dirty(), 2 * HAK_SUPER_SIZE);
    expect_valid();
    expect_eq(take_aligned(2, 1, &fresh), 1);
    expect(!fresh);
}

/* Free memory of the wrong shape is unmapped before a request is refused, and a refusal changes nothing. */
FRESH_TEST(last_resort)
{
    (void)argument;
    start();
    expect_eq(take(20), 0);
    for (size_t i = 0; i < 20; i += 2)
        give(i, 1);
    fake.limit = fake.mapped + HAK_META_STEP * 4;
    expect_eq(take(9), 20);
    expect_valid();
    expect(take(9) == HAK_NO_SUPER);
    expect_valid();
    expect_op(take(1), <, 20);
    give(20, 9);
    expect_op(take(8), !=, HAK_NO_SUPER);
    expect_valid();
}

/* Metadata, heaps and what lies apart of these ask for it too, whatever shape it has. */
FRESH_TEST(metadata_gets_what_is_free)
{
    size_t bytes = hak__page_size();
    (void)argument;
    start();
    expect_eq(take(20), 0);
    give(3, 10);
    fake.limit = fake.mapped;
    expect(hak__heap_memory(2, &bytes) != NULL);
    expect_eq(bytes, hak_align_up(HAK_HEAP_FIRST, hak__page_size()));
    expect_valid();
    expect_op(take(4), !=, HAK_NO_SUPER);
    give(3, 4);
    fake.limit = fake.mapped;
    expect(hak__heap_extend(2, bytes, hak__page_size()));
    expect_op(take(3), !=, HAK_NO_SUPER);
    give(3, 3);
    fake.limit = fake.mapped;
    char *memory = hak__meta_alloc(HAK_SUPER_SIZE);
    expect(memory != NULL);
    memory[HAK_SUPER_SIZE - 1] = 1;
    expect_valid();
    fake.limit = fake.mapped;
    expect(hak__meta_alloc(HAK_SUPER_SIZE) == NULL);   /* there is nothing left to be given up */
    expect_valid();
}

/* Of free SuperSlabs without pages few stay mapped; those mapped a moment ago do. */
FRESH_TEST(addresses_go_back)
{
    enum { MANY = 60 };
    (void)argument;
    start();
    expect_eq(hak__option_set("dirty_limit", "16777216"), 0);
    expect_eq(take(MANY), 0);
    soil(0, MANY);
    give(10, MANY - 10);
    hak__retained_shorten(0);
    expect_op(figure_mapped(), >=, MANY * HAK_SUPER_SIZE);
    fake.now += hak__option(HAK_OPTION_purge_delay) - 1;
    hak__arena_purge(fake.now, false);
    expect_op(figure_mapped(), >=, MANY * HAK_SUPER_SIZE);
    fake.now += 1;
    hak__arena_purge(fake.now, false);
    expect_eq(figure_mapped(), 10 * HAK_SUPER_SIZE + hak__option(HAK_OPTION_dirty_limit));
    expect_valid();
    expect_eq(take(MANY - 10), 10);
    expect_valid();
}

/* A limit that the system has shown, by a number or by a refusal: what goes back is unmapped at once. */
FRESH_TEST(addresses_go_back_at_once_where_they_are_limited)
{
    (void)argument;
    start();
    expect_eq(hak__option_set("dirty_limit", "16777216"), 0);
    expect_eq(take(40), 0);
    soil(0, 40);
    expect(!hak__limit_unmaps());
    fake.limit = fake.mapped;
    expect_eq(take(1), HAK_NO_SUPER);
    expect(hak__limit_unmaps() && hak__limit_is_near());
    give(0, 40);
    expect_op(figure_mapped(), <=, hak__option(HAK_OPTION_dirty_limit) / 4 * 5);
    fake.limit = SIZE_MAX;
    expect_op(take(60), !=, HAK_NO_SUPER);   /* the limit has been raised */
    expect(!hak__limit_unmaps());
    expect_valid();
}

/* --- changing a run --------------------------------------------------------------------------------------------------- */

FRESH_TEST(extend_into_what_is_free)
{
    struct arena_figures figures;
    (void)argument;
    start();
    expect_eq(take(1), 0);
    expect_eq(take(3), 1);
    expect_eq(take(1), 4);
    give(2, 2);
    soil(1, 1);
    expect(!hak__supers_extend(1, 1, 4, 4 * HAK_SUPER_SIZE));   /* 4 is taken */
    expect_valid();
    expect(hak__supers_extend(1, 1, 3, 2 * HAK_SUPER_SIZE + PAGE_GAP));
    expect(memory_holds(hak__super_start(1), HAK_SUPER_SIZE, HAK_SUPER_SIZE, 1));
    memset(hak__super_start(2), 1, HAK_SUPER_SIZE + PAGE_GAP);
    arena_figures(&figures);
    expect_eq(figures.taken, 5);
    expect_eq(atomic_load(&hak__supers[3].kind), HAK_SUPER_HUGE_TAIL);
    expect_eq(take(2), 5);
    expect_valid();
}

FRESH_TEST(extend_over_the_top)
{
    (void)argument;
    start();
    expect_eq(take(2), 0);
    expect(hak__supers_extend(0, 2, 9, 9 * HAK_SUPER_SIZE));
    memset(hak__super_start(8), 1, HAK_SUPER_SIZE);
    expect_eq(take(1), 9);
    expect_valid();
    fake.limit = fake.mapped;
    expect(!hak__supers_extend(9, 1, 40, 40 * HAK_SUPER_SIZE));
    expect_valid();
    fake.limit = SIZE_MAX;
    expect_eq(take(1), 10);
}

FRESH_TEST(trim)
{
    (void)argument;
    start();
    expect_eq(take(3), 0);
    soil(0, 3);
    hak__supers_trim(0, 3, HAK_SUPER_SIZE + PAGE_GAP);
    expect_eq(figure_mapped(), HAK_SUPER_SIZE + PAGE_GAP);
    expect(memory_holds(hak__super_start(0), HAK_SUPER_SIZE, 3 * HAK_SUPER_SIZE, 0));
    expect_valid();
    give(0, 3);
    expect_eq(figure_dirty(), HAK_SUPER_SIZE + PAGE_GAP);
    expect_eq(take(3), 0);
    memset(hak__super_start(0), 1, 3 * HAK_SUPER_SIZE);
    expect_valid();
}

FRESH_TEST(trim_refused)
{
    (void)argument;
    start();
    expect_eq(take(3), 0);
    fake.refuse_unmap = true;
    hak__supers_trim(0, 3, PAGE_GAP);
    expect_eq(figure_mapped(), 3 * HAK_SUPER_SIZE);
    expect_valid();
}

FRESH_TEST(move_keeps_content)
{
    bool fresh;
    (void)argument;
    start();
    size_t bytes = HAK_SUPER_SIZE + PAGE_GAP, more = 3 * HAK_SUPER_SIZE;
    expect_eq(hak__supers_take(2, 1, bytes, HAK_SUPER_HUGE, &fresh), 0);
    memory_fill(hak__super_start(0), bytes, 5);
    expect_eq(take(3), 2);
    expect(hak__supers_move(0, bytes, 2, more));
    expect(memory_holds(hak__super_start(2), bytes, bytes, 5));
    memset(hak__super_start(2) + bytes, 1, more - bytes);
    give(0, 2);
    expect_eq(figure_mapped(), more);
    expect_valid();
    give(2, 3);
    hak__arena_purge(fake.now, true);   /* moved pages are unmapped, so that mappings can merge again */
    expect_eq(figure_mapped(), 0);
    expect_valid();
}

/* A run may lie in SuperSlabs that are mapped further than its bytes: they were whole before. After a move, what is
 * left there must be what the arena says is left. */
FRESH_TEST(move_out_of_a_run_that_is_mapped_further)
{
    bool fresh;
    (void)argument;
    start();
    size_t bytes = HAK_SUPER_SIZE + PAGE_GAP;
    expect_eq(take(2), 0);
    give(0, 2);
    expect_eq(hak__supers_take(2, 1, bytes, HAK_SUPER_HUGE, &fresh), 0);
    expect_eq(take(3), 2);
    expect(hak__supers_move(0, bytes, 2, 3 * HAK_SUPER_SIZE));
    expect_valid();
    give(0, 2);
    expect_eq(take(2), 0);
    memset(hak__super_start(0), 1, 2 * HAK_SUPER_SIZE);
    expect_valid();
}

FRESH_TEST(move_refused)
{
    (void)argument;
    start();
    expect_eq(take(2), 0);
    expect_eq(take(4), 2);
    soil(0, 2);
    fake.refuse_move = ENOMEM;
    expect(!hak__supers_move(0, 2 * HAK_SUPER_SIZE, 2, 4 * HAK_SUPER_SIZE));
    expect(memory_holds(hak__super_start(0), 2 * HAK_SUPER_SIZE, 2 * HAK_SUPER_SIZE, 0));
    expect_valid();
}

/* The clock goes on while a step works. */
FRESH_TEST(purge_of_all_takes_what_is_newer_than_it)
{
    (void)argument;
    start();
    take(2);
    give(0, 2);
    expect_eq(hak__arena_purge(fake.now - 5, false), 0);
    expect_eq(hak__arena_purge(fake.now - 5, true), 2 * HAK_SUPER_SIZE);
    expect_valid();
}

/* What is mapped counts under HAKMEM_UNMAP: no growth ahead of need, and what is returned is unmapped. */
FRESH_TEST(unmap_maps_nothing_ahead_and_keeps_nothing)
{
    (void)argument;
    start();
    expect_eq(hak__option_set("unmap", "1"), 0);
    expect_eq(hak__option_set("reserve", "8"), 0);
    bool fresh;
    for (size_t i = 0; i < 40; i++)
        expect_eq(hak__supers_take(1, 1, HAK_SUPER_SIZE, HAK_SUPER_IN_SLABS, &fresh), i);
    expect_eq(hak__reserve_refill(), 0);
    expect_eq(figure_mapped(), 40 * HAK_SUPER_SIZE);
    give(0, 40);
    hak__arena_purge(fake.now, true);
    expect_eq(figure_mapped(), 0);
    expect_eq(fake.purges, 0);
    expect_valid();
}

/* What is purged inside SuperSlabs in use stays mapped, so there is a limit to that; it begins anew with what was emptied. */
FRESH_TEST(unmap_leaves_little_hollow)
{
    (void)argument;
    start();
    expect_eq(hak__option_set("unmap", "1"), 0);
    size_t purged = 0, first = take(20);
    for (size_t i = first; i < first + 20; i++)
        set_kind(i, HAK_SUPER_IN_SLABS);
    for (unsigned round = 0; round < 2; round++) {
        for (size_t i = first; i < first + 20; i++)
            for (unsigned k = 0; k < 4; k++)   /* the same pages again are no more */
                purged += hak__arena_purge_range(hak__super_start(i) + (k % 2 << 20), MIB, HAK_UNUSED_SLABS) ? MIB : 0;
        expect_eq(purged, (round + 1) * 32 * MIB);
        give(first, 20);
        first = take(20);
        for (size_t i = first; i < first + 20; i++)
            set_kind(i, HAK_SUPER_IN_SLABS);
    }
    expect_eq(hak__option_set("unmap", "0"), 0);
    expect(hak__arena_purge_range(hak__super_start(first + 19), MIB, HAK_UNUSED_SLABS));
}

/* Sanitizers make mlockall do nothing. */
static bool memory_is_locked(void)
{
    unsigned char resident = 0;
    size_t page = hak__page_size();
    void *fresh = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool locked = fresh != MAP_FAILED && hak__os_resident((uintptr_t)fresh, page, &resident) == 0 && resident != 0;
    munmap(fresh, page);
    return locked;
}

/* Locked memory: what is mapped ahead is found to be there at once, goes, and nothing else is mapped ahead. */
FRESH_TEST(locked_memory_is_not_mapped_ahead)
{
    bool fresh;
    (void)argument;
    start();
    if (mlockall(MCL_FUTURE) != 0 || !memory_is_locked())
        return;   /* not allowed here */
    for (size_t i = 0; i < 40; i++)
        hak__supers_take(1, 1, HAK_SUPER_SIZE, HAK_SUPER_IN_SLABS, &fresh);
    munlockall();
    expect_eq(figure_mapped(), 40 * HAK_SUPER_SIZE);
    expect(hak__ahead_counts());
    expect_valid();
    give(0, 40);
    hak__arena_purge(fake.now, true);
    expect_eq(figure_dirty(), 0);
    for (size_t i = 0; i < 40; i++) {   /* kept by kernels from 5.18 on, else unmapped */
        unsigned char page = 0;
        expect(hak__os_resident((uintptr_t)hak__super_start(i), hak__page_size(), &page) != 0 || page == 0);
    }
    expect_valid();
}

/* A run that lies in several mappings, as any may after a fork: the kernel will not move it, and nothing has changed, not
 * even what is mapped beyond the block. (The advice makes no mapping under an emulator.) */
FRESH_TEST_UNLESS(move_of_several_mappings, is_emulated())
{
    bool fresh;
    (void)argument;
    start();
    size_t bytes = HAK_SUPER_SIZE + PAGE_GAP;
    expect_eq(take(2), 0);
    give(0, 2);
    expect_eq(hak__supers_take(2, 1, bytes, HAK_SUPER_HUGE, &fresh), 0);
    expect_eq(take(4), 2);
    soil(0, 1);
    size_t mapped = figure_mapped();
    unsigned unmaps = fake.unmaps;
    expect_eq(madvise(hak__super_start(1), hak__page_size(), MADV_DONTFORK), 0);   /* a mapping of its own */
    expect(!hak__supers_move(0, bytes, 2, 3 * HAK_SUPER_SIZE));
    expect_eq(fake.moves, 1);
    expect_eq(fake.unmaps, unmaps);
    expect_eq(figure_mapped(), mapped);
    expect(memory_holds(hak__super_start(0), HAK_SUPER_SIZE, HAK_SUPER_SIZE, 0));
    memset(hak__super_start(1), 1, HAK_SUPER_SIZE);
    expect_valid();
}

/* What is mapped behind the pages that have moved goes; where it will not, a prefix of the SuperSlab comes back, and where
 * that is refused too, the SuperSlab is a hole from its next use on. */
FRESH_TEST(move_leaves_a_rest_that_will_not_go)
{
    bool fresh;
    (void)argument;
    start();
    expect_eq(take(1), 0);
    give(0, 1);
    for (unsigned i = 0; i < 2; i++) {
        expect_eq(hak__supers_take(1, 1, PAGE_GAP, HAK_SUPER_HUGE, &fresh), 0);
        size_t to = take(1);
        fake.refuse_unmap = true;
        fake.limit = i == 0 ? SIZE_MAX : fake.mapped - PAGE_GAP;
        expect(hak__supers_move(0, PAGE_GAP, to, HAK_SUPER_SIZE));
        fake.refuse_unmap = false;
        fake.limit = SIZE_MAX;
        if (i == 0)
            expect_valid();
        give(0, 1);
    }
    expect_op(take(1), !=, 0);
    expect(hak__arena_is_valid());
}

/* --- metadata ------------------------------------------------------------------------------------------------------- */

/* --- random operations ------------------------------------------------------------------------------------------------ */

enum { RUNS = 24, FUZZ_SUPERS = 400 };

struct run {
    size_t first, count, bytes;
    uint64_t tag;
};

static struct {
    struct rng rng;
    struct run runs[RUNS];
    unsigned char taken[FUZZ_SUPERS * 4];
} model;

static void model_mark(size_t first, size_t count, unsigned char taken)
{
    for (size_t i = first; i < first + count; i++) {
        expect_eq(model.taken[i], !taken);   /* nothing is handed out twice */
        model.taken[i] = taken;
    }
}

static char *run_start(const struct run *run) { return hak__super_start(run->first); }

static void expect_content(const struct run *run) { expect(memory_holds(run_start(run), run->bytes, run->bytes, run->tag)); }

/* Reads one word of each page: enough to catch a run that claims to be fresh and holds an old pattern. */
static void expect_fresh(const struct run *run)
{
    for (size_t at = 0; at < run->bytes; at += MEMORY_STEP)
        expect_eq(*(uint64_t *)(run_start(run) + at), 0);
}

static size_t some_bytes(size_t count)
{
    size_t last = hak_align_up(1 + rng_below(&model.rng, HAK_SUPER_SIZE), hak__page_size());
    return ((count - 1) << HAK_SUPER_SHIFT) + last;
}

static void fuzz_take(struct run *run)
{
    bool fresh;
    size_t count = 1 + rng_below(&model.rng, 5), align = (size_t)1 << rng_below(&model.rng, 3);
    *run = (struct run){ .count = count, .bytes = some_bytes(count), .tag = rng_next(&model.rng) };
    run->first = hak__supers_take(count, align, run->bytes, HAK_SUPER_HUGE, &fresh);
    if (run->first == HAK_NO_SUPER) {
        *run = (struct run){ 0 };
        return;
    }
    expect_eq((uintptr_t)hak__super_start(run->first) % (align * HAK_SUPER_SIZE), 0);
    model_mark(run->first, count, 1);
    if (fresh)
        expect_fresh(run);
    if (rng_below(&model.rng, 2) == 0 && !hak__supers_fill(run->first, run->bytes)) {
        hak__supers_trim(run->first, count, 0);
        model_mark(run->first, count, 0);
        hak__supers_give(run->first, count);
        *run = (struct run){ 0 };
        return;
    }
    memory_fill(run_start(run), run->bytes, run->tag);
}

static void fuzz_give(struct run *run)
{
    expect_content(run);
    model_mark(run->first, run->count, 0);
    hak__supers_give(run->first, run->count);
    *run = (struct run){ 0 };
}

static void fuzz_extend(struct run *run)
{
    size_t count = run->count + rng_below(&model.rng, 3), bytes = some_bytes(count);
    if (bytes < run->bytes || !hak__supers_extend(run->first, run->count, count, bytes))
        return;
    model_mark(run->first + run->count, count - run->count, 1);
    expect_content(run);
    run->count = count;
    run->bytes = bytes;
    memory_fill(run_start(run), bytes, run->tag);
}

static void fuzz_shrink(struct run *run)
{
    size_t count = 1 + rng_below(&model.rng, run->count), bytes = hak_min(some_bytes(count), run->bytes);
    expect_content(run);
    model_mark(run->first + count, run->count - count, 0);
    if (count < run->count)
        hak__supers_give(run->first + count, run->count - count);
    hak__supers_trim(run->first, count, bytes);
    run->count = count;
    run->bytes = bytes;
    memory_fill(run_start(run), bytes, run->tag);
}

/* As huge/ moves a block that cannot grow where it is. */
static void fuzz_move(struct run *run)
{
    bool fresh;
    struct run to = { .count = run->count + 1, .tag = run->tag };
    to.bytes = hak_max(some_bytes(to.count), run->bytes);
    to.first = hak__supers_take(to.count, 1, to.bytes, HAK_SUPER_HUGE, &fresh);
    if (to.first == HAK_NO_SUPER)
        return;
    model_mark(to.first, to.count, 1);
    if (!hak__supers_move(run->first, run->bytes, to.first, to.bytes)) {
        model_mark(to.first, to.count, 0);
        hak__supers_give(to.first, to.count);
        return;
    }
    model_mark(run->first, run->count, 0);
    hak__supers_give(run->first, run->count);
    expect(memory_holds(run_start(&to), run->bytes, run->bytes, run->tag));
    *run = to;
    memory_fill(run_start(run), run->bytes, run->tag);
}

static void fuzz_weather(void)
{
    fake.now += rng_below(&model.rng, 400);
    fake.refuse_purge = rng_below(&model.rng, 8) == 0;
    fake.refuse_unmap = rng_below(&model.rng, 16) == 0;
    fake.refuse_move = rng_below(&model.rng, 8) == 0 ? ENOMEM : 0;
    fake.limit = rng_below(&model.rng, 6) == 0 ? fake.mapped + MIB : SIZE_MAX;
    if (rng_below(&model.rng, 64) == 0 && fake.foreign_count < FAKE_FOREIGN)
        fake_add_foreign(hak__super_start(hak__arena_top() + rng_below(&model.rng, 3)) + PAGE_GAP, PAGE_GAP);
    if (rng_below(&model.rng, 16) == 0)
        hak__arena_purge(fake.now, rng_below(&model.rng, 4) == 0);
}

static void fuzz_step(struct run *run)
{
    static void (*const changes[])(struct run *) = { fuzz_give, fuzz_give, fuzz_extend, fuzz_shrink, fuzz_move };
    fuzz_weather();
    if (run->count == 0)
        fuzz_take(run);
    else
        changes[rng_below(&model.rng, sizeof changes / sizeof *changes)](run);
}

FRESH_TEST(random_operations)
{
    (void)argument;
    start();
    hak__option_set("dirty_limit", "16M");
    for (unsigned step = 0; step < 1500; step++) {
        fuzz_step(&model.runs[rng_below(&model.rng, RUNS)]);
        expect(hak__arena_is_valid());
        figure_mapped();
        if (step % 4 == 0)
            expect_mapped_as_said();
        expect_op(hak__arena_top(), <, FUZZ_SUPERS * 3);
    }
    for (unsigned i = 0; i < RUNS; i++)
        if (model.runs[i].count != 0)
            fuzz_give(&model.runs[i]);
    struct arena_figures figures;
    arena_figures(&figures);
    expect_eq(figures.taken, 0);
}

static void take_at_no_power_of_two(void *argument)
{
    bool fresh;
    (void)argument;
    start();
    hak__supers_take(1, 3, 0, HAK_SUPER_HUGE, &fresh);
}

static void give_twice(void *argument)
{
    (void)argument;
    start();
    take(2);
    hak__supers_give(0, 1);
    hak__supers_give(0, 1);
}

static void map_a_piece_of_a_whole_one(void *argument)
{
    (void)argument;
    start();
    hak__supers_open(true, &(bool){ false });
    hak__piece_map(hak__super_start(0), hak__page_size());
}

static void contracts(void **state)
{
    (void)state;
    expect_contract(take_at_no_power_of_two, NULL, "a run has SuperSlabs, at a power of two");
    expect_contract(give_twice, NULL, "the run is the caller's");
    expect_contract(map_a_piece_of_a_whole_one, NULL, "only a bare SuperSlab is mapped in pieces");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lowest_first),
        cmocka_unit_test(neighbours_coalesce),
        cmocka_unit_test(tightest_run),
        cmocka_unit_test(runs_across_words_of_bits),
        cmocka_unit_test(top_joins_the_free_run_below_it),
        cmocka_unit_test(dirty_before_clean),
        cmocka_unit_test(fresh_is_honest_for_runs),
        cmocka_unit_test(alignment),
        cmocka_unit_test(only_the_bytes_asked_for_are_mapped),
        cmocka_unit_test(growth_takes_few_calls_and_little_ahead),
        cmocka_unit_test(memory_ahead_is_fresh),
        cmocka_unit_test(holes_are_stepped_over),
        cmocka_unit_test(foreign_memory_behind_the_bytes_is_no_hole),
        cmocka_unit_test(purged_by_age),
        cmocka_unit_test(purged_by_what_follows),
        cmocka_unit_test(dirty_limit_holds), cmocka_unit_test(room_for_unused_slabs),
        cmocka_unit_test(room_while_memory_grows),
        cmocka_unit_test(child_has_the_list_in_order),
        cmocka_unit_test(child_has_the_sums_right),
        cmocka_unit_test(child_settles_what_was_under_way),
        cmocka_unit_test(newest_first_oldest_returned),
        cmocka_unit_test(emptied_neighbours_make_runs),
        cmocka_unit_test(reserve_is_ready),
        cmocka_unit_test(reserve_gives_way),
        cmocka_unit_test(locked_pages_are_unmapped),
        cmocka_unit_test(what_cannot_be_returned_stays_dirty),
        cmocka_unit_test(last_resort),
        cmocka_unit_test(metadata_gets_what_is_free),
        cmocka_unit_test(addresses_go_back),
        cmocka_unit_test(addresses_go_back_at_once_where_they_are_limited),
        cmocka_unit_test(extend_into_what_is_free),
        cmocka_unit_test(extend_over_the_top),
        cmocka_unit_test(trim),
        cmocka_unit_test(trim_refused),
        cmocka_unit_test(move_keeps_content),
        cmocka_unit_test(move_out_of_a_run_that_is_mapped_further),
        cmocka_unit_test(move_refused),
        cmocka_unit_test(purge_of_all_takes_what_is_newer_than_it),
        cmocka_unit_test(unmap_maps_nothing_ahead_and_keeps_nothing),
        cmocka_unit_test(unmap_leaves_little_hollow),
        cmocka_unit_test(locked_memory_is_not_mapped_ahead),
        cmocka_unit_test(move_of_several_mappings),
        cmocka_unit_test(move_leaves_a_rest_that_will_not_go),
        cmocka_unit_test(random_operations),
        cmocka_unit_test(contracts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
