/* How blocks come back: drained by their owner, collected after other threads have freed them, or ended with their span. Also
 * searches the heaps' state for a free block before a double free is reported: the key in the block's first word may be the
 * program's own (span/span.h).
 *
 * The search locks one heap at a time, so none of its batches, slot areas or spans moves. Meanwhile the owner may do everything
 * that needs no lock: pop, push, and add to its outbox.
 *
 * Finding a block is proof. A thread that frees a block in use was handed that block, and the hand-over orders the block's pop, the
 * publication of its bucket or the clearing of its bits before the search. The top of the stack and the count of the bucket are
 * read with acquire, before what lies below them: an older pointer there was overwritten before the top moved over it again. The
 * search skips stale pointers: those above the top, and in the part of a bucket that a sweeper has published.
 *
 * Not finding it proves nothing: the block may be on its way from one heap to another. */
#include "arena/returned.h"
#include "base/assert.h"
#include "diag/report.h"
#include "harden/spans.h"
#include "heap/heap.h"
#include "span/pool.h"

/* --- the search for a free block -------------------------------------------------------------------------------------- */

static hak_cold bool is_in_bin(struct hak_heap *heap, uint32_t class, const void *p)
{
    void **bottom = heap->classes[class].bottom, **slot = hak_peek(&hak__heap_bin(heap, class)->top);
    while (slot > bottom)
        if (hak_peek(--slot) == p)
            return true;
    return false;
}

static hak_cold bool is_in_outbox(const struct hak_heap *heap, const void *p)
{
    const struct hak_outbox_bucket *bucket = &heap->outbox_buckets[hak__slab_of(p) % HAK_OUTBOX_BUCKETS];
    uint32_t taken = hak_load(&bucket->taken, HAK_RELAXED);
    for (uint32_t i = hak_load(&bucket->count, HAK_ACQUIRE); i > taken; i--)
        if (bucket->blocks[i - 1] == p)
            return true;
    return false;
}

/* A span changes hands only under the locks of both heaps, so the word is stable during the search. */
hak_cold bool hak__heap_has_in_span(const struct hak_heap *heap, uint32_t class, const void *p)
{
    uint32_t index;
    uint32_t word = hak__owner_of(p);
    if (hak__owner_id(word) != heap->id || hak__owner_class(word) != class)
        return false;
    struct hak_span *span = hak__span_at(hak__slab_of(p));
    if (hak__span_index(span, p, &index) != HAK_SPAN_OK)
        return false;
    uint64_t taken = span->free[index / 64] | hak_load(&span->remote[index / 64], HAK_RELAXED);
    return index >= span->frontier || (taken >> index % 64 & 1) != 0;
}

hak_cold bool hak__heap_has_free(struct hak_heap *heap, uint32_t class, const void *p)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    return is_in_bin(heap, class, p) || is_in_outbox(heap, p) || hak__heap_has_in_span(heap, class, p);
}

hak_cold bool hak__heap_ask(struct hak_heap *heap, hak_heap_question *question, uint32_t class, const void *p, unsigned tries)
{
    if (!hak__enter_foreign(heap, tries))
        return false;
    bool found = question(heap, class, p);
    hak__heap_unlock(heap);
    return found;
}

hak_cold bool hak__heaps_ask(const struct hak_heap *except, hak_heap_question *question, uint32_t class, const void *p,
                             unsigned tries)
{
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++)
        if (hak__heap_by_id(id) != except && hak__heap_ask(hak__heap_by_id(id), question, class, p, tries))
            return true;
    return false;
}

/* --- ends of spans ------------------------------------------------------------------------------------------------ */

/* For a span that is wholly free or not listed: ends it if it is empty and may not stay, else lists it. */
static hak_noinline void after_give_slow(struct hak_heap *heap, struct hak_span *span)
{
    if (hak__span_allocated(span) == 0) {
        struct hak_span *first = heap->classes[span->class].spans;
        bool last = first == NULL || (first == span && span->next == NULL);
        bool region = span->keys == HAK_SPAN_HARDENED && hak__hardened.regions, stays = region && span->account != HAK_SPAN_MERGED;
        if (!stays && (region || hak__span_is_inherited(span) || !hak__retain_empty_span(last, hak__classes[span->class].size))) {
            hak__span_unguard(span);
            hak__heap_end_span(heap, span);
            return;
        }
        if (!stays)
            heap->sources.idle_classes |= 1ull << span->class;
    }
    if (!span->listed)
        hak__heap_list(heap, span);
    hak__warm_regained(heap, span);
}

/* After a span has got blocks back. */
hak_inline void after_give(struct hak_heap *heap, struct hak_span *span)
{
    if (hak_unlikely(hak__span_allocated(span) == 0 || !span->listed))
        after_give_slow(heap, span);
    else
        hak__warm_regained(heap, span);
}

/* --- giving --------------------------------------------------------------------------------------------------------- */

static hak_cold void heap_report(enum hak_span_fault fault, const struct hak_span *span, const void *block, const char *function)
{
    if (fault == HAK_SPAN_DOUBLE_FREE)
        hak__misuse_double_free(function, block, hak__classes[span->class].size);
    else
        hak__misuse_invalid(function, block, "not the start of a block");
}

/* Counts blocks given back to a span; `counter` is the class's drained or collected. */
hak_inline void note_given(struct hak_heap *heap, uint32_t class_index, hak_counter *counter, uint32_t count)
{
    hak_count(counter, count);
    hak__heap_large_moved(heap, class_index, 0 - (size_t)count);
    hak__heap_idle_more(heap, count * (size_t)hak__classes[class_index].size);
}

static uint32_t give_single(struct hak_heap *heap, struct hak_span *span, const void *block, const char *function)
{
    enum hak_span_fault fault = hak__span_give_single(span, block);
    if (hak_unlikely(fault != HAK_SPAN_OK)) {
        heap_report(fault, span, block, function);
        return 1;
    }
    note_given(heap, span->class, &heap->classes[span->class].drained, 1);
    hak__heap_end_span(heap, span);
    return 1;
}

static uint32_t give_some(struct hak_heap *heap, struct hak_span *span, void *const *blocks, uint32_t count, const char *function)
{
    uint32_t given;
    enum hak_span_fault fault = hak__span_give_owner(span, blocks, count, &given);
    uint32_t skipped = fault != HAK_SPAN_OK;
    if (hak_unlikely(fault != HAK_SPAN_OK))
        heap_report(fault, span, blocks[given], function);
    hak_assert(given + skipped != 0, "a block of this heap lies in the span that its slab names");
    note_given(heap, span->class, &heap->classes[span->class].drained, given);
    after_give(heap, span);
    return given + skipped;
}

void hak__heap_give(struct hak_heap *heap, void *const *blocks, uint32_t count, const char *function)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    while (count > 0) {
        struct hak_span *span = hak__span_at(hak__slab_of(*blocks));
        hak_assert(hak__owner_id(hak__owner_of(*blocks)) == heap->id, "a block that is given back is the heap's own");
        uint32_t given = span->single ? give_single(heap, span, *blocks, function) : give_some(heap, span, blocks, count, function);
        blocks += given;
        count -= given;
    }
}

void hak__heap_give_spared(struct hak_heap *heap, void *block, const char *function)
{
    hak__span_lose_keys(hak__span_at(hak__slab_of(block)));
    hak__heap_give(heap, &block, 1, function);
}

/* Counts a single-block span that another thread has ended. The figures are sums over all heaps, so any heap's counters will do:
 * the caller's, or for a thread without a heap the owner's. Caller holds the heap lock. */
static void note_ended(struct hak_heap *heap, uint32_t class, unsigned slabs)
{
    hak_count(&heap->classes[class].collected, 1);
    hak_count(&heap->classes[class].span_count, (uint64_t)-1);
    hak_count(&heap->counts.slabs, 0 - (uint64_t)slabs);
    hak_count(&heap->counts.remote_frees, 1);
}

void hak__heap_end_foreign(struct hak_heap *heap, void *block, uint32_t word, const char *function)
{
    size_t slab = hak__slab_of(block);
    struct hak_span *span = &hak__spans[slab];
    if (hak_unlikely(hak__looks_freed(block)) && span->keys != HAK_SPAN_HARDENED
        && hak__heaps_ask(heap, hak__heap_has_free, span->class, block, HAK_HEAP_ASK_TRIES)) {
        heap_report(HAK_SPAN_DOUBLE_FREE, span, block, function);
        return;
    }
    uint32_t class = hak__owner_class(word);
    if (block != hak__slab_start(slab)) {
        hak__misuse_invalid(function, block, "not the start of a block");
        return;
    }
    /* If two threads free the block at once, the exchange lets one through. acquire: pairs with set_words in span.c. */
    if (!hak_cas_strong(&hak__window.map[slab].owner, &word, 0, HAK_ACQUIRE, HAK_RELAXED)) {
        hak__misuse_double_free(function, block, hak__classes[class].size);
        return;
    }
    unsigned slabs = span->slabs;
    struct hak_heap *owner = hak__heap_by_id(hak__owner_id(word));
    hak_fetch_add(&owner->large_remote_freed, hak__classes[class].size, HAK_RELAXED);
    span->free_count = span->frontier; /* no block is allocated any more */
    hak__span_destroy(span);
    hak__pool_give(slab, slabs);
    if (heap != NULL) {
        note_ended(heap, class, slabs);
    } else if (hak__enter_foreign(owner, HAK_HEAP_ASK_TRIES)) {
        note_ended(owner, class, slabs);
        hak__heap_unlock(owner);
    }
}

/* A block freed by another thread that already bears the key has also been freed by its owner or a third thread, unless the program
 * stored the key itself; or, where misuse is survived, unless that thread has marked it (kinds/plain.c), after such a search. */
static hak_cold bool is_free_already(const struct hak_span *span, const void *p)
{
    struct hak_heap *heap = hak__heap_by_id(hak_load(&span->owner, HAK_RELAXED));
    return hak__heap_has_free(heap, span->class, p)
        || (!hak__misuse_is_survived() && hak__heaps_ask(heap, hak__heap_has_free, span->class, p, 1));
}

static void collect_span(struct hak_heap *heap, struct hak_span *span)
{
    enum hak_span_fault fault;
    uint32_t culprit = 0, count = hak__span_collect_owner(span, is_free_already, &fault, &culprit);
    if (hak_unlikely(fault != HAK_SPAN_OK)) {
        size_t offset = (size_t)culprit * hak__classes[span->class].size;
        heap_report(fault, span, hak__span_start(span) + offset, "free");
    }
    if (count == 0)
        return;
    note_given(heap, span->class, &heap->classes[span->class].collected, count);
    heap->classes[span->class].returned_lately = true;
    heap->classes[span->class].dry = 0;
    after_give(heap, span);
}

void hak__heap_collect(struct hak_heap *heap)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    if (hak_load(&heap->pending, HAK_RELAXED) != NULL)
        hak__remote_receive(heap, collect_span);
}

/* --- heaps of other threads ------------------------------------------------------------------------------------------ */

bool hak__heap_sweep(struct hak_heap *heap)
{
    if (hak_load(&heap->pending, HAK_RELAXED) == NULL || !hak__enter_foreign(heap, 1))
        return false;
    hak__heap_collect(heap);
    hak__heap_unlock(heap);
    return true;
}

bool hak__heaps_sweep(const struct hak_heap *mine, uint32_t *after, uint32_t most)
{
    uint32_t last = hak__heap_last_id(), id = *after;
    bool any = false;
    for (uint32_t left = (uint32_t)hak_min(most, last); left > 0; left--) {
        id = id < last ? id + 1 : 1;
        if (hak__heap_by_id(id) != mine)
            any |= hak__heap_sweep(hak__heap_by_id(id));
    }
    *after = id;
    return any;
}

/* --- blocks freed by other threads ------------------------------------------------------------------------------------ */

/* Publication and reception: remote bits in the span, the span on its owner's pending stack. Lock-free, many producers, one
 * consumer.
 *
 *   publisher                                  owner
 *   1. OR the bits (release)                   a. take the whole stack (exchange, acquire)
 *   2. queued := 1 (exchange, acq_rel)         b. of each span read the link, then queued := 0 (exchange, acq_rel)
 *   3. if it was 0: push on the stack          c. read and clear the words (acquire)
 *
 * Either 2 comes after b and finds 0, so the span is pushed again; or it comes before b, and b's acquire makes 1 visible to c. No
 * bit is left behind. There is no ABA: no thread pops a single element. Descriptors are type-stable, so a publisher that is late
 * between 1 and 2 may queue a span that has ended or changed hands meanwhile; an owner that finds another heap's span sends it on,
 * or drops it if it has no owner. */

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
