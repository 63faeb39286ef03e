/* The parts of arena/window.h on a steered system: what a wide alignment skips stays closed, somebody else's mapping is met once whatever its
 * size and to the SuperSlab, in place of blocks or of their descriptors, walks in both directions pass over what nobody uses, and an
 * interrupted opening leaves no trace.
 * Foreign mappings are real ones, because the kernel is asked where they end. */
#include <sys/mman.h>

#include "arena/arena.h"
#include "arena/runs.h"
#include "arena/window.h"
#include "support/fake_os.h"
#include "support/figures.h"

enum { EACH = HAK_PART_SUPERS, FAR = 1024 };

static void start(void)
{
    fake_install();
    expect_eq(hak__arena_init(), 0);
}

static size_t take(size_t count, size_t align)
{
    bool fresh;
    size_t first = hak__supers_take(count, align, count << HAK_SUPER_SHIFT, HAK_SUPER_HUGE, &fresh);
    expect(hak__arena_is_valid());
    return first;
}

/* Nobody touches it, so it costs addresses alone. (An emulator does not say that memory without rights is mapped.) */
static void put_foreign(size_t super, size_t count)
{
    void *place = hak__super_start(super);
    void *foreign = mmap(place, count << HAK_SUPER_SHIFT, PROT_READ,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    expect(foreign == place);
}

static uint64_t part_free(size_t part)
{
    hak__arena_lock();
    uint64_t free = hak__part_free(part);
    hak__arena_unlock();
    return free;
}

static size_t holes(void)
{
    struct arena_figures figures;
    arena_figures(&figures);
    return figures.holes;
}

static size_t walk_up(size_t *opened)
{
    size_t seen = 0;
    *opened = 0;
    for (size_t super = hak__super_from(0); super < hak__arena_top(); super = hak__super_from(super + 1)) {
        *opened += super % EACH == 0;
        seen++;
    }
    return seen;
}

static size_t walk_down(void)
{
    size_t seen = 0;
    for (size_t super = hak__super_before(hak__arena_top()); super != HAK_NO_SUPER; super = hak__super_before(super))
        seen++;
    return seen;
}

/* --- wide alignments ---------------------------------------------------------------------------------------------------- */

/* The first SuperSlab at the next multiple beyond the frontier, wherever the window begins. */
FRESH_TEST(what_an_alignment_skips_stays_closed)
{
    (void)argument;
    start();
    expect_eq(take(1, 1), 0);
    size_t far = take(1, 16 * FAR), opened;
    expect_eq(((uintptr_t)hak__super_start(far) >> HAK_SUPER_SHIFT) % (16 * FAR), 0);
    size_t part = far / EACH;
    expect_op(part, >, 2);
    expect(hak__part_is_open(0) && hak__part_is_open(part));
    for (size_t i = 1; i < part; i++)
        expect(!hak__part_is_open(i));
    expect_eq(hak__part_next(1, hak__arena_top()), part);
    expect_eq(part_free(1), UINT64_MAX);
    size_t seen = walk_up(&opened);
    expect_op(seen, <=, 2 * EACH);
    expect_eq(opened, 2);
    expect_eq(walk_down(), seen);
    expect_eq(hak__super_before(part * EACH), EACH - 1);
    expect_eq(holes(), 0);
}

FRESH_TEST(what_was_skipped_serves_afterwards)
{
    (void)argument;
    start();
    take(1, 1);
    size_t far = take(1, 16 * FAR), top = hak__arena_top();
    expect_eq(take(1, 1), 1);
    size_t run = take(3 * EACH, 1);   /* more than what is left of the first part */
    expect_op(run + 3 * EACH, <=, far);
    for (size_t i = run / EACH; i * EACH < run + 3 * EACH; i++)
        expect(hak__part_is_open(i));
    expect_eq(hak__arena_top(), top);
    hak__supers_give(run, 3 * EACH);
    expect(hak__arena_is_valid());
}

FRESH_TEST(parts_that_are_alike_are_counted_at_once)
{
    (void)argument;
    start();
    take(1, 1);
    size_t part = take(1, 16 * FAR) / EACH;
    expect_eq(hak__parts_alike(0), 1);
    expect_eq(hak__parts_alike(part), 1);
    for (size_t i = 1; i < part;) {
        size_t alike = hak__parts_alike(i);
        expect_op(alike, >=, 1);
        expect_op(i + alike, <=, part);
        expect(i + alike == part || (i + alike) % 64 == 0);
        i += alike;
    }
}

/* A search passes over them by one look; one free SuperSlab, or the part in which the frontier is, ends that. */
FRESH_TEST(full_parts_are_counted_at_once)
{
    (void)argument;
    start();
    expect_eq(take(70 * EACH + 1, 1), 0);
    expect_eq(hak__parts_alike(0), 64);
    expect_eq(hak__parts_alike(3), 61);
    expect_eq(hak__parts_alike(64), 6);
    expect_eq(hak__parts_alike(70), 1);
    hak__supers_give(5 * EACH + 7, 1);
    expect(hak__arena_is_valid());
    expect_eq(hak__parts_alike(3), 2);
    expect_eq(hak__parts_alike(5), 1);
    expect_eq(hak__parts_alike(6), 58);
    expect_eq(take(1, 1), 5 * EACH + 7);
    expect_eq(hak__parts_alike(3), 61);
}

/* The metadata of a far part can't be had: nothing is opened, and later it is. */
FRESH_TEST(an_opening_that_is_refused_leaves_no_trace)
{
    (void)argument;
    start();
    take(1, 1);
    size_t top = hak__arena_top();
    fake.limit = fake.mapped + HAK_SUPER_SIZE / 2;
    expect_eq(take(1, 16 * FAR), HAK_NO_SUPER);
    expect_eq(hak__part_next(1, hak__arena_top()), hak__part_is_open(1) ? 1 : hak__part_next(hak__arena_top() / EACH + 1, hak__arena_top()));
    fake.limit = SIZE_MAX;
    size_t far = take(1, 16 * FAR);
    expect(far != HAK_NO_SUPER && far > top);
    expect(hak__part_is_open(far / EACH));
}

/* --- somebody else's mappings in the metadata --------------------------------------------------------------------------------- */

static void put_foreign_descriptors(size_t super, size_t count)
{
    fake.map_refused_from = hak__meta_start(HAK_META_SPANS) + super * HAK_SUPER_SPANS;
    fake.map_refused_to = fake.map_refused_from + count * HAK_SUPER_SPANS;
}

/* The part is passed over, for good; those around it serve. */
FRESH_TEST(a_part_whose_descriptors_are_foreign)
{
    (void)argument;
    start();
    take(EACH - 1, 1);
    put_foreign_descriptors(EACH + 7, 1);
    expect_eq(take(2, 1), 2 * EACH);
    expect(!hak__part_is_open(1));
    expect_eq(part_free(1), 0);
    expect_eq(holes(), EACH);
    expect_eq(take(EACH, 1), 2 * EACH + 2);
    expect_eq(holes(), EACH);
    expect_eq(take(1, 1), EACH - 1);   /* below it */
}

/* A run that would end there; and a part far above the frontier, which is no bound of that. */
FRESH_TEST(a_run_across_foreign_descriptors)
{
    (void)argument;
    start();
    take(1, 1);
    size_t far = take(1, 16 * FAR);
    put_foreign_descriptors(EACH, EACH);
    expect_eq(take(EACH, 1), 2 * EACH);
    expect_eq(holes(), EACH);
    expect_op(far, >, 3 * EACH);
    expect_eq(take(1, 1), 1);
}

/* The first part is open as far as it has come. */
FRESH_TEST(the_first_part_stays_short)
{
    (void)argument;
    start();
    take(2, 1);
    put_foreign_descriptors(hak__meta_mapped(HAK_META_SPANS) / HAK_SUPER_SPANS, 1);
    size_t has = hak__arena_top(), next = take(EACH - 1, 1);
    expect_eq(next, EACH);
    expect_eq(holes(), EACH - has);
    for (size_t i = has; i < EACH; i++)
        expect(hak__super_is_hole(i) && hak__super_is_taken(i));
}

/* The tables are found by the address alone: without them nothing more can be had, and what there is serves. */
FRESH_TEST(foreign_tables_are_no_memory)
{
    static const enum hak_meta_window tables[] = { HAK_META_MAP, HAK_META_SUPERS, HAK_META_WORDS };
    (void)argument;
    start();
    size_t first = take(8, 1);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        bool fresh;
        bool down = tables[i] == HAK_META_WORDS;
        fake.map_refused_from = hak__meta_start(tables[i]) + (down ? 0 - HAK_SUPER_SIZE : hak__meta_mapped(tables[i]));
        fake.map_refused_to = fake.map_refused_from + HAK_SUPER_SIZE;
        expect_eq(hak__supers_take(512 * FAR, 1, HAK_SUPER_SIZE, HAK_SUPER_HUGE, &fresh), HAK_NO_SUPER);
        expect(hak__arena_is_valid());
    }
    hak__supers_give(first, 8);
    expect_eq(take(8, 1), first);
    expect_eq(holes(), 0);
}

/* --- somebody else's mappings ------------------------------------------------------------------------------------------- */

/* Sizes around a part's and far beyond it: the hole is as long as the mapping, and found by few questions. */
static void meet(void *argument)
{
    size_t count = *(const size_t *)argument;
    start();
    if (count + EACH > hak__window_supers())
        return;   /* ThreadSanitizer leaves room for small windows only */
    expect_eq(take(2, 1), 0);
    put_foreign(2, count);
    unsigned maps = fake.maps;
    expect_eq(take(1, 1), 2 + count);
    expect_op(fake.maps - maps, <=, 12);
    expect_eq(holes(), count);
    for (size_t i = 2; i < 2 + count; i += 1 + count / 100)
        expect(hak__super_is_hole(i));
    expect(hak__super_is_hole(1 + count) && !hak__super_is_hole(1) && !hak__super_is_hole(2 + count));
    size_t last = (1 + count) / EACH;
    expect_eq(hak__parts_foreign(), last > 1 ? last - 1 : 0);
    for (size_t i = 1; i < last; i++) {
        expect(!hak__part_is_open(i));
        expect_eq(part_free(i), 0);
    }
    expect_eq(take(1, 1), 3 + count);
    expect_eq(holes(), count);   /* it is not met again */
}

static void a_mapping_is_met_once(void **state)
{
    (void)state;
    static size_t counts[] = { 1, 2, 3, EACH - 3, EACH - 2, EACH - 1, EACH, EACH + 1, 3 * EACH, 5 * EACH + 7, 32 * FAR, 512 * FAR };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        run_fresh(meet, &counts[i]);
}

/* It ends where something is ours: what lies between is not asked about. */
FRESH_TEST(a_mapping_below_what_is_ours)
{
    (void)argument;
    start();
    take(2, 1);
    size_t far = take(1, 16 * FAR);
    put_foreign(2, far - 2);
    size_t next = take(1, 1);
    expect_op(next, >, far);
    expect_eq(holes(), far - 2);
    expect(hak__super_is_hole(far - 1) && !hak__super_is_hole(far));
    expect(hak__super_is_taken(far));
}

/* A gap that is shorter than what lies below it may count as a hole too; a longer one is found, to the SuperSlab. */
FRESH_TEST(two_mappings_with_room_between)
{
    (void)argument;
    enum { BELOW = 10, GAP = 2 * BELOW, ABOVE = 3 * EACH };
    start();
    take(1, 1);
    put_foreign(1, BELOW);
    put_foreign(1 + BELOW + GAP, ABOVE);
    expect_eq(take(GAP, 1), 1 + BELOW);
    expect_eq(take(1, 1), 1 + BELOW + GAP + ABOVE);
    expect_eq(holes(), BELOW + ABOVE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_an_alignment_skips_stays_closed),
        cmocka_unit_test(what_was_skipped_serves_afterwards),
        cmocka_unit_test(parts_that_are_alike_are_counted_at_once),
        cmocka_unit_test(full_parts_are_counted_at_once),
        cmocka_unit_test(an_opening_that_is_refused_leaves_no_trace),
        cmocka_unit_test(a_part_whose_descriptors_are_foreign),
        cmocka_unit_test(a_run_across_foreign_descriptors),
        cmocka_unit_test(the_first_part_stays_short),
        cmocka_unit_test(foreign_tables_are_no_memory),
        cmocka_unit_test(a_mapping_is_met_once),
        cmocka_unit_test(a_mapping_below_what_is_ours),
        cmocka_unit_test(two_mappings_with_room_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
