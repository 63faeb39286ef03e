/* heap/heap.h: where blocks come from and in which order; invariant 1 (a span is listed just if it has blocks to give)
 * after every step; empty spans end and their slabs serve other classes; idle heaps are swept before memory is mapped;
 * misuse is found when blocks come back; and the way of a block that another thread frees, also when its span has
 * ended or changed hands meanwhile. */
#include "heap/heap.h"

#include "span/pool.h"
#include "support/figures.h"
#include "support/heaps.h"

enum { CLASS_64 = HAK_CLASS_64, CLASS_LARGE = HAK_CLASS_FIRST_LARGE, MANY = HAK_SPAN_BLOCKS_MAX + 8 };

static void *blocks[MANY];

static struct hak_heap *start(void)
{
    heaps_start();
    return heap_open(0);
}

/* Takes exactly `count` blocks, by as many calls as it takes. */
static void take_all(struct hak_heap *heap, uint32_t class, void **out, uint32_t count)
{
    for (uint32_t got = 0; got < count;) {
        uint32_t more = hak__heap_take(heap, class, out + got, count - got);
        expect(more != 0);
        got += more;
    }
    expect(hak__heap_is_valid(heap));
}

static void give_all(struct hak_heap *heap, void *const *some, uint32_t count)
{
    hak__heap_give(heap, some, count, "free");
    expect(hak__heap_is_valid(heap));
}

static uint64_t spans_of(struct hak_heap *heap, uint32_t class) { return hak_counted(&heap->classes[class].span_count); }

static struct hak_span *span_of(const void *block) { return hak__span_at(hak__slab_of(block)); }

/* Publishes a free as another heap's outbox would. */
static void publish(const void *block)
{
    uint32_t index;
    struct hak_span *span = span_of(block);
    expect_eq(hak__span_index(span, block, &index), HAK_SPAN_OK);
    hak__remote_publish(span, index / 64, 1ull << index % 64, "free");
}

/* A late publisher: it has set its bit, the owner has collected that by another publisher's mark, and only now it queues the span. */
static void queue_late(struct hak_span *span)
{
    hak__remote_publish(span, 0, 1, "free");
    atomic_store(&span->remote[0], 0);
}

/* --- taking and giving -------------------------------------------------------------------------------------------- */

FRESH_TEST(new_heaps)
{
    (void)argument;
    struct hak_heap *a = start(), *b = heap_open(0);
    expect(a != b && a->id != 0 && b->id == a->id + 1);
    expect_eq(hak__heap_last_id(), b->id);
    expect_ptr(hak__heap_by_id(a->id), a);
    expect_eq(a->tag, hak__owner_word(a->id, 0));
    expect_eq(atomic_load(&a->state), HAK_HEAP_ACTIVE);
    expect(hak__heap_is_valid(a) && hak__heap_is_valid(b));
}

/* One id is kept for the heap that serves threads which find no other. ThreadSanitizer leaves no addresses for so many. */
FRESH_TEST_UNLESS(the_last_id_is_kept, HAK_TSAN)
{
    (void)argument;
    start();
    uint32_t before = hak_exchange(&hak__heap_last, HAK_HEAPS_MAX - 3, HAK_RELAXED);
    struct hak_heap *heap = hak__heap_new();
    expect(heap != NULL && heap->id == HAK_HEAPS_MAX - 2);
    expect(hak__heap_new() == NULL);
    struct hak_heap *last = hak__heap_new_last();
    expect(last != NULL && last->id == HAK_HEAPS_MAX - 1);
    expect(hak__heap_new_last() == NULL);
    hak_store(&hak__heap_last, before, HAK_RELAXED);
}

/* A fork in a handler between a thread's fork check and its lock: who was collecting does not exist in the child. */
FRESH_TEST(nobody_waits_for_a_heap_that_was_left)
{
    (void)argument;
    struct hak_heap *heap = start();
    expect(hak__heap_try_lock(heap, HAK_SWEEPER));
    hak__heap_lose(heap);
    expect(!hak__heap_lock(heap) && !hak__heap_try_lock(heap, HAK_SWEEPER) && !hak__enter_foreign(heap, 2));
}

FRESH_TEST(ascending_and_counted)
{
    void *out[32];
    char *before = NULL;
    (void)argument;
    struct hak_heap *heap = start();
    for (unsigned batch = 0; batch < 60; batch++) {
        uint32_t got = hak__heap_take(heap, CLASS_64, out, 32);
        expect(got > 0 && got <= 32);
        for (uint32_t i = got; i-- > 0; before = out[i])   /* the next pop is the last element */
            expect((char *)out[i] > before);
        expect_eq(hak__owner_of(out[0]), hak__owner_word(heap->id, CLASS_64));
        expect(hak__heap_is_valid(heap));
    }
    expect_eq(spans_of(heap, CLASS_64), 2);   /* 60 * 32 blocks of 64 bytes */
    expect_eq(hak_counted(&heap->classes[CLASS_64].refilled), heap_live(heap, CLASS_64));
}

FRESH_TEST(batches_of_every_class)
{
    (void)argument;
    struct hak_heap *heap = start();
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        uint32_t count = hak__classes[c].blocks > 1 ? hak__classes[c].blocks + 3u : 3;
        take_all(heap, c, blocks, count);
        for (uint32_t i = 0; i < count; i++)
            memset(blocks[i], (int)c, hak__classes[c].size);
        expect_eq(heap_live(heap, c), count);
        give_all(heap, blocks, count);
        expect_eq(heap_live(heap, c), 0);
        expect_op(spans_of(heap, c), <=, 1);
    }
}

/* Sources in order: what waits from other threads, then listed spans, then a new span. */
FRESH_TEST(order_of_sources)
{
    uint32_t per_span = hak__classes[CLASS_64].blocks;
    (void)argument;
    struct hak_heap *heap = start();
    take_all(heap, CLASS_64, blocks, per_span);
    expect(!span_of(blocks[0])->listed && heap->classes[CLASS_64].spans == NULL);
    publish(blocks[17]);
    void *out[2];
    expect_eq(hak__heap_take(heap, CLASS_64, out, 1), 1);
    expect_ptr(out[0], blocks[17]);
    expect_eq(hak_counted(&heap->classes[CLASS_64].collected), 1);
    give_all(heap, &blocks[5], 1);
    expect(span_of(blocks[0])->listed);
    expect_eq(hak__heap_take(heap, CLASS_64, out, 1), 1);
    expect_ptr(out[0], blocks[5]);
    expect_eq(spans_of(heap, CLASS_64), 1);
    expect_eq(hak__heap_take(heap, CLASS_64, out, 1), 1);
    expect_eq(spans_of(heap, CLASS_64), 2);
    expect(span_of(out[0]) != span_of(blocks[0]));
}

FRESH_TEST(zeroed_blocks)
{
    (void)argument;
    struct hak_heap *heap = start();
    for (uint32_t c = HAK_CLASS_TINY_LAST + 1; c < HAK_CLASSES; c++) {
        size_t size = hak__classes[c].size;
        void *block = hak__heap_take_zeroed(heap, c);
        for (unsigned i = 0; block != NULL && i < 3; i++, block = hak__heap_take_zeroed(heap, c)) {
            expect(is_zero(block, size));
            memset(block, 0xff, size);
            expect(hak__heap_is_valid(heap));
        }
        take_all(heap, c, blocks, 1);
        give_all(heap, blocks, 1);
        block = hak__heap_take_zeroed(heap, c);   /* a span with freed blocks must not hand one of those out as zero */
        expect(block == NULL || is_zero(block, size));
    }
}

/* --- ends of spans -------------------------------------------------------------------------------------------------- */

/* The last empty span of a class stays for the next request; the others go back. */
FRESH_TEST(empty_spans_end)
{
    uint32_t per_span = hak__classes[CLASS_64].blocks;
    (void)argument;
    struct hak_heap *heap = start();
    take_all(heap, CLASS_64, blocks, 3 * per_span);
    expect_eq(spans_of(heap, CLASS_64), 3);
    struct hak_span *spans[] = { span_of(blocks[0]), span_of(blocks[per_span]), span_of(blocks[2 * per_span]) };
    give_all(heap, blocks, 1);
    give_all(heap, blocks + per_span, per_span);
    expect_eq(atomic_load(&spans[1]->owner), 0);
    expect_eq(hak__owner_of(blocks[per_span]), 0);
    give_all(heap, blocks + 1, per_span - 1);
    give_all(heap, blocks + 2 * per_span, per_span);
    expect_op(spans_of(heap, CLASS_64), <=, 1);
    expect_eq(heap_live(heap, CLASS_64), 0);
    take_all(heap, CLASS_64, blocks, per_span);
    expect_eq(spans_of(heap, CLASS_64), 1);
}

FRESH_TEST(slabs_serve_other_classes)
{
    (void)argument;
    struct hak_heap *heap = start();
    struct arena_figures before, after;
    take_all(heap, CLASS_64, blocks, MANY);
    give_all(heap, blocks, MANY);
    arena_figures(&before);
    for (uint32_t c = 4; c < HAK_CLASS_FIRST_LARGE; c += 3) {
        uint32_t count = hak_min(MANY, (size_t)4 * HAK_SLAB_SIZE / hak__classes[c].size);
        take_all(heap, c, blocks, count);
        give_all(heap, blocks, count);
    }
    arena_figures(&after);
    expect_op(after.taken, <=, before.taken + 1);
}

/* Spans of large blocks end as soon as they are empty: their slabs are worth more in the pool. */
FRESH_TEST(large_spans_end_at_once)
{
    (void)argument;
    struct hak_heap *heap = start();
    for (uint32_t c = CLASS_LARGE; c < HAK_CLASSES; c++) {
        take_all(heap, c, blocks, 5);
        expect_op(spans_of(heap, c), >=, hak_div_up(5, hak__classes[c].blocks));
        expect_op(spans_of(heap, c), <=, 5);
        give_all(heap, blocks, 5);
        expect_eq(spans_of(heap, c), 0);
        expect(heap->classes[c].spans == NULL);
    }
    struct arena_figures figures;
    arena_figures(&figures);
    expect_op(figures.taken, <=, HAK_ASSIGNED_SPARES);   /* empty, and held */
    expect_eq(hak_counted(&heap->counts.slabs), 0);
    hak__assigned_let_go(heap);
    arena_figures(&figures);
    expect_eq(figures.taken, 0);
}

/* The first three blocks are alone in their spans; what full spans leave over at the end of a SuperSlab is filled with such blocks, as many
 * as fit. */
FRESH_TEST(ends_of_superslabs_are_used)
{
    struct arena_figures figures;
    (void)argument;
    struct hak_heap *heap = start();
    for (uint32_t c = CLASS_LARGE; c < HAK_CLASSES; c++) {
        const struct hak_class *class = &hak__classes[c];
        uint32_t single = hak__class_single_slabs(c), first = (uint32_t)hak_min(3, HAK_SUPER_SLABS / single);
        uint32_t left = HAK_SUPER_SLABS - first * single;
        uint32_t spans = left / class->slabs, singles = first + left % class->slabs / single;
        uint32_t count = spans * class->blocks + singles, alone = 0;
        take_all(heap, c, blocks, count);
        arena_figures(&figures);
        expect_eq(figures.taken, 1);
        for (uint32_t i = 0; i < count; i++) {
            memset(blocks[i], (int)i, class->size);
            alone += hak__span_is_single(hak__slab_of(blocks[i]), c);
        }
        for (uint32_t i = 0; i < count; i++)
            expect(*(char *)blocks[i] == (char)i && ((char *)blocks[i])[class->size - 1] == (char)i);
        expect_eq(alone, class->blocks == 1 ? count : singles);
        expect(class->size > 256 << 10 || count * class->size >= HAK_SUPER_SIZE / 8 * 7);
        take_all(heap, c, blocks + count, 1);
        arena_figures(&figures);
        expect_eq(figures.taken, 2);
        give_all(heap, blocks, count + 1);
        expect_eq(spans_of(heap, c), 0);
    }
    expect(hak__heap_is_valid(heap));
}

FRESH_TEST(blocks_of_many_spans_and_classes_in_one_batch)
{
    (void)argument;
    struct hak_heap *heap = start();
    uint32_t count = 0;
    for (unsigned round = 0; round < 3; round++)
        for (uint32_t c = 0; c < HAK_CLASSES; c += 5)
            for (unsigned i = 0; i < 7; i++)
                take_all(heap, c, &blocks[count++], 1);
    give_all(heap, blocks, count);
    for (uint32_t c = 0; c < HAK_CLASSES; c++)
        expect_eq(heap_live(heap, c), 0);
}

/* --- misuse -------------------------------------------------------------------------------------------------------- */

struct misuse {
    struct hak_heap *heap;
    void *offender;
};

static void give_offender(void *argument)
{
    struct misuse *misuse = argument;
    hak__heap_give(misuse->heap, &misuse->offender, 1, "free");
}

static void collect_offender(void *argument)
{
    struct misuse *misuse = argument;
    publish(misuse->offender);
    hak__heap_collect(misuse->heap);
}

static void publish_twice(void *argument)
{
    struct misuse *misuse = argument;
    publish(misuse->offender);
    publish(misuse->offender);
}

static void expect_report(check_body *body, struct hak_heap *heap, void *offender, const char *format)
{
    char line[200];
    snprintf(line, sizeof line, format, offender);
    expect_abort(body, &(struct misuse){ heap, offender }, line);
}

FRESH_TEST(misuse_is_reported)
{
    static const char twice[] = "hakmem: free(): double free of %p (64-byte block)";
    static const char invalid[] = "hakmem: free(): invalid pointer %p: not the start of a block";
    (void)argument;
    struct hak_heap *heap = start();
    take_all(heap, CLASS_64, blocks, 20);
    expect_report(publish_twice, heap, blocks[7], twice);
    give_all(heap, &blocks[3], 1);
    expect_report(give_offender, heap, blocks[3], twice);
    expect_report(give_offender, heap, (char *)blocks[4] + 16, invalid);
    expect_report(give_offender, heap, (char *)blocks[4] + 1, invalid);
    expect_report(collect_offender, heap, blocks[3], twice);
}

/* --- remote frees ---------------------------------------------------------------------------------------------------- */

static void receive_none(struct hak_heap *heap, struct hak_span *span)
{
    (void)heap, (void)span;
    expect(false);
}

FRESH_TEST(published_and_collected)
{
    uint32_t per_span = hak__classes[CLASS_64].blocks;
    (void)argument;
    struct hak_heap *heap = start();
    take_all(heap, CLASS_64, blocks, 2 * per_span);
    for (uint32_t i = 0; i < 2 * per_span; i += 3)
        publish(blocks[i]);
    expect(atomic_load(&heap->pending) != NULL);
    hak__heap_collect(heap);
    expect(hak__heap_is_valid(heap));
    expect(atomic_load(&heap->pending) == NULL);
    expect_eq(hak_counted(&heap->classes[CLASS_64].collected), (2 * per_span + 2) / 3);
    hak__remote_receive(heap, receive_none);
    for (uint32_t i = 0; i < 2 * per_span; i++)
        if (i % 3 != 0)
            publish(blocks[i]);
    hak__heap_collect(heap);
    expect_eq(heap_live(heap, CLASS_64), 0);
    expect_op(spans_of(heap, CLASS_64), <=, 1);
    expect(hak__heap_is_valid(heap));
}

static unsigned received;
static void count_received(struct hak_heap *heap, struct hak_span *span)
{
    (void)heap, (void)span;
    received++;
}

/* However often it is published, a span stands once on the stack. */
FRESH_TEST(queued_once)
{
    (void)argument;
    struct hak_heap *heap = start();
    take_all(heap, CLASS_64, blocks, 100);
    for (unsigned i = 0; i < 50; i++)
        publish(blocks[i]);
    hak__remote_receive(heap, count_received);
    expect_eq(received, 1);
}

/* The owner has ended the span before the late publisher queues it. It has no owner: nothing may come of it. */
FRESH_TEST(a_span_that_has_ended_is_dropped)
{
    (void)argument;
    struct hak_heap *heap = start();
    take_all(heap, CLASS_LARGE, blocks, 1);
    struct hak_span *span = span_of(blocks[0]);
    give_all(heap, blocks, 1);
    expect_eq(atomic_load(&span->owner), 0);
    queue_late(span);
    expect_eq(atomic_load(&span->queued), 0);
    expect(atomic_load(&heap->pending) == NULL);
}

/* The same, but the slab serves another heap by now: whoever finds the span on his stack sends it on. */
FRESH_TEST(a_span_of_another_owner_is_forwarded)
{
    void *theirs;
    (void)argument;
    struct hak_heap *a = start(), *b = heap_open(0);
    uint32_t two = 2 * hak__classes[CLASS_64].blocks;
    take_all(a, CLASS_64, blocks, two);
    struct hak_span *span = span_of(hak__super_start(0));
    queue_late(span);                          /* on a's stack */
    for (int round = 0; round < 2; round++)    /* the other span is listed by then, so this one ends */
        for (uint32_t i = 0; i < two; i++)
            if ((span_of(blocks[i]) == span) == (round == 1))
                give_all(a, &blocks[i], 1);
    expect_eq(atomic_load(&span->owner), 0);
    expect(hak__heap_lock(a));                             /* so that nobody sweeps it meanwhile */
    take_all(b, CLASS_64, &theirs, 1);
    hak__heap_unlock(a);
    expect_ptr(span_of(theirs), span);         /* b has got the very slab */
    publish(theirs);                           /* finds the mark set, and relies on it */
    expect(atomic_load(&b->pending) == NULL);
    hak__heap_collect(a);
    expect_eq(hak_counted(&a->counts.forwarded), 1);
    expect(atomic_load(&a->pending) == NULL);
    expect_ptr(atomic_load(&b->pending), span);
    hak__heap_collect(b);
    expect_eq(heap_live(b, CLASS_64), 0);
    expect(hak__heap_is_valid(a) && hak__heap_is_valid(b));
}

/* --- other heaps' idle spans ------------------------------------------------------------------------------------------ */

enum { CLASS_1024 = HAK_CLASS_TINY_LAST };

/* A heap has all slabs of a SuperSlab, and other threads have freed all its blocks, of which it does not know yet. */
static struct hak_heap *heap_with_an_unswept_superslab(void)
{
    struct hak_heap *heap = start();
    uint32_t count = HAK_SUPER_SLABS * hak__classes[CLASS_1024].blocks;
    take_all(heap, CLASS_1024, blocks, count);
    for (uint32_t i = 0; i < count; i++)
        publish(blocks[i]);
    expect_eq(spans_of(heap, CLASS_1024), HAK_SUPER_SLABS);
    return heap;
}

FRESH_TEST(idle_heaps_are_swept_before_memory_is_mapped)
{
    struct arena_figures figures;
    (void)argument;
    struct hak_heap *idle = heap_with_an_unswept_superslab(), *heap = heap_open(0);
    take_all(heap, CLASS_LARGE, blocks, 20);
    arena_figures(&figures);
    expect_eq(figures.taken, 1);
    expect_op(spans_of(idle, CLASS_1024), <=, 1);
    expect_eq(heap_live(idle, CLASS_1024), 0);
    expect(hak__heap_is_valid(idle));
}

/* Its owner may be in the middle of anything then. */
FRESH_TEST(busy_heaps_are_left_alone)
{
    struct arena_figures figures;
    (void)argument;
    struct hak_heap *idle = heap_with_an_unswept_superslab(), *heap = heap_open(0);
    expect(hak__heap_lock(idle));
    take_all(heap, CLASS_LARGE, blocks, 20);
    arena_figures(&figures);
    expect_eq(figures.taken, 2);
    expect_eq(spans_of(idle, CLASS_1024), HAK_SUPER_SLABS);
    hak__heap_unlock(idle);
    expect_eq(atomic_load(&idle->lock), HAK_LOCK_FREE);
    uint32_t after = 0;
    expect(hak__heaps_sweep(heap, &after, UINT32_MAX));
    expect_op(spans_of(idle, CLASS_1024), <=, 1);
}

static struct hak_heap *many[150];

static unsigned unswept(void)
{
    unsigned count = 0;
    for (unsigned i = 0; i < 150; i++)
        count += atomic_load(&many[i]->pending) != NULL;
    return count;
}

/* However many heaps there are, a SuperSlab is opened after a look at 64 of them, and the next one after a look at the next. */
FRESH_TEST(heaps_are_swept_in_turn)
{
    (void)argument;
    struct hak_heap *heap = start();
    for (unsigned i = 0; i < 150; i++) {
        many[i] = heap_open(0);
        take_all(many[i], CLASS_1024, &blocks[i], 1);
    }
    for (unsigned i = 0; i < 150; i++)
        publish(blocks[i]);
    expect_eq(unswept(), 150);
    uint32_t last = heap->id;
    expect(hak__heaps_sweep(heap, &last, 64));
    expect_eq(last, heap->id + 64);
    expect_eq(unswept(), 150 - 64);
    expect(hak__heaps_sweep(heap, &last, 64));
    expect_eq(unswept(), 150 - 128);
    uint32_t second = last;
    expect(hak__heaps_sweep(heap, &last, 64));
    expect_op(last, <, second);   /* round, and at itself */
    expect_eq(unswept(), 0);
    expect(!hak__heaps_sweep(heap, &second, UINT32_MAX));
    for (unsigned i = 0; i < 150; i++)
        expect(hak__heap_is_valid(many[i]));
}

static _Atomic bool swept;

static void *sweeps_for_a_while(void *argument)
{
    struct hak_heap *heap = argument;
    expect(hak__heap_try_lock(heap, HAK_SWEEPER));
    hak_store(&swept, true, HAK_RELEASE);
    usleep(20000);
    heap->budget.hand = 77;   /* plain on purpose: the lock makes it visible */
    hak__heap_unlock(heap);
    return NULL;
}

/* The owner waits for a sweeper, and sees what it did. */
FRESH_TEST(entered_by_one_at_a_time)
{
    pthread_t thread;
    (void)argument;
    struct hak_heap *heap = start();
    pthread_create(&thread, NULL, sweeps_for_a_while, heap);
    while (!hak_load(&swept, HAK_ACQUIRE))
        sched_yield();
    expect(!hak__heap_try_lock(heap, HAK_OWNER));
    expect(hak__heap_lock(heap));
    expect_eq(heap->budget.hand, 77);
    expect(hak__lock_word_is_mine(&heap->lock));
    hak__heap_unlock(heap);
    pthread_join(thread, NULL);
}

/* A large block ends with its span when another thread frees it: its slabs serve the next request at once. */
FRESH_TEST(large_blocks_of_others_end_at_once)
{
    (void)argument;
    struct hak_heap *owner = start(), *other = heap_open(0);
    for (uint32_t c = CLASS_LARGE; c < HAK_CLASSES; c++) {
        void *block, *next;
        if (hak__classes[c].blocks > 1)
            continue;
        take_all(owner, c, &block, 1);
        hak__heap_end_foreign(other, block, hak__owner_of(block), "free");
        expect_eq(hak__owner_of(block), 0);
        take_all(other, c, &next, 1);
        expect_ptr(next, block);
        expect_eq(heap_live(owner, c) + heap_live(other, c), 1);
        expect_eq(spans_of(owner, c) + spans_of(other, c), 1);
        give_all(other, &next, 1);
        hak__assigned_let_go(other);   /* it would look there first */
    }
}

/* Others end such a span at any moment, so its owner must never be sent to look into it: nobody can queue it. */
FRESH_TEST(spans_of_one_block_are_never_queued)
{
    (void)argument;
    struct hak_heap *owner = start();
    take_all(owner, CLASS_LARGE, blocks, 1);
    queue_late(span_of(blocks[0]));   /* a publisher of the span before it */
    expect(atomic_load(&owner->pending) == NULL);
    expect_eq(atomic_load(&span_of(blocks[0])->queued), 0);
    hak__heap_end_foreign(NULL, blocks[0], hak__owner_of(blocks[0]), "free");
    expect_eq(hak__owner_of(blocks[0]), 0);
    expect_eq(hak_counted(&owner->classes[CLASS_LARGE].collected), 1);   /* a thread without a heap leaves it to the owner's */
}

/* --- random operations --------------------------------------------------------------------------------------------- */

enum { SLOTS = 600 };

static struct {
    void *block;
    uint32_t class;
    uint64_t tag;
} slots[SLOTS];

static void fuzz_take(struct hak_heap *heap, struct rng *rng, unsigned i)
{
    uint32_t class = (uint32_t)rng_below(rng, rng_below(rng, 4) ? 30 : HAK_CLASSES);
    slots[i].class = class;
    slots[i].tag = rng_next(rng);
    slots[i].block = rng_below(rng, 8) ? NULL : hak__heap_take_zeroed(heap, class);
    if (slots[i].block != NULL)
        expect(is_zero(slots[i].block, hak_min(hak__classes[class].size, 4096)));
    else
        take_all(heap, class, &slots[i].block, 1);
    memory_fill(slots[i].block, hak_min(hak__classes[class].size, 256), slots[i].tag);
}

static void fuzz_free(struct hak_heap *heap, struct rng *rng, unsigned i)
{
    size_t size = hak_min(hak__classes[slots[i].class].size, 256);
    expect(memory_holds(slots[i].block, size, size, slots[i].tag));
    bool single = hak__span_is_single(hak__slab_of(slots[i].block), slots[i].class);
    if (single && rng_below(rng, 2))
        hak__heap_end_foreign(heap, slots[i].block, hak__owner_of(slots[i].block), "free");
    else if (!single && rng_below(rng, 2))
        publish(slots[i].block);
    else
        hak__heap_give(heap, &slots[i].block, 1, "free");
    slots[i].block = NULL;
}

FRESH_TEST(random_operations)
{
    struct rng rng = { 7 };
    (void)argument;
    struct hak_heap *heap = start();
    for (unsigned step = 0; step < 6000; step++) {
        unsigned i = (unsigned)rng_below(&rng, step / 1500 % 2 ? 60 : SLOTS);
        if (slots[i].block == NULL)
            fuzz_take(heap, &rng, i);
        else
            fuzz_free(heap, &rng, i);
        if (rng_below(&rng, 50) == 0)
            hak__heap_collect(heap);
        if (step % 16 == 0)
            expect(hak__heap_is_valid(heap));
    }
    hak__heap_collect(heap);
    uint64_t held = 0;
    for (unsigned i = 0; i < SLOTS; i++)
        held += slots[i].block != NULL;
    expect_eq(heap_live_of_all_classes(heap), held);
    expect(hak__arena_is_valid());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_heaps),
        cmocka_unit_test(the_last_id_is_kept),
        cmocka_unit_test(nobody_waits_for_a_heap_that_was_left),
        cmocka_unit_test(ascending_and_counted),
        cmocka_unit_test(batches_of_every_class),
        cmocka_unit_test(order_of_sources),
        cmocka_unit_test(zeroed_blocks),
        cmocka_unit_test(empty_spans_end),
        cmocka_unit_test(slabs_serve_other_classes),
        cmocka_unit_test(large_spans_end_at_once), cmocka_unit_test(ends_of_superslabs_are_used),
        cmocka_unit_test(blocks_of_many_spans_and_classes_in_one_batch),
        cmocka_unit_test(misuse_is_reported),
        cmocka_unit_test(published_and_collected),
        cmocka_unit_test(queued_once),
        cmocka_unit_test(a_span_that_has_ended_is_dropped),
        cmocka_unit_test(a_span_of_another_owner_is_forwarded),
        cmocka_unit_test(idle_heaps_are_swept_before_memory_is_mapped),
        cmocka_unit_test(busy_heaps_are_left_alone),
        cmocka_unit_test(heaps_are_swept_in_turn),
        cmocka_unit_test(entered_by_one_at_a_time),
        cmocka_unit_test(large_blocks_of_others_end_at_once),
        cmocka_unit_test(spans_of_one_block_are_never_queued),
        cmocka_unit_test(random_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
