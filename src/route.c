/* Where a request goes when the fast path cannot serve it: attach a thread, choose the pool, refill; and where a free
 * goes that is not one push: a full record, another heap, a huge block, a report. */
#include "route.h"

#include <errno.h>

#include "arena/limit.h"
#include "base/forked.h"
#include "diag/latency.h"
#include "diag/report.h"
#include "guard/check.h"
#include "guard/exact.h"
#include "guard/harden.h"
#include "guard/nothing.h"
#include "guard/sample.h"
#include "huge/huge.h"
#include "others.h"
#include "upkeep/armed.h"
#include "upkeep/background.h"
#include "upkeep/step.h"

void *hak__no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

/* Huge blocks need no heap, but a thread that has one takes its part in upkeep for what it frees. */
void hak__tick_huge(size_t given, size_t taken)
{
    struct hak_heap *heap = hak__heap_current();
    hak__background_stir();
    if ((heap->mode & HAK_MODE_SENTINEL) != 0)
        return;
    hak__heap_idle_more(heap, given);
    hak__heap_idle_less(heap, taken);
    hak__upkeep_look(heap);
}

/* --- allocation ------------------------------------------------------------------------------------------------- */

static void *alloc_from(struct hak_heap *heap, uint32_t class)
{
    void *block;
    hak__enter(heap);
    if (heap->classes[class].closed) {
        block = hak__closed_malloc(heap, class);
    } else {
        block = hak__cache_pop(&heap->records[class]);
        if (block == NULL)
            block = hak__cache_refill(heap, class);
    }
    hak__leave(heap);
    hak__upkeep_tick(heap);
    return block;
}

static hak_cold void *alloc_late(uint32_t class)
{
    struct hak_heap *heap = hak__late_heap_locked();
    if (heap == NULL)
        return NULL;
    void *block = alloc_from(heap, class);
    hak__late_heap_unlock();
    return block;
}

void *hak__alloc_class(uint32_t class)
{
    struct hak_heap *heap = hak__thread_attach();
    void *block = NULL;
    if (hak_likely(heap != NULL))
        block = alloc_from(heap, class);
    else if (hak__thread_is_late())
        block = alloc_late(class);
    hak__limit_deliver();
    hak__check_tick();
    if (hak_likely(block != NULL))
        hak__mark_live(block);
    return block;
}

/* A large block that the thread keeps. In other modes than these two there is more to do. */
hak_inline void *alloc_kept(struct hak_heap *heap, uint32_t class)
{
    hak__fork_check();
    if (hak_unlikely((heap->mode & ~(uint32_t)HAK_MODE_ARMED) != 0 || heap != hak__heap_current()))
        return NULL;
    hak__enter(heap);
    void *block = hak__kept_pop_near(heap, class);
    hak__leave(heap);
    return block;
}

static hak_noinline void *alloc_huge(size_t n)
{
    void *block = hak__huge_alloc(n, HAK_SUPER_SIZE, NULL);
    hak__tick_huge(0, n);
    return block;
}

static hak_noinline void *malloc_rest(size_t n)
{
    void *block = NULL;
    if (hak_unlikely(hak_load(&hak__hardened.open, HAK_RELAXED))) {
        if (hak__is_hardened())
            return hak__malloc_hardened(n);
        if (hak__sample_on() && (block = hak__sample_malloc(hak__heap_current(), n)) != NULL)
            return block;
    }
    struct hak_heap *heap = hak__heap_current();
    if ((heap->mode & HAK_MODE_ARMED) != 0 && n <= HAK_MID_MAX)
        block = hak__armed_pop(heap, hak__class_of(n));
    if (block != NULL) {
        hak__mark_live(block);
        return block;
    }
    uint64_t started = hak__latency_begin();
    if (hak_likely(n <= HAK_LARGE_MAX))
        block = hak__alloc_class(hak__class_of(n));
    else if (n <= PTRDIFF_MAX && hak__start())
        block = alloc_huge(n);
    hak__latency_end(HAK_LATENCY_MALLOC, started);
    return hak_likely(block != NULL) ? block : hak__no_memory();
}

void *hak__malloc_slow(size_t n)
{
    void *block = NULL;
    if (n > HAK_MID_MAX && n <= HAK_LARGE_MAX)
        block = alloc_kept(hak__heap_current(), hak__class_above_tiny(n));
    if (block == NULL)
        return malloc_rest(n);
    hak__mark_live(block);
    return block;
}

void *hak__alloc_class_zeroed(uint32_t class, bool *zero)
{
    hak__fork_check();
    struct hak_heap *heap = hak__heap_current();
    *zero = false;
    if ((heap->mode & HAK_MODE_SENTINEL) != 0 || heap->classes[class].closed)
        return hak__alloc_class(class);
    void *block = hak__cache_pop(&heap->records[class]);
    if (block != NULL) {
        hak__mark_live(block);
        return block;
    }
    hak__enter(heap);
    block = hak__heap_take_zeroed(heap, class);
    hak__leave(heap);
    hak__limit_deliver();
    *zero = block != NULL;
    return *zero ? block : hak__alloc_class(class);
}

/* --- free --------------------------------------------------------------------------------------------------------- */

/* What to say of an address that is not the start of a block, by what the owner map has there. */
static const char *why(const void *p, uint32_t word)
{
    if (hak__slab_of(p) >= hak_read_mostly(&hak__window.slabs))
        return "not from this allocator";
    if (word == 0)
        return "no block is here, or it was freed before";
    return "not the start of a block";
}

/* Whether the owner map's word names a span. */
static bool names_span(uint32_t word)
{
    return hak__owner_id(word) - 1 < HAK_HEAPS_MAX && hak__owner_code(word) < HAK_CODE_LIMIT;
}

/* Whether the block of the class that begins at p is free; `doubted` where free ones may have lost their keys. */
static hak_cold bool freed_before(uint32_t class, const void *p, bool doubted)
{
    struct hak_heap *heap = hak__heap_current();
    if (hak__shield_covers(p) || hak__looks_freed(p))   /* the first may not even be read */
        return hak__cache_has_freed((heap->mode & HAK_MODE_SENTINEL) != 0 ? NULL : heap, class, p);
    return doubted && hak__looks_purged(p) && hak__cache_has_purged(class, p);
}

/* Ends the program unless a block in use begins at p, an address in a span. The key of freed blocks may stand in a block
 * by the program's own doing; so the books decide. `why_freed` is what to say of a free one; NULL: that this is its
 * second free. */
static hak_cold void check_block(const void *p, uint32_t word, const char *function, const char *why_freed)
{
    const struct hak_slab *slab = &hak__window.map[hak__slab_of(p)];
    const struct hak_class *class = hak__class_of_code(hak__owner_code(word));
    uint32_t limit = hak__limit_now(slab);
    bool doubted = hak__limit_doubts(limit);
    if (!hak__begins_below(limit, slab, class, p)) {
        uint32_t index;
        bool start = hak__span_index(hak__span_at(hak__slab_of(p)), p, &index) == HAK_SPAN_OK;
        if (!start || !doubted)
            hak__misuse_invalid(function, p, start ? "this block was never allocated" : "not the start of a block");
    }
    if (!freed_before((uint32_t)(class - hak__classes), p, doubted))
        return;
    if (why_freed != NULL)
        hak__misuse_invalid(function, p, why_freed);
    hak__misuse_double_free(function, p, class->size);
}

static void free_own(struct hak_heap *heap, uint32_t class, void *p, const char *function)
{
    hak__enter(heap);
    if (heap->classes[class].closed)
        hak__closed_free(heap, class, p, function);
    else
        hak__cache_overflow(heap, class, p, function);
    hak__leave(heap);
    hak__upkeep_tick(heap);
}

static void free_by(struct hak_heap *heap, void *p, uint32_t word, const char *function)
{
    uint32_t class = hak__owner_code(word) / HAK_RECORD_SIZE;
    hak__enter(heap);
    if (hak__owner_id(word) != heap->id)
        hak__outbox_add_slow(heap, p, word, function);
    else if (hak__is_kept(class))
        hak__kept_push(heap, class, p, function);
    else if (!hak__cache_push(hak__heap_record(heap, class), p))   /* the very heap that the block came from */
        hak__cache_overflow(heap, class, p, function);
    hak__leave(heap);
}

/* By the heap that threads without one share, so that the free is counted. Its outbox is not left with anything: nobody comes
 * back to it. */
static hak_cold void free_late(void *p, uint32_t word, const char *function)
{
    struct hak_heap *heap = hak__late_heap_locked();
    if (heap == NULL) {
        hak__outbox_bypass(p, word, function);
        return;
    }
    free_by(heap, p, word, function);
    hak__enter(heap);
    hak__outbox_flush(heap, function);
    hak__leave(heap);
    hak__late_heap_unlock();
}

/* A block of another heap, for a thread that has no heap yet or has ended its own. */
static hak_cold void free_unattached(void *p, uint32_t word, const char *function)
{
    struct hak_heap *heap = hak__thread_attach_to_free();
    if (heap != NULL)
        free_by(heap, p, word, function);
    else
        free_late(p, word, function);
}

void hak__free_doubtful(void *p, size_t code, struct hak_heap *heap)
{
    if (hak__hardened_at(hak__slab_of(p))) {
        if (hak__shield_lift(p))
            hak__free_hardened(p, heap->tag | (uint32_t)code);
        return;
    }
    check_block(p, heap->tag | (uint32_t)code, "free", NULL);
    if (!hak__shield_lift(p))
        return;   /* lost: nobody can use it */
    hak__mark_freed(p);
    if (!hak__cache_push(hak__record_at(heap, (uint32_t)code), p))
        hak__free_full(p, code, heap);
}

/* A large block that the thread keeps, where nothing else is to be done. */
hak_inline bool free_kept(struct hak_heap *heap, uint32_t class, void *p)
{
    if (hak_unlikely((heap->mode & ~(uint32_t)HAK_MODE_ARMED) != 0))
        return false;
    hak__fork_check();
    if (hak_unlikely(heap != hak__heap_current()))
        return false;
    hak__enter(heap);
    bool kept = hak__kept_push_quickly(heap, class, p);
    hak__leave(heap);
    return kept;
}

static hak_noinline void free_full_slow(void *p, size_t code, struct hak_heap *heap)
{
    if ((heap->mode & HAK_MODE_ARMED) != 0 && !hak__is_kept((uint32_t)code / HAK_RECORD_SIZE)
        && hak__armed_push(heap, (uint32_t)code / HAK_RECORD_SIZE, p))
        return;
    int saved = errno;
    uint64_t started = hak__latency_begin();
    hak__fork_check();
    if (hak_unlikely(heap != hak__heap_current()))   /* a child has had to leave it */
        free_unattached(p, hak__owner_of(p), "free");
    else
        free_own(heap, (uint32_t)code / HAK_RECORD_SIZE, p, "free");
    hak__check_tick();
    hak__latency_end(HAK_LATENCY_FREE, started);
    errno = saved;
}

void hak__free_full(void *p, size_t code, struct hak_heap *heap)
{
    uint32_t class = (uint32_t)code / HAK_RECORD_SIZE;
    if (!hak__is_kept(class) || !free_kept(heap, class, p))
        free_full_slow(p, code, heap);
}

static hak_noinline void free_remote(struct hak_heap *heap, uint32_t word, void *p)
{
    hak__enter(heap);
    hak__outbox_add_slow(heap, p, word, "free");
    hak__leave(heap);
    hak__upkeep_tick(heap);
}

static hak_noinline void free_huge(void *p)
{
    if (hak_unlikely(hak__hardened.on) && hak__shield_lift(p)) {
        size_t asked = hak__harden_huge_size(p, "free");
        if (asked != 0)
            hak__freed_hardened(p);
    }
    size_t bytes = hak__huge_usable(p);
    hak__huge_free(p, "free");
    hak__tick_huge(bytes, 0);
}

/* What neither this thread's record nor its outbox took. */
static hak_noinline void free_rest(void *p, uint32_t word, struct hak_heap *heap)
{
    int saved = errno;
    uint64_t started = hak__latency_begin();
    hak__fork_check();
    hak__thread_watch_forks();
    heap = hak__heap_current();   /* a child may have had to leave its own */
    if (hak__owner_id(word) == HAK_HEAP_ID_HUGE)
        free_huge(p);
    else if (word == 0 && hak__is_others(p))
        hak__others_free(p);
    else if (word == 0 || hak__owner_code(word) >= HAK_CODE_LIMIT)
        hak__misuse_invalid("free", p, why(p, word));
    else if ((heap->mode & HAK_MODE_SENTINEL) != 0)
        free_unattached(p, word, "free");
    else
        free_remote(heap, word, p);
    hak__latency_end(HAK_LATENCY_FREE, started);
    errno = saved;
}

/* Keeps a block of another heap, whose key is set, for the thread's own use, or lays it in the outbox. A sentinel absorbs
 * nothing, and its mode is looked at before its outbox, which does not exist. */
hak_inline bool take_foreign(struct hak_heap *heap, size_t slab, uint32_t code, void *p)
{
    return hak__cache_absorb(heap, code, p)
           || (hak_likely((heap->mode & HAK_MODE_SENTINEL) == 0) && hak__outbox_add_at(heap, slab, p));
}

/* A block of another heap that looks freed, or lies where no block began when the limit was read; or no block of a span.
 * This function and the next have the same arguments in the same order, so that one leads to the other by a jump. */
static hak_noinline void free_foreign_doubtful(void *p, size_t x, struct hak_heap *heap)
{
    uint32_t word = (uint32_t)x ^ heap->tag;
    if (!names_span(word)) {
        free_rest(p, word, heap);
        return;
    }
    if (hak__hardened_at(hak__slab_of(p))) {
        if (hak__shield_lift(p))
            hak__free_hardened(p, word);
        return;
    }
    check_block(p, word, "free", NULL);
    if (!hak__shield_lift(p))
        return;
    hak__mark_freed(p);
    if (!take_foreign(heap, hak__slab_of(p), hak__owner_code(word), p))
        free_rest(p, word, heap);
}

/* Whether the slab whose word ^ the heap's tag is x is a span's: names_span for a word of the map, where only 0 and those
 * of spans have a class's code. A tag has none, so x has the word's. */
hak_inline bool names_a_span(const struct hak_heap *heap, size_t x)
{
    return x != heap->tag && hak__owner_code((uint32_t)x) < HAK_CODE_LIMIT;
}

/* The frequent cases are a block that this thread can use itself and one that joins its neighbours in the outbox: they
 * call nothing, so that no register has to be saved. The thread waits here for a line that another processor has
 * written, as often as not; what makes this function short lets the next frees begin meanwhile. */
void hak__free_foreign(void *p, size_t x, struct hak_heap *heap, const struct hak_slab *slab)
{
    uint32_t code = hak__owner_code((uint32_t)x);
    hak__prefetch_mark(p);
    if (hak_unlikely(!names_a_span(heap, x) || !hak__begins_block(slab, hak__class_of_code(code), p)
                     || hak__looks_freed(p))) {
        free_foreign_doubtful(p, x, heap);
        return;
    }
    hak__mark_freed(p);
    size_t number = HAK_PROTECT ? (size_t)(slab - hak__window.map) : hak__slab_of(p);
    if (hak_unlikely(!take_foreign(heap, number, code, p)))
        free_rest(p, (uint32_t)x ^ heap->tag, heap);
}

static hak_cold void free_nothing(void *p)
{
    hak__nothing_free(p, "free");
    hak__freed_hardened(p);
}

void hak__free_outside(void *p)
{
    if (hak__sample_has(p))
        hak__sample_free(p, "free");
    else if (hak__nothing_has(p))
        free_nothing(p);
    else if (hak__is_others(p))
        hak__others_free(p);
    else if (p != NULL)
        hak__misuse_invalid("free", p, why(p, 0));
}

size_t hak__usable(const void *p, const char *function)
{
    uint32_t word = hak__owner_of(p);
    if (names_span(word)) {
        if (hak__hardened_at(hak__slab_of(p)))
            return hak__harden_size(p, word, function, "this block is free");
        check_block(p, word, function, "this block is free");
        return hak__class_of_code(hak__owner_code(word))->size;
    }
    if (hak__sample_has(p))
        return hak__sample_usable(p, function);
    if (hak__nothing_has(p)) {
        hak__nothing_check(p, function);
        return 0;
    }
    if (word == 0 && hak__is_others(p))
        return hak__others_usable(p);
    size_t usable = hak__owner_id(word) == HAK_HEAP_ID_HUGE ? hak__huge_usable(p) : 0;
    if (usable == 0)
        hak__misuse_invalid(function, p, why(p, word));
    return hak__hardened.on ? hak__harden_huge_size(p, function) : usable;
}

static _Atomic bool longer_allowed;

void hak__allow_longer(void) { hak_store(&longer_allowed, true, HAK_RELAXED); }

void hak__check_size_slow(const void *p, size_t align, size_t n, const char *function)
{
    uint32_t word = hak__owner_of(p);
    bool sampled = hak__sample_has(p);   /* held to what its class would be */
    if (names_span(word) && hak__hardened_at(hak__slab_of(p))) {
        size_t have = hak__harden_asked(p, hak__owner_code(word) / HAK_RECORD_SIZE, n);
        if (n != have)
            hak__misuse_size(function, p, n, have);
    } else if (hak__nothing_has(p)) {
        if (n != 0)
            hak__misuse_size(function, p, n, 0);
    } else if (names_span(word) || sampled) {
        uint32_t class = sampled ? hak__class_of(hak__sample_usable(p, function)) : hak__owner_code(word) / HAK_RECORD_SIZE;
        size_t have = hak__classes[class].size;
        bool aligned = hak_is_power_of_two(align) && n <= have && hak__aligned_class(align, n) == class;
        bool longer = n <= have && hak_load(&longer_allowed, HAK_RELAXED);
        if (!aligned && !longer && !hak__size_fits(have, n))
            hak__misuse_size(function, p, n, have);
    } else if (hak__owner_id(word) == HAK_HEAP_ID_HUGE) {
        size_t have = hak__huge_usable(p);
        bool exact = have != 0 && hak__hardened.canary && hak__hardened_at(hak__slab_of(p));
        if (exact)
            have = hak__harden_huge_size(p, function);
        if (have != 0 && (n > have || (exact && n != have)))
            hak__misuse_size(function, p, n, have);
    }
}
