/* Fuzz: span/span.h. One span of any class, by its owner and by others, against the state of each block.
 *
 * Input: byte 0 the class; then steps, a byte each and what they read: take blocks, take a fresh one, give some back,
 * free some from another thread, collect, give or collect what is wrong (the fault must be named and the offender, and
 * nothing else may have changed), ask which block an address is, ask for idle pages, change the owner. */
#include "fuzz.h"
#include "span/span.h"

enum { OWNER = 7, BATCH = 64 };

enum state { UNUSED, OUTSIDE, FREE, REMOTE };

static uint64_t bitmaps[2 * HAK_SPAN_BLOCKS_MAX / 64];
static uint8_t states[HAK_SPAN_BLOCKS_MAX];
static struct hak_span *span;
static const struct hak_class *class;

static char *block_at(uint32_t index) { return hak__span_start(span) + (size_t)index * class->size; }
static uint32_t index_of(const void *p) { return (uint32_t)((size_t)((const char *)p - hak__span_start(span)) / class->size); }

static uint32_t count_of(enum state state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < span->blocks; i++)
        count += states[i] == state;
    return count;
}

static void expect_model(void)
{
    expect(hak__span_is_valid(span));
    expect_eq(span->free_count, count_of(FREE));
    expect_eq(hak__span_allocated(span), count_of(OUTSIDE) + count_of(REMOTE));
    expect_eq(hak__span_has_blocks(span), count_of(FREE) + count_of(UNUSED) != 0);
}

static void take_one(uint32_t index)
{
    expect_op(index, <, span->blocks);
    expect(states[index] == FREE || states[index] == UNUSED);
    expect_ptr(block_at(index), hak__span_start(span) + (size_t)index * class->size);
    states[index] = OUTSIDE;
}

/* Freed blocks come first, in the order of their addresses; no fresh one while there are more of them. */
static void take(struct fuzz_input *in)
{
    static void *out[256];
    uint32_t want = 1 + fuzz_byte(in), fresh = 0, freed = count_of(FREE);
    uint32_t got = hak__span_take(span, out, want);
    expect_op(got, <=, want);
    expect_eq(got != 0, freed + count_of(UNUSED) != 0);
    for (uint32_t i = want - got; i + 1 < want; i++)
        expect(out[i] > out[i + 1]);
    for (uint32_t i = 0; i < got; i++) {
        uint32_t index = index_of(out[want - 1 - i]);
        expect_ptr(block_at(index), out[want - 1 - i]);
        fresh += states[index] == UNUSED;
        take_one(index);
    }
    expect(fresh == 0 || got - fresh == freed);
}

static void take_fresh(void)
{
    uint32_t unused = count_of(UNUSED);
    void *p = hak__span_take_fresh(span);
    expect_eq(p != NULL, unused != 0);
    if (p == NULL)
        return;
    expect_eq(states[index_of(p)], UNUSED);
    take_one(index_of(p));
}

/* Up to n blocks of a state, from a place on. */
static uint32_t choose(struct fuzz_input *in, enum state state, void **out, uint32_t n)
{
    uint32_t from = (uint32_t)fuzz_below(in, span->blocks), count = 0;
    for (uint32_t i = 0; i < span->blocks && count < n; i++)
        if (states[(from + i) % span->blocks] == state)
            out[count++] = block_at((from + i) % span->blocks);
    return count;
}

static void give(struct fuzz_input *in)
{
    void *blocks[BATCH];
    uint32_t given = 99, count = choose(in, OUTSIDE, blocks, 1 + fuzz_byte(in) % BATCH);
    if (count == 0)
        return;
    for (uint32_t i = count - 1; i > 0; i--) {   /* in any order */
        uint32_t j = fuzz_byte(in) % (i + 1);
        void *other = blocks[i];
        blocks[i] = blocks[j];
        blocks[j] = other;
    }
    expect_eq(hak__span_give_owner(span, blocks, count, &given), HAK_SPAN_OK);
    expect_eq(given, count);
    for (uint32_t i = 0; i < count; i++)
        states[index_of(blocks[i])] = FREE;
}

/* What is free already, was never handed out, or lies elsewhere in the span is found, and named. */
static void give_wrong(struct fuzz_input *in)
{
    void *wrong;
    uint32_t given = 99;
    bool twice = fuzz_byte(in) % 2 != 0;
    if (twice && choose(in, FREE, &wrong, 1) == 0)
        return;
    if (!twice) {
        size_t offset = fuzz_word(in) % ((size_t)class->size * span->blocks);
        wrong = hak__span_start(span) + offset;
        if (offset % class->size == 0 && states[offset / class->size] != UNUSED)
            return;
    }
    expect_eq(hak__span_give_owner(span, &wrong, 1, &given), twice ? HAK_SPAN_DOUBLE_FREE : HAK_SPAN_NOT_A_BLOCK);
    expect_eq(given, 0);
}

static void free_remotely(struct fuzz_input *in)
{
    void *p;
    if (choose(in, fuzz_byte(in) % 8 == 0 ? REMOTE : OUTSIDE, &p, 1) == 0)
        return;
    uint32_t index = index_of(p);
    uint64_t bit = 1ull << index % 64;
    expect_eq(hak__span_set_remote(span, index / 64, bit), states[index] == REMOTE ? bit : 0);
    states[index] = REMOTE;
}

static bool is_not_free(const struct hak_span *of, const void *block) { return (void)of, (void)block, false; }

static void collect(void)
{
    enum hak_span_fault fault = HAK_SPAN_OK;
    uint32_t culprit = 0, waiting = count_of(REMOTE);
    expect_eq(hak__span_collect_owner(span, is_not_free, &fault, &culprit), waiting);
    expect_eq(fault, HAK_SPAN_OK);
    for (uint32_t i = 0; i < span->blocks; i++)
        states[i] = states[i] == REMOTE ? FREE : states[i];
}

static void ask_index(struct fuzz_input *in)
{
    size_t bytes = (size_t)class->size * span->blocks, offset = fuzz_word(in) % (bytes + 4096);
    uint32_t index = 0;
    bool block = offset % class->size == 0 && offset < bytes;   /* the frontier is its owner's to know */
    enum hak_span_fault fault = hak__span_index(span, hak__span_start(span) + offset, &index);
    expect_eq(fault, block ? HAK_SPAN_OK : HAK_SPAN_NOT_A_BLOCK);
    expect(!block || index == offset / class->size);
}

/* Every page of the run lies wholly in blocks that are not outside, or behind the last block. */
static void ask_idle(struct fuzz_input *in)
{
    size_t page = hak__page_size(), from = fuzz_below(in, span->slabs * HAK_SLAB_SIZE / page) * page, asked = from;
    size_t bytes = hak__span_idle_pages(span, page, &from);
    if (bytes == 0)
        return;
    expect(from >= asked && from % page == 0 && bytes % page == 0 && from + bytes <= span->slabs * HAK_SLAB_SIZE);
    for (size_t i = from / class->size; i < span->blocks && i * class->size < from + bytes; i++)
        expect(states[i] != OUTSIDE && states[i] != REMOTE);
}

static void step(struct fuzz_input *in)
{
    switch (fuzz_byte(in) % 11) {
    case 0:
    case 1: take(in); break;
    case 2: take_fresh(); break;
    case 3:
    case 4: give(in); break;
    case 5: give_wrong(in); break;
    case 6:
    case 7: free_remotely(in); break;
    case 8: collect(); break;
    case 9: ask_index(in); break;
    default:
        ask_idle(in);
        hak__span_change_owner(span, 1 + fuzz_byte(in));
    }
}

void fuzz_one(struct fuzz_input *in)
{
    bool fresh;
    uint32_t number = fuzz_byte(in) % HAK_CLASSES;
    size_t super = hak__supers_take(1, 1, HAK_SUPER_SIZE, HAK_SUPER_IN_SLABS, &fresh);
    expect(super != HAK_NO_SUPER);
    class = &hak__classes[number];
    memset(bitmaps, fuzz_byte(in), sizeof bitmaps);   /* any content will do */
    size_t slab = super * HAK_SUPER_SLABS + fuzz_byte(in) % (HAK_SUPER_SLABS - class->slabs + 1);
    span = hak__span_create(slab, class->slabs, number, OWNER, bitmaps, fresh);
    while (fuzz_more(in)) {
        step(in);
        expect_model();
    }
    collect();
    for (uint32_t i = 0, given; i < span->blocks; i++) {
        void *block = block_at(i);
        if (states[i] == OUTSIDE)
            expect_eq(hak__span_give_owner(span, &block, 1, &given), HAK_SPAN_OK);
    }
    expect_eq(hak__span_allocated(span), 0);
    expect_ptr(hak__span_destroy(span), hak__span_bitmap_bytes(class) != 0 ? bitmaps : NULL);
    for (size_t i = 0; i < class->slabs; i++)
        expect_eq(hak__owner_at(slab + i), 0);
    hak__supers_give(super, 1);
    fuzz_expect_valid();
}
