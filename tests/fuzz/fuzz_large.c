/* Fuzz: heap/heap.h. Blocks of the large pool that change size where they stand, among blocks of other classes in the
 * same SuperSlabs, in two heaps: no byte of a neighbour changes, and the map and the counters stay true.
 *
 * Input: steps, a byte each and what they read: take a block of a class into a heap, resize one in place, give it back
 * by its owner or by the other heap, collect, weather. */
#include "fuzz.h"

#include "cache/cache.h"
#include "heap/heap.h"
#include "support/heaps.h"

enum { SLOTS = 48, HEAPS = 2, FIRST = HAK_CLASS_FIRST_LARGE };

static struct slot {
    char *block;
    uint32_t class, heap;
    size_t n;
    uint64_t tag;
} slots[SLOTS];
static struct hak_heap *heaps[HEAPS];
static uint64_t tags;

static size_t size_of(uint32_t class) { return hak__classes[class].size; }

static void fill(struct slot *slot)
{
    slot->n = size_of(slot->class);
    slot->tag = ++tags;
    memory_fill(slot->block, slot->n, slot->tag);
}

static void expect_slot(const struct slot *slot, size_t n)
{
    expect(memory_holds(slot->block, hak_min(n, slot->n), slot->n, slot->tag));
}

/* Mostly large ones, a few of all others to stand between them. */
static uint32_t some_class(struct fuzz_input *in)
{
    uint8_t kind = fuzz_byte(in);
    return kind < 200 ? FIRST + kind % (HAK_CLASSES - FIRST) : kind % HAK_CLASSES;
}

/* The map says whose it is and of which class, in every slab of the span. */
static void expect_mapped(const struct slot *slot)
{
    size_t slab = hak__slab_of(slot->block);
    struct hak_span *span = hak__span_at(slab);
    expect_eq(hak__owner_of(slot->block), hak__owner_word(heaps[slot->heap]->id, slot->class));
    expect_eq(span->class, slot->class);
    expect(hak__span_is_valid(span));
    expect(slot->block + slot->n <= hak__span_start(span) + ((size_t)span->slabs << HAK_SLAB_SHIFT));
    for (unsigned i = 0; i < SLOTS; i++)
        if (&slots[i] != slot && slots[i].block != NULL)
            expect(slot->block + slot->n <= slots[i].block || slots[i].block + slots[i].n <= slot->block);
}

static void take(struct fuzz_input *in, struct slot *slot)
{
    slot->heap = fuzz_byte(in) % HEAPS;
    slot->class = some_class(in);
    slot->block = heap_malloc(heaps[slot->heap], slot->class);
    if (slot->block == NULL)
        return;
    fill(slot);
    expect_mapped(slot);
}

static void resize(struct fuzz_input *in, struct slot *slot)
{
    uint32_t wanted = FIRST + fuzz_byte(in) % (HAK_CLASSES - FIRST);
    if (slot->class < FIRST)
        return;
    bool entered = heap_enter(heaps[slot->heap]), done = hak__large_resize_owner(heaps[slot->heap], slot->block, wanted);
    heap_leave(heaps[slot->heap], entered);
    if (!done) {
        expect_slot(slot, slot->n);
        return;
    }
    struct hak_span *span = hak__span_at(hak__slab_of(slot->block));
    expect_op(size_of(span->class), >=, size_of(wanted));
    expect_slot(slot, size_of(span->class));
    slot->class = span->class;
    fill(slot);
    expect_mapped(slot);
}

/* By its owner, or by the other heap's: single-block spans then end at once, others wait in the outbox. */
static void give(struct slot *slot, bool remote)
{
    expect_slot(slot, slot->n);
    if (!remote)
        heap_free(heaps[slot->heap], slot->class, slot->block);
    else
        heap_free_remote(heaps[1 - slot->heap], slot->block);
    slot->block = NULL;
}

static void step(struct fuzz_input *in)
{
    uint8_t what = fuzz_byte(in);
    struct slot *slot = &slots[fuzz_byte(in) % SLOTS];
    switch (what % 8) {
    case 0: fuzz_weather(in); break;
    case 1: heap_collect(heaps[what / 8 % HEAPS]); break;
    case 2: heap_flush(heaps[what / 8 % HEAPS]); break;
    case 3:
    case 4:
    case 5: slot->block != NULL ? resize(in, slot) : take(in, slot); break;
    default: slot->block != NULL ? give(slot, what / 8 % 3 == 0) : take(in, slot);
    }
}

void fuzz_one(struct fuzz_input *in)
{
    for (unsigned i = 0; i < HEAPS; i++)
        heaps[i] = heap_open(0);
    while (fuzz_more(in)) {
        step(in);
        fuzz_expect_valid();
    }
    fuzz_fair();
    for (unsigned i = 0; i < SLOTS; i++)
        if (slots[i].block != NULL)
            give(&slots[i], i % 2 == 0);
    for (unsigned round = 0; round < 2; round++)
        for (unsigned i = 0; i < HEAPS; i++) {
            heap_collect(heaps[i]);
            heap_flush(heaps[i]);
        }
    for (uint32_t c = 0; c < HAK_CLASSES; c++)
        expect_eq(heap_live(heaps[0], c) + heap_live(heaps[1], c), 0);
    fuzz_expect_valid();
}
