/* A heap's spans: where a miss finds blocks and where drained blocks go. See heap.h for ownership. */
#include "heap/heap.h"

#include <string.h>

#include "arena/meta.h"
#include "base/assert.h"
#include "base/retain.h"
#include "diag/broken.h"
#include "diag/report.h"
#include "heap/find.h"
#include "heap/remote.h"
#include "heap/warm.h"
#include "os/os.h"
#include "span/hardened.h"
#include "span/pool.h"

_Atomic uint32_t hak__heap_last;

void hak__heap_init(void)
{
    hak__spans = hak__span_memory();
    hak__freed_key = hak__os->random() | 1;   /* not 0, which every live block starts with; odd, as no pointer is */
}

/* --- ids and their memory -------------------------------------------------------------------------------------------- */

static struct hak_heap *heap_begin(uint32_t id, size_t mapped)
{
    struct hak_heap *heap = hak__heap_by_id(id);
    heap->id = id;
    heap->slots.mapped = mapped;
    heap->tag = hak__owner_word(id, 0);
    return heap;
}

/* The ids of heaps that were given back, a stack like that of the parked ones (park.c): pushes << 32 | the id given back last. A
 * word for each id says how many pages it has and which one lies below it; the heap's own memory has gone. */
enum { ID_BITS = 17 };
_Static_assert(HAK_HEAPS_MAX == 1u << ID_BITS && HAK_HEAP_STRIDE / 4096 < 1u << (32 - ID_BITS), "an id and a number of pages fit");
static _Atomic uint64_t given_back;
static _Atomic(_Atomic uint32_t *) given_back_words;

static struct hak_heap *heap_again(void)
{
    uint64_t head = hak_load(&given_back, HAK_ACQUIRE);
    while ((uint32_t)head != 0) {
        uint32_t id = (uint32_t)head, word = hak_load(&hak_load(&given_back_words, HAK_RELAXED)[id], HAK_RELAXED);
        uint64_t after = head >> 32 << 32 | (word & (HAK_HEAPS_MAX - 1));   /* a push in between makes this fail (ABA) */
        /* acquire: pairs with the release in hak__heap_give_back; the memory is zero. */
        if (hak_cas_weak(&given_back, &head, after, HAK_ACQUIRE, HAK_ACQUIRE))
            return heap_begin(id, (size_t)(word >> ID_BITS) * hak__page_size());
    }
    return NULL;
}

static _Atomic uint32_t *words_for_ids(void)
{
    _Atomic uint32_t *words = hak_load(&given_back_words, HAK_ACQUIRE), *none = NULL;
    if (words != NULL || (words = hak__meta_alloc(HAK_HEAPS_MAX * sizeof *words)) == NULL)
        return words;
    return hak_cas_strong(&given_back_words, &none, words, HAK_ACQ_REL, HAK_ACQUIRE) ? words : none;
}

static void counters_add(hak_counter *to, const hak_counter *from, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof *to; i++)
        hak_count(&to[i], hak_counted(&from[i]));
}

/* The figures are sums over all heaps, so that it does not matter whose counters say so. */
static void count_for(struct hak_heap *heir, struct hak_heap *heap)
{
    size_t from = offsetof(struct hak_heap_class, refilled), bytes = sizeof(struct hak_heap_class) - from;
    counters_add((hak_counter *)&heir->counts, (hak_counter *)&heap->counts, sizeof heap->counts);
    for (uint32_t c = 0; c < HAK_CLASSES; c++)
        counters_add((hak_counter *)((char *)&heir->classes[c] + from), (hak_counter *)((char *)&heap->classes[c] + from), bytes);
}
_Static_assert(offsetof(struct hak_heap_class, warm_prefilled) + sizeof(hak_counter) == sizeof(struct hak_heap_class),
               "a class ends with its counters");
_Static_assert(sizeof(struct hak_heap_counts) % sizeof(hak_counter) == 0, "all of them are counters");

bool hak__heap_give_back(struct hak_heap *heap, struct hak_heap *heir)
{
    hak_assert(hak__lock_word_is_mine(&heap->lock) && hak__lock_word_is_mine(&heir->lock), "both are locked");
    hak_assert(heap->own == NULL && heap->share.first_span == 0 && hak_load(&heap->pending, HAK_RELAXED) == NULL
               && heap->quarantine == NULL && !heap->budget.in_process, "nothing is left of a heap that is given back");
    uint32_t id = heap->id, pages = (uint32_t)(heap->slots.mapped / hak__page_size());
    _Atomic uint32_t *words = words_for_ids();
    if (words == NULL)
        return false;
    count_for(heir, heap);
    hak__bitmaps_leave(heap);
    hak__lock_note(hak__heap_rank(heap, HAK_OWNER), -1);
    /* release: who comes by the state afterwards has the lock, and leaves again (hak__enter_foreign). */
    hak_store(&heap->state, HAK_HEAP_NEW, HAK_RELEASE);
    hak__heap_forget(heap, heap->slots.mapped);   /* the lock too */
    uint64_t head = hak_load(&given_back, HAK_RELAXED);
    do
        hak_store(&words[id], pages << ID_BITS | (uint32_t)head, HAK_RELAXED);
    while (!hak_cas_weak(&given_back, &head, ((head >> 32) + 1) << 32 | id, HAK_RELEASE, HAK_RELAXED));
    return true;
}

/* One that was given back, or a further one with an id below `end`. */
static struct hak_heap *heap_new_below(uint32_t end)
{
    struct hak_heap *again = heap_again();
    if (again != NULL)
        return again;
    uint32_t id = hak_load(&hak__heap_last, HAK_RELAXED);
    size_t bytes;
    do {
        if (id + 1 >= end || hak__heap_memory(id + 1, &bytes) == NULL)
            return NULL;
        /* release: pairs with hak__heap_last_id; the memory below the new id exists. */
    } while (!hak_cas_weak(&hak__heap_last, &id, id + 1, HAK_RELEASE, HAK_RELAXED));
    return heap_begin(id + 1, bytes);
}

struct hak_heap *hak__heap_new(void) { return heap_new_below(HAK_HEAPS_MAX - 1); }
struct hak_heap *hak__heap_new_last(void) { return heap_new_below(HAK_HEAPS_MAX); }

/* --- the list of spans with blocks to give ------------------------------------------------------------------------ */

/* The head is stored atomically, since other threads check whether there are any (sources.c). A span of a draining SuperSlab goes
 * behind the first; there is no pointer to the list's end. */
void hak__heap_list(struct hak_heap *heap, struct hak_span *span)
{
    struct hak_span **head = &heap->classes[span->class].spans, *before = NULL;
    if (*head != NULL && hak__tier_draining(hak__span_slab(span) / HAK_SUPER_SLABS))
        before = *head;
    span->listed = true;
    span->prev = before;
    span->next = before != NULL ? before->next : *head;
    if (span->next != NULL)
        span->next->prev = span;
    if (before != NULL)
        before->next = span;
    else
        hak_owner_store(head, span);
}

void hak__heap_unlist(struct hak_heap *heap, struct hak_span *span)
{
    if (span->warm != 0)
        hak__warm_leave(heap, span);
    if (span->prev != NULL)
        span->prev->next = span->next;
    else
        hak_owner_store(&heap->classes[span->class].spans, span->next);
    if (span->next != NULL)
        span->next->prev = span->prev;
    span->listed = false;
}

/* --- ends of spans ------------------------------------------------------------------------------------------------ */

/* For a span that is wholly free or not listed: ends it if it is empty and may not stay, else lists it. */
static hak_noinline void after_give_slow(struct hak_heap *heap, struct hak_span *span)
{
    if (hak__span_allocated(span) == 0) {
        struct hak_span *first = heap->classes[span->class].spans;
        bool last = first == NULL || (first == span && span->next == NULL);
        bool stays = span->keys == HAK_SPAN_HARDENED && hak__hardened.regions;
        if (!stays && !hak__retain_empty_span(last, hak__classes[span->class].size)) {
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

/* A span has got blocks back. */
hak_inline void after_give(struct hak_heap *heap, struct hak_span *span)
{
    if (hak_unlikely(hak__span_allocated(span) == 0 || !span->listed))
        after_give_slow(heap, span);
    else
        hak__warm_regained(heap, span);
}

/* --- taking --------------------------------------------------------------------------------------------------------- */

hak_inline void note_taken(struct hak_heap *heap, uint32_t class_index, uint32_t count)
{
    hak_count(&heap->classes[class_index].refilled, count);
    hak__heap_large_moved(heap, class_index, count);
    hak__heap_idle_less(heap, count * (size_t)hak__classes[class_index].size);
}

/* Takes from a span down to out[0]; false if no other span should be asked, because the frontier moves one page per miss. */
hak_inline bool take_from(struct hak_heap *heap, struct hak_span *span, void **out, uint32_t want, uint32_t *got)
{
    *got += hak__span_take(span, out, want - *got);
    bool at_frontier = span->free_count == 0 && span->frontier != span->blocks;
    hak__warm_lost(heap, span);
    return !at_frontier && *got < want;
}

/* Takes from a span of the warm pool, then from the next ones. */
hak_inline uint32_t take_warm(struct hak_heap *heap, struct hak_span *span, void **out, uint32_t want)
{
    uint32_t class_index = span->class, got = 0;
    const struct hak_heap_class *class = &heap->classes[class_index];
    while (take_from(heap, span, out, want, &got) && class->warm_count != 0)
        span = hak__warm_newest(heap, class_index);
    return got;
}

/* Asks the listed spans in turn, then makes a new one. */
static uint32_t take_listed(struct hak_heap *heap, uint32_t class_index, void **out, uint32_t want)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    uint32_t got = 0;
    if (class->spans == NULL && hak__heap_new_span(heap, class_index) == NULL)
        return 0;
    while (class->spans != NULL && take_from(heap, class->spans, out, want, &got))
        continue;
    if (class->spans != NULL)
        hak__warm_keep(heap, class->spans);
    return got;
}

static hak_noinline uint32_t take_missed(struct hak_heap *heap, uint32_t class_index, void **out, uint32_t want)
{
    hak__warm_missed(heap, class_index);
    hak__heap_collect(heap);
    if (hak__warm_prefill(heap, class_index))
        return take_warm(heap, hak__warm_newest(heap, class_index), out, want);
    return take_listed(heap, class_index, out, want);
}

/* The span that serves a refill without a search, or NULL. Freed blocks come before fresh ones: a refill that would move
 * a frontier first takes in what others have freed. */
hak_inline struct hak_span *warm_span(struct hak_heap *heap, uint32_t class_index)
{
    const struct hak_heap_class *class = &heap->classes[class_index];
    if (hak_unlikely(class->warm_count == 0))
        return NULL;
    struct hak_span *span = hak__warm_newest(heap, class_index);
    if (span->free_count >= class->warm_need || hak_load(&heap->pending, HAK_RELAXED) == NULL)
        return span;
    hak__heap_collect(heap);
    return class->warm_count == 0 ? NULL : hak__warm_newest(heap, class_index);
}

static uint32_t take_single(struct hak_heap *heap, uint32_t class_index, void **out)
{
    hak__heap_collect(heap);
    *out = hak__heap_take_single(heap, class_index);
    if (*out == NULL)
        return 0;
    note_taken(heap, class_index, 1);
    return 1;
}

/* No memory to move a span's frontier: takes freed blocks of other spans, or has an empty span give up its memory. */
static hak_cold uint32_t take_scarce(struct hak_heap *heap, uint32_t class_index, void **out, uint32_t want)
{
    for (struct hak_span *span = heap->classes[class_index].spans; span != NULL; span = span->next) {
        uint32_t got = 0;
        if (span->free_count != 0) {
            take_from(heap, span, out, want, &got);
            return got;
        }
    }
    hak__heap_spare(heap, class_index);
    struct hak_span *first = heap->classes[class_index].spans;
    uint32_t got = 0;
    if (first != NULL)
        take_from(heap, first, out, want, &got);
    return got;
}

uint32_t hak__heap_take(struct hak_heap *heap, uint32_t class_index, void **out, uint32_t want)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    if (hak__classes[class_index].blocks == 1 && class->spans == NULL)   /* one is listed if it was not fresh enough for calloc */
        return take_single(heap, class_index, out);
    struct hak_span *span = warm_span(heap, class_index);
    uint32_t got = span != NULL ? take_warm(heap, span, out, want) : take_missed(heap, class_index, out, want);
    if (hak_unlikely(got == 0 && class->spans != NULL))
        got = take_scarce(heap, class_index, out, want);
    hak_count(&class->warm_hits, span != NULL);
    note_taken(heap, class_index, got);
    if (got != want)
        memmove(out, out + (want - got), got * sizeof *out);
    return got;
}

void *hak__heap_take_zeroed(struct hak_heap *heap, uint32_t class_index)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    hak__heap_collect(heap);
    struct hak_span *span = class->spans;
    if (span == NULL)
        span = hak__heap_new_span(heap, class_index);
    if (span == NULL || !span->fresh || span->free_count != 0)
        return NULL;
    void *block = hak__span_take_fresh(span);
    if (block != NULL)
        hak__warm_lost(heap, span);
    note_taken(heap, class_index, block != NULL);
    return block;
}

void *hak__heap_take_at_hand(struct hak_heap *heap, uint32_t class_index)
{
    void *block = NULL;
    if (heap->assigned.count == 0) {
        heap->sources.no_new_span = true;
        hak__heap_take(heap, class_index, &block, 1);
        heap->sources.no_new_span = false;
        return block;
    }
    hak__heap_collect(heap);
    struct hak_span *span = heap->classes[class_index].spans;
    if (span == NULL && (span = hak__heap_assigned_span(heap, class_index)) == NULL)
        return NULL;
    if (span->listed) {
        hak__heap_take(heap, class_index, &block, 1);
        return block;
    }
    note_taken(heap, class_index, 1);
    return hak__span_take_single(span);
}

/* --- giving --------------------------------------------------------------------------------------------------------- */

static hak_cold void heap_report(enum hak_span_fault fault, const struct hak_span *span, const void *block,
                            const char *function)
{
    if (fault == HAK_SPAN_DOUBLE_FREE)
        hak__misuse_double_free(function, block, hak__classes[span->class].size);
    hak__misuse_invalid(function, block, "not the start of a block");
}

/* Counts blocks that are back in a span; `counter` is the class's drained or collected. */
hak_inline void note_given(struct hak_heap *heap, uint32_t class_index, hak_counter *counter, uint32_t count)
{
    hak_count(counter, count);
    hak__heap_large_moved(heap, class_index, 0 - (size_t)count);
    hak__heap_idle_more(heap, count * (size_t)hak__classes[class_index].size);
}

static uint32_t give_single(struct hak_heap *heap, struct hak_span *span, const void *block, const char *function)
{
    enum hak_span_fault fault = hak__span_give_single(span, block);
    if (hak_unlikely(fault != HAK_SPAN_OK))
        heap_report(fault, span, block, function);
    note_given(heap, span->class, &heap->classes[span->class].drained, 1);
    hak__heap_end_span(heap, span);
    return 1;
}

static uint32_t give_some(struct hak_heap *heap, struct hak_span *span, void *const *blocks, uint32_t count,
                          const char *function)
{
    uint32_t given;
    enum hak_span_fault fault = hak__span_give_owner(span, blocks, count, &given);
    if (hak_unlikely(fault != HAK_SPAN_OK))
        heap_report(fault, span, blocks[given], function);
    hak_assert(given != 0, "a block of this heap lies in the span that its slab names");
    note_given(heap, span->class, &heap->classes[span->class].drained, given);
    after_give(heap, span);
    return given;
}

void hak__heap_give(struct hak_heap *heap, void *const *blocks, uint32_t count, const char *function)
{
    while (count > 0) {
        struct hak_span *span = hak__span_at(hak__slab_of(*blocks));
        hak_assert(hak__owner_id(hak__owner_of(*blocks)) == heap->id, "a block that is given back is the heap's own");
        uint32_t given = span->single ? give_single(heap, span, *blocks, function) : give_some(heap, span, blocks, count, function);
        blocks += given;
        count -= given;
    }
}

/* Counts a single-block span that another thread has ended. The figures are sums over all heaps, so it does not matter whose counters
 * say so: the caller's, or for a thread without a heap the owner's. Caller holds the heap lock. */
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
        && hak__heaps_ask(heap, hak__heap_has_free, span->class, block, HAK_HEAP_ASK_TRIES))
        heap_report(HAK_SPAN_DOUBLE_FREE, span, block, function);
    uint32_t class = hak__owner_class(word);
    if (block != hak__slab_start(slab))
        hak__misuse_invalid(function, block, "not the start of a block");
    /* Of two threads that free the block at once, the exchange lets one through. acquire: pairs with set_words in span.c. */
    if (!hak_cas_strong(&hak__window.map[slab].owner, &word, 0, HAK_ACQUIRE, HAK_RELAXED))
        hak__misuse_double_free(function, block, hak__classes[class].size);
    unsigned slabs = span->slabs;
    struct hak_heap *owner = hak__heap_by_id(hak__owner_id(word));
    hak_fetch_add(&owner->large_remote_freed, hak__classes[class].size, HAK_RELAXED);
    span->free_count = span->frontier;   /* no block is allocated any more */
    hak__span_destroy(span);
    hak__pool_give(slab, slabs);
    if (heap != NULL) {
        note_ended(heap, class, slabs);
    } else if (hak__enter_foreign(owner, HAK_HEAP_ASK_TRIES)) {
        note_ended(owner, class, slabs);
        hak__heap_unlock(owner);
    }
}

/* A block freed by another thread already bears the key: its owner or a third thread has freed it too, unless the program stored
 * the key itself. */
static hak_cold bool is_free_already(const struct hak_span *span, const void *p)
{
    struct hak_heap *heap = hak__heap_by_id(hak_load(&span->owner, HAK_RELAXED));
    return hak__heap_has_free(heap, span->class, p) || hak__heaps_ask(heap, hak__heap_has_free, span->class, p, 1);
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
    if (hak_load(&heap->pending, HAK_RELAXED) != NULL)
        hak__remote_receive(heap, collect_span);
}

/* --- heaps of other threads ------------------------------------------------------------------------------------------ */

void hak__heap_sweep(struct hak_heap *heap)
{
    if (hak_load(&heap->pending, HAK_RELAXED) != NULL && hak__enter_foreign(heap, 1)) {
        hak__heap_collect(heap);
        hak__heap_unlock(heap);
    }
}

uint32_t hak__heaps_sweep(const struct hak_heap *mine, uint32_t after, uint32_t most)
{
    uint32_t last = hak__heap_last_id(), id = after;
    for (uint32_t left = (uint32_t)hak_min(most, last); left > 0; left--) {
        id = id < last ? id + 1 : 1;
        if (hak__heap_by_id(id) != mine)
            hak__heap_sweep(hak__heap_by_id(id));
    }
    return id;
}

bool hak__heap_is_valid(struct hak_heap *heap)
{
    bool valid = true;
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        const struct hak_span *before = NULL;
        for (struct hak_span *span = heap->classes[c].spans; span != NULL; before = span, span = span->next) {
            if (!hak__holds(span->prev == before && span->listed && span->class == c,
                            "the spans with free blocks are linked both ways, by class", span))
                return false;
            valid &= hak__holds(hak__span_has_blocks(span), "a listed span has blocks to give", span);
            valid &= hak__holds(hak__owner_id(hak__owner_at(hak__span_slab(span))) == heap->id,
                                "a listed span is its heap's", span);
            valid &= hak__span_is_valid(span);
        }
        valid &= hak__warm_is_valid(heap, c);
    }
    return valid;
}
