/* Publication and reception of remote frees (heap/give.c, span/span.c), every schedule within the bounds:
 *   1. two publishers, one owner, one span: every published block is collected, none twice;
 *   2. two publishers, one owner, two spans: the pending stack's links stay right while spans are queued again;
 *   3. a span ends and is born again under another owner while a publisher of its first life is late in queueing it:
 *      it is forwarded or dropped, and the second life's publication is not lost. */
// test: check
#include "heap/heap.h"
#include "world.h"

enum { CLASS = HAK_CLASS_1024 };   /* 1 KiB: at most 64 blocks, so one word of bits */

static uint32_t collected[WORLD_SUPERS * HAK_SUPER_SLABS];
static bool handed;   /* a block of the second life was published */
static _Atomic bool released, reborn;

static void collect(struct hak_heap *heap, struct hak_span *span)
{
    enum hak_span_fault fault;
    uint32_t culprit, count = hak__span_collect_owner(span, world_is_not_free, &fault, &culprit);
    EXPLORE_EXPECT(fault == HAK_SPAN_OK, "a block is collected twice, or was never out");
    EXPLORE_EXPECT(atomic_load(&span->owner) == heap->id, "a span is collected by a heap that does not own it");
    collected[hak__span_slab(span)] += count;
}

static struct hak_heap *heap(uint32_t id) { return hak__heap_by_id(id); }
static struct hak_span *span(size_t slab) { return &hak__spans[slab]; }

/* A span of one of the heaps with `out` blocks in the program's hands. */
static void create(size_t slab, uint32_t owner, uint16_t out)
{
    hak__span_create(slab, 1, CLASS, owner, NULL, true);
    span(slab)->frontier = out;
}

/* What owners do sooner or later. Forwarded spans may go round once more. */
static void receive_all(void)
{
    for (int round = 0; round < 3; round++)
        for (uint32_t id = 1; id <= WORLD_HEAPS; id++)
            hak__remote_receive(heap(id), collect);
}

static void expect_quiet(size_t slab, uint32_t expected)
{
    EXPLORE_EXPECT(collected[slab] == expected, "a published block was not collected");
    EXPLORE_EXPECT(atomic_load(&span(slab)->queued) == 0, "a span is marked as queued and stands on no stack");
    EXPLORE_EXPECT(hak__span_is_valid(span(slab)), "a span is not valid");
}

static void setup_common(void)
{
    world_reset();
    for (size_t i = 0; i < WORLD_SUPERS * HAK_SUPER_SLABS; i++)
        collected[i] = 0;
    handed = false;
    atomic_store(&released, false);
    atomic_store(&reborn, false);
}

/* --- 1 ------------------------------------------------------------------------------------------------------------------ */

static void one_span(void)
{
    setup_common();
    create(0, 1, 3);
}
static void publish_0(void) { hak__remote_publish(span(0), 0, 1, "free"); }
static void publish_1_and_2(void)
{
    hak__remote_publish(span(0), 0, 2, "free");
    hak__remote_publish(span(0), 0, 4, "free");
}
static void receive(void) { hak__remote_receive(heap(1), collect); }
static void receive_twice(void)
{
    receive();
    receive();
}
static void check_one(void)
{
    receive_all();
    expect_quiet(0, 3);
}

/* --- 2 ------------------------------------------------------------------------------------------------------------------ */

static void two_spans(void)
{
    setup_common();
    create(0, 1, 2);
    create(1, 1, 2);
}
static void publish_forward(void)
{
    hak__remote_publish(span(0), 0, 1, "free");
    hak__remote_publish(span(1), 0, 1, "free");
}
static void publish_backward(void)
{
    hak__remote_publish(span(1), 0, 2, "free");
    hak__remote_publish(span(0), 0, 2, "free");
}
static void check_two(void)
{
    receive_all();
    expect_quiet(0, 2);
    expect_quiet(1, 2);
}

/* --- 3 ------------------------------------------------------------------------------------------------------------------ */

/* Looks for the span's last block, as a collection does; if it is back the span ends and its slab is let go. */
static void first_owner(void)
{
    hak__remote_receive(heap(1), collect);
    if (hak__span_allocated(span(0)) != 0)
        hak__remote_receive(heap(1), collect);
    if (hak__span_allocated(span(0)) != 0)
        return;
    hak__span_destroy(span(0));
    hak_store(&released, true, HAK_RELEASE);
}

static void second_owner(void)
{
    if (!hak_load(&released, HAK_ACQUIRE))
        return;
    create(0, 2, 1);
    hak_store(&reborn, true, HAK_RELEASE);
    hak__remote_receive(heap(2), collect);
}

static void second_publisher(void)
{
    if (!hak_load(&reborn, HAK_ACQUIRE))
        return;
    handed = true;
    hak__remote_publish(span(0), 0, 1, "free");
}

/* One block has been published and the span is queued; the other is published by a thread that may be late. */
static void one_published(void)
{
    setup_common();
    create(0, 1, 2);
    hak__remote_publish(span(0), 0, 1, "free");
}
static void publish_1(void) { hak__remote_publish(span(0), 0, 2, "free"); }

static void check_reborn(void)
{
    receive_all();
    expect_quiet(0, 2 + (handed ? 1 : 0));
}

static const struct explore_case cases[] = {
    { "two publishers, one owner", 4, 3, one_span, { publish_0, publish_1_and_2, receive }, check_one },
    { "two publishers, an owner that looks twice", 3, 3, one_span, { publish_0, publish_1_and_2, receive_twice },
      check_one },
    { "two spans", 3, 3, two_spans, { publish_forward, publish_backward, receive }, check_two },
    { "a span is born again", 4, 4, one_published, { publish_1, first_owner, second_owner, second_publisher },
      check_reborn },
};

int main(int argc, char **argv) { return explore_main(cases, sizeof cases / sizeof cases[0], argc, argv); }
