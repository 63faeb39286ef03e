/* arena/runs.c on a steered system: a SuperSlab opened bare has nothing mapped but its pieces, which are counted; what the
 * system or HAKMEM_LIMIT refuses is refused, after emptied SuperSlabs have given way; and a process whose new memory is there at
 * once, or that has been told to, is thrifty. */
#include "arena/arena.h"
#include "arena/limit.h"
#include "arena/runs.h"
#include "diag/options.h"
#include "support/fake_os.h"
#include "support/figures.h"

enum { PIECE = 64 << 10 };

static void start(void)
{
    fake_install();
    expect_eq(hak__arena_init(), 0);
}

static void expect_valid(void)
{
    struct arena_figures figures;
    arena_figures(&figures);
    expect(hak__arena_is_valid());
    expect_eq(fake.mapped, figures.mapped + figures.meta);
}

static size_t open_bare(void)
{
    bool fresh = false;
    size_t super = hak__supers_open(false, &fresh);
    expect(super != HAK_NO_SUPER && fresh);
    expect(hak__super_is_bare(super));
    expect_eq(hak__supers[super].mapped, 0);
    expect(!is_mapped(hak__super_start(super)));
    expect_valid();
    return super;
}

FRESH_TEST(only_pieces_are_mapped)
{
    (void)argument;
    start();
    char *base = hak__super_start(open_bare());
    for (int i = 0; i < 32; i += 5) {
        expect_eq(hak__piece_map(base + i * PIECE, PIECE), 0);
        memory_fill(base + i * PIECE, PIECE, 1);
        expect(i == 0 || !is_mapped(base + i * PIECE - 1));
        expect(i == 31 || !is_mapped(base + (i + 1) * PIECE));
        expect_valid();
    }
    expect_eq(hak__arena_state.pieces, 7 * PIECE);
    for (int i = 0; i < 32; i += 5) {
        expect(hak__piece_unmap(base + i * PIECE, PIECE));
        expect(!is_mapped(base + i * PIECE));
        expect_valid();
    }
    expect_eq(hak__arena_state.pieces, 0);
}

/* 2 MiB at once can't be had, a piece can. */
FRESH_TEST(where_a_whole_one_is_refused)
{
    (void)argument;
    bool fresh;
    start();
    fake.limit = fake.mapped + HAK_SUPER_SIZE / 2;
    expect_eq(hak__supers_open(true, &fresh), HAK_NO_SUPER);
    expect(!hak__is_thrifty());
    char *base = hak__super_start(open_bare());
    expect_eq(hak__piece_map(base, PIECE), 0);
    expect_eq(hak__piece_map(base + PIECE, HAK_SUPER_SIZE - PIECE), ENOMEM);
    expect_eq(hak__arena_state.pieces, PIECE);
    expect_valid();
}

FRESH_TEST(emptied_ones_give_way_to_a_piece)
{
    (void)argument;
    bool fresh;
    start();
    expect_eq(hak__option_set("dirty_limit", "1G"), 0);
    size_t whole = hak__supers_open(true, &fresh);
    expect(whole != HAK_NO_SUPER && !hak__super_is_bare(whole));
    char *base = hak__super_start(open_bare());
    memory_fill(hak__super_start(whole), HAK_SUPER_SIZE, 1);
    hak__supers_give(whole, 1);
    fake.limit = fake.mapped;
    expect_eq(hak__piece_map(base, PIECE), 0);
    expect(!is_mapped(hak__super_start(whole)));
    expect_valid();
}

FRESH_TEST(the_limit_holds_for_pieces)
{
    (void)argument;
    start();
    char *base = hak__super_start(open_bare());
    char text[32];
    snprintf(text, sizeof text, "%zu", hak__arena_state.mapped + 3 * PIECE);
    expect_eq(hak__option_set("limit", text), 0);
    expect_eq(hak__piece_map(base, 2 * PIECE), 0);
    unsigned maps = fake.maps;
    expect_eq(hak__piece_map(base + 2 * PIECE, 2 * PIECE), ENOMEM);
    expect_eq(fake.maps, maps);
    expect_eq(hak__piece_map(base + 2 * PIECE, PIECE), 0);
    expect_valid();
}

FRESH_TEST(a_piece_that_cannot_go_stays_in_the_books)
{
    (void)argument;
    start();
    char *base = hak__super_start(open_bare());
    expect_eq(hak__piece_map(base, PIECE), 0);
    fake.refuse_unmap = true;
    expect(!hak__piece_unmap(base, PIECE));
    expect_eq(hak__arena_state.pieces, PIECE);
    expect_valid();
    fake.refuse_unmap = false;
    expect(hak__piece_unmap(base, PIECE));
    expect_valid();
}

/* Somebody else's mapping is no want of memory: nothing is given up for it. */
FRESH_TEST(a_place_that_is_taken)
{
    (void)argument;
    bool fresh;
    start();
    size_t whole = hak__supers_open(true, &fresh);
    memory_fill(hak__super_start(whole), HAK_SUPER_SIZE, 1);
    char *base = hak__super_start(open_bare());
    hak__supers_give(whole, 1);
    fake_add_foreign(base + PIECE, PIECE);
    expect_eq(hak__piece_map(base + PIECE, PIECE), EEXIST);
    expect(is_mapped(hak__super_start(whole)));
    expect_eq(hak__piece_map(base, PIECE), 0);
    expect_valid();
}

FRESH_TEST(a_thrifty_process_opens_none_whole)
{
    (void)argument;
    bool fresh;
    start();
    expect(!hak__is_thrifty());
    hak__thrift_begin();
    expect_eq(hak__supers_open(true, &fresh), HAK_NO_SUPER);
    open_bare();
}

/* As under mlockall(MCL_FUTURE): the first one tells, is bare after all, and no other is opened whole. */
FRESH_TEST(memory_that_is_there_at_once_makes_thrifty)
{
    (void)argument;
    bool fresh;
    start();
    fake.populate = true;
    size_t super = hak__supers_open(true, &fresh);
    expect(super != HAK_NO_SUPER && fresh && hak__super_is_bare(super));
    expect(!is_mapped(hak__super_start(super)));
    expect(hak__is_thrifty());
    expect_eq(hak__supers_open(true, &fresh), HAK_NO_SUPER);
    expect_valid();
}

FRESH_TEST(a_bare_one_is_free_again_without_a_page)
{
    (void)argument;
    bool fresh;
    start();
    size_t super = open_bare();
    size_t mapped = fake.mapped;
    hak__supers_give(super, 1);
    expect_eq(fake.mapped, mapped);
    expect_eq(hak__supers[super].dirty, 0);
    expect_valid();
    expect_eq(hak__supers_open(true, &fresh), super);   /* the lowest one serves again, whole */
    expect(fresh && !hak__super_is_bare(super));
    expect_valid();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_pieces_are_mapped),
        cmocka_unit_test(where_a_whole_one_is_refused),
        cmocka_unit_test(emptied_ones_give_way_to_a_piece),
        cmocka_unit_test(the_limit_holds_for_pieces),
        cmocka_unit_test(a_piece_that_cannot_go_stays_in_the_books),
        cmocka_unit_test(a_place_that_is_taken),
        cmocka_unit_test(a_thrifty_process_opens_none_whole),
        cmocka_unit_test(memory_that_is_there_at_once_makes_thrifty),
        cmocka_unit_test(a_bare_one_is_free_again_without_a_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
