/* What several kinds share: those of blocks of spans, and those of huge blocks. */
#include "arena/arena.h"
#include "arena/window.h"
#include "base/assert.h"
#include "cache/cache.h"
#include "cache/large_cache.h"
#include "diag/report.h"
#include "harden/harden.h"
#include "harden/quarantine.h"
#include "heap/heap.h"
#include "huge/huge.h"
#include "kinds/kind.h"
#include "process/process.h"
#include "span/shield.h"
#include "upkeep/upkeep.h"

/* --- whether a block begins there ------------------------------------------------------------------------------------------ */

/* Whether the block of the class that begins at p is free; keys_lost: free blocks of its span may lack their keys. Those of an
 * inherited span begin with what the program has left there, those of a returned page with zero. */
static hak_cold bool freed_before(uint32_t class, const void *p, bool keys_lost)
{
    struct hak_heap *heap = hak__heap_mine();
    bool covered = hak__shield_covers(p);
    if (!covered && hak__looks_freed(p) && hak__heap_is_unusable_at(p))
        return true;
    if (covered || hak__looks_freed(p))
        return hak__cache_has_freed((heap->mode & HAK_MODE_SENTINEL) != 0 ? NULL : heap, class, p);
    bool suspicious = hak__looks_purged(p) || hak__owner_is_inherited(hak__owner_of(p));
    return keys_lost && suspicious && hak__cache_has_purged(class, p);
}

bool hak__check_block(const void *p, uint32_t word, const char *function, const char *why_freed)
{
    const struct hak_slab *slab = &hak__window.map[hak__slab_of(p)];
    const struct hak_class *class = hak__owner_sizes(word);
    hak_assert(hak__names_span(word) && hak__slab_of(p) < hak_read_mostly(&hak__window.slabs), "an address in a span");
    uint32_t limit = hak__start_bound(slab);
    bool keys_lost = hak__start_bound_is_lost(limit);
    if (!hak__begins_below(limit, slab, p)) {
        uint32_t index;
        bool start = hak__span_index(hak__span_at(hak__slab_of(p)), p, &index) == HAK_SPAN_OK;
        if (!start || !keys_lost) {
            hak__misuse_invalid(function, p, start ? "this block was never allocated" : "not the start of a block");
            return false;
        }
    }
    if (!freed_before((uint32_t)(class - hak__classes), p, keys_lost))
        return true;
    if (why_freed != NULL)
        hak__misuse_invalid(function, p, why_freed);
    else
        hak__misuse_double_free(function, p, class->size);
    return false;
}

size_t hak__block_usable(const void *p, const char *function)
{
    uint32_t word = hak__owner_of(p);
    hak_assert(!hak__hardened_at(hak__slab_of(p)), "hardened blocks have a table of their own");
    return hak__check_block(p, word, function, "this block is free") ? hak__owner_sizes(word)->size : HAK_NO_BLOCK;
}

bool hak__block_live(const void *p)
{
    const struct hak_slab *slab = &hak__window.map[hak__slab_of(p)];
    uint32_t index, class = hak__owner_class(hak__owner_of(p)), limit = hak__start_bound(slab);
    if (!hak__start_bound_is_lost(limit))
        return hak__begins_below(limit, slab, p) && !freed_before(class, p, false);
    return hak__span_index(hak__span_at(hak__slab_of(p)), p, &index) == HAK_SPAN_OK && !freed_before(class, p, true)
        && !hak__cache_has_purged(class, p);
}

void hak__block_lift(const void *p, const char *function)
{
    (void)function;
    hak__shield_lift(p);
}

/* --- worth moving --------------------------------------------------------------------------------------------------------
 *
 * A block moves from one span to another of which as much at least is in use. So the sum of the squares of blocks in use grows with each
 * move, and moving ends. No search: of the spans that the program asks about, the fullest with room serves next. */

/* Of another heap's span the two words may date from different moments; the difference is then far too much, or a little wrong. */
static uint32_t blocks_used(const struct hak_span *span) { return hak_peek(&span->frontier) - hak_peek(&span->free_count); }

static bool is_used_by(const struct hak_span *span, uint32_t percent)
{
    return (uint64_t)blocks_used(span) * 100 >= percent * span->blocks;
}

/* Gives back the newest blocks of the bin as far as they lie in sparse spans, among them what the program has just moved away. */
static void shed_sparse(struct hak_heap *heap, uint32_t class, struct hak_span *next, uint32_t percent)
{
    struct hak_bin *bin = hak__heap_bin(heap, class);
    void **top = bin->top, **from = top;
    for (; from != heap->classes[class].bottom; from--) {
        const struct hak_span *span = hak__span_at(hak__slab_of(from[-1]));
        if (span == next || (hak__owner_id(hak__owner_of(from[-1])) == heap->id && is_used_by(span, percent)))
            break;
    }
    hak_owner_store(&bin->top, from);
    hak__cache_give(heap, class, from, (uint32_t)(top - from), "hak_is_sparse");
    hak__warm_prefer(heap, next); /* one that has got blocks back may have become the next */
}

/* Whether a block of the class is worth moving out of `span`, any heap's. Then the bin's next block lies in the span that serves next, or in
 * another that is in use by `percent`. Else a fuller span of the heap's becomes that one. */
static bool gathers(struct hak_heap *heap, uint32_t class, struct hak_span *span, uint32_t percent)
{
    hak_assert(percent <= 100, "a full span stays");
    hak_assert(hak__heap_is_mine(heap), "the caller holds the heap's lock");
    hak__heap_collect(heap);
    struct hak_span *next = heap->classes[class].warm_count != 0 ? hak__warm_newest(heap, class) : NULL;
    if (is_used_by(span, percent) || span == next)
        return false;
    if (next == NULL || blocks_used(next) * (uint64_t)span->blocks < blocks_used(span) * (uint64_t)next->blocks) {
        if (hak__owner_id(hak__owner_at(hak__span_slab(span))) == heap->id)
            hak__warm_prefer(heap, span);
        return false;
    }
    shed_sparse(heap, class, next, percent);
    if (blocks_used(span) == 1) /* a move takes as much as it frees, but where the last one was memory can go back */
        hak__heap_idle_more(heap, (size_t)span->slabs << HAK_SLAB_SHIFT);
    return true;
}

/* An inherited block stays: its move would copy two pages. Upkeep comes here, because a program that moves does little else for a while. */
bool hak__block_sparse(struct hak_heap *receiver, const void *p, uint32_t percent)
{
    uint32_t word = hak__owner_of(p);
    bool fixed = !hak__names_span(word) || hak__owner_is_inherited(word) || hak__is_large(hak__owner_class(word));
    if (fixed || !hak__heap_lock(receiver))
        return false;
    bool sparse = gathers(receiver, hak__owner_class(word), hak__span_at(hak__slab_of(p)), percent);
    hak__heap_unlock(receiver);
    if (sparse)
        hak__upkeep_poll(hak__heap_mine());
    return sparse;
}

/* --- sized frees ----------------------------------------------------------------------------------------------------------- */

static _Atomic bool longer_allowed;

void hak__allow_longer(void) { hak_store(&longer_allowed, true, HAK_RELAXED); }

bool hak__class_has_size(uint32_t class, size_t align, size_t n)
{
    hak_assert(class < HAK_CLASSES, "huge blocks are not held to a class");
    size_t have = hak__classes[class].size;
    bool aligned = hak_is_power_of_two(align) && n <= have && hak__aligned_class(align, n) == class;
    bool longer = n <= have && hak_load(&longer_allowed, HAK_RELAXED);
    return aligned || longer || hak__size_fits(have, n);
}

void hak__check_class_size(const void *p, uint32_t class, size_t align, size_t n, const char *function)
{
    if (!hak__class_has_size(class, align, n))
        hak__misuse_size(function, p, n, hak__classes[class].size);
}

void hak__block_check_size(const void *p, size_t align, size_t n, const char *function)
{
    hak__check_class_size(p, hak__owner_class(hak__owner_of(p)), align, n, function);
}

/* --- descriptions, without a lock ------------------------------------------------------------------------------------------ */

static bool crash_among(void *const *from, void *const *to, const void *block)
{
    for (; from < to; from++)
        if (*from == block)
            return true;
    return false;
}

/* Whether a heap has the block in its bin, outbox or quarantine: freed, and not yet returned to its span. */
static bool crash_holds(struct hak_heap *heap, uint32_t class, const void *block)
{
    void **bottom = heap->classes[class].bottom;
    if (bottom != NULL && crash_among(bottom, bottom + hak__cache_count(heap, class), block))
        return true;
    for (unsigned i = 0; i < HAK_OUTBOX_BUCKETS; i++) {
        const struct hak_outbox_bucket *bucket = &heap->outbox_buckets[i];
        size_t taken = hak_load(&bucket->taken, HAK_RELAXED), count = hak_load(&bucket->count, HAK_RELAXED);
        if (bucket->slab != 0 && taken <= count && count <= HAK_OUTBOX_BLOCKS
            && crash_among(bucket->blocks + taken, bucket->blocks + count, block))
            return true;
    }
    return hak__quarantine_has(heap, block);
}

static bool held_by_any(uint32_t class, const void *block)
{
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++) {
        struct hak_heap *heap = hak__heap_by_id(id);
        if (hak_load(&heap->state, HAK_RELAXED) != HAK_HEAP_NEW && crash_holds(heap, class, block))
            return true;
    }
    return false;
}

static const char *state_of(const struct hak_span *span, uint32_t index, const void *block)
{
    if (index >= span->frontier)
        return "never handed out";
    if (span->free[index / 64] >> index % 64 & 1)
        return "free";
    if (hak_load(&span->remote[index / 64], HAK_RELAXED) >> index % 64 & 1)
        return "free";
    return held_by_any(span->class, block) ? "free" : "live";
}

static const char *owner_of_heap(uint32_t id)
{
    uint32_t state = hak_load(&hak__heap_by_id(id)->state, HAK_RELAXED);
    if (hak__heap_mine()->id == id)
        return "this thread's";
    return state == HAK_HEAP_PARKED ? "parked" : state == HAK_HEAP_UNUSABLE ? "lost by a fork" : "another thread's";
}

void hak__block_describe(uintptr_t address, char *text, size_t size)
{
    size_t slab = hak__slab_of((const void *)address);
    const struct hak_span *span = hak__span_around(slab);
    uintptr_t start = (uintptr_t)hak__span_start(span);
    size_t bytes = hak__classes[span->class].size, index = (address - start) / bytes;
    uint32_t id = hak__owner_id(hak__owner_at(slab));
    if (index >= span->blocks) {
        hak__format(text, size, "behind the last block of a slab of %u-byte blocks", (uint64_t)bytes);
        return;
    }
    const void *block = (const void *)(start + index * bytes);
    hak__format(text, size, "inside a %s block of %u bytes, offset %u (block %p, heap %u, %s)",
                state_of(span, (uint32_t)index, block), (uint64_t)bytes, (uint64_t)(address - (uintptr_t)block), block,
                (uint64_t)id, owner_of_heap(id));
}

const void *hak__block_start(uintptr_t address)
{
    const struct hak_span *span = hak__span_around(hak__slab_of((const void *)address));
    size_t bytes = hak__classes[span->class].size, offset = address - (uintptr_t)hak__span_start(span);
    return hak__span_start(span) + offset / bytes * bytes;
}

/* --- huge blocks ----------------------------------------------------------------------------------------------------------- */

bool hak__huge_live(const void *p) { return hak__huge_usable(p) != 0; }

static uint32_t super_kind(size_t super) { return hak_load(&hak__supers[super].kind, HAK_RELAXED); }

static bool is_huge(size_t super) { return super_kind(super) == HAK_SUPER_HUGE || super_kind(super) == HAK_SUPER_HUGE_TAIL; }

static size_t huge_start(size_t super)
{
    while (super > 0 && super_kind(super) == HAK_SUPER_HUGE_TAIL)
        super--;
    return super;
}

/* An access behind a huge block may have been meant for it, but not where a freed one waits (arena/retained.h). */
size_t hak__huge_first(size_t super)
{
    bool inside = super < hak__arena_top();
    if (inside && is_huge(super))
        return huge_start(super);
    bool own = inside && (super_kind(super) == HAK_SUPER_IN_SLABS || hak__super_is_hole(super));
    if (own || super == 0 || !is_huge(super - 1))
        return HAK_NO_SUPER;
    size_t first = huge_start(super - 1);
    return hak__owner_at(first * HAK_SUPER_SLABS) == hak__owner_huge() ? first : HAK_NO_SUPER;
}

static size_t first_around(uintptr_t address) { return hak__huge_first((address - hak__window.base) >> HAK_SUPER_SHIFT); }

const void *hak__huge_around(uintptr_t address) { return hak__super_start(first_around(address)); }

void hak__huge_describe(uintptr_t address, char *text, size_t size)
{
    size_t first = first_around(address), bytes = hak_load(&hak__supers[first].huge_bytes, HAK_RELAXED);
    const char *block = hak__super_start(first);
    char far[HAK_DISTANCE];
    size_t offset = address - (uintptr_t)block;
    bool live = hak__owner_of(block) == hak__owner_huge();
    if (offset < bytes)
        hak__format(text, size, "inside a %s huge block of %u bytes, offset %u (block %p)", live ? "live" : "free", (uint64_t)bytes,
                    (uint64_t)offset, block);
    else
        hak__format(text, size, "%s beyond the end of a huge block of %u bytes (block %p)",
                    hak__distance(far, sizeof far, offset - bytes), (uint64_t)bytes, block);
}

/* --- frees by threads without a heap ---------------------------------------------------------------------------------- */

/* Those that have none yet, and those that have ended theirs. Called by plain.c and harden/kinds.c. */

/* Frees a block of the exit heap itself, not yet checked. */
static void late_give_back(struct hak_heap *heap, void *p, uint32_t word, const char *function)
{
    uint32_t class = hak__owner_class(word);
    hak_assert(hak__owner_id(word) == heap->id && class < HAK_CLASSES, "the exit heap's own");
    if (hak__looks_freed(p) && (hak__heap_has_free(heap, class, p) || hak__heaps_ask(heap, hak__heap_has_free, class, p, 1))) {
        hak__misuse_double_free(function, p, hak__classes[class].size);
        return;
    }
    hak__mark_freed(p);
    if (hak__is_large(class))
        hak__large_cache_push(heap, class, p, function);
    else if (!hak__cache_push(hak__heap_bin(heap, class), p))
        hak__cache_overflow(heap, class, p, function);
}

/* Caller holds the heap lock. */
static void free_by(struct hak_heap *heap, void *p, uint32_t word, const char *function)
{
    if (hak__hardened_at(hak__slab_of(p)))
        hak__harden_free(heap, p, word, function);
    else if (hak__owner_id(word) != heap->id)
        hak__outbox_add_slow(heap, p, word, function);
    else
        late_give_back(heap, p, word, function);
}

/* Counts the free as published. Leaves nothing in the heap's outbox and quarantine, since no thread comes back to it. */
void hak__free_late(void *p, uint32_t word, const char *function)
{
    struct hak_heap *heap = hak__exit_heap_lock();
    if (heap == NULL) {
        if (hak__hardened_at(hak__slab_of(p)))
            hak__harden_clear(NULL, p, hak__owner_class(word));
        hak__outbox_bypass(p, word, function);
        return;
    }
    free_by(heap, p, word, function);
    hak__quarantine_flush(heap, function);
    hak__outbox_flush(heap, function);
    hak__exit_heap_unlock();
}

void hak__free_unattached(void *p, uint32_t word, const char *function)
{
    struct hak_heap *heap = hak__thread_attach_to_free();
    if (heap == NULL || !hak__heap_lock(heap)) {
        hak__free_late(p, word, function);
        return;
    }
    free_by(heap, p, word, function);
    hak__heap_unlock(heap);
}
