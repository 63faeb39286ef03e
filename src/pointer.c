/* The questions about a pointer off the fast path. Called by free_slow.c, realloc.c and api.c. */
#include "pointer.h"

#include "cache/cache.h"
#include "diag/report.h"
#include "harden/harden.h"
#include "harden/zero_size.h"
#include "huge/huge.h"
#include "others.h"
#include "own/own.h"
#include "own/region.h"
#include "span/shield.h"
#include "thread.h"

const char *hak__why_invalid(const void *p, uint32_t word)
{
    if (hak__slab_of(p) >= hak_read_mostly(&hak__window.slabs))
        return "not from this allocator";
    if (word == 0 && hak__spans[hak__slab_of(p)].account == HAK_SPAN_DESTROYED)
        return "its heap has been destroyed";
    if (word == 0)
        return "no block is here, or it was freed before";
    return "not the start of a block";
}

/* Whether the block of the class that begins at p is free; keys_lost: free blocks of its span may have lost their keys. */
static hak_cold bool freed_before(uint32_t class, const void *p, bool keys_lost)
{
    struct hak_heap *heap = hak__heap_current();
    if (hak__shield_covers(p) || hak__looks_freed(p))
        return hak__cache_has_freed((heap->mode & HAK_MODE_SENTINEL) != 0 ? NULL : heap, class, p);
    return keys_lost && hak__looks_purged(p) && hak__cache_has_purged(class, p);
}

void hak__check_block(const void *p, uint32_t word, const char *function, const char *why_freed)
{
    const struct hak_slab *slab = &hak__window.map[hak__slab_of(p)];
    const struct hak_class *class = hak__owner_sizes(word);
    uint32_t limit = hak__start_bound(slab);
    bool keys_lost = hak__start_bound_is_lost(limit);
    if (!hak__begins_below(limit, slab, class, p)) {
        uint32_t index;
        bool start = hak__span_index(hak__span_at(hak__slab_of(p)), p, &index) == HAK_SPAN_OK;
        if (!start || !keys_lost)
            hak__misuse_invalid(function, p, start ? "this block was never allocated" : "not the start of a block");
    }
    if (!freed_before((uint32_t)(class - hak__classes), p, keys_lost))
        return;
    if (why_freed != NULL)
        hak__misuse_invalid(function, p, why_freed);
    hak__misuse_double_free(function, p, class->size);
}

bool hak__is_live(const void *p, uint32_t word)
{
    const struct hak_slab *slab = &hak__window.map[hak__slab_of(p)];
    uint32_t index, class = hak__owner_class(word), limit = hak__start_bound(slab);
    if (hak__hardened_at(hak__slab_of(p)))
        return hak__harden_is_live(p, class);
    if (!hak__start_bound_is_lost(limit))
        return hak__begins_below(limit, slab, &hak__classes[class], p) && !freed_before(class, p, false);
    return hak__span_index(hak__span_at(hak__slab_of(p)), p, &index) == HAK_SPAN_OK && !freed_before(class, p, true)
           && !hak__cache_has_purged(class, p);
}

size_t hak__usable(const void *p, const char *function)
{
    uint32_t word = hak__owner_of(p);
    if (hak__names_span(word)) {
        if (hak__hardened_at(hak__slab_of(p)))
            return hak__harden_size(p, word, function, "this block is free");
        hak__check_block(p, word, function, "this block is free");
        return hak__owner_sizes(word)->size;
    }
    if (hak__is_sampled(p))
        return hak__sampled_usable(p, function);
    if (hak__zero_size_has(p)) {
        hak__zero_size_check(p, function);
        return 0;
    }
    if (word == 0 && hak__region_of(p) != NULL)
        return hak__region_usable(hak__region_of(p), p, function);
    if (word == 0 && hak__is_others(p))
        return hak__others_usable(p);
    size_t usable = hak__owner_id(word) == HAK_HEAP_ID_HUGE ? hak__huge_usable(p) : 0;
    if (usable == 0)
        hak__misuse_invalid(function, p, hak__why_invalid(p, word));
    return hak__hardened.on ? hak__harden_huge_size(p, function) : usable;
}

static _Atomic bool longer_allowed;

void hak__allow_longer(void) { hak_store(&longer_allowed, true, HAK_RELAXED); }

void hak__check_size_slow(const void *p, size_t align, size_t n, const char *function)
{
    uint32_t word = hak__owner_of(p);
    bool sampled = hak__is_sampled(p);   /* held to what its class would be */
    if (hak__names_span(word) && hak__hardened_at(hak__slab_of(p))) {
        size_t have = hak__harden_asked(p, hak__owner_class(word), n);
        if (n != have)
            hak__misuse_size(function, p, n, have);
    } else if (hak__zero_size_has(p)) {
        if (n != 0)
            hak__misuse_size(function, p, n, 0);
    } else if (hak__names_span(word) || sampled) {
        uint32_t class = sampled ? hak__class_of(hak__usable(p, function)) : hak__owner_class(word);
        size_t have = hak__classes[class].size;
        bool aligned = hak_is_power_of_two(align) && n <= have && hak__aligned_class(align, n) == class;
        bool longer = n <= have && hak_load(&longer_allowed, HAK_RELAXED);
        if (!aligned && !longer && !hak__size_fits(have, n))
            hak__misuse_size(function, p, n, have);
    } else if (hak__owner_id(word) == HAK_HEAP_ID_HUGE) {
        size_t have = hak__huge_usable(p);
        bool exact = have != 0 && hak__hardened.canary && hak__start_bound(&hak__window.map[hak__slab_of(p)]) != HAK_HUGE_UNSEALED;
        if (exact)
            have = hak__harden_huge_size(p, function);
        if (have != 0 && (n > have || (exact && n != have)))
            hak__misuse_size(function, p, n, have);
    }
}
