/* huge/huge.h: every alignment up to 1 GiB for a single byte; sizes change in place or by moving pages, contents kept;
 * what is said to be zero is, and clearing it touches no page that was zero; a refusal changes nothing; the second free and a
 * pointer into a block are stopped; the figures add up; and random operations against a model. */
#include "huge/huge.h"

#include "arena/arena.h"
#include "arena/limit.h"
#include "arena/retained.h"
#include "arena/runs.h"
#include "base/bits.h"
#include "diag/options.h"
#include "support/fake_os.h"
#include "support/figures.h"

#include <sys/mman.h>

static const size_t mib = 1 << 20;

static void start(void)
{
    fake_install();
    expect_eq(hak__arena_init(), 0);
}

static char *alloc(size_t n)
{
    bool zero;
    char *p = hak__huge_alloc(n, HAK_SUPER_SIZE, &zero);
    expect(p != NULL && (uintptr_t)p % HAK_SUPER_SIZE == 0);
    expect_eq(hak__huge_usable(p), hak_align_up(n, hak__page_size()));
    return p;
}

static size_t supers_taken(void)
{
    struct arena_figures out;
    arena_figures(&out);
    expect(hak__arena_is_valid());
    expect_eq(fake.mapped, out.mapped + out.meta);
    return out.taken;
}

/* --- allocation -------------------------------------------------------------------------------------------------- */

FRESH_TEST(only_the_pages_of_the_block)
{
    (void)argument;
    start();
    size_t before = fake.mapped;
    char *p = alloc(5 * mib + 1);
    expect_op(fake.mapped - before, <, 5 * mib + 512 * 1024); /* with metadata */
    memset(p, 1, 5 * mib + 1);
    expect(!is_mapped(p + hak__huge_usable(p)));
    hak__huge_free(p, "free");
    expect_eq(supers_taken(), 0);
}

FRESH_TEST(every_alignment)
{
    (void)argument;
    start();
    for (unsigned shift = 0; shift <= 30; shift++) {
        bool zero;
        size_t align = (size_t)1 << shift;
        char *one = hak__huge_alloc(1, align, &zero), *more = hak__huge_alloc(3 * mib, align, &zero);
        expect(one != NULL && (uintptr_t)one % align == 0);
        expect(more != NULL && (uintptr_t)more % align == 0);
        *one = 1;
        memset(more, 2, 3 * mib);
        hak__huge_free(one, "free");
        hak__huge_free(more, "free");
        expect_eq(supers_taken(), 0);
    }
    bool zero;
    expect(hak__huge_alloc(1, (size_t)1 << 62, &zero) == NULL);
    expect(hak__huge_alloc((size_t)1 << 50, HAK_SUPER_SIZE, &zero) == NULL);
    expect(hak__huge_alloc(SIZE_MAX, HAK_SUPER_SIZE, &zero) == NULL);
    expect_eq(supers_taken(), 0);
}

FRESH_TEST(zero_is_honest)
{
    bool zero;
    (void)argument;
    start();
    char *p = hak__huge_alloc(4 * mib, HAK_SUPER_SIZE, &zero);
    expect(zero && is_zero(p, 4 * mib));
    memset(p, 1, 4 * mib);
    hak__huge_free(p, "free");
    expect_ptr(hak__huge_alloc(3 * mib, HAK_SUPER_SIZE, &zero), p);
    expect(!zero);
    hak__huge_free(p, "free");
    hak__arena_purge(fake.now, true);
    expect_ptr(hak__huge_alloc(4 * mib, HAK_SUPER_SIZE, &zero), p);
    expect(!zero || is_zero(p, 4 * mib));
    for (unsigned i = 0; i < 8; i++) {
        char *q = hak__huge_alloc((i + 2) * mib, HAK_SUPER_SIZE << i % 3, &zero);
        expect(!zero || is_zero(q, (i + 2) * mib));
        memset(q, 1, (i + 2) * mib);
        if (i % 2)
            hak__huge_free(q, "free");
    }
}

static size_t resident_pages(char *p, size_t n)
{
    static unsigned char pages[1 << 15];
    size_t count = n / hak__page_size(), resident = 0;
    expect(count <= sizeof pages && mincore(p, n, pages) == 0);
    for (size_t i = 0; i < count; i++)
        resident += pages[i] & 1;
    return resident;
}

FRESH_TEST(only_used_superslabs_are_cleared)
{
    bool zero;
    (void)argument;
    start();
    char *p = alloc(15 * mib), *q = alloc(3 * mib);
    memset(p, 1, 15 * mib);
    memset(q, 1, 3 * mib);
    hak__huge_free(q, "free");
    hak__huge_free(p, "free");
    char *all = hak__huge_alloc(100 * mib, HAK_SUPER_SIZE, &zero);
    expect(all <= p && q < all + 100 * mib && zero);
    expect_op(resident_pages(all, 100 * mib), <=, 18 * mib / hak__page_size());
    expect(is_zero(all, 100 * mib));
    hak__huge_free(all, "free");
    expect_eq(supers_taken(), 0);
}

/* --- changing size -------------------------------------------------------------------------------------------------- */

FRESH_TEST(grows_in_place)
{
    (void)argument;
    start();
    char *p = alloc(2 * mib);
    memory_fill(p, 2 * mib, 1);
    for (size_t n = 3; n <= 40; n += 3) {
        size_t before = hak__huge_usable(p);
        expect_ptr(hak__huge_resize(p, n * mib), p);
        expect_op(hak__huge_usable(p), >=, n * mib);
        memset(p + 2 * mib, 1, hak__huge_usable(p) - 2 * mib);
        expect_op(hak__huge_usable(p), <=, hak_max(before, n * mib + n * mib / 8 + HAK_SUPER_SIZE));
        expect(memory_holds(p, 2 * mib, 2 * mib, 1));
    }
    expect_eq(fake.moves, 0);
    expect_op(huge_figures().grown_in_place, >, 5);
    hak__huge_free(p, "free");
    expect_eq(supers_taken(), 0);
}

FRESH_TEST(shrinks_in_place)
{
    (void)argument;
    start();
    char *p = alloc(20 * mib), *next = alloc(2 * mib);
    memory_fill(p, 20 * mib, 2);
    for (size_t n = 19; n >= 2; n -= 3) {
        size_t before = fake.mapped;
        expect_ptr(hak__huge_resize(p, n * mib), p);
        expect_eq(hak__huge_usable(p), n * mib);
        expect(memory_holds(p, n * mib, 20 * mib, 2));
        expect_op(fake.mapped, <=, before);
        expect(n * mib % HAK_SUPER_SIZE == 0 || !is_mapped(p + n * mib)); /* the rest of its last SuperSlab goes */
    }
    expect_eq(supers_taken(), 5); /* each has one more for its guard */
    char *between = alloc(2 * mib);
    expect(between > p && between < next); /* what was let go serves others */
    expect_ptr(hak__huge_resize(p, 2 * mib), p);
    expect_ptr(hak__huge_resize(p, 1), p);
    expect_eq(hak__huge_usable(p), hak__page_size());
    expect_eq(huge_figures().live_bytes, hak__page_size() + 4 * mib);
}

/* A block begins where the freed one began, and grows over its pages. */
FRESH_TEST(grows_over_what_was_freed)
{
    (void)argument;
    start();
    char *p = alloc(60 * mib + 4096);
    memset(p, 1, 60 * mib);
    hak__huge_free(p, "free");
    expect(alloc(3 * mib / 2) == p);
    for (size_t n = 2 * mib; n < 53 * mib; n += n / 2) /* it gets an eighth more */
        expect(hak__huge_resize(p, n) == p);
    for (size_t at = 0; at < hak__huge_usable(p); at += HAK_SUPER_SIZE)
        expect_eq(p[at], 1);
    expect_eq(supers_taken(), hak_div_up(hak__huge_usable(p), HAK_SUPER_SIZE));
}

/* Addresses that are mapped and have no pages are not in use: they let nothing stay. */
FRESH_TEST(what_went_back_lets_nothing_stay)
{
    (void)argument;
    start();
    char *p = alloc(400 * mib);
    hak__huge_free(p, "free");
    hak__retained_shorten(0);
    expect_op(fake.mapped, >, 400 * mib);
    fake.now += 3 * hak__option(HAK_OPTION_purge_delay);
    p = alloc(100 * mib);
    hak__huge_free(p, "free");
    expect_op(hak__arena_state.dirty, >, 60 * mib);
    expect_op(hak__arena_state.dirty, <=, 64 * mib);
}

FRESH_TEST(moves_its_pages)
{
    (void)argument;
    start();
    char *p = alloc(5 * mib), *wall = alloc(2 * mib);
    memory_fill(p, 5 * mib, 3);
    memory_fill(wall, 2 * mib, 4);
    char *q = hak__huge_resize(p, 9 * mib);
    expect(q != NULL && q != p);
    expect_eq(fake.moves, 1);
    expect_eq(huge_figures().moved, 1);
    expect(memory_holds(q, 5 * mib, 5 * mib, 3));
    memset(q + 5 * mib, 1, hak__huge_usable(q) - 5 * mib);
    expect(memory_holds(wall, 2 * mib, 2 * mib, 4));
    expect_eq(hak__huge_usable(p), 0);
    expect_op(hak__huge_usable(q), >=, 9 * mib);
    char *again = alloc(5 * mib);
    memset(again, 1, 5 * mib);
    expect(memory_holds(q, 5 * mib, 5 * mib, 3) || q == again);
    hak__huge_free(q, "free");
    hak__huge_free(wall, "free");
    hak__huge_free(again, "free");
    expect_eq(supers_taken(), 0);
    expect_eq(huge_figures().live_bytes, 0);
}

/* The block's last SuperSlab was mapped to its end by an earlier block. */
FRESH_TEST(moves_out_of_used_superslabs)
{
    (void)argument;
    start();
    char *former = alloc(4 * mib);
    memset(former, 9, 4 * mib);
    hak__huge_free(former, "free");
    char *p = alloc(3 * mib + mib / 2), *wall = alloc(2 * mib);
    expect_ptr(p, former);
    memory_fill(p, 3 * mib, 5);
    char *q = hak__huge_resize(p, 7 * mib);
    expect(q != p && memory_holds(q, 3 * mib, 3 * mib, 5));
    char *again = alloc(2 * mib + mib / 4);
    memset(again, 1, 2 * mib + mib / 4);
    expect(is_mapped(again + 2 * mib + mib / 4 - 1));
    hak__huge_free(again, "free");
    hak__huge_free(wall, "free");
    hak__huge_free(q, "free");
    expect_eq(supers_taken(), 0);
}

FRESH_TEST(refusals_change_nothing)
{
    bool zero;
    (void)argument;
    start();
    char *p = alloc(5 * mib), *wall = alloc(2 * mib);
    memory_fill(p, 5 * mib, 6);
    struct huge_figures before = huge_figures(), after;
    fake.limit = fake.mapped;
    expect(hak__huge_alloc(3 * mib, HAK_SUPER_SIZE, &zero) == NULL);
    expect(hak__huge_resize(p, 50 * mib) == NULL);
    fake.limit = SIZE_MAX;
    fake.refuse_move = ENOMEM;
    expect(hak__huge_resize(p, 50 * mib) == NULL);
    expect(hak__huge_resize(p, (size_t)1 << 50) == NULL);
    expect(hak__huge_resize(p + HAK_SUPER_SIZE, 1) == NULL);
    expect_eq(hak__huge_usable(p), 5 * mib);
    expect(memory_holds(p, 5 * mib, 5 * mib, 6));
    expect_eq(supers_taken(), 5);
    after = huge_figures();
    expect_eq(memcmp(&before, &after, sizeof before), 0);
    fake.refuse_unmap = true;
    expect_ptr(hak__huge_resize(p, mib), p); /* it shrinks, if only in name */
    expect(memory_holds(p, mib, 5 * mib, 6));
    hak__huge_free(p, "free");
    hak__huge_free(wall, "free");
    expect_eq(supers_taken(), 0);
}

/* --- misuse ---------------------------------------------------------------------------------------------------------- */

static void free_it(void *argument) { hak__huge_free(argument, "free"); }

FRESH_TEST(misuse_is_reported)
{
    char line[200];
    (void)argument;
    start();
    char *p = alloc(5 * mib);
    char *wrong[] = { p + 16, p + 4096, p + HAK_SLAB_SIZE, p + HAK_SUPER_SIZE };
    for (unsigned i = 0; i < 4; i++) {
        snprintf(line, sizeof line, "hakmem: free(): invalid pointer %p: not the start of a block", (void *)wrong[i]);
        expect_abort(free_it, wrong[i], line);
        expect_eq(hak__huge_usable(wrong[i]), 0);
    }
    hak__huge_free(p, "free");
    snprintf(line, sizeof line, "hakmem: free(): invalid pointer %p: not the start of a block", (void *)p);
    expect_abort(free_it, p, line);
    expect_eq(hak__huge_usable(p), 0);
}

/* --- random operations ------------------------------------------------------------------------------------------------ */

enum { SLOTS = 12 };

static struct {
    char *block;
    size_t n;
    uint64_t tag;
} slots[SLOTS];

static void expect_slot(unsigned i, const char *block, size_t n)
{
    expect(memory_holds(block, hak_min(n, slots[i].n), slots[i].n, slots[i].tag));
}

static void fill_slot(unsigned i, char *block, size_t n, uint64_t tag)
{
    slots[i].block = block;
    slots[i].n = n;
    slots[i].tag = tag;
    memory_fill(block, n, tag);
}

static void fuzz_alloc(struct rng *rng, unsigned i)
{
    bool zero;
    size_t n = 1 + rng_below(rng, rng_below(rng, 4) ? 8 * mib : 40 * mib), align = HAK_SUPER_SIZE << rng_below(rng, 4);
    char *p = hak__huge_alloc(n, align, &zero);
    if (p == NULL)
        return;
    expect_eq((uintptr_t)p % align, 0);
    for (size_t at = 0; zero && at < n; at += MEMORY_STEP)
        expect_eq(p[at], 0);
    fill_slot(i, p, n, rng_next(rng));
}

static void fuzz_step(struct rng *rng, unsigned i)
{
    fake.now += rng_below(rng, 300);
    fake.limit = rng_below(rng, 6) == 0 ? fake.mapped + mib : SIZE_MAX;
    fake.refuse_move = rng_below(rng, 8) == 0 ? ENOMEM : 0;
    fake.refuse_unmap = rng_below(rng, 16) == 0;
    fake.refuse_purge = rng_below(rng, 16) == 0;
    if (slots[i].block == NULL) {
        fuzz_alloc(rng, i);
        return;
    }
    size_t n = 1 + rng_below(rng, 2 * slots[i].n);
    char *p = rng_below(rng, 3) ? hak__huge_resize(slots[i].block, n) : NULL;
    if (p != NULL) {
        expect_slot(i, p, n);
        fill_slot(i, p, n, slots[i].tag);
    } else if (rng_below(rng, 2)) {
        expect_slot(i, slots[i].block, slots[i].n);
        hak__huge_free(slots[i].block, "free");
        slots[i].block = NULL;
    }
}

FRESH_TEST(random_operations)
{
    struct rng rng = { 11 };
    (void)argument;
    start();
    for (unsigned step = 0; step < 1200; step++) {
        fuzz_step(&rng, (unsigned)rng_below(&rng, SLOTS));
        supers_taken();
    }
    uint64_t live = 0;
    for (unsigned i = 0; i < SLOTS; i++) {
        live += slots[i].block != NULL;
        if (slots[i].block != NULL)
            expect_slot(i, slots[i].block, slots[i].n);
    }
    expect_eq(huge_figures().live, live);
    expect_eq(huge_figures().allocated - huge_figures().freed, live);
}

/* --- guards ------------------------------------------------------------------------------------------------------------ */

static void touch(void *p) { *(volatile char *)p = 1; }

static bool faults(char *p)
{
    char said[SAID_SIZE];
    signal(SIGSEGV, SIG_DFL);
    int status = run_child(touch, p, said);
    expect(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
    return status != 0;
}

static void expect_guarded(char *p)
{
    size_t usable = hak__huge_usable(p);
    expect(!faults(p + usable - 1) && faults(p + usable));
}

FRESH_TEST(ends_at_a_guard)
{
    static const size_t sizes[] = { 2 * mib, 4 * mib, 2 * mib + 4096, 4 * mib - 4096, 3000000, 5 * mib };
    char *blocks[6];
    (void)argument;
    start();
    expect_eq(hak__option_set("purge_delay", "0"), 0); /* no tail stays in its place */
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 6; i++)
            expect_guarded(blocks[i] = alloc(sizes[i]));
        for (unsigned i = 0; i < 6; i++) {
            char *q = hak__huge_resize(blocks[i], sizes[(i + round + 1) % 6] * (round + 1));
            blocks[i] = q != NULL ? q : blocks[i]; /* pages of several mappings cannot be moved */
            memset(blocks[i], 1, hak__huge_usable(blocks[i]));
            expect_guarded(blocks[i]);
        }
        for (unsigned i = 0; i < 6; i++)
            hak__huge_free(blocks[i], "free");
        expect_eq(supers_taken(), 0);
        /* What was behind a block serves as any other memory. */
        char *p = alloc(40 * mib);
        memset(p, 1, 40 * mib);
        hak__huge_free(p, "free");
    }
}

/* Blocks of one size that come and go, and what is behind them, ask the system for nothing. */
FRESH_TEST(guards_cost_no_calls)
{
    (void)argument;
    start();
    char *p = alloc(4 * mib), *q = alloc(3000000);
    hak__huge_free(p, "free");
    hak__huge_free(q, "free");
    unsigned calls = fake.maps + fake.unmaps + fake.purges;
    for (unsigned i = 0; i < 10; i++) {
        p = alloc(4 * mib);
        q = alloc(3000000);
        expect_eq(supers_taken(), 5); /* the addresses of a guard are a SuperSlab's, behind whole ones */
        hak__huge_free(q, "free");
        hak__huge_free(p, "free");
    }
    expect_eq(fake.maps + fake.unmaps + fake.purges, calls);
    expect_eq(fake.advices[HAK_OS_GUARD] + fake.advices[HAK_OS_UNGUARD], 0);
}

/* A block that gets a part of what was mapped for a longer one is the end of its mapping: what locks all of a process's memory
 * stops at the first page of a mapping that faults. */
FRESH_TEST(mappings_end_with_their_blocks)
{
    (void)argument;
    start();
    char *p = alloc(40 * mib);
    hak__huge_free(p, "free");
    expect_eq(hak__option_set("purge_delay", "0"), 0); /* no tail stays */
    for (unsigned i = 0; i < 4; i++) {
        char *q = alloc((i + 1) * 1000000);
        expect(!is_mapped(q + hak__huge_usable(q)));
    }
}

/* Where what is behind a block will not go, it has no guard. */
FRESH_TEST(guards_that_are_refused)
{
    (void)argument;
    start();
    expect_eq(hak__option_set("purge_delay", "0"), 0); /* no pages stay in their place */
    char *p = alloc(6 * mib);
    hak__huge_free(p, "free");
    fake.refuse_unmap = true;
    p = alloc(4 * mib);
    expect_eq(supers_taken(), 2);
    hak__huge_free(p, "free");
    fake.refuse_unmap = false;
    expect_guarded(p = alloc(4 * mib));
    fake.refuse_unmap = true;
    expect_ptr(hak__huge_resize(p, 2 * mib), p);
    expect_eq(hak__huge_usable(p), 2 * mib);
    memset(p, 1, 2 * mib);
    hak__huge_free(p, "free");
    expect_eq(supers_taken(), 0);
    fake.refuse_unmap = false;
    expect_guarded(p = alloc(4 * mib));
    hak__huge_free(p, "free");
}

/* Where mappings are few, none begins behind a block: what lies there is mapped, or the next block. The first ones keep theirs. */
FRESH_TEST(no_guards_in_a_crowd)
{
    enum { COUNT = 60, SHARE = 16 };
    char *blocks[COUNT];
    (void)argument;
    start();
    fake.seen.mappings = 4 * SHARE;
    hak__limit_ask_system();
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < COUNT; i++)
            memset(blocks[i] = alloc(i % 2 != 0 ? 2 * mib : 3000000), 1, 1);
        if (round == 0)
            expect_guarded(blocks[0]);
        expect(!faults(blocks[COUNT - 2] + hak__huge_usable(blocks[COUNT - 2])));
        expect_op(hak__arena_state.ends, <=, SHARE + 1);
        expect_ptr(hak__huge_resize(blocks[COUNT - 1], mib), blocks[COUNT - 1]);
        expect_ptr(hak__huge_resize(blocks[COUNT - 2], 2 * mib), blocks[COUNT - 2]);
        expect_op(hak__arena_state.ends, <=, SHARE + 1);
        expect(hak__arena_is_valid());
        for (unsigned i = 0; i < COUNT; i++)
            hak__huge_free(blocks[i], "free");
        expect_eq(supers_taken(), 0);
        expect(hak__arena_is_valid());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_pages_of_the_block),
        cmocka_unit_test(every_alignment),
        cmocka_unit_test(zero_is_honest),
        cmocka_unit_test(only_used_superslabs_are_cleared),
        cmocka_unit_test(grows_in_place),
        cmocka_unit_test(shrinks_in_place),
        cmocka_unit_test(grows_over_what_was_freed),
        cmocka_unit_test(what_went_back_lets_nothing_stay),
        cmocka_unit_test(moves_its_pages),
        cmocka_unit_test(moves_out_of_used_superslabs),
        cmocka_unit_test(refusals_change_nothing),
        cmocka_unit_test(misuse_is_reported),
        cmocka_unit_test(random_operations),
        cmocka_unit_test(ends_at_a_guard),
        cmocka_unit_test(guards_cost_no_calls),
        cmocka_unit_test(mappings_end_with_their_blocks),
        cmocka_unit_test(guards_that_are_refused),
        cmocka_unit_test(no_guards_in_a_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
