/* arena/limit.c on a steered system that allows few mappings: from when on tails and gaps are mapped, what becomes of requests
 * that are refused with them, what grows when nothing new can be mapped, what is given back where unmapping would split.
 * After each step the arena is valid, and what the kernel has mapped are no more pieces than it says. */
#include "arena/arena.h"
#include "arena/limit.h"
#include "arena/retained.h"
#include "arena/runs.h"

#include "diag/options.h"
#include "support/fake_os.h"
#include "support/figures.h"

enum { MIB = 1 << 20, PART = 1216 << 10, MAPPINGS = 64, SHARE = MAPPINGS / 4, LARGER_SHARE = MAPPINGS / 4 * 3, RUNS = 100 };

static void start(void)
{
    fake_install();
    fake.seen.mappings = MAPPINGS;
    hak__limit_ask_system();
    expect_eq(hak__arena_init(), 0);
}

/* Mappings in the window, by the kernel's account. */
static size_t pieces;
static void count_piece(void *argument, uintptr_t from, size_t resident, size_t huge)
{
    (void)argument, (void)resident, (void)huge;
    static uintptr_t last;   /* each is told of twice */
    bool inside = from >= hak__window.base && from < hak__window.base + (hak__arena_top() << HAK_SUPER_SHIFT);
    pieces += inside && from != last;
    last = from;
}

static size_t count_pieces(void)
{
    pieces = 0;
    expect(hak__os_mappings(count_piece, NULL));
    return pieces;
}

static void expect_valid(void)
{
    struct arena_figures figures;
    expect(hak__arena_is_valid());
    arena_figures(&figures);
    expect_eq(fake.mapped, figures.mapped + figures.meta);
    for (size_t i = 0; i < hak__arena_top(); i++) {
        size_t mapped = hak__supers[i].mapped;
        expect(mapped == 0 || (is_mapped(hak__super_start(i)) && is_mapped(hak__super_start(i) + mapped - 1)));
        expect(mapped == HAK_SUPER_SIZE || !is_mapped(hak__super_start(i) + mapped));
    }
}

static size_t try_to_take(size_t bytes, size_t align)
{
    bool fresh;
    size_t first = hak__supers_take(hak_div_up(bytes, HAK_SUPER_SIZE), align, bytes, HAK_SUPER_HUGE, &fresh);
    if (first != HAK_NO_SUPER)
        memset(hak__super_start(first), 1, bytes);
    return first;
}

static size_t take(size_t bytes)
{
    size_t first = try_to_take(bytes, 1);
    expect(first != HAK_NO_SUPER);
    return first;
}

static void take_many(size_t count)
{
    for (size_t i = 0; i < count; i++)
        take(PART);
}

FRESH_TEST(from_a_share_on_tails_are_mapped)
{
    (void)argument;
    start();
    take_many(SHARE + 1);
    expect_eq(hak__arena_state.ends, SHARE + 1);
    expect_eq(count_pieces(), SHARE + 1);
    expect_eq(hak__supers[SHARE].mapped, PART);
    take_many(RUNS);
    expect_op(hak__arena_state.ends, <=, SHARE + 1);
    expect_op(count_pieces(), <=, SHARE + 1);
    expect_eq(hak__supers[SHARE].mapped, HAK_SUPER_SIZE);   /* the gap below the next one */
    expect_valid();
    for (size_t i = 0; i < SHARE + 1 + RUNS; i++)
        hak__supers_give(i, 1);
    expect_valid();
}

/* With an address space that is limited, three quarters of the mappings. */
FRESH_TEST(where_addresses_count_the_share_is_larger)
{
    (void)argument;
    start();
    fake.seen.address_space = 1ull << 40;
    hak__limit_ask_room();
    hak__limit_ask_system();
    take_many(RUNS);
    expect_eq(count_pieces(), LARGER_SHARE + 1);
    expect_valid();
}

FRESH_TEST(an_unknown_limit_is_the_usual_one)
{
    (void)argument;
    start();
    fake.seen.mappings = 0;
    hak__limit_ask_system();
    expect_eq(hak__limit_mappings(), 65530);
    take_many(RUNS);
    expect_eq(hak__arena_state.ends, RUNS);
}

FRESH_TEST(a_request_goes_before_its_tail)
{
    (void)argument;
    start();
    take_many(SHARE + 1);
    fake.limit = fake.mapped + PART;
    size_t last = take(PART);
    expect_eq(hak__supers[last].mapped, PART);
    fake.limit = SIZE_MAX;
    expect_eq(hak__option_set("limit", "64M"), 0);   /* counts what is mapped, and so has the larger share */
    while (try_to_take(PART, 1) != HAK_NO_SUPER)
        continue;
    expect_op(hak__arena_state.mapped + PART, >, 64 * MIB);
    expect_valid();
}

FRESH_TEST(gaps_before_aligned_runs_are_mapped_along)
{
    (void)argument;
    start();
    take_many(SHARE + 1);
    for (unsigned i = 0; i < 20; i++)
        expect(try_to_take(PART, 8) != HAK_NO_SUPER);
    expect_op(count_pieces(), <=, SHARE + 1);
    expect_valid();
    take_many(20 * 7);   /* what was mapped along is there for others */
    expect_op(count_pieces(), <=, SHARE + 1);
    expect_valid();
}

/* Somebody else's mapping lies in the tail below. */
FRESH_TEST(a_gap_that_is_not_free_is_left)
{
    (void)argument;
    start();
    take_many(SHARE + 1);
    fake_add_foreign(hak__super_start(SHARE) + HAK_SUPER_SIZE - MIB / 2, MIB / 2);
    size_t last = take(PART);
    expect_eq(last, SHARE + 1);
    expect_eq(hak__supers[SHARE].mapped, PART);
    expect_valid();
}

/* A run that grows has its tail mapped, if there is room for that. */
FRESH_TEST(runs_that_grow)
{
    (void)argument;
    start();
    take_many(SHARE + 1);
    size_t last = take(PART);
    expect(hak__supers_extend(last, 1, 2, HAK_SUPER_SIZE + PART));
    expect_eq(hak__supers[last + 1].mapped, HAK_SUPER_SIZE);
    fake.limit = fake.mapped + PART;
    expect(hak__supers_extend(last, 2, 3, 2 * HAK_SUPER_SIZE + PART));
    expect_eq(hak__supers[last + 2].mapped, PART);
    expect_valid();
}

/* --- no new mapping -------------------------------------------------------------------------------------------------- */

FRESH_TEST(mappings_grow_when_no_more_can_be_made)
{
    (void)argument;
    start();
    size_t first = take(PART);
    fake.refuse_map = true;
    for (unsigned i = 0; i < 600; i++) {   /* the metadata grows along */
        size_t super = take(i % 3 == 0 ? PART : HAK_SUPER_SIZE + PART);
        expect_eq(hak__super_start(super)[PART - 1], 1);
    }
    expect_eq(hak__supers[first].mapped, HAK_SUPER_SIZE);
    expect_eq(hak__super_start(first)[PART], 0);
    expect_op(count_pieces(), <=, 2);
    expect_op(fake.extends, >=, 600);
    expect_valid();
}

FRESH_TEST(refused_for_good)
{
    (void)argument;
    start();
    size_t first = take(PART);
    fake.refuse_map = fake.refuse_extend = true;
    expect(try_to_take(PART, 1) == HAK_NO_SUPER);
    expect(!hak__supers_extend(first, 1, 2, HAK_SUPER_SIZE + PART));
    expect_valid();
    fake.refuse_map = fake.refuse_extend = false;
    take(PART);
    expect_valid();
}

/* Nothing of ours ends where the first SuperSlab begins. */
FRESH_TEST(nothing_to_grow)
{
    (void)argument;
    start();
    fake.refuse_map = true;
    expect(try_to_take(PART, 1) == HAK_NO_SUPER);
    expect_eq(fake.extends, 0);
    expect_valid();
}

FRESH_TEST(limits_hold_for_what_grows)
{
    (void)argument;
    start();
    take(PART);
    expect_eq(hak__option_set("limit", "3M"), 0);   /* without the gap it would be enough */
    fake.refuse_map = true;
    expect(try_to_take(PART, 1) == HAK_NO_SUPER);
    expect_valid();
}

/* --- giving back ----------------------------------------------------------------------------------------------------- */

FRESH_TEST(what_is_shortened_gives_its_pages_back)
{
    (void)argument;
    start();
    size_t first = take(3 * HAK_SUPER_SIZE);
    hak__supers_shorten(first, 3, HAK_SUPER_SIZE + PART, true);
    expect_eq(hak__supers[first + 1].mapped, PART);
    expect_eq(hak__supers[first + 2].mapped, 0);
    expect_eq(fake.purges, 0);
    fake.refuse_unmap = true;
    hak__supers_shorten(first, 2, HAK_SUPER_SIZE + MIB, true);
    expect_eq(hak__supers[first + 1].mapped, PART);
    expect_eq(hak__super_start(first + 1)[MIB - 1], 1);
    expect_eq(hak__super_start(first + 1)[MIB], 0);
    fake.refuse_unmap = false;
    expect_valid();
    take_many(SHARE + 1);
    size_t last = take(HAK_SUPER_SIZE);
    unsigned unmaps = fake.unmaps;
    hak__supers_shorten(last, 1, PART, true);
    expect_eq(hak__supers[last].mapped, HAK_SUPER_SIZE);
    expect_eq(hak__super_start(last)[PART - 1], 1);
    expect_eq(hak__super_start(last)[PART], 0);
    expect_eq(fake.unmaps, unmaps);
    expect_valid();
}

/* Where what is mapped counts, emptied SuperSlabs are unmapped. One that can't be is still without pages afterwards. */
FRESH_TEST(what_can_not_be_unmapped_gives_its_pages_back)
{
    (void)argument;
    start();
    expect_eq(hak__option_set("limit", "1G"), 0);
    size_t first = take(HAK_SUPER_SIZE);
    hak__supers_give(first, 1);
    fake.refuse_unmap = true;
    hak__arena_purge(fake.now, true);
    expect_eq(hak__supers[first].mapped, HAK_SUPER_SIZE);
    expect_eq(hak__supers[first].dirty, 0);
    expect_eq(hak__super_start(first)[0], 0);
    expect_eq(hak__arena_state.dirty, 0);
    fake.refuse_unmap = false;
    expect_valid();
}

/* What moves is a mapping of its own where it comes to lie. */
FRESH_TEST(nothing_moves_in_a_crowd)
{
    (void)argument;
    start();
    take_many(SHARE + 1);
    size_t from = take(HAK_SUPER_SIZE), to = take(2 * HAK_SUPER_SIZE);
    expect(!hak__supers_move(from, HAK_SUPER_SIZE, to, 2 * HAK_SUPER_SIZE));
    hak__supers_give(from, 1);
    expect(hak__supers_fill(take(3 * HAK_SUPER_SIZE), 3 * HAK_SUPER_SIZE));
    expect_eq(fake.moves, 0);
    expect_valid();
}

/* The system's setting is `always`, so that memory is marked: all that is mapped at once, since a part would be a mapping. */
FRESH_TEST(marks_split_nothing)
{
    (void)argument;
    start();
    fake.huge_setting = HAK_OS_HUGE_ALWAYS;
    take_many(SHARE + 1);
    unsigned marks = fake.advices[HAK_OS_NO_HUGE];
    take(PART);
    expect_eq(fake.advices[HAK_OS_NO_HUGE], marks + 1);
    expect_eq(fake.advised, (uintptr_t)hak__super_start(SHARE) + PART);
    expect_valid();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_a_share_on_tails_are_mapped),
        cmocka_unit_test(where_addresses_count_the_share_is_larger),
        cmocka_unit_test(an_unknown_limit_is_the_usual_one),
        cmocka_unit_test(a_request_goes_before_its_tail),
        cmocka_unit_test(gaps_before_aligned_runs_are_mapped_along),
        cmocka_unit_test(a_gap_that_is_not_free_is_left),
        cmocka_unit_test(runs_that_grow),
        cmocka_unit_test(mappings_grow_when_no_more_can_be_made),
        cmocka_unit_test(refused_for_good),
        cmocka_unit_test(nothing_to_grow),
        cmocka_unit_test(limits_hold_for_what_grows),
        cmocka_unit_test(what_is_shortened_gives_its_pages_back),
        cmocka_unit_test(what_can_not_be_unmapped_gives_its_pages_back),
        cmocka_unit_test(nothing_moves_in_a_crowd),
        cmocka_unit_test(marks_split_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
