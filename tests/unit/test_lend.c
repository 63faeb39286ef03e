/* arena/recycled.c on a steered system: which emptied SuperSlab lends to which part of a run, what is left of it, and what becomes
 * of the run when the kernel refuses. After each step the arena is valid and what it says is mapped is mapped. */
#include "arena/arena.h"
#include "arena/retained.h"
#include "arena/runs.h"

#include "diag/options.h"
#include "support/fake_os.h"
#include "support/figures.h"

enum { MIB = 1 << 20, PART = 640 << 10 };

static void start(void)
{
    fake_install();
    expect_eq(hak__arena_init(), 0);
    expect_eq(hak__option_set("dirty_limit", "1G"), 0);
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

static size_t take(size_t bytes)
{
    bool fresh;
    size_t first = hak__supers_take(hak_div_up(bytes, HAK_SUPER_SIZE), 1, bytes, HAK_SUPER_HUGE, &fresh);
    expect(first != HAK_NO_SUPER);
    return first;
}

/* Emptied SuperSlabs of so many bytes each, with a taken one behind each; the first is emptied first. */
static void lenders(const size_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        expect_eq(take(bytes[i]), 2 * i);
        expect_eq(take(HAK_SUPER_SIZE), 2 * i + 1);
        memset(hak__super_start(2 * i), (int)i + 1, bytes[i]);
    }
    for (size_t i = 0; i < count; i++)
        hak__supers_give(2 * i, 1);
}

/* All of the range is of the lender with this number; 0: as new. */
static void expect_of(size_t super, size_t from, size_t to, size_t lender)
{
    for (size_t at = from; at < to; at += MEMORY_STEP)
        expect_eq(hak__super_start(super)[at], lender);
    expect_eq(hak__super_start(super)[to - 1], lender);
}

static void use(size_t first, size_t bytes)
{
    memset(hak__super_start(first), 99, bytes);
    expect_valid();
}

FRESH_TEST(whole_ones_go_to_whole_gaps)
{
    const size_t bytes[] = { HAK_SUPER_SIZE, HAK_SUPER_SIZE, HAK_SUPER_SIZE };
    (void)argument;
    start();
    lenders(bytes, 3);
    size_t first = take(2 * HAK_SUPER_SIZE);
    expect_eq(first, 6);
    expect(hak__supers_fill(first, 2 * HAK_SUPER_SIZE));
    expect_of(first, 0, HAK_SUPER_SIZE, 3);   /* the newest first */
    expect_of(first + 1, 0, HAK_SUPER_SIZE, 2);
    expect_eq(fake.moves, 2);
    expect_eq(hak__supers[4].mapped, 0);
    expect_eq(hak__supers[2].mapped, 0);
    expect_eq(hak__supers[0].dirty, HAK_SUPER_SIZE);
    expect_eq(hak__arena_state.kept, 1);
    use(first, 2 * HAK_SUPER_SIZE);
}

FRESH_TEST(the_tightest_that_is_enough)
{
    const size_t bytes[] = { PART, MIB, HAK_SUPER_SIZE };
    (void)argument;
    start();
    lenders(bytes, 3);
    size_t first = take(HAK_SUPER_SIZE + MIB - PART);
    expect(hak__supers_fill(first, HAK_SUPER_SIZE + MIB - PART));
    expect_of(first, 0, HAK_SUPER_SIZE, 3);
    expect_of(first + 1, 0, MIB - PART, 1);
    expect_eq(hak__supers[0].dirty, 2 * PART - MIB);   /* the end of it went */
    expect_of(0, 0, 2 * PART - MIB, 1);
    expect_eq(hak__supers[2].dirty, MIB);
    use(first, HAK_SUPER_SIZE + MIB - PART);
}

FRESH_TEST(several_for_one_gap)
{
    const size_t bytes[] = { PART, MIB };
    (void)argument;
    start();
    lenders(bytes, 2);
    size_t first = take(2 * HAK_SUPER_SIZE);
    expect(hak__supers_fill(first, 2 * HAK_SUPER_SIZE));
    expect_of(first, 0, MIB, 2);
    expect_of(first, MIB, MIB + PART, 1);
    expect_of(first, MIB + PART, HAK_SUPER_SIZE, 0);
    expect_of(first + 1, 0, HAK_SUPER_SIZE, 0);
    expect_eq(hak__arena_state.kept, 0);
    expect_eq(hak__supers[first].moved, 2);
    use(first, 2 * HAK_SUPER_SIZE);
    hak__supers_give(first, 2);
    expect_valid();
    hak__arena_purge(fake.now, true);   /* mappings of its own do not stay */
    expect_eq(hak__supers[first].mapped, 0);
    expect_eq(hak__arena_state.moved, 0);
    expect_valid();
}

/* Once the block is in use, less may stay; but what it is about to borrow does not go back before. */
FRESH_TEST(nothing_goes_back_before_it_is_borrowed)
{
    enum { GROUPS = 3, EACH = 10, WANTED = 25 };
    size_t groups[GROUPS];
    (void)argument;
    start();
    expect_eq(hak__option_set("dirty_limit", "16M"), 0);
    for (unsigned i = 0; i < GROUPS; i++) {
        groups[i] = take(EACH * HAK_SUPER_SIZE);
        take(HAK_SUPER_SIZE);
    }
    for (unsigned i = 0; i < GROUPS; i++)
        hak__supers_give(groups[i], EACH);
    size_t first = take(WANTED * HAK_SUPER_SIZE);
    expect_eq(hak__arena_state.dirty, GROUPS * EACH * HAK_SUPER_SIZE);
    expect(hak__supers_fill(first, WANTED * HAK_SUPER_SIZE));
    expect_eq(fake.moves, WANTED);
    expect_valid();
}

/* Of a run that has pages in its first part only the rest is filled. */
FRESH_TEST(what_has_pages_keeps_them)
{
    const size_t bytes[] = { HAK_SUPER_SIZE, PART };
    (void)argument;
    start();
    lenders(bytes, 2);
    hak__supers_give(3, 1);   /* and at 2 and 3 there is a run now */
    size_t first = take(2 * HAK_SUPER_SIZE);
    expect_eq(first, 2);
    expect(hak__supers_fill(first, 2 * HAK_SUPER_SIZE));
    expect_of(first, 0, PART, 2);
    expect_of(first, PART, HAK_SUPER_SIZE, 1);
    expect_eq(fake.moves, 1);
    expect_eq(hak__supers[0].dirty, PART);
    use(first, 2 * HAK_SUPER_SIZE);
}

FRESH_TEST(little_is_not_worth_a_call)
{
    enum { LITTLE = 8 << 10 };
    const size_t bytes[] = { LITTLE, HAK_SUPER_SIZE };
    (void)argument;
    start();
    if (hak__page_size() > LITTLE)   /* there is nothing so small */
        return;
    lenders(bytes, 2);
    size_t first = take(HAK_SUPER_SIZE + LITTLE);
    expect(hak__supers_fill(first, HAK_SUPER_SIZE + LITTLE));
    expect_eq(fake.moves, 1);
    expect_of(first + 1, 0, LITTLE, 0);
    use(first, HAK_SUPER_SIZE + LITTLE);
}

FRESH_TEST(there_is_a_limit_to_pieces)
{
    const size_t bytes[] = { HAK_SUPER_SIZE };
    (void)argument;
    start();
    lenders(bytes, 1);
    size_t first = take(2 * HAK_SUPER_SIZE);
    hak__arena_state.moved = 512;
    expect(hak__supers_fill(first, 2 * HAK_SUPER_SIZE));
    expect_eq(fake.moves, 0);
    hak__arena_state.moved = 511;
    expect(hak__supers_fill(first, 2 * HAK_SUPER_SIZE));
    expect_eq(fake.moves, 1);
    hak__arena_state.moved -= 511;
    expect_valid();
}

/* Memory that is there as soon as it is mapped needs no pages. */
FRESH_TEST(nothing_moves_where_mapping_counts)
{
    const size_t bytes[] = { HAK_SUPER_SIZE };
    (void)argument;
    start();
    expect_eq(hak__option_set("unmap", "1"), 0);
    lenders(bytes, 1);
    size_t first = take(2 * HAK_SUPER_SIZE);
    expect(hak__supers_fill(first, 2 * HAK_SUPER_SIZE));
    expect_eq(fake.moves, 0);
    expect_valid();
}

/* The lender's pages have gone then, and the run is as it was; the next lender is not tried. */
FRESH_TEST(refused)
{
    const size_t bytes[] = { HAK_SUPER_SIZE, HAK_SUPER_SIZE };
    (void)argument;
    start();
    lenders(bytes, 2);
    size_t first = take(2 * HAK_SUPER_SIZE);
    fake.refuse_move = ENOMEM;
    for (unsigned i = 0; i < 2; i++) {
        fake.move_unmaps = i == 1;
        expect(hak__supers_fill(first, 2 * HAK_SUPER_SIZE));
        expect_eq(fake.moves, i + 1);
        expect_of(first, 0, HAK_SUPER_SIZE, 0);
        expect_eq(hak__supers[2 - 2 * i].mapped, 0);
        expect_valid();
    }
    use(first, 2 * HAK_SUPER_SIZE);
}

/* What goes nowhere stays with the lender. */
FRESH_TEST(refused_and_not_taken)
{
    const size_t bytes[] = { HAK_SUPER_SIZE, MIB };
    (void)argument;
    start();
    lenders(bytes, 2);
    size_t first = take(2 * HAK_SUPER_SIZE);
    fake.refuse_move = ENOMEM;
    fake.refuse_unmap = true;
    expect(hak__supers_fill(first, 2 * HAK_SUPER_SIZE));
    expect_eq(hak__supers[0].dirty, HAK_SUPER_SIZE);
    expect_of(0, 0, HAK_SUPER_SIZE, 1);
    expect_eq(hak__retained_newest(), 0);
    expect_valid();
    expect_eq(hak__arena_state.kept, 2);
    fake.refuse_move = 0;
    expect(hak__supers_fill(first, 2 * HAK_SUPER_SIZE - MIB));
    expect_of(first, 0, HAK_SUPER_SIZE, 1);
    expect_of(first + 1, 0, MIB, 2);
    expect_valid();
}

FRESH_TEST(place_lost)
{
    const size_t bytes[] = { HAK_SUPER_SIZE };
    (void)argument;
    start();
    lenders(bytes, 1);
    size_t first = take(2 * HAK_SUPER_SIZE);
    fake.refuse_move = EFAULT;
    fake.move_unmaps = true;
    fake.limit = 0;
    expect(!hak__supers_fill(first, 2 * HAK_SUPER_SIZE));
    expect(!is_mapped(hak__super_start(first)));
}

/* The same when a block moves: nothing is left where it was to go. */
FRESH_TEST(place_of_a_move_lost)
{
    (void)argument;
    start();
    size_t from = take(HAK_SUPER_SIZE), to = take(2 * HAK_SUPER_SIZE);
    fake.refuse_move = EFAULT;
    fake.move_unmaps = true;
    expect(!hak__supers_move(from, HAK_SUPER_SIZE, to, 2 * HAK_SUPER_SIZE));
    use(to, 2 * HAK_SUPER_SIZE);   /* it was mapped anew */
    fake.move_unmaps = false;
    fake.limit = 0;   /* mapping it says nothing of the place then */
    expect(!hak__supers_move(from, HAK_SUPER_SIZE, to, 2 * HAK_SUPER_SIZE));
    use(to, 2 * HAK_SUPER_SIZE);
    fake.move_unmaps = fake.unmaps_lost = true;
    expect(!hak__supers_move(from, HAK_SUPER_SIZE, to, 2 * HAK_SUPER_SIZE));
    fake.limit = SIZE_MAX;
    expect_eq(hak__supers[to].mapped, 0);
    expect_valid();
    hak__supers_give(to, 2);
    expect_eq(take(2 * HAK_SUPER_SIZE), to);
    use(to, 2 * HAK_SUPER_SIZE);
}

/* A whole one goes whole, and what the block does not need stays behind it: no mapping is split. */
FRESH_TEST(whole_ones_go_to_parts)
{
    const size_t bytes[] = { HAK_SUPER_SIZE, HAK_SUPER_SIZE };
    (void)argument;
    start();
    lenders(bytes, 2);
    size_t first = take(HAK_SUPER_SIZE + PART);
    expect(hak__supers_fill(first, HAK_SUPER_SIZE + PART));
    expect_eq(fake.moves, 2);
    expect_of(first, 0, HAK_SUPER_SIZE, 2);
    expect_of(first + 1, 0, HAK_SUPER_SIZE, 1);
    expect_eq(hak__arena_state.kept, 0);
    expect_valid();
    expect(!hak__supers_shorten(first, 2, HAK_SUPER_SIZE + PART, true));
    expect_eq(hak__super_tail(first + 1), HAK_SUPER_SIZE - PART);
    use(first, HAK_SUPER_SIZE + PART);
}

/* Where the rest of its place cannot be mapped, a part of it goes. */
FRESH_TEST(a_whole_one_without_room)
{
    const size_t bytes[] = { HAK_SUPER_SIZE };
    (void)argument;
    start();
    lenders(bytes, 1);
    size_t first = take(PART);
    expect_eq(first, 0);
    size_t next = take(PART);
    hak__supers_give(first, 1);
    fake.limit = 0;
    expect(hak__supers_fill(next, PART));
    expect_eq(fake.moves, 1);
    expect_of(next, 0, PART, 1);
    expect_eq(hak__supers[next].mapped, PART);
    expect_eq(hak__supers[0].mapped, HAK_SUPER_SIZE - PART);
    use(next, PART);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_ones_go_to_whole_gaps),
        cmocka_unit_test(the_tightest_that_is_enough),
        cmocka_unit_test(several_for_one_gap),
        cmocka_unit_test(nothing_goes_back_before_it_is_borrowed),
        cmocka_unit_test(what_has_pages_keeps_them),
        cmocka_unit_test(little_is_not_worth_a_call),
        cmocka_unit_test(there_is_a_limit_to_pieces),
        cmocka_unit_test(nothing_moves_where_mapping_counts),
        cmocka_unit_test(refused),
        cmocka_unit_test(refused_and_not_taken),
        cmocka_unit_test(place_lost),
        cmocka_unit_test(place_of_a_move_lost),
        cmocka_unit_test(whole_ones_go_to_parts),
        cmocka_unit_test(a_whole_one_without_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
