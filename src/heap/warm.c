/* Which spans are in the warm pool, and how many a miss puts there. See warm.h. Called by heap.c. */
#include "heap/warm.h"

#include "base/assert.h"
#include "base/bits.h"
#include "diag/options.h"

/* The rates are 90 % and 95 %. */
enum { FIRST_BUDGET = 3, SPAN_LOOKS = 4, RATE_LOW = 230, RATE_HIGH = 243 };

void hak__warm_join(struct hak_heap *heap, struct hak_span *span)
{
    struct hak_heap_class *class = &heap->classes[span->class];
    hak_assert(class->warm_count < HAK_WARM_MAX && span->warm == 0 && span->listed, "a listed span joins a pool with room");
    heap->warm[span->class][class->warm_count] = (uint32_t)hak__span_slab(span);
    span->warm = ++class->warm_count;
}

void hak__warm_leave(struct hak_heap *heap, struct hak_span *span)
{
    struct hak_heap_class *class = &heap->classes[span->class];
    struct hak_span *last = hak__warm_newest(heap, span->class);
    heap->warm[span->class][span->warm - 1] = (uint32_t)hak__span_slab(last);
    last->warm = span->warm;
    span->warm = 0;
    class->warm_count--;
}

/* --- the budget ------------------------------------------------------------------------------------------------------ */

/* The run of hits that has just ended changes the rate, and the rate the budget: a class that misses often is worth a longer search
 * of its list. */
static void warm_adapt(struct hak_heap_class *class)
{
    uint32_t hits = (uint32_t)hak_counted(&class->warm_hits), run = hits - class->warm_hits_then;
    uint32_t sample = 255 - 255 / (run + 1u);
    class->warm_hits_then = hits;
    if (class->warm_budget == 0) {
        class->warm_budget = FIRST_BUDGET;
        class->warm_rate = RATE_LOW;
        return;
    }
    class->warm_rate = (uint8_t)((3u * class->warm_rate + sample) / 4);
    if (class->warm_rate < RATE_LOW)
        class->warm_budget = (uint8_t)hak_min(2u * class->warm_budget, HAK_WARM_MAX);
    else if (class->warm_rate > RATE_HIGH && class->warm_budget > 1)
        class->warm_budget--;
}

/* How many spans a miss may put into the pool: what the option says, if somebody has set it. */
static uint32_t budget_of(const struct hak_heap_class *class)
{
    bool fixed = hak__option_origin(HAK_OPTION_warm_pool_prefill) != HAK_FROM_DEFAULT;
    return fixed ? (uint32_t)hak__option(HAK_OPTION_warm_pool_prefill) : class->warm_budget;
}

/* A quarter of a batch, or half a span where that is less: less than a whole batch, because a refill that is a little
 * short costs less than a search through several spans (docs/decisions/0005). */
static uint32_t blocks_needed(uint32_t class_index)
{
    const struct hak_class *sizes = &hak__classes[class_index];
    size_t batch = sizes->batch < 32 ? sizes->batch : hak__option(HAK_OPTION_refill_count);
    return (uint32_t)hak_min(hak_div_up(batch, 4), (sizes->blocks + 1u) / 2);
}

/* --- a miss ----------------------------------------------------------------------------------------------------------- */

void hak__warm_missed(struct hak_heap *heap, uint32_t class_index)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    warm_adapt(class);
    class->warm_need = (uint16_t)(budget_of(class) == 0 ? 0 : blocks_needed(class_index));
}

bool hak__warm_prefill(struct hak_heap *heap, uint32_t class_index)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    uint32_t budget = budget_of(class), looks = budget * SPAN_LOOKS, count = 0;
    struct hak_span *found[HAK_WARM_MAX];
    budget = (uint32_t)hak_min(budget, HAK_WARM_MAX - (size_t)class->warm_count);
    for (struct hak_span *span = class->spans; span != NULL && count < budget && looks > 0; span = span->next, looks--)
        if (span->warm == 0 && span->free_count >= class->warm_need)
            found[count++] = span;
    hak_count(&class->warm_prefilled, count);
    while (count > 0)   /* the first of the list is to be the newest of the pool */
        hak__warm_join(heap, found[--count]);
    return class->warm_count != 0;
}

void hak__warm_keep(struct hak_heap *heap, struct hak_span *span)
{
    struct hak_heap_class *class = &heap->classes[span->class];
    if (class->warm_need == 0 || span->warm != 0 || !hak__warm_good(span, class->warm_need))
        return;
    hak__warm_join(heap, span);
    hak_count(&class->warm_prefilled, 1);
}

bool hak__warm_is_valid(struct hak_heap *heap, uint32_t class_index)
{
    const struct hak_heap_class *class = &heap->classes[class_index];
    bool valid = class->warm_count <= HAK_WARM_MAX;
    uint32_t members = 0;
    for (const struct hak_span *span = class->spans; span != NULL; span = span->next)
        members += span->warm != 0;
    for (uint32_t i = 0; i < class->warm_count && valid; i++) {
        const struct hak_span *span = hak__warm_member(heap, class_index, i);
        valid &= span->warm == i + 1 && span->listed && span->class == class_index;
        valid &= hak__warm_good(span, class->warm_need) && hak__owner_id(hak__owner_at(hak__span_slab(span))) == heap->id;
    }
    return hak__holds(valid && members == class->warm_count, "the warm pool is of listed spans that know their places", class);
}
