/* A heap's spans: begin and end, the list of those with blocks to give, the warm pool. See heap.h. */
#include "heap/heap.h"

#include "base/assert.h"
#include "base/bits.h"
#include "harden/spans.h"
#include "os/os.h"
#include "span/pool.h"

void hak__heap_init(void)
{
    hak__spans = hak__span_memory();
    hak__freed_key = hak__os->random() | 1; /* not 0, with which every live block starts; odd, unlike any pointer */
}

/* --- the list of spans with blocks to give ------------------------------------------------------------------------ */

/* The head is stored atomically, since other threads check whether there are any (take.c). A span in a draining SuperSlab goes
 * behind the first one, since the list has no pointer to its end. */
void hak__heap_list(struct hak_heap *heap, struct hak_span *span)
{
    hak_assert(span->class < HAK_CLASSES, "a span of a class");
    hak_assert(!span->listed && span->warm == 0, "a span is listed once");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
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
    hak_assert(span->listed, "a listed span");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
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

void hak__heap_unlist_all(struct hak_heap *heap, uint32_t class_index)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    struct hak_heap_class *class = &heap->classes[class_index];
    for (struct hak_span *span = class->spans; span != NULL; span = span->next)
        span->listed = span->warm = 0;
    class->warm_count = 0;
    hak_owner_store(&class->spans, NULL);
}

/* --- the warm pool ---------------------------------------------------------------------------------------------------- */

/* RATE_LOW and RATE_HIGH are 90 % and 95 %. */
enum { FIRST_BUDGET = 3, SPAN_LOOKS = 4, RATE_LOW = 230, RATE_HIGH = 243 };

void hak__warm_join(struct hak_heap *heap, struct hak_span *span)
{
    struct hak_heap_class *class = &heap->classes[span->class];
    hak_assert(class->warm_count < HAK_WARM_MAX && span->warm == 0 && span->listed, "a listed span joins a pool with room");
    class->warm[class->warm_count] = (uint32_t)hak__span_slab(span);
    span->warm = ++class->warm_count;
}

void hak__warm_leave(struct hak_heap *heap, struct hak_span *span)
{
    hak_assert(span->warm != 0 && span->warm <= heap->classes[span->class].warm_count, "a member of the pool leaves");
    struct hak_heap_class *class = &heap->classes[span->class];
    struct hak_span *last = hak__warm_newest(heap, span->class);
    class->warm[span->warm - 1] = (uint32_t)hak__span_slab(last);
    last->warm = span->warm;
    span->warm = 0;
    class->warm_count--;
}

/* --- its budget ------------------------------------------------------------------------------------------------------ */

/* The run of hits that has just ended changes the rate, and the rate the budget: for a class that misses often, a longer search of
 * its list pays. */
static void warm_adapt(const struct hak_heap *heap, struct hak_heap_class *class)
{
    if (heap->warm_fixed)
        return;
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

/* A quarter of a batch, or half a span if that is less. Less than a whole batch, because a refill that is a little short costs less
 * than a search through several spans (docs/decisions/0005). */
static uint32_t blocks_needed(const struct hak_heap *heap, uint32_t class_index)
{
    const struct hak_class *sizes = &hak__classes[class_index];
    size_t batch = sizes->batch < 32 ? sizes->batch : heap->refill_count;
    return (uint32_t)hak_min(hak_div_up(batch, 4), (sizes->blocks + 1u) / 2);
}

/* --- a miss ----------------------------------------------------------------------------------------------------------- */

void hak__warm_missed(struct hak_heap *heap, uint32_t class_index)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    warm_adapt(heap, class);
    class->warm_need = (uint16_t)(class->warm_budget == 0 ? 0 : blocks_needed(heap, class_index));
}

bool hak__warm_prefill(struct hak_heap *heap, uint32_t class_index)
{
    struct hak_heap_class *class = &heap->classes[class_index];
    hak_assert(class->warm_count <= HAK_WARM_MAX, "a pool has its places");
    uint32_t budget = class->warm_budget, looks = budget * SPAN_LOOKS, count = 0;
    struct hak_span *found[HAK_WARM_MAX];
    budget = (uint32_t)hak_min(budget, HAK_WARM_MAX - (size_t) class->warm_count);
    for (struct hak_span *span = class->spans; span != NULL && count < budget && looks > 0; span = span->next, looks--)
        if (span->warm == 0 && span->free_count >= class->warm_need)
            found[count++] = span;
    hak_count(&class->warm_prefilled, count);
    while (count > 0) /* the first of the list becomes the newest of the pool */
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

void hak__warm_prefer(struct hak_heap *heap, struct hak_span *span)
{
    const struct hak_heap_class *class = &heap->classes[span->class];
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    if (!span->listed || !hak__warm_good(span, class->warm_need))
        return;
    if (span->warm != 0 || class->warm_count == HAK_WARM_MAX)
        hak__warm_leave(heap, span->warm != 0 ? span : hak__warm_newest(heap, span->class));
    hak__warm_join(heap, span);
}

static hak_cold bool warm_is_valid(struct hak_heap *heap, uint32_t class_index)
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

/* --- begin and end ---------------------------------------------------------------------------------------------------- */

static void count_begun(struct hak_heap *heap, struct hak_span *span)
{
    hak_count(&heap->counts.slabs, span->slabs);
    hak_count(&heap->classes[span->class].span_count, 1);
    if (hak_likely(!hak__heap_is_share(heap)))
        return;
    hak__owned_add(&heap->share.first_span, hak__span_slab(span));
    heap->share.classes |= 1ull << span->class;
    if (!span->fresh)
        span->account = heap->share.account;
}

/* A hardened span is mapped whole, so all of it counts. */
static size_t first_charge(uint32_t class_index, unsigned slabs)
{
    return hak__hardened.on ? (size_t)slabs << HAK_SLAB_SHIFT : hak__classes[class_index].size;
}
bool hak__span_admit(struct hak_heap *heap, uint32_t class_index, unsigned slabs)
{
    if (hak_likely(!hak__heap_is_share(heap)))
        return true;
    if (!hak__account_take(heap->share.account, first_charge(class_index, slabs)))
        return false;
    hak__share_taken(heap, first_charge(class_index, slabs));
    return true;
}
void hak__span_discount(struct hak_heap *heap, uint32_t class_index, unsigned slabs)
{
    if (hak_unlikely(hak__heap_is_share(heap)))
        hak__account_give(heap->share.account, first_charge(class_index, slabs));
}

static uint32_t owner_of_spans(const struct hak_heap *heap) { return heap->id | (hak__heap_is_share(heap) ? HAK_SPAN_OWN : 0); }

/* Gives back slabs that could not become a span. */
static void give_back(struct hak_heap *heap, uint32_t class_index, size_t slab, unsigned slabs)
{
    hak__span_discount(heap, class_index, slabs);
    hak__pool_give(slab, slabs);
}

static void count_ended(struct hak_heap *heap, const struct hak_span *span)
{
    hak_count(&heap->counts.slabs, 0 - (uint64_t)span->slabs);
    hak_count(&heap->classes[span->class].span_count, (uint64_t)-1);
}

/* A hardened span is mapped whole from the start. */
static bool harden_span(struct hak_heap *heap, struct hak_span *span)
{
    size_t bytes = hak__span_bitmap_bytes(&hak__classes[span->class]), slab = hak__span_slab(span);
    unsigned slabs = span->slabs;
    if (hak__span_reach(span, (size_t)slabs << HAK_SLAB_SHIFT)) {
        hak__span_harden(span, owner_of_spans(heap));
        return true;
    }
    void *bitmaps = hak__span_destroy(span);
    if (bitmaps != NULL)
        hak__bitmaps_give(heap, bitmaps, bytes);
    give_back(heap, span->class, slab, slabs);
    return false;
}

/* Makes a single-block span; NULL if the system refuses its memory. */
struct hak_span *hak__heap_begin_single(struct hak_heap *heap, uint32_t class_index, size_t slab, unsigned slabs, bool fresh)
{
    hak_assert(slabs != 0, "a span has slabs");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    struct hak_span *span = hak__span_create(slab, slabs, class_index, owner_of_spans(heap), NULL, fresh);
    if (span->blocks != 1 || hak__span_reach(span, hak__classes[class_index].size)) {
        count_begun(heap, span);
        if (span->blocks != 1) /* its blocks count as they are taken */
            hak__span_discount(heap, class_index, slabs);
        return span;
    }
    hak__span_destroy(span);
    give_back(heap, class_index, slab, slabs);
    return NULL;
}

struct hak_span *hak__heap_begin_span(struct hak_heap *heap, uint32_t class_index, size_t slab, unsigned slabs, bool fresh)
{
    hak_assert(slabs != 0, "a span has slabs");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    size_t bytes = hak__span_bitmap_bytes(&hak__classes[class_index]);
    void *bitmaps = bytes == 0 ? NULL : hak__bitmaps_take(heap, bytes);
    if (bytes != 0 && bitmaps == NULL) {
        give_back(heap, class_index, slab, slabs);
        return NULL;
    }
    struct hak_span *span = hak__span_create(slab, slabs, class_index, owner_of_spans(heap), bitmaps, fresh);
    if (hak_unlikely(hak__hardened.on) && !harden_span(heap, span))
        return NULL;
    hak__heap_list(heap, span);
    count_begun(heap, span);
    if (hak_likely(span->keys != HAK_SPAN_HARDENED))
        hak__span_discount(heap, class_index, slabs);
    return span;
}

/* Ends a span, but leaves its slabs to the caller. */
void hak__heap_dissolve_span(struct hak_heap *heap, struct hak_span *span)
{
    hak_assert(hak__span_allocated(span) == 0, "no block is allocated");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    size_t bytes = hak__span_bitmap_bytes(&hak__classes[span->class]);
    if (span->listed)
        hak__heap_unlist(heap, span);
    count_ended(heap, span);
    if (hak_unlikely(hak__heap_is_share(heap))) {
        hak__owned_remove(&heap->share.first_span, hak__span_slab(span));
        hak__account_give(heap->share.account, hak__span_charge(span));
    }
    void *bitmaps = hak__span_destroy(span);
    if (bitmaps != NULL)
        hak__bitmaps_give(heap, bitmaps, bytes);
}

void hak__heap_adopt_span(struct hak_heap *heap, struct hak_heap *former, struct hak_span *span)
{
    hak_assert(heap != former && !hak__heap_is_share(heap), "a thread's heap adopts another's span");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    hak_assert(hak__heap_is_mine(former), "the caller holds the heap's lock");
    uint32_t class = span->class, blocks = hak__span_allocated(span);
    hak__heap_unlist(former, span);
    hak__span_change_owner(span, heap->id);
    hak__heap_list(heap, span);
    hak__heap_large_moved(former, class, 0 - (size_t)blocks);
    hak__heap_large_moved(heap, class, blocks);
    count_ended(former, span);
    count_begun(heap, span);
    hak_count(&heap->counts.adopted, 1);
}

void hak__heap_end_span(struct hak_heap *heap, struct hak_span *span)
{
    size_t slab = hak__span_slab(span);
    unsigned slabs = span->slabs;
    bool inherited = hak__span_is_inherited(span);
    hak__heap_dissolve_span(heap, span);
    if (hak_unlikely(inherited))
        hak__pool_give_inherited(slab, slabs);
    else if (hak__pool_give_assigned(slab, slabs, heap->id))
        hak__assigned_emptied(heap, slab);
}

void hak__heap_end_idle(struct hak_heap *heap, struct hak_span *span)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    unsigned slabs = span->slabs;
    hak__span_unguard(span);
    hak__heap_dissolve_span(heap, span);
    hak__pool_give_idle(hak__span_slab(span), slabs);
}

bool hak__heap_sleep_span(struct hak_heap *heap, struct hak_span *span)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    size_t charge = hak__span_charge(span);
    if (hak__span_sleeps(span) || !hak__span_sleep(span))
        return false;
    if (hak__heap_is_share(heap))
        hak__account_give(heap->share.account, charge);
    return true;
}

bool hak__heap_wake_span(struct hak_heap *heap, struct hak_span *span)
{
    if (!hak__span_admit(heap, span->class, span->slabs))
        return false;
    bool awake = hak__span_wake(span);
    if (!awake)
        hak__span_discount(heap, span->class, span->slabs);
    return awake;
}

void hak__heap_spare(struct hak_heap *heap, uint32_t class_index)
{
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    heap->sources.idle_classes &= class_index < HAK_CLASSES ? 1ull << class_index : 0;
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        for (struct hak_span *span = heap->classes[c].spans, *next; span != NULL && c != class_index; span = next) {
            next = span->next;
            hak__span_retreat(span);
            if (hak__span_allocated(span) != 0)
                continue;
            if (span->keys != HAK_SPAN_HARDENED)
                hak__heap_end_span(heap, span);
            else if (hak__heap_is_share(heap))
                hak__heap_sleep_span(heap, span);
        }
    }
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
            valid &=
                hak__holds(hak__owner_id(hak__owner_at(hak__span_slab(span))) == heap->id, "a listed span is its heap's", span);
            valid &= hak__span_is_valid(span);
        }
        valid &= warm_is_valid(heap, c);
    }
    return valid;
}
