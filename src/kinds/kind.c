/* Finds an address's kind, and what applies to any kind. */
#include "kinds/kind.h"

#include "arena/arena.h"
#include "base/assert.h"
#include "diag/report.h"
#include "heap/heap.h"
#include "userheap/userheap.h"

#define X(name) &hak__kind_##name,
/* NULL stands for libhakmem-region's. The last one has every address. */
static const struct hak_kind *const kinds_beside[] = { HAK_KINDS_BESIDE(X) NULL, HAK_KINDS_LAST(X) };
#undef X

static const struct hak_kind *kind_with(const void *p, bool described)
{
    const struct hak_regions *regions = hak_load(&hak__regions, HAK_ACQUIRE);
    for (const struct hak_kind *const *row = kinds_beside;; row++) {
        const struct hak_kind *kind = *row != NULL || regions == NULL ? *row : regions->kind;
        if (kind != NULL && (!described || kind->describe != NULL) && kind->has(p))
            return kind;
    }
}

const struct hak_kind *hak__kind_beside(const void *p, uint32_t word)
{
    hak_assert(!hak__names_span(word) && word != hak__owner_huge(), "the word tells no kind");
    return word != 0 ? &hak__kind_none : kind_with(p, false);
}

/* --- any address -------------------------------------------------------------------------------------------------------- */

static const struct hak_kind *kind_in_slabs(size_t slab)
{
    uint32_t id = hak__owner_id(hak__owner_at(slab));
    if (id == 0 || id > hak__heap_last_id())
        return &hak__kind_none;
    const void *start = hak__span_start(hak__span_around(slab));
    return hak__kind_of(start, hak__owner_of(start));
}

/* The kind that the address belongs to, anywhere in a block; for an address right behind a huge block, that block's. */
static const struct hak_kind *kind_around(uintptr_t address)
{
    size_t offset = address - hak__window.base, super = offset >> HAK_SUPER_SHIFT, top = hak__arena_top();
    if (offset <= top << HAK_SUPER_SHIFT && hak__huge_first(super) != HAK_NO_SUPER)
        return hak__kind_of((const void *)address, hak__owner_huge());
    if (offset < top << HAK_SUPER_SHIFT && hak_load(&hak__supers[super].kind, HAK_RELAXED) == HAK_SUPER_IN_SLABS)
        return kind_in_slabs(offset >> HAK_SLAB_SHIFT);
    return kind_with((const void *)address, true);
}

void hak__describe(uintptr_t address, char *text, size_t size) { kind_around(address)->describe(address, text, size); }

const void *hak__block_around(uintptr_t address)
{
    const struct hak_kind *kind = kind_around(address);
    return kind->around == NULL ? NULL : kind->around(address);
}

void hak__check_size_slow(const void *p, size_t align, size_t n, const char *function)
{
    const struct hak_kind *kind = hak__kind_at(p);
    bool judged_later = hak__misuse_is_survived() && kind->live != NULL && !kind->live(p); /* one mistake, one report */
    if (kind->check_size != NULL && !judged_later)
        kind->check_size(p, align, n, function);
}
