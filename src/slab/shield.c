/* See shield.h. Called by protect.c, aligned.c and heap_malloc.c, which note; by free_slow.c, heap_free.c, realloc.c, huge/, own/,
 * sample/ and profile/ before they touch a block. */
#include "slab/shield.h"

#include "arena/window.h"
#include "base/bits.h"
#include "slab/hardened.h"

enum { BESIDE_WORDS = 64 };

_Atomic bool hak__shields;
static _Atomic uint64_t beside_notes[BESIDE_WORDS];   /* by an address's slab, modulo their number */
static _Atomic uintptr_t watched_start, watched_end;

static uint64_t beside_bit(uintptr_t at) { return 1ull << (at >> HAK_SLAB_SHIFT) % 64; }
static _Atomic uint64_t *beside_word(uintptr_t at) { return &beside_notes[(at >> HAK_SLAB_SHIFT) / 64 % BESIDE_WORDS]; }

/* --- the window ---------------------------------------------------------------------------------------------------------- */

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

static void note_in_window(uintptr_t from, uintptr_t to)
{
    uintptr_t base = hak__window.base;
    struct hak_span *last = NULL;
    for (size_t slab = (from - base) >> HAK_SLAB_SHIFT; slab <= (to - 1 - base) >> HAK_SLAB_SHIFT; slab++) {
        uint32_t kind = hak_load(&hak__supers[slab / HAK_SUPER_SLABS].kind, HAK_RELAXED);
        bool goes_on = kind == HAK_SUPER_HUGE_TAIL || (kind == HAK_SUPER_HUGE && slab % HAK_SUPER_SLABS != 0);
        struct hak_span *span = goes_on && last != NULL ? last : shield_descriptor(slab);
        if (span != NULL)
            hak_fetch_or(&(shield_is_huge(slab) ? span : &hak__spans[slab])->shielded, HAK_SHIELD_SLAB, HAK_RELAXED);
        if (span != NULL && span != last && !shield_is_huge(slab))
            hak__span_shield(span);
        last = span;
    }
}

/* Whether the slab, or what may be taken for it beside the window, is noted. */
static bool is_noted(uintptr_t at)
{
    size_t slab = hak__slab_of((void *)at);
    if (slab < hak_read_mostly(&hak__window.slabs))
        return (hak_load(&hak__spans[slab].shielded, HAK_RELAXED) & HAK_SHIELD_SLAB) != 0;
    return (hak_load(beside_word(at), HAK_RELAXED) & beside_bit(at)) != 0;
}

static bool restore_pages(uintptr_t from, uintptr_t to)
{
    size_t page = hak__page_size();
    from = hak_align_down(from, page), to = hak_align_up(to, page);
    return hak__arena_advise((void *)from, to - from, HAK_OS_RESTORE) == 0;
}

bool hak__shield_lift_range_slow(uintptr_t start, size_t bytes)
{
    bool noted = false;
    for (uintptr_t at = hak_align_down(start, HAK_SLAB_SIZE); at < start + bytes; at += HAK_SLAB_SIZE)
        noted |= is_noted(at);
    return !noted || restore_pages(start, start + bytes);
}

static bool lift_huge(struct hak_span *first)
{
    uintptr_t start = (uintptr_t)hak__span_start(first);
    size_t bytes = hak_load(&hak__supers[hak__span_slab(first) / HAK_SUPER_SLABS].huge_bytes, HAK_RELAXED);
    if (!restore_pages(start, start + bytes))
        return false;
    hak_store(&first->shielded, 0, HAK_RELAXED);
    return true;
}

/* The only block of a span takes the notes with it: nobody else has a page there. Elsewhere they stay until the span ends, since a slab
 * may hold parts of others. */
bool hak__shield_lift_slow(const void *p)
{
    size_t slab = hak__slab_of(p);
    struct hak_span *span = shield_descriptor(slab);
    if (span == NULL || hak_load(&span->shielded, HAK_RELAXED) == 0)
        return true;
    if (shield_is_huge(slab))
        return lift_huge(span);
    uintptr_t start = (uintptr_t)hak__span_start(span), end = start + ((size_t)span->slabs << HAK_SLAB_SHIFT), from = (uintptr_t)p;
    bool alone = span->blocks == 1;
    if (span->keys == HAK_SPAN_HARDENED && hak__hardened.guards)
        end -= hak__page_size();
    if (alone)
        from = start;
    bool done = hak__shield_lift_range_slow(from, hak_min(from + hak__classes[span->class].size, end) - from);
    if (done && alone)
        hak__span_unshield(span);
    return done;
}

bool hak__shield_covers_slow(const void *p)
{
    size_t slab = hak__slab_of(p);
    const struct hak_span *span = shield_descriptor(slab);
    if (span == NULL || hak_load(&span->shielded, HAK_RELAXED) == 0)
        return false;
    return hak__os_readable((uintptr_t)p) != 0;
}

/* --- notes ----------------------------------------------------------------------------------------------------------------- */

/* One turn sets every bit. */
static void note_beside(uintptr_t from, uintptr_t to)
{
    from = hak_align_down(from, HAK_SLAB_SIZE);
    to = hak_min(to, from + ((size_t)64 * BESIDE_WORDS << HAK_SLAB_SHIFT));
    for (uintptr_t at = from; at < to; at += HAK_SLAB_SIZE)
        hak_fetch_or(beside_word(at), beside_bit(at), HAK_RELAXED);
}

static void note_within(uintptr_t from, uintptr_t to, uintptr_t start, uintptr_t end, void note(uintptr_t, uintptr_t))
{
    from = hak_max(from, start), to = hak_min(to, end);
    if (start == 0 || from >= to)
        return;
    hak_store(&hak__shields, true, HAK_RELAXED);
    note(from, to);
}

void hak__shield_note(uintptr_t start, size_t bytes)
{
    uintptr_t end = start + bytes < start ? UINTPTR_MAX : start + bytes, base = hak__window.base, guarded = hak__guarded_start();
    note_within(start, end, base, base + (hak_read_mostly(&hak__window.slabs) << HAK_SLAB_SHIFT), note_in_window);
    note_within(start, end, guarded, guarded + HAK_GUARDED_SIZE, note_beside);
    note_within(start, end, hak_load(&watched_start, HAK_RELAXED), hak_load(&watched_end, HAK_RELAXED), note_beside);
}

void *hak__shield_note_aligned(void *block, size_t align, size_t n)
{
    if (block != NULL && n > HAK_MID_MAX && align >= hak__page_size())
        hak__shield_note((uintptr_t)block, 1);
    return block;
}

void hak__shield_watch(uintptr_t start, size_t bytes)
{
    hak_store(&watched_start, start, HAK_RELAXED);
    hak_store(&watched_end, start + bytes, HAK_RELAXED);
}
