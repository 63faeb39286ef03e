/* Layout and growth of the metadata windows. Called by arena.c, with the arena's lock held. */
#include "arena/meta.h"

#include <errno.h>

#include "arena/arena.h"
#include "base/bits.h"
#include "os/os.h"

enum { SPAN_BYTES = 128 };   /* slab/span.h asserts that a descriptor has this size */

struct window {
    uintptr_t start;
    size_t limit;
    _Atomic size_t mapped;
    _Atomic size_t intent;   /* while growing: what `mapped` will be */
};

static struct window windows[HAK_META_WINDOWS];

/* The most bytes that a window can come to need. */
static size_t limit_of(enum hak_meta_window window, size_t supers)
{
    size_t slabs = supers * HAK_SUPER_SLABS;
    switch (window) {
    case HAK_META_MAP: return slabs * sizeof(struct hak_slab);
    case HAK_META_SUPERS: return supers * sizeof(struct hak_super);
    case HAK_META_WORDS: return hak_div_up(supers, 64) * sizeof(struct hak_super_word);
    case HAK_META_HEAPS: return HAK_HEAPS_MAX * HAK_HEAP_STRIDE;
    case HAK_META_POOL: return slabs * 1024;
    case HAK_META_SPANS: return slabs * SPAN_BYTES;
    case HAK_META_WINDOWS: break;
    }
    return 0;
}

/* Windows begin at SuperSlab borders with a gap between them, so that an overrun of one meets unmapped memory. */
static size_t room_of(enum hak_meta_window window, size_t supers)
{
    return hak_align_up(limit_of(window, supers), HAK_SUPER_SIZE) + HAK_SUPER_SIZE;
}

size_t hak__meta_span(size_t supers)
{
    size_t total = 0;
    for (int w = 0; w < HAK_META_WINDOWS; w++)
        total += room_of((enum hak_meta_window)w, supers);
    return total;
}

uintptr_t hak__meta_layout(uintptr_t start, size_t supers)
{
    for (int w = 0; w < HAK_META_WINDOWS; w++) {
        windows[w].start = start;
        windows[w].limit = limit_of((enum hak_meta_window)w, supers);
        hak_store(&windows[w].mapped, 0, HAK_RELAXED);
        hak_store(&windows[w].intent, 0, HAK_RELAXED);
        start += room_of((enum hak_meta_window)w, supers);
    }
    return start;
}

uintptr_t hak__meta_start(enum hak_meta_window window) { return windows[window].start; }

size_t hak__meta_mapped(enum hak_meta_window window) { return hak_load(&windows[window].mapped, HAK_ACQUIRE); }

static int grow(struct window *w, size_t mapped, size_t wanted)
{
    hak_store(&w->intent, wanted, HAK_RELAXED);
    hak_signal_fence();
    int code = hak__os_map(w->start + mapped, wanted - mapped);
    return code == ENOMEM && mapped != 0 ? hak__os_extend(w->start + mapped, wanted - mapped) : code;
}

int hak__meta_ensure(enum hak_meta_window window, size_t bytes)
{
    struct window *w = &windows[window];
    size_t mapped = hak_load(&w->mapped, HAK_RELAXED);
    if (bytes <= mapped)
        return 0;
    if (bytes > w->limit)
        return ENOMEM;
    size_t least = hak_align_up(bytes, HAK_META_STEP);
    size_t wanted = hak_align_up(hak_min(hak_max(bytes, mapped + mapped / 2), w->limit), HAK_META_STEP);
    int code = grow(w, mapped, wanted);
    if (code != 0 && wanted > least)
        code = grow(w, mapped, wanted = least);
    if (code == 0)   /* release: pairs with the acquire in hak__meta_mapped, for readers without the lock */
        hak_store(&w->mapped, wanted, HAK_RELEASE);
    return code;
}

void hak__meta_fork_child(void)
{
    for (int i = 0; i < HAK_META_WINDOWS; i++) {
        struct window *w = &windows[i];
        size_t mapped = hak_load(&w->mapped, HAK_RELAXED), intent = hak_load(&w->intent, HAK_RELAXED);
        if (intent > mapped)
            hak__os_unmap(w->start + mapped, intent - mapped);
        hak_store(&w->intent, mapped, HAK_RELAXED);
    }
}
