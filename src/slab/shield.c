/* See shield.h. Called by protect.c, and by free_slow.c, realloc.c and huge/ before they touch a block. */
#include "slab/shield.h"

#include "base/bits.h"

_Atomic bool hak__shields;

static bool shield_is_huge(size_t slab)
{
    uint32_t kind = hak_load(&hak__supers[slab / HAK_SUPER_SLABS].kind, HAK_RELAXED);
    return kind == HAK_SUPER_HUGE || kind == HAK_SUPER_HUGE_TAIL;
}

/* The descriptor that a slab's block has, NULL if there is none. */
static struct hak_span *shield_descriptor(size_t slab)
{
    if (slab >= hak_read_mostly(&hak__window.slabs))
        return NULL;
    if (!shield_is_huge(slab))
        return hak__owner_id(hak__owner_at(slab)) - 1 < HAK_HEAPS_MAX ? hak__span_around(slab) : NULL;
    size_t super = slab / HAK_SUPER_SLABS;
    while (super > 0 && hak_load(&hak__supers[super].kind, HAK_RELAXED) == HAK_SUPER_HUGE_TAIL)
        super--;
    return &hak__spans[super * HAK_SUPER_SLABS];
}

void hak__shield_note(uintptr_t start, size_t bytes)
{
    uintptr_t base = hak__window.base, end = base + (hak_read_mostly(&hak__window.slabs) << HAK_SLAB_SHIFT);
    uintptr_t from = hak_max(start, base), to = start + bytes < start ? end : hak_min(start + bytes, end);
    struct hak_span *last = NULL;
    if (base == 0 || from >= to)
        return;
    hak_store(&hak__shields, true, HAK_RELAXED);
    for (size_t slab = (from - base) >> HAK_SLAB_SHIFT; slab <= (to - 1 - base) >> HAK_SLAB_SHIFT; slab++) {
        uint32_t kind = hak_load(&hak__supers[slab / HAK_SUPER_SLABS].kind, HAK_RELAXED);
        bool goes_on = kind == HAK_SUPER_HUGE_TAIL || (kind == HAK_SUPER_HUGE && slab % HAK_SUPER_SLABS != 0);
        struct hak_span *span = goes_on && last != NULL ? last : shield_descriptor(slab);
        if (span != NULL && span != last)
            hak__span_shield(span, shield_is_huge(slab));
        last = span;
    }
}

bool hak__shield_covers_slow(const void *p)
{
    const struct hak_span *span = shield_descriptor(hak__slab_of(p));
    return span != NULL && hak_load(&span->shielded, HAK_RELAXED);
}

bool hak__shield_lift_slow(const void *p)
{
    size_t slab = hak__slab_of(p), page = hak__page_size();
    struct hak_span *span = shield_descriptor(slab);
    if (span == NULL || !hak_load(&span->shielded, HAK_RELAXED))
        return true;
    size_t size = hak__classes[span->class].size, room = (size_t)span->slabs << HAK_SLAB_SHIFT;
    uintptr_t block = (uintptr_t)p, start = (uintptr_t)hak__span_start(span), end = start + room;
    if (shield_is_huge(slab)) {
        block = start;
        size = hak_load(&hak__supers[slab / HAK_SUPER_SLABS].huge_bytes, HAK_RELAXED);
        end = start + size;
    }
    uintptr_t from = hak_align_down(block, page), to = hak_align_up(hak_min(block + size, end), page);
    bool done = hak__arena_advise((void *)from, to - from, HAK_OS_ALLOW) == 0;
    if (done && shield_is_huge(slab))
        hak_store(&span->shielded, false, HAK_RELAXED);
    return done;
}
