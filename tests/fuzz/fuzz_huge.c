/* Fuzz: huge/huge.h. Blocks of more than a MiB against their contents: what is said to be zero is, sizes change in place
 * or by moving pages, and a refusal changes nothing.
 *
 * Input: steps, a byte each and what they read: allocate with an alignment, resize, free, weather, let the arena purge. */
#include "fuzz.h"

#include "arena/retained.h"
#include "huge/huge.h"

enum { SLOTS = 12 };
static const size_t mib = 1 << 20;

static struct slot {
    char *block;
    size_t n;
    uint64_t tag;
} slots[SLOTS];
static uint64_t tags, live, allocated, freed;

static void expect_slot(const struct slot *slot, const char *block, size_t n)
{
    expect(memory_holds(block, hak_min(n, slot->n), slot->n, slot->tag));
}

static void fill(struct slot *slot, char *block, size_t n)
{
    *slot = (struct slot){ block, n, ++tags };
    memory_fill(block, n, slot->tag);
    expect_op(hak__huge_usable(block), >=, n);
    expect_eq(hak__huge_usable(block) % hak__page_size(), 0);
}

static size_t some_size(struct fuzz_input *in)
{
    uint8_t kind = fuzz_byte(in);
    size_t n = kind % 16 == 0 ? fuzz_pair(in) * 512u : fuzz_pair(in) * 128u;
    return 1 + (kind % 4 == 1 ? hak_align_up(n, mib) : n);
}

static void expect_apart(const struct slot *slot)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        const struct slot *other = &slots[i];
        if (other != slot && other->block != NULL)
            expect(slot->block + slot->n <= other->block || other->block + other->n <= slot->block);
    }
}

static void allocate(struct fuzz_input *in, struct slot *slot)
{
    bool zero = false;
    uint8_t how = fuzz_byte(in);
    size_t n = some_size(in), align = HAK_SUPER_SIZE << how % 5;
    char *p = hak__huge_alloc(n, align, how / 5 % 2 == 0 ? &zero : NULL);
    if (p == NULL)
        return;
    expect_eq((uintptr_t)p % align, 0);
    for (size_t at = 0; zero && at < n; at += MEMORY_STEP)
        expect_eq(p[at], 0);
    fill(slot, p, n);
    expect_apart(slot);
    live++, allocated++;
}

static void resize(struct fuzz_input *in, struct slot *slot)
{
    size_t n = some_size(in);
    char *p = hak__huge_resize(slot->block, n);
    if (p == NULL) {
        expect_slot(slot, slot->block, slot->n);
        return;
    }
    expect_slot(slot, p, n);
    fill(slot, p, n);
    expect_apart(slot);
}

static void release(struct slot *slot)
{
    expect_slot(slot, slot->block, slot->n);
    hak__huge_free(slot->block, "free");
    slot->block = NULL;
    live--, freed++;
}

/* Only the start of a block is one. */
static void ask(struct fuzz_input *in, const struct slot *slot)
{
    size_t inside = hak_align_up(fuzz_pair(in) * 256u, 16) % slot->n;
    expect_eq(hak__huge_usable(slot->block + inside) != 0, inside == 0);
}

static void step(struct fuzz_input *in)
{
    uint8_t what = fuzz_byte(in);
    struct slot *slot = &slots[what / 8 % SLOTS];
    switch (what % 8) {
    case 0: fuzz_weather(in); return;
    case 1: hak__arena_purge(fake.now, fuzz_byte(in) % 4 == 0); return;
    case 2: fuzz_fair(); return;
    default: break;
    }
    if (slot->block == NULL)
        allocate(in, slot);
    else if (what % 8 < 6)
        resize(in, slot);
    else if (what % 8 == 6)
        ask(in, slot);
    else
        release(slot);
}

static void expect_figures(void)
{
    struct huge_figures figures = huge_figures();
    expect_eq(figures.live, live);
    expect_eq(figures.allocated - figures.freed, live);
    expect(figures.allocated >= allocated && figures.freed >= freed);
    fuzz_expect_valid();
}

void fuzz_one(struct fuzz_input *in)
{
    for (unsigned steps = 0; fuzz_more(in) && steps < 200; steps++) {
        step(in);
        expect_figures();
    }
    fuzz_fair();
    for (unsigned i = 0; i < SLOTS; i++)
        if (slots[i].block != NULL)
            release(&slots[i]);
    expect_figures();
    fuzz_expect_empty();
}
