/* Where the heap lives: a random, SuperSlab-aligned base in a part of the address space that nobody uses by habit (the same
 * in each run if the process was started with fixed addresses): the ranges for sampled blocks and for blocks of no bytes first, then
 * the metadata windows, then user data. Nothing is reserved: the choice is only a number. If a few random bases are refused (a
 * simulator or a small address space), the system is asked where there is room, for less and less. */
#include "arena/window.h"

#include <errno.h>

#include "arena/arena.h"
#include "arena/meta.h"
#include "base/bits.h"
#include "os/os.h"

enum { RANDOM_TRIES = 8, SMALLEST_SHIFT = 28, GUARDED_SHARE = 4 };

struct hak_window hak__window;
static size_t window_supers;

static uintptr_t guarded_start;

/* Used in place of random numbers if the process runs with fixed addresses (setarch -R, debuggers). */
static const uint64_t FIXED_CHOICE = 0x9e3779b97f4a7c15ull;

size_t hak__window_supers(void) { return window_supers; }
uintptr_t hak__guarded_start(void) { return guarded_start; }
uintptr_t hak__zero_size_start(void) { return guarded_start + hak__guarded_size(); }

static size_t guarded_of(size_t supers) { return hak_min(HAK_GUARDED_SIZE, (supers << HAK_SUPER_SHIFT) / GUARDED_SHARE); }
size_t hak__guarded_size(void) { return guarded_of(window_supers); }

/* The addresses in front of the window. */
static size_t span_before(size_t supers) { return hak__meta_span(supers) + guarded_of(supers) + HAK_ZERO_SIZE_SIZE; }

/* Maps the start of what every heap needs at once, and the place of the first heap, whose id is 1. On failure the
 * pieces mapped so far are given back. */
static int map_first(void)
{
    size_t first = hak_align_up(HAK_HEAP_FIRST, hak__page_size());
    for (int w = 0; w < HAK_META_WINDOWS; w++) {
        int code = w == HAK_META_HEAPS ? hak__meta_heap(1, &first) : hak__meta_ensure((enum hak_meta_window)w, 1);
        if (code == 0)
            continue;
        while (w-- > 0)
            hak__meta_give_up((enum hak_meta_window)w);
        return code;
    }
    return 0;
}

static int try_base(uintptr_t base, size_t supers)
{
    uintptr_t data = hak__meta_layout(base + guarded_of(supers) + HAK_ZERO_SIZE_SIZE, supers);
    int code = map_first();
    if (code != 0)
        return code;
    window_supers = supers;
    guarded_start = base;
    hak__window.map = (struct hak_slab *)hak__meta_start(HAK_META_MAP);
    hak_owner_store(&hak__window.slabs, 0);
    hak__window.base = data;
    return 0;
}

int hak__window_choose(void)
{
    size_t whole = HAK_WINDOW_SIZE + span_before(HAK_WINDOW_SUPERS), room = HAK_WINDOW_HIGH - HAK_WINDOW_LOW - whole;
    int code = ENOMEM;
    bool fixed = hak__os->fixed();
    for (uint64_t i = 0; i < RANDOM_TRIES; i++) {
        uint64_t choice = fixed ? FIXED_CHOICE * (i + 1) : hak__os->random();
        uintptr_t base = HAK_WINDOW_LOW + hak_align_down(choice % room, HAK_SUPER_SIZE);
        code = try_base(base, HAK_WINDOW_SUPERS);
        if (code == 0)
            return 0;
    }
    for (unsigned shift = HAK_WINDOW_SHIFT; shift >= SMALLEST_SHIFT; shift--) {
        size_t supers = (size_t)1 << (shift - HAK_SUPER_SHIFT);
        uintptr_t found = hak__os_probe(((size_t)1 << shift) + span_before(supers) + HAK_SUPER_SIZE);
        if (found == 0)
            continue;
        code = try_base(hak_align_up(found, HAK_SUPER_SIZE), supers);
        if (code == 0)
            return 0;
    }
    return code;
}

/* --- sampled blocks -------------------------------------------------------------------------------------------------------- */

_Atomic size_t hak__guarded_bytes;

int hak__guarded_map(uintptr_t address, size_t bytes)
{
    int code = hak__os_map(address, bytes);
    if (code == 0)
        hak_fetch_add(&hak__guarded_bytes, bytes, HAK_RELAXED);
    return code;
}

bool hak__guarded_unmap(uintptr_t address, size_t bytes)
{
    bool done = hak__os_unmap(address, bytes) == 0;
    if (done)
        hak_fetch_sub(&hak__guarded_bytes, bytes, HAK_RELAXED);
    return done;
}
