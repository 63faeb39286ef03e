/* The warm pool: per class up to HAK_WARM_MAX listed spans that are known to be good for the next refill, so that a miss
 * of the cache is served by the newest of them, without a search. Called by heap.c, with the heap entered.
 *
 * A span is good while it can give `warm_need` blocks, which is a refill, or half a span where that is less. Into the
 * pool come
 *   - by prefill, when a refill finds the pool empty: listed spans with so many freed blocks, as many as the budget says;
 *   - when no listed span has so many: the one that the search ended with, if that is good with what lies beyond its
 *     frontier, as a new span is;
 *   - a span that has got blocks back by a drain or a collection and now has so many freed ones.
 * It leaves when it is no longer good, or ends. Nothing is made for the pool: it has only spans that exist anyway.
 *
 * Freed blocks come before fresh ones: a refill that would move a frontier first takes in what others have freed. */
#include "base/assert.h"
#include "base/bits.h"
#include "diag/options.h"
#include "heap/heap.h"

enum { FIRST_BUDGET = 3, LOOKS = 4, RATE_LOW = 230, RATE_HIGH = 251 };

static bool good(const struct hak_span *span, uint32_t need)
{
    return span->free_count + (uint32_t)(span->blocks - span->frontier) >= need;
}

static struct hak_span *member(struct hak_heap *heap, uint32_t class_index, uint32_t place)
{
    return &hak__spans[heap->warm[class_index][place]];
}

static struct hak_span *newest(struct hak_heap *heap, uint32_t class_index)
{
    return member(heap, class_index, heap->classes[class_index].warm_count - 1u);
}

static void join(struct hak_heap *heap, struct hak_span *span)
{
    struct hak_heap_class *class = &heap->classes[span->class];
    hak_assert(class->warm_count < HAK_WARM_MAX && span->warm == 0 && span->listed, "a listed span joins a pool with room");
    heap->warm[span->class][class->warm_count] = (uint32_t)hak__span_slab(span);
    span->warm = ++class->warm_count;
}

void hak__warm_leave(struct hak_heap *heap, struct hak_span *span)
{
    struct hak_heap_class *class = &heap->classes[span->class];
    struct hak_span *last = newest(heap, span->class);
    heap->warm[span->class][span->warm - 1] = (uint32_t)hak__span_slab(last);
    last->warm = span->warm;
    span->warm = 0;
    class->warm_count--;
}

void hak__warm_lost(struct hak_heap *heap, struct hak_span *span)
{
    if (span->warm != 0 && !good(span, heap->classes[span->class].warm_need))
        hak__warm_leave(heap, span);
}

void hak__warm_regained(struct hak_heap *heap, struct hak_span *span)
{
    const struct hak_heap_class *class = &heap->classes[span->class];
    bool enough = span->free_count > class->warm_need - 1u;   /* never, while there is no pool */
    if (enough && span->warm == 0 && class->warm_count < HAK_WARM_MAX)
        join(heap, span);
}

void hak__warm_keep(struct hak_heap *heap, struct hak_span *span)
{
    struct hak_heap_class *class = &heap->classes[span->class];
    if (class->warm_need == 0 || span->warm != 0 || !good(span, class->warm_need))
        return;
    join(heap, span);
    hak_count(&class->warm_prefilled, 1);
}

/* --- the budget ------------------------------------------------------------------------------------------------------ */

/* The pool is empty: its last run of hits changes the rate, and the rate the budget. */
static void adapt(struct hak_heap_class *class)
{
    uint32_t sample = 255u * class->warm_run / (class->warm_run + 1u);
    if (class->warm_budget == 0) {
        class->warm_budget = FIRST_BUDGET;
        class->warm_rate = RATE_LOW;
    } else {
        class->warm_rate = (uint8_t)((3u * class->warm_rate + sample) / 4);
    }
    if (class->warm_rate < RATE_LOW)
        class->warm_budget = (uint8_t)hak_min(2u * class->warm_budget, HAK_WARM_MAX);
    else if (class->warm_rate > RATE_HIGH && class->warm_budget > 1)
        class->warm_budget--;
    class->warm_run = 0;
}

/* Spans that a miss may put into the pool: what the option says if somebody has set it. */
static uint32_t budget_of(const struct hak_heap_class *class)
{
    bool fixed = hak__option_origin(HAK_OPTION_warm_pool_prefill) != HAK_FROM_DEFAULT;
    return fixed ? (uint32_t)hak__option(HAK_OPTION_warm_pool_prefill) : class->warm_budget;
}

static uint32_t refill_need(uint32_t class_index)
{
    const struct hak_class *sizes = &hak__classes[class_index];
    uint32_t batch = sizes->batch < 32 ? sizes->batch : (uint32_t)hak__option(HAK_OPTION_refill_count);
    return (uint32_t)hak_min(batch, (sizes->blocks + 1u) / 2);
}

/* --- refills ---------------------------------------------------------------------------------------------------------- */

bool hak__warm_hit(struct hak_heap *heap, uint32_t class_index)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    if (hak_likely(class->warm_count != 0) && newest(heap, class_index)->free_count < class->warm_need)
        hak__heap_collect(heap);
    if (hak_likely(class->warm_count != 0)) {
        class->warm_run = (uint8_t)(class->warm_run + (class->warm_run != UINT8_MAX));
        hak_count(&class->warm_hits, 1);
        return true;
    }
    adapt(class);
    class->warm_need = (uint16_t)(budget_of(class) == 0 ? 0 : refill_need(class_index));
    return false;
}

uint32_t hak__warm_take(struct hak_heap *heap, uint32_t class_index, void **out, uint32_t want)
{
    const struct hak_heap_class *class = &heap->classes[class_index];
    uint32_t got = 0;
    while (got < want && class->warm_count != 0) {
        struct hak_span *span = newest(heap, class_index);
        got += hak__span_take(span, out, want - got);
        if (!hak__span_has_blocks(span))
            hak__heap_unlist(heap, span);
        else
            hak__warm_lost(heap, span);
        if (span->free_count == 0 && span->frontier != span->blocks)
            break;   /* the frontier moves one page per miss */
    }
    return got;
}

bool hak__warm_prefill(struct hak_heap *heap, uint32_t class_index)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    uint32_t budget = budget_of(class), looks = budget * LOOKS, count = 0;
    struct hak_span *found[HAK_WARM_MAX];
    budget = (uint32_t)hak_min(budget, (size_t)(HAK_WARM_MAX - class->warm_count));
    for (struct hak_span *span = class->spans; span != NULL && count < budget && looks > 0; span = span->next, looks--)
        if (span->warm == 0 && span->free_count >= class->warm_need)
            found[count++] = span;
    hak_count(&class->warm_prefilled, count);
    while (count > 0)   /* the first of the list is to be the newest of the pool */
        join(heap, found[--count]);
    return class->warm_count != 0;
}

bool hak__warm_is_valid(struct hak_heap *heap, uint32_t class_index)
{
    const struct hak_heap_class *class = &heap->classes[class_index];
    bool valid = class->warm_count <= HAK_WARM_MAX;
    uint32_t members = 0;
    for (const struct hak_span *span = class->spans; span != NULL; span = span->next)
        members += span->warm != 0;
    for (uint32_t i = 0; i < class->warm_count && valid; i++) {
        const struct hak_span *span = member(heap, class_index, i);
        valid &= span->warm == i + 1 && span->listed && span->class == class_index && good(span, class->warm_need);
        valid &= hak_load(&span->owner, HAK_RELAXED) == heap->id;
    }
    return valid && members == class->warm_count;
}
