/* Addresses where no block begins. */
#include "arena/arena.h"
#include "arena/meta.h"
#include "arena/window.h"
#include "diag/report.h"
#include "kinds/kind.h"

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

static bool none_has(const void *p) { return (void)p, true; }

static void none_free(void *p, uint32_t word, const char *function) { hak__misuse_invalid(function, p, hak__why_invalid(p, word)); }

static size_t none_usable(const void *p, const char *function)
{
    hak__misuse_invalid(function, p, hak__why_invalid(p, hak__owner_of(p)));
    return HAK_NO_BLOCK;
}

static const char *describe_in_window(uintptr_t address)
{
    size_t super = (address - hak__window.base) >> HAK_SUPER_SHIFT, offset = address - (uintptr_t)hak__super_start(super);
    if (hak_load(&hak__supers[super].kind, HAK_RELAXED) == HAK_SUPER_IN_SLABS)
        return hak__owner_of((const void *)address) == 0 ? "in a free slab" : "in a slab that is changing hands";
    if (hak__super_is_hole(super))
        return "not from this allocator";
    return offset < hak__supers[super].mapped ? "in a free SuperSlab" : "in an unmapped SuperSlab";
}

static void none_describe(uintptr_t address, char *text, size_t size)
{
    uintptr_t tables = hak__meta_start(HAK_META_FIRST), base = hak__window.base;
    const char *what = "not from this allocator";
    if (address < hak__page_size())
        what = "NULL, or close to it";
    else if (address >= tables && address < base)
        what = "in the allocator's own tables";
    else if (address - base < hak__arena_top() << HAK_SUPER_SHIFT)
        what = describe_in_window(address);
    hak__format(text, size, "%s", what);
}

/* Where a huge block may have begun; NULL outside the window. */
static const void *none_around(uintptr_t address)
{
    bool inside = address - hak__window.base < hak__arena_top() << HAK_SUPER_SHIFT;
    return inside ? (const void *)(address & ~(HAK_SUPER_SIZE - 1)) : NULL;
}

const struct hak_kind hak__kind_none = {
    .has = none_has,
    .free = none_free,
    .usable = none_usable,
    .describe = none_describe,
    .around = none_around,
};
