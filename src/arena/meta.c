/* Layout and growth of the metadata windows, for window.c under the arena's lock. The functions for other layers take that lock. */
#include "arena/window.h"

#include <errno.h>
#include <string.h>

#include "arena/limit.h"

struct window {
    uintptr_t start; /* of one that grows down: its end */
    size_t limit;
    _Atomic size_t mapped;
    _Atomic size_t intent; /* while growing: the future value of `mapped` */
};

static struct window windows[HAK_META_WINDOWS];
static _Atomic size_t pool_used; /* bytes handed out of the metadata pool */
static _Atomic size_t pieces_mapped; /* bytes of separate pieces: descriptors, and heaps */
static _Atomic size_t heaps_begun; /* ids up to this one have their first part */
static size_t heap_length; /* bytes of the last heap */
static _Atomic size_t piece_at, piece_length; /* of the piece being mapped; 0: none is */

/* Metadata of other layers grows down from where the heaps begin, so that the first of both share a page table. Heap 0 does not
 * exist: its place is the gap between them. The words of SuperSlabs have none. */
hak_inline bool grows_down(enum hak_meta_window window) { return window == HAK_META_POOL || window == HAK_META_WORDS; }

static uintptr_t address_of(enum hak_meta_window window, size_t from, size_t to)
{
    return grows_down(window) ? windows[window].start - to : windows[window].start + from;
}

/* A small window of blocks also has room for fewer heaps, so that it does not need a gap 32 GiB larger. */
enum { HEAPS_LEAST = 256 };

/* The most bytes that a window can ever need. */
static size_t limit_of(enum hak_meta_window window, size_t supers)
{
    size_t slabs = supers * HAK_SUPER_SLABS;
    switch (window) {
    case HAK_META_MAP: return slabs * sizeof(struct hak_slab);
    case HAK_META_SUPERS: return HAK_META_FIRST_WORDS * sizeof(struct hak_super_word) + supers * sizeof(struct hak_super);
    case HAK_META_WORDS: return hak_div_up(supers, 64) * sizeof(struct hak_super_word);
    case HAK_META_HEAPS: return hak_min(hak_max(supers, HEAPS_LEAST), HAK_HEAPS_MAX) * HAK_HEAP_STRIDE;
    case HAK_META_POOL: return slabs * 1024;
    case HAK_META_SPANS: return supers * HAK_SUPER_SPANS;
    case HAK_META_WINDOWS: break;
    }
    return 0;
}

/* Windows begin at SuperSlab borders with a gap between them, so that an overrun of one meets unmapped memory. Two that grow
 * apart begin in the middle of a SuperSlab's addresses. */
static size_t room_of(enum hak_meta_window window, size_t supers)
{
    bool apart = grows_down(window) || (window != HAK_META_POOL && grows_down((enum hak_meta_window)(window - 1)));
    size_t gap = apart ? HAK_SUPER_SIZE / 2 : HAK_SUPER_SIZE;
    return hak_align_up(limit_of(window, supers), HAK_SUPER_SIZE) + gap;
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
    hak_assert(start % HAK_SUPER_SIZE == 0, "metadata windows begin at SuperSlab borders");
    for (int w = 0; w < HAK_META_WINDOWS; w++) {
        windows[w].start = start + (grows_down((enum hak_meta_window)w) ? room_of((enum hak_meta_window)w, supers) : 0);
        windows[w].limit = limit_of((enum hak_meta_window)w, w == HAK_META_SPANS ? HAK_PART_SUPERS : supers);
        hak_store(&windows[w].mapped, 0, HAK_RELAXED);
        hak_store(&windows[w].intent, 0, HAK_RELAXED);
        start += room_of((enum hak_meta_window)w, supers);
    }
    hak_store(&heaps_begun, 0, HAK_RELAXED);
    hak_store(&pieces_mapped, 0, HAK_RELAXED);
    return start;
}

uintptr_t hak__meta_begin(void) { return windows[HAK_META_POOL].start - windows[HAK_META_POOL].limit; }

uintptr_t hak__meta_start(enum hak_meta_window window) { return address_of(window, 0, hak__meta_mapped(window)); }

size_t hak__meta_mapped(enum hak_meta_window window) { return hak_load(&windows[window].mapped, HAK_ACQUIRE); }

static int meta_grow(enum hak_meta_window window, size_t mapped, size_t wanted)
{
    uintptr_t at = address_of(window, mapped, wanted);
    hak_store(&windows[window].intent, wanted, HAK_RELAXED);
    hak_signal_fence();
    int code = hak__os_map(at, wanted - mapped);
    return code == ENOMEM && mapped != 0 && !grows_down(window) ? hak__os_extend(at, wanted - mapped) : code;
}

int hak__meta_ensure(enum hak_meta_window window, size_t bytes)
{
    struct window *w = &windows[window];
    size_t mapped = hak_load(&w->mapped, HAK_RELAXED);
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    hak_assert(window != HAK_META_HEAPS, "heaps are mapped one by one");
    if (bytes <= mapped)
        return 0;
    if (bytes > w->limit)
        return ENOMEM;
    size_t page = hak__page_size(),
           small = window == HAK_META_POOL ? HAK_META_STEP : 2 * mapped; /* every process grows the pool at once */
    size_t ahead = mapped < HAK_META_STEP ? small : mapped + mapped / 2;
    size_t least = hak_align_up(bytes, page), wanted = hak_align_up(hak_min(hak_max(bytes, ahead), w->limit), page);
    int code = meta_grow(window, mapped, wanted);
    if (code != 0 && wanted > least)
        code = meta_grow(window, mapped, wanted = least);
    hak_assert(wanted > mapped, "a metadata window never shrinks");
    if (code == 0) /* release: pairs with the acquire in hak__meta_mapped, for readers without the lock */
        hak_store(&w->mapped, wanted, HAK_RELEASE);
    return code;
}

int hak__meta_piece(enum hak_meta_window window, size_t offset, size_t bytes)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    hak_assert(offset % hak__page_size() == 0 && bytes % hak__page_size() == 0, "pieces are whole pages");
    hak_assert(hak_load(&piece_at, HAK_RELAXED) == 0, "one piece at a time is unnoted");
    hak_store(&piece_length, bytes, HAK_RELAXED);
    hak_store(&piece_at, windows[window].start + offset, HAK_RELAXED);
    hak_signal_fence();
    int code = hak__os_map(windows[window].start + offset, bytes);
    if (code == ENOMEM) /* the piece below may have its full length */
        code = hak__os_extend(windows[window].start + offset, bytes);
    if (code != 0)
        hak__meta_piece_done();
    else
        hak_fetch_add(&pieces_mapped, bytes, HAK_RELAXED);
    return code;
}

void hak__meta_piece_done(void) { hak_store(&piece_at, 0, HAK_RELAXED); }

size_t hak__meta_bytes(void)
{
    size_t bytes = hak_load(&pieces_mapped, HAK_RELAXED);
    for (int w = 0; w < HAK_META_WINDOWS; w++)
        bytes += hak__meta_mapped((enum hak_meta_window)w);
    return bytes;
}

/* --- heaps --------------------------------------------------------------------------------------------------------- */

int hak__meta_heap(size_t id, size_t *bytes)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    hak_assert(id != 0 && *bytes <= HAK_HEAP_STRIDE, "heaps have ids from 1, and a stride of addresses");
    size_t begun = hak_load(&heaps_begun, HAK_RELAXED);
    int code = (id + 1) * HAK_HEAP_STRIDE <= windows[HAK_META_HEAPS].limit ? 0 : ENOMEM;
    while (code == 0 && begun < id) {
        code = hak__meta_piece(HAK_META_HEAPS, ++begun * HAK_HEAP_STRIDE, *bytes);
        if (code == 0)
            heap_length = *bytes;
        if (code == 0)
            hak_store(&heaps_begun, begun, HAK_RELAXED);
        hak__meta_piece_done();
    }
    *bytes = heap_length;
    return code;
}

size_t hak__meta_heaps(void) { return hak_load(&heaps_begun, HAK_RELAXED); }

void hak__meta_give_up(enum hak_meta_window window)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    if (hak__meta_mapped(window) != 0)
        hak__os_unmap(hak__meta_start(window), hak__meta_mapped(window));
    else if (window == HAK_META_HEAPS && hak_exchange(&heaps_begun, 0, HAK_RELAXED) != 0)
        hak__os_unmap(windows[window].start + HAK_HEAP_STRIDE, hak_exchange(&pieces_mapped, 0, HAK_RELAXED));
}

size_t hak__meta_piece_begun(enum hak_meta_window window)
{
    hak_assert(window == HAK_META_SPANS || window == HAK_META_HEAPS, "the other windows have no pieces");
    uintptr_t at = hak_load(&piece_at, HAK_RELAXED), start = windows[window].start;
    return at >= start && at < windows[window + 1].start ? at - start : HAK_META_NO_PIECE;
}

/* Undoes a piece that has not been noted yet; it will be mapped anew. */
static void undo_piece(void)
{
    size_t at = hak_load(&piece_at, HAK_RELAXED), of_heap = hak__meta_piece_begun(HAK_META_HEAPS);
    bool noted = of_heap != HAK_META_NO_PIECE && of_heap / HAK_HEAP_STRIDE <= hak_load(&heaps_begun, HAK_RELAXED);
    if (at != 0 && !noted)
        hak__os_unmap(at, hak_load(&piece_length, HAK_RELAXED));
    hak__meta_piece_done();
}

void hak__meta_fork_child(void)
{
    undo_piece();
    for (int i = 0; i < HAK_META_WINDOWS; i++) {
        struct window *w = &windows[i];
        size_t mapped = hak_load(&w->mapped, HAK_RELAXED), intent = hak_load(&w->intent, HAK_RELAXED);
        if (intent > mapped)
            hak__os_unmap(address_of((enum hak_meta_window)i, mapped, intent), intent - mapped);
        hak_store(&w->intent, mapped, HAK_RELAXED);
    }
}

/* --- metadata of other layers -------------------------------------------------------------------------------------------- */

void *hak__meta_alloc(size_t bytes)
{
    bytes = hak_align_up(bytes, 64);
    size_t offset = hak_fetch_add(&pool_used, bytes, HAK_RELAXED);
    if (offset + bytes > hak__meta_mapped(HAK_META_POOL)) {
        hak__arena_lock();
        int code = hak__meta_ensure(HAK_META_POOL, offset + bytes);
        if (hak__arena_gives_up(code))
            code = hak__meta_ensure(HAK_META_POOL, offset + bytes);
        hak__arena_unlock();
        if (code != 0) {
            /* Give the room back, unless another thread has taken more meanwhile; then this address space is lost. */
            size_t expected = offset + bytes;
            hak_cas_strong(&pool_used, &expected, offset, HAK_RELAXED, HAK_RELAXED);
            return NULL;
        }
    }
    hak_assert(offset + bytes <= hak__meta_mapped(HAK_META_POOL), "metadata that is handed out is mapped");
    return (void *)address_of(HAK_META_POOL, offset, offset + bytes);
}

bool hak__meta_has(const void *p) { return windows[HAK_META_POOL].start - 1 - (uintptr_t)p < hak__meta_mapped(HAK_META_POOL); }

void *hak__heap_address(uint32_t id)
{
    hak_assert(id < HAK_HEAPS_MAX, "a heap's id fits the owner map");
    return (void *)(windows[HAK_META_HEAPS].start + id * HAK_HEAP_STRIDE);
}

void *hak__heap_memory(uint32_t id, size_t *bytes)
{
    size_t least = hak_align_up(HAK_HEAP_FIRST, hak__page_size());
    *bytes = id == 1 || hak__is_thrifty() ? least : HAK_HEAP_STRIDE;
    hak__arena_lock();
    bool less = *bytes > least;
    int code = hak__meta_heap(id, bytes);
    if (code != 0 && less) {
        *bytes = least;
        code = hak__meta_heap(id, bytes);
    }
    if (hak__arena_gives_up(code))
        code = hak__meta_heap(id, bytes);
    hak__arena_unlock();
    return code == 0 ? hak__heap_address(id) : NULL;
}

bool hak__heap_extend(uint32_t id, size_t from, size_t bytes)
{
    hak_assert(from + bytes <= HAK_HEAP_STRIDE, "a heap stays within its stride");
    hak__arena_lock();
    int code = hak__meta_piece(HAK_META_HEAPS, id * HAK_HEAP_STRIDE + from, bytes);
    if (hak__arena_gives_up(code))
        code = hak__meta_piece(HAK_META_HEAPS, id * HAK_HEAP_STRIDE + from, bytes);
    hak__meta_piece_done();
    hak__arena_unlock();
    return code == 0;
}

/* The first word of a heap, its tag, is never 0. Tests it, because locked pages stay and some systems accept the advice and do
 * nothing. */
void hak__heap_forget(void *heap, size_t bytes)
{
    if (hak__os_purge((uintptr_t)heap, bytes) != 0 || hak_load((_Atomic uint32_t *)heap, HAK_RELAXED) != 0)
        memset(heap, 0, bytes);
}

void *hak__span_memory(void) { return (void *)hak__meta_start(HAK_META_SPANS); }

static uintptr_t absent_page; /* on kernels before 4.14: not wiped in children, but absent there */

void hak__meta_absent_init(void)
{
    size_t page = hak__page_size();
    char *room = hak__meta_alloc(2 * page);
    absent_page = room == NULL ? 0 : hak_align_up((uintptr_t)room, page);
}

_Atomic uint32_t *hak__meta_wiped_word(void)
{
    size_t page = hak__page_size();
    hak_assert(page <= HAK_PAGE_MOST && absent_page % page == 0, "the kernel wipes whole pages");
    if (hak__os_advise((uintptr_t)&hak__wiped, page, HAK_OS_WIPE_ON_FORK) == 0)
        return &hak__wiped.mark;
    if (absent_page != 0)
        hak__os_advise(absent_page, page, HAK_OS_DONT_FORK);
    return NULL;
}

bool hak__meta_is_copy(void)
{
    bool copy = absent_page != 0 && hak__os_readable(absent_page) != 0;
    if (copy && hak__os_map(absent_page, hak__page_size()) == 0)
        hak__os_advise(absent_page, hak__page_size(), HAK_OS_DONT_FORK);
    return copy;
}
