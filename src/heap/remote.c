/* Publication and reception of blocks freed by other threads: remote bits in the span, the span on its owner's pending
 * stack. Lock-free, many producers, one consumer.
 *
 *   publisher                                  owner
 *   1. OR the bits (release)                   a. take the whole stack (exchange, acquire)
 *   2. queued := 1 (exchange, acq_rel)         b. of each span read the link, then queued := 0 (exchange, acq_rel)
 *   3. if it was 0: push on the stack          c. read and clear the words (acquire)
 *
 * Either 2 comes after b and finds 0, so the span is pushed again; or it comes before b, and b's acquire makes 1 visible to c. No
 * bit is left behind. There is no ABA: no thread pops a single element.
 * Descriptors are type-stable, so a publisher that is late between 1 and 2 may queue a span that has ended or changed hands
 * meanwhile; an owner that finds another heap's span sends it on, or drops it if it has no owner. */
#include "base/assert.h"
#include "heap/heap.h"

#include "diag/report.h"
#include "harden/mode.h"

bool hak__span_is_single(size_t slab, uint32_t class_index)
{
    if (hak_unlikely(hak__hardened_at(slab)))
        return false;
    if (class_index < HAK_CLASS_FIRST_LARGE || hak__classes[class_index].blocks == 1)
        return class_index >= HAK_CLASS_FIRST_LARGE;
    size_t first = slab - hak_load(&hak__spans[slab].back, HAK_RELAXED);
    return hak__owner_is_inner(hak__owner_of(hak__slab_start(first + 1)));
}

static void remote_push(struct hak_heap *heap, struct hak_span *span)
{
    struct hak_span *head = hak_load(&heap->pending, HAK_RELAXED);
    do
        span->pending_next = head;
    /* release: pairs with the acquire of the exchange in hak__remote_receive; the link goes with it. */
    while (!hak_cas_weak(&heap->pending, &head, span, HAK_RELEASE, HAK_RELAXED));
}

/* Pushes a span on its owner's stack unless it is on one already. A span without an owner has ended, and has no frees waiting. But
 * it may begin anew while its mark is taken back, and a publisher to the new span may have relied on the mark; or it was a share's,
 * and the caller knows a newer word of the map than this owner. So the owner is read again afterwards. */
static void remote_queue(struct hak_span *span)
{
    while (hak_exchange(&span->queued, 1, HAK_ACQ_REL) == 0) {
        uint32_t owner = hak_load(&span->owner, HAK_RELAXED);
        if (owner != 0) {
            remote_push(hak__heap_by_id(owner), span);
            return;
        }
        hak_exchange(&span->queued, 0, HAK_ACQ_REL);
        hak_load(&hak__window.map[hak__span_slab(span)].owner, HAK_ACQUIRE); /* pairs with set_words in span.c */
        if (hak_load(&span->owner, HAK_RELAXED) == 0)
            return;
    }
}

static hak_cold void report_twice(const struct hak_span *span, uint32_t index, const char *function)
{
    size_t size = hak__owner_sizes(hak__owner_at(hak__span_slab(span)))->size;
    hak__misuse_double_free(function, hak__span_start(span) + index * size, size);
}

void hak__remote_publish(struct hak_span *span, uint32_t word, uint64_t bits, const char *function)
{
    hak_assert(span->slabs != 0, "a span has been there");
    hak_assert(bits != 0, "a block has been freed");
    uint64_t twice = hak__span_set_remote(span, word, bits);
    if (hak_unlikely(twice != 0))
        report_twice(span, word * 64 + hak_ctz64(twice), function);
    remote_queue(span);
}

void hak__remote_receive(struct hak_heap *heap, void (*collect)(struct hak_heap *, struct hak_span *))
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    struct hak_span *span = hak_exchange(&heap->pending, NULL, HAK_ACQUIRE);
    while (span != NULL) {
        struct hak_span *next = span->pending_next;
        hak_exchange(&span->queued, 0, HAK_ACQ_REL);
        if (hak_load(&span->owner, HAK_RELAXED) == heap->id) {
            collect(heap, span);
        } else {
            hak_count(&heap->counts.forwarded, 1);
            remote_queue(span);
        }
        span = next;
    }
}
