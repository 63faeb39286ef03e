/* realloc: the content survives every walk of sizes through all pools and back, the place is kept where the header
 * says so, a size of 0 frees, and a failure leaves the block as it was. */
#include "base/limits.h"
#include "hakmem.h"
#include "support/check.h"
#include "support/memory.h"

struct block {
    char *p;
    size_t n;
    uint64_t tag;
};

/* Sizes of every pool, with short steps and long jumps. */
static size_t some_size(struct rng *rng, size_t now)
{
    static const size_t limits[] = { 64, 1024, 8192, 57344, 1 << 20, 6 << 20 };
    switch (rng_below(rng, 4)) {
    case 0: return 1 + now + rng_below(rng, now / 4 + 2);
    case 1: return 1 + now - rng_below(rng, now / 2 + 1);
    default: return 1 + rng_below(rng, limits[rng_below(rng, 6)]);
    }
}

static void resize(struct rng *rng, struct block *block)
{
    size_t n = some_size(rng, block->n), kept = n < block->n ? n : block->n;
    char *p = rng_below(rng, 2) ? hak_realloc(block->p, n) : hak_reallocarray(block->p, n, 1);
    expect(p != NULL && (uintptr_t)p % 16 == 0);
    expect_op(hak_usable_size(p), >=, n);
    expect(memory_holds(p, kept, block->n, block->tag));
    block->p = p;
    block->n = n;
    block->tag = rng_next(rng);
    memory_fill(p, n, block->tag);
}

static void walks(void **state)
{
    struct block blocks[30] = { { NULL, 0, 0 } };
    struct rng rng = { 12 };
    (void)state;
    for (unsigned step = 0; step < 4000; step++)
        resize(&rng, &blocks[rng_below(&rng, 30)]);
    for (unsigned i = 0; i < 30; i++) {
        expect(memory_holds(blocks[i].p, blocks[i].n, blocks[i].n, blocks[i].tag));
        hak_free(blocks[i].p);
    }
}

/* A block that grows takes room ahead, and a large request may be served by a longer block that was freed before. Both together
 * must not give a block that a sized free refuses. */
static void sized_free_after_growth(void **state)
{
    static const size_t kept[] = { 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024 };
    enum { KEPT = sizeof kept / sizeof *kept };
    (void)state;
    for (size_t n = 49153; n < 1 << 20; n += n / 64)
        for (size_t k = 0; k < KEPT; k++) {
            void *blocks[KEPT];   /* so much in use lets one be kept */
            for (size_t i = 0; i < KEPT; i++)
                blocks[i] = hak_malloc(kept[i] << 10);
            void *before = hak_malloc(n - n / 10);
            hak_free(blocks[k]);
            blocks[k] = NULL;
            void *grown = hak_realloc(before, n);
            expect(grown != NULL);
            hak_free_sized(grown, n);
            for (size_t i = 0; i < KEPT; i++)
                hak_free(blocks[i]);
        }
}

/* One block grown and shrunk through every size there is, alone and with a neighbour behind each of its places. */
static void up_and_down(void **state)
{
    void *neighbours[200] = { NULL };
    unsigned count = 0;
    (void)state;
    for (unsigned with_neighbours = 0; with_neighbours < 2; with_neighbours++) {
        size_t n = 1, before;
        char *p = hak_malloc(n);
        memory_fill(p, n, n);
        for (bool up = true; up || n > 1;) {
            before = n;
            n = up ? n + n / 5 + 1 : n - n / 5 - 1;
            up &= n < 20 << 20;
            p = hak_realloc(p, n);
            expect(memory_holds(p, before < n ? before : n, before, before));
            memory_fill(p, n, n);
            if (with_neighbours && count < 200) {
                neighbours[count] = hak_malloc(hak_usable_size(p));
                memset(neighbours[count], 1, hak_usable_size(neighbours[count]));
                count++;
            }
        }
        hak_free(p);
    }
    while (count-- > 0)
        hak_free(neighbours[count]);
}

static void keeps_its_place_while_it_fits(void **state)
{
    (void)state;
    skip_hardened();
    for (size_t n = 16; n < 4 << 20; n += n / 3 + 1) {
        char *p = hak_malloc(n);
        size_t usable = hak_usable_size(p);
        expect_ptr(hak_realloc(p, usable), p);
        expect_ptr(hak_realloc(p, (usable + 1) / 2), p);
        hak_free(p);
    }
}

/* A block that grows by small steps gets a quarter more whenever it moves, and no more than twice what it needs; one
 * that jumps gets what fits. */
static void small_steps_get_room_ahead(void **state)
{
    (void)state;
    skip_hardened();
    for (size_t step = 1; step <= 64; step *= 4) {
        size_t n = 16 + step;
        char *p = hak_malloc(n);
        for (; n < HAK_MID_MAX; n += step) {
            size_t before = hak_usable_size(p);
            p[0] = p[n - step - 1] = (char)n;
            p = hak_realloc(p, n);
            expect(p[0] == (char)n && p[n - step - 1] == (char)n);
            bool moved = hak_usable_size(p) != before, small = n - before < before / 8;
            expect(!moved || !small || before > HAK_MID_MAX / 5 * 4 || hak_usable_size(p) >= before + before / 4);
            expect_op(hak_usable_size(p), <=, 2 * n);
        }
        hak_free(p);
    }
    for (size_t n = 100; n < HAK_MID_MAX; n *= 2) {
        char *p = hak_realloc(hak_malloc(n / 2), n), *q = hak_malloc(n);
        expect_eq(hak_usable_size(p), hak_usable_size(q));
        hak_free(p);
        hak_free(q);
    }
}

/* A block that has grown into the large pool is alone in its span and grows where it stands while there is room. How
 * many gaps the memory of earlier cases has depends on what the purge delay has let go of, so this case comes first. */
static void large_blocks_grow_in_place(void **state)
{
    (void)state;
    skip_hardened();
    for (size_t first = HAK_MID_MAX + 1; first < 200 << 10; first += 9 << 10) {
        char *p = hak_realloc(hak_malloc(40000), first);
        expect_eq(hak_usable_size(p) % HAK_SLAB_SIZE, 0);
        hak_free(p);
    }
    char *p = hak_realloc(hak_malloc(40000), HAK_MID_MAX + 1);
    unsigned moves = 0;
    for (size_t n = HAK_MID_MAX + 2; n < 900 << 10; n += 1000) {
        char *q = hak_realloc(p, n);
        moves += q != p;
        p = q;
    }
    expect_op(moves, <=, 3);   /* out of a gap between others, of which there are few; each class in turn would be 16 */
    hak_free(p);
}

/* A block that has become small does not hold on to a large one's memory. */
static void gives_back_what_it_does_not_need(void **state)
{
    (void)state;
    for (size_t n = 200; n <= 64 << 20; n *= 7) {
        char *p = hak_malloc(n);
        memory_fill(p, n, n);
        p = hak_realloc(p, n / 10);
        expect(memory_holds(p, n / 10, n, n));
        expect_op(hak_usable_size(p), <, n / 2 + 16);
        hak_free(p);
    }
}

static void from_and_to_nothing(void **state)
{
    (void)state;
    for (size_t n = 0; n < 3 << 20; n = n * 9 + 1) {
        errno = 77;
        char *p = hak_realloc(NULL, n);
        expect(p != NULL);
        memset(p, 1, n);
        expect(hak_realloc(p, 0) == NULL);
        expect_eq(errno, 77);   /* freed, not refused */
    }
    /* Freed for good: a thousand rounds of it take no more memory than one. */
    size_t held = 0;
    for (unsigned i = 0; i < 1000; i++) {
        char *p = hak_malloc(900000);
        held += (uintptr_t)p;
        expect(hak_realloc(p, 0) == NULL);
    }
    expect(held != 0);
}

static void failure_leaves_the_block(void **state)
{
    static const size_t sizes[] = { 1, 16, 1000, 5000, 60000, 900000, 3 << 20 };
    (void)state;
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *p = hak_malloc(sizes[i]);
        size_t usable = hak_usable_size(p);
        memory_fill(p, usable, i);
        for (unsigned j = 0; j < 20; j++) {
            const size_t impossible[] = { SIZE_MAX - j, SIZE_MAX - j * 4096, (size_t)PTRDIFF_MAX + j,
                                          (size_t)PTRDIFF_MAX - j, (size_t)(j + 1) << 50 };
            for (unsigned k = 0; k < 5; k++) {
                errno = 0;
                expect(hak_realloc(p, impossible[k]) == NULL);
                expect_eq(errno, ENOMEM);
            }
        }
        expect_eq(hak_usable_size(p), usable);
        expect(memory_holds(p, usable, usable, i));
        hak_free(p);
    }
}

/* --- blocks of other threads ------------------------------------------------------------------------------------------- */

static void *allocate_some(void *argument)
{
    struct block *blocks = argument;
    for (unsigned i = 0; i < 40; i++) {
        blocks[i].n = (size_t)10 << i % 20;
        blocks[i].p = hak_malloc(blocks[i].n);
        memory_fill(blocks[i].p, blocks[i].n, i);
    }
    return NULL;
}

static void blocks_of_another_thread(void **state)
{
    struct block blocks[40];
    (void)state;
    run_threads(1, allocate_some, blocks, sizeof blocks);
    for (unsigned i = 0; i < 40; i++) {
        size_t n = i % 2 ? blocks[i].n * 3 : blocks[i].n / 3 + 1;
        char *p = hak_realloc(blocks[i].p, n);
        expect(memory_holds(p, n < blocks[i].n ? n : blocks[i].n, blocks[i].n, i));
        memset(p, 1, n);
        hak_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_blocks_grow_in_place),   /* before the others have made gaps */
        cmocka_unit_test(walks),
        cmocka_unit_test(up_and_down),
        cmocka_unit_test(sized_free_after_growth),
        cmocka_unit_test(keeps_its_place_while_it_fits),
        cmocka_unit_test(small_steps_get_room_ahead),
        cmocka_unit_test(gives_back_what_it_does_not_need),
        cmocka_unit_test(from_and_to_nothing),
        cmocka_unit_test(failure_leaves_the_block),
        cmocka_unit_test(blocks_of_another_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
