/* span/span.h: blocks are taken in ascending order, freed ones first, fresh ones no further than a page at a time;
 * what is no block, not handed out or free already is found when it is given back; remote frees are collected once
 * and checked; random operations on a span of every class against a model of its blocks; and a free block is found in
 * the same few instructions wherever it lies. */
#include "heap/heap.h"
#include "span/span.h"

#include "arena/runs.h"
#include "arena/window.h"
#include "support/check.h"
#include "support/steps.h"

enum { OWNER = 7, SLAB = 3 };

static uint64_t bitmaps[2 * HAK_SPAN_BLOCKS_MAX / 64];

static int setup(void **state)
{
    bool fresh;
    (void)state;
    if (hak__arena_init() != 0 || hak__supers_take(1, 1, HAK_SUPER_SIZE, HAK_SUPER_IN_SLABS, &fresh) != 0)
        return -1;
    hak__spans = hak__span_memory();
    return 0;
}

/* Ends what the case before has left, with its blocks. */
static struct hak_span *create(uint32_t class)
{
    struct hak_span *left = &hak__spans[SLAB];
    left->free_count = left->frontier;
    if (hak__owner_at(SLAB) != 0)
        hak__span_destroy(left);
    memset(bitmaps, 0xa5, sizeof bitmaps);   /* any content will do */
    return hak__span_create(SLAB, hak__classes[class].slabs, class, OWNER, bitmaps, true);
}

static char *block_at(const struct hak_span *span, uint32_t index)
{
    return hak__span_start(span) + (size_t)index * hak__classes[span->class].size;
}

static uint32_t index_in(const struct hak_span *span, const void *block)
{
    uint32_t index = 0;
    expect_eq(hak__span_index(span, block, &index), HAK_SPAN_OK);
    return index;
}

/* Takes up to `want` blocks; checks that popping them gives ascending addresses. The lowest is out[got - 1]. */
static uint32_t take(struct hak_span *span, void **out, uint32_t want)
{
    memset(out, 0, want * sizeof *out);
    uint32_t got = hak__span_take(span, out, want);
    expect_op(got, <=, want);
    memmove(out, out + (want - got), got * sizeof *out);
    for (uint32_t i = 0; i + 1 < got; i++)
        expect(out[i] > out[i + 1]);
    expect(hak__span_is_valid(span));
    return got;
}

static void give(struct hak_span *span, void *block)
{
    uint32_t given;
    expect_eq(hak__span_give_owner(span, &block, 1, &given), HAK_SPAN_OK);
    expect_eq(given, 1);
    expect(hak__span_is_valid(span));
}

/* --- life ---------------------------------------------------------------------------------------------------------- */

static void created_and_destroyed(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        const struct hak_class *class = &hak__classes[c];
        struct hak_span *span = create(c);
        uint32_t word = hak__owner_word(OWNER, c), inner = class->blocks == 1 ? hak__owner_inner(OWNER) : word;
        expect_eq(span->blocks, class->blocks);
        expect_eq(hak__span_allocated(span), 0);
        expect(hak__span_has_blocks(span) && hak__span_is_valid(span));
        for (size_t i = 0; i < class->slabs; i++) {
            expect_eq(hak__owner_at(SLAB + i), i == 0 ? word : inner);
            expect_ptr(hak__span_around(SLAB + i), span);
        }
        expect_eq(hak__owner_at(SLAB + class->slabs), 0);
        for (size_t i = 0; i < class->slabs && c >= HAK_CLASS_FIRST_LARGE; i++)
            expect_eq(hak__span_is_single(SLAB + i, c), class->blocks == 1);
        void *memory = hak__span_destroy(span);
        expect_ptr(memory, hak__span_bitmap_bytes(class) != 0 ? bitmaps : NULL);
        for (size_t i = 0; i < class->slabs; i++)
            expect_eq(hak__owner_at(SLAB + i), 0);
        expect_eq(atomic_load(&span->owner), 0);
    }
}

/* A span of one block in a class whose spans have several: each slab says what it is, and the block is the only one. */
static void lone_blocks(void **state)
{
    void *out[2];
    (void)state;
    for (uint32_t c = HAK_CLASS_FIRST_LARGE; c < HAK_CLASSES; c++) {
        uint32_t slabs = hak__class_single_slabs(c), index;
        struct hak_span *span = hak__span_create(SLAB, slabs, c, OWNER, NULL, true);
        expect_eq(span->blocks, 1);
        expect_eq(span->slabs, slabs);
        expect(hak__span_is_single(SLAB, c));
        for (size_t i = 0; i < slabs; i++) {
            expect_eq(hak__owner_at(SLAB + i), i == 0 ? hak__owner_word(OWNER, c) : hak__owner_inner(OWNER));
            expect_ptr(hak__span_around(SLAB + i), span);
        }
        expect_eq(hak__owner_at(SLAB + slabs), 0);
        expect_eq(hak__span_take(span, out, 1), 1);
        expect_ptr(out[0], hak__span_start(span));
        expect(!hak__span_has_blocks(span));
        expect_eq(hak__span_index(span, block_at(span, 1), &index), HAK_SPAN_NOT_A_BLOCK);
        give(span, out[0]);
        expect_ptr(hak__span_destroy(span), NULL);
    }
}

/* A short span of a small or mid class has as many blocks as fit, at least two; no block begins in what is left. */
static void short_spans(void **state)
{
    void *out[64];
    unsigned shorter = 0;
    (void)state;
    for (uint32_t c = 0; c < HAK_CLASS_FIRST_LARGE; c++) {
        const struct hak_class *class = &hak__classes[c];
        uint32_t slabs = hak__class_short_slabs(c), fit = (uint32_t)(slabs * HAK_SLAB_SIZE / class->size), index;
        expect_op(fit, >=, 2);
        expect_op(slabs, <=, class->slabs);
        if (slabs == class->slabs)
            continue;
        shorter++;
        struct hak_span *span = hak__span_create(SLAB, slabs, c, OWNER, NULL, true);
        expect_eq(span->blocks, fit);
        expect_eq(hak__owner_at(SLAB + slabs), 0);
        for (uint32_t i = 0; i < fit; i++)
            expect_eq(hak__span_take(span, out + i, 1), 1);
        expect(!hak__span_has_blocks(span));
        for (uint32_t i = 0; i < fit; i++)
            expect_op((char *)out[i] + class->size, <=, hak__span_start(span) + slabs * HAK_SLAB_SIZE);
        expect_eq(hak__span_index(span, block_at(span, fit), &index), HAK_SPAN_NOT_A_BLOCK);
        for (uint32_t i = 0; i < fit; i++)
            give(span, out[i]);
        expect_ptr(hak__span_destroy(span), NULL);
        for (uint32_t i = 0; i < slabs; i++)
            expect_eq(hak__owner_at(SLAB + i), 0);
    }
    expect_op(shorter, >, 0);
}

static void destroy_one_out(void *argument)
{
    void *block;
    (void)argument;
    struct hak_span *span = create(0);
    hak__span_take(span, &block, 1);
    hak__span_destroy(span);
}

static void destroying_needs_all_blocks(void **state)
{
    char said[SAID_SIZE];
    (void)state;
    int status = run_child(destroy_one_out, NULL, said);
    expect(WIFSIGNALED(status) && strstr(said, "while blocks are allocated") != NULL);
}

/* --- taking -------------------------------------------------------------------------------------------------------- */

/* A batch of fresh blocks ends with the page in which its first block ends, so that a miss touches one new page, and
 * fills that page. */
static void frontier_moves_page_by_page(void **state)
{
    void *out[512];
    (void)state;
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        struct hak_span *span = create(c);
        size_t size = hak__classes[c].size, page = hak__page_size();
        for (uint32_t at = 0; at < span->blocks;) {
            uint32_t got = take(span, out, 512);
            size_t limit = hak_align_up((at + 1) * size, page), end = (at + got) * size;
            expect_ptr(out[got - 1], block_at(span, at));
            expect_ptr(out[0], block_at(span, at + got - 1));
            expect_op(end, <=, limit);
            expect(got == 512 || at + got == span->blocks || end + size > limit);
            at += got;
            expect_eq(span->frontier, at);
        }
        expect_eq(take(span, out, 1), 0);
        expect(!hak__span_has_blocks(span));
        expect(hak__span_take_fresh(span) == NULL);
    }
}

static void freed_blocks_first(void **state)
{
    void *out[300];
    (void)state;
    struct hak_span *span = create(0);
    expect_eq(take(span, out, 256), 256);
    give(span, block_at(span, 200));
    give(span, block_at(span, 3));
    give(span, block_at(span, 64));
    expect_eq(take(span, out, 2), 2);
    expect_eq(index_in(span, out[1]), 3);
    expect_eq(index_in(span, out[0]), 64);
    expect_eq(take(span, out, 5), 5);
    expect_eq(index_in(span, out[4]), 200);
    expect_eq(index_in(span, out[3]), 256);
    expect_eq(index_in(span, out[0]), 259);
}

static void whole_words(void **state)
{
    void *out[256], *blocks[256];
    (void)state;
    struct hak_span *span = create(1);
    expect_eq(take(span, out, 128), 128);
    for (uint32_t i = 0; i < 128; i++)
        blocks[i] = block_at(span, i);
    uint32_t given;
    expect_eq(hak__span_give_owner(span, blocks, 128, &given), HAK_SPAN_OK);
    expect_eq(given, 128);
    expect(hak__span_is_valid(span));
    for (uint32_t i = 0; i < 128; i += i == 64 ? 63 : 64)
        expect_eq(take(span, out, i == 127 ? 1 : i == 64 ? 63 : 64), i == 127 ? 1 : i == 64 ? 63 : 64);
    expect_ptr(out[0], block_at(span, 127));
    expect_eq(hak__span_allocated(span), 128);
}

static void take_fresh(void **state)
{
    (void)state;
    struct hak_span *span = create(20);
    for (uint32_t i = 0; i < span->blocks; i++)
        expect_ptr(hak__span_take_fresh(span), block_at(span, i));
    expect(hak__span_take_fresh(span) == NULL);
    expect(hak__span_is_valid(span));
}

/* --- giving -------------------------------------------------------------------------------------------------------- */

/* What gives the fault comes at position 2 of four: what is before it has been given, nothing after it. */
static void expect_fault(struct hak_span *span, void *offender, enum hak_span_fault fault)
{
    void *blocks[] = { block_at(span, 0), block_at(span, 1), offender, block_at(span, 4) };
    uint32_t given = 99, free_before = span->free_count;
    expect_eq(hak__span_give_owner(span, blocks, 4, &given), fault);
    expect_eq(given, 2);
    expect_eq(span->free_count, free_before + 2);
    expect(hak__span_is_valid(span));
    void *back[2];
    expect_eq(hak__span_take(span, back, 2), 2);
}

static void faults_are_found(void **state)
{
    void *out[6];
    (void)state;
    for (uint32_t c = 0; c < HAK_CLASS_FIRST_LARGE; c++) {
        struct hak_span *span = create(c);
        size_t size = hak__classes[c].size;
        for (uint32_t had = 0; had < 6 && had < span->blocks;)
            had += take(span, out, 6 - had);
        if (span->blocks < 6)
            continue;
        expect_fault(span, block_at(span, 1), HAK_SPAN_DOUBLE_FREE);   /* twice in one batch */
        expect_fault(span, block_at(span, 2) + 1, HAK_SPAN_NOT_A_BLOCK);
        expect_fault(span, block_at(span, 2) + 8, HAK_SPAN_NOT_A_BLOCK);
        if (size > 16)
            expect_fault(span, block_at(span, 2) + 16, HAK_SPAN_NOT_A_BLOCK);
        expect_fault(span, block_at(span, 3) - 1, HAK_SPAN_NOT_A_BLOCK);
        if (span->frontier < span->blocks)
            expect_fault(span, block_at(span, span->frontier), HAK_SPAN_NOT_A_BLOCK);
        give(span, block_at(span, 5));
        void *twice = block_at(span, 5);
        uint32_t given;
        expect_eq(hak__span_give_owner(span, &twice, 1, &given), HAK_SPAN_DOUBLE_FREE);
        expect_eq(given, 0);
    }
}

/* A batch may hold blocks of several spans: each call gives those at its head that are its own. */
static void other_spans_blocks_end_the_batch(void **state)
{
    void *out[2];
    (void)state;
    struct hak_span *span = create(10);
    take(span, out, 2);
    uint32_t given;
    void *blocks[] = { out[0], out[1], hak__span_start(span) + HAK_SLAB_SIZE, out[0] };
    expect_eq(hak__span_give_owner(span, blocks, 4, &given), HAK_SPAN_OK);
    expect_eq(given, 2);
    void *below[] = { hak__span_start(span) - 16 };
    expect_eq(hak__span_give_owner(span, below, 1, &given), HAK_SPAN_OK);
    expect_eq(given, 0);
    expect(hak__span_is_valid(span));
}

static void index_of_addresses(void **state)
{
    uint32_t index;
    (void)state;
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        struct hak_span *span = create(c);
        for (uint32_t i = 0; i < span->blocks; i++) {
            expect_eq(index_in(span, block_at(span, i)), i);
            expect_eq(hak__span_index(span, block_at(span, i) + 8, &index), HAK_SPAN_NOT_A_BLOCK);
        }
        expect_eq(hak__span_index(span, block_at(span, span->blocks), &index), HAK_SPAN_NOT_A_BLOCK);
    }
}

/* What free asks of each address in a span's slabs (span/span.h), whatever part of its blocks has been handed out. */
static void beginnings_of_handed_out_blocks(void **state)
{
    static void *out[HAK_SPAN_BLOCKS_MAX];
    (void)state;
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        const size_t size = hak__classes[c].size, slabs = hak__classes[c].blocks == 1 ? 1 : hak__classes[c].slabs;
        struct hak_span *span = create(c);
        for (uint32_t want = 1; want != 0; want = span->frontier != span->blocks ? span->blocks : 0) {
            take(span, out, want);
            const char *start = hak__span_start(span);
            for (size_t at = 0; at < slabs * HAK_SLAB_SIZE; at++) {
                bool begins = !HAK_PROTECT || (at % size == 0 && at / size < span->frontier);
                if (hak__begins_block(&hak__window.map[SLAB + at / HAK_SLAB_SIZE], start + at) != begins)
                    check_failed(__FILE__, __LINE__, "block size, offset", size, at);
            }
        }
    }
}

/* --- remote frees ---------------------------------------------------------------------------------------------------- */

static bool is_not_free(const struct hak_span *span, const void *block) { return (void)span, (void)block, false; }

static void collected_once(void **state)
{
    void *out[256];
    enum hak_span_fault fault;
    uint32_t culprit = 0;
    (void)state;
    struct hak_span *span = create(0);
    take(span, out, 256);
    expect_eq(hak__span_set_remote(span, 0, 0x5), 0);
    expect_eq(hak__span_set_remote(span, 3, 1ull << 63), 0);
    expect_eq(hak__span_set_remote(span, 0, 0x2), 0);
    expect_eq(hak__span_set_remote(span, 0, 0x6), 0x6);   /* both again: double frees, and which */
    expect_eq(hak__span_allocated(span), 256);
    expect_eq(hak__span_collect_owner(span, is_not_free, &fault, &culprit), 4);
    expect_eq(fault, HAK_SPAN_OK);
    expect_eq(hak__span_allocated(span), 252);
    expect(hak__span_is_valid(span));
    expect_eq(hak__span_collect_owner(span, is_not_free, &fault, &culprit), 0);
    expect_eq(take(span, out, 3), 3);
    expect_ptr(out[0], block_at(span, 2));
    expect_eq(take(span, out, 1), 1);
    expect_ptr(out[0], block_at(span, 255));
}

static void remote_faults_are_found(void **state)
{
    void *out[100];
    enum hak_span_fault fault;
    uint32_t culprit = 0;
    (void)state;
    struct hak_span *span = create(0);
    take(span, out, 100);
    give(span, block_at(span, 70));
    hak__span_set_remote(span, 1, 1ull << (70 - 64));
    hak__span_collect_owner(span, is_not_free, &fault, &culprit);
    expect_eq(fault, HAK_SPAN_DOUBLE_FREE);
    expect_eq(culprit, 70);
    span = create(0);
    take(span, out, 100);
    hak__span_set_remote(span, 1, 1ull << (100 - 64));
    hak__span_collect_owner(span, is_not_free, &fault, &culprit);
    expect_eq(fault, HAK_SPAN_NOT_A_BLOCK);
    expect_eq(culprit, 100);
}

/* --- inherited spans ------------------------------------------------------------------------------------------------- */

static bool is_unwritten(const void *block) { return *(const uint64_t *)block == 0x1234; }

/* A fork later: no block that is freed is written to, by its owner or by another thread, until the span gives blocks again; then
 * all free ones have their keys, and it is of the present generation. */
static void inherited_blocks_are_not_written(void **state)
{
    void *out[100];
    enum hak_span_fault fault;
    uint32_t culprit = 0, word, given;
    (void)state;
    hak__freed_key = 0xabcd;
    struct hak_span *span = create(0);
    expect_eq(take(span, out, 100), 100);
    for (uint32_t i = 0; i < 100; i++)
        *(uint64_t *)block_at(span, i) = 0x1234;
    word = hak__owner_at(SLAB);
    hak__window.generation += 1u << HAK_GENERATION_SHIFT;
    expect(hak__span_is_inherited(span));
    hak__span_lose_keys(span);
    give(span, block_at(span, 3));
    hak__span_set_remote(span, 1, 1ull << (70 - 64));
    expect_eq(hak__span_collect_owner(span, is_not_free, &fault, &culprit), 1);
    expect_eq(fault, HAK_SPAN_OK);
    expect(is_unwritten(block_at(span, 3)) && is_unwritten(block_at(span, 70)));
    void *twice = block_at(span, 70);
    expect_eq(hak__span_give_owner(span, &twice, 1, &given), HAK_SPAN_DOUBLE_FREE);
    expect(hak__start_bound_is_lost(hak__start_bound(&hak__window.map[SLAB])));
    hak__span_change_owner(span, OWNER + 1);
    expect(hak__span_is_inherited(span) && hak__owner_id(hak__owner_at(SLAB)) == OWNER + 1);
    expect_eq(take(span, out, 1), 1);
    expect_ptr(out[0], block_at(span, 3));
    expect(hak__looks_freed(out[0]) && hak__looks_freed(block_at(span, 70)) && is_unwritten(block_at(span, 4)));
    expect(!hak__span_is_inherited(span) && hak__owner_at(SLAB) != word);
    expect(hak__begins_block(&hak__window.map[SLAB], block_at(span, 4)));
    hak__window.generation = 0;
    hak__freed_key = 0;
}

/* --- random operations ------------------------------------------------------------------------------------------------ */

enum fate { NEVER, OUTSIDE, FREE, REMOTE };

static unsigned char fates[HAK_SPAN_BLOCKS_MAX];

static uint32_t count_of(const struct hak_span *span, enum fate fate)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < span->blocks; i++)
        count += fates[i] == fate;
    return count;
}

static void fuzz_take(struct hak_span *span, struct rng *rng)
{
    void *out[128];
    uint32_t want = 1 + (uint32_t)rng_below(rng, 128), free = count_of(span, FREE), got = take(span, out, want);
    expect(got >= hak_min(want, free) && (got != 0 || !hak__span_has_blocks(span)));
    for (uint32_t i = got; i-- > 0;) {
        uint32_t index = index_in(span, out[i]);
        expect(fates[index] == (free != 0 ? FREE : NEVER));   /* freed ones first */
        for (uint32_t below = 0; below < index; below++)
            expect(fates[below] != (free != 0 ? FREE : NEVER));   /* the lowest */
        free -= free != 0;
        fates[index] = OUTSIDE;
    }
}

static void fuzz_give(struct hak_span *span, struct rng *rng)
{
    void *blocks[64];
    uint32_t count = 0, given;
    for (unsigned attempt = 0; attempt < 64; attempt++) {
        uint32_t index = (uint32_t)rng_below(rng, span->blocks);
        if (fates[index] == OUTSIDE) {
            fates[index] = FREE;
            blocks[count++] = block_at(span, index);
        }
    }
    expect_eq(hak__span_give_owner(span, blocks, count, &given), HAK_SPAN_OK);
    expect_eq(given, count);
}

static void fuzz_free_remotely(struct hak_span *span, struct rng *rng)
{
    for (unsigned attempt = 0; attempt < 32; attempt++) {
        uint32_t index = (uint32_t)rng_below(rng, span->blocks);
        uint64_t bit = 1ull << index % 64;
        if (fates[index] == OUTSIDE || fates[index] == REMOTE)
            expect_eq(hak__span_set_remote(span, index / 64, bit), fates[index] == REMOTE ? bit : 0);
        if (fates[index] == OUTSIDE)
            fates[index] = REMOTE;
    }
}

static void fuzz_collect(struct hak_span *span, struct rng *rng)
{
    enum hak_span_fault fault;
    uint32_t culprit;
    (void)rng;
    expect_eq(hak__span_collect_owner(span, is_not_free, &fault, &culprit), count_of(span, REMOTE));
    expect_eq(fault, HAK_SPAN_OK);
    for (uint32_t i = 0; i < span->blocks; i++)
        fates[i] = fates[i] == REMOTE ? FREE : fates[i];
}

static void random_operations(void **state)
{
    static void (*const steps[])(struct hak_span *, struct rng *) = { fuzz_take, fuzz_give, fuzz_give,
                                                                      fuzz_free_remotely, fuzz_collect };
    struct rng rng = { 3 };
    (void)state;
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        struct hak_span *span = create(c);
        memset(fates, NEVER, sizeof fates);
        for (unsigned step = 0; step < 120; step++) {
            steps[rng_below(&rng, sizeof steps / sizeof *steps)](span, &rng);
            expect(hak__span_is_valid(span));
            expect_eq(span->free_count, count_of(span, FREE));
            expect_eq(hak__span_allocated(span), count_of(span, OUTSIDE) + count_of(span, REMOTE));
        }
    }
}

/* --- never a scan ---------------------------------------------------------------------------------------------------- */

/* Gives one block of a full span back and takes it again: with the summary that is as quick for the last word of the
 * bitmap as for the first. */
static void give_and_take(void *argument)
{
    void *block = argument;
    struct hak_span *span = &hak__spans[SLAB];
    uint32_t given;
    hak__span_give_owner(span, &block, 1, &given);
    hak__span_take(span, &block, 1);
}

static void same_steps_for_every_word(void **state)
{
    void *out[256];
    (void)state;
    struct hak_span *span = create(0);
    while (hak__span_has_blocks(span))
        take(span, out, 256);
    size_t steps = count_steps(give_and_take, block_at(span, 0));
    if (steps == 0)
        skip();
    /* A scan would take an instruction at least for each of the 63 words; a branch here and there takes a few. */
    expect_op(count_steps(give_and_take, block_at(span, HAK_SPAN_BLOCKS_MAX - 1)), <, steps + 32);
    expect_op(count_steps(give_and_take, block_at(span, 33 * 64 + 5)), <, steps + 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(created_and_destroyed), cmocka_unit_test(lone_blocks),
        cmocka_unit_test(short_spans),
        cmocka_unit_test(destroying_needs_all_blocks),
        cmocka_unit_test(frontier_moves_page_by_page),
        cmocka_unit_test(freed_blocks_first),
        cmocka_unit_test(whole_words),
        cmocka_unit_test(take_fresh),
        cmocka_unit_test(faults_are_found),
        cmocka_unit_test(other_spans_blocks_end_the_batch),
        cmocka_unit_test(index_of_addresses),
        cmocka_unit_test(beginnings_of_handed_out_blocks),
        cmocka_unit_test(collected_once),
        cmocka_unit_test(remote_faults_are_found),
        cmocka_unit_test(inherited_blocks_are_not_written),
        cmocka_unit_test(random_operations),
        cmocka_unit_test(same_steps_for_every_word),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
