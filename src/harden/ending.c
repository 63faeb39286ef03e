/* Hardened mode's check of the heap when the program exits: the bytes behind blocks never freed, freed blocks never reused, and
 * every invariant (guard/check.h).
 *
 * It reports no false findings. A thread announces the block that it is sealing or clearing (harden/quarantine.h), and a suspect
 * must stay wrong for a while. The check skips locked heaps, and data that a forked child has from threads missing there. Huge
 * blocks may be unmapped meanwhile, so it checks them only in single-threaded processes. It ends after ENDING_MS in any case,
 * and waits for no lock.
 *
 * It works in two passes: the first collects suspects, under each heap's lock for a span at a time; the second rechecks them
 * repeatedly. */
#include "harden/harden.h"

#include <stdlib.h>

#include "arena/arena.h"
#include "base/lock.h"
#include "cache/cache.h"
#include "diag/report.h"
#include "guard/check.h"
#include "huge/huge.h"
#include "os/os.h"
#include "trace/trace.h"

enum { ENDING_MS = 1000, ENDING_SAID = 8, ENDING_SUSPECTS = 64, ENDING_LOOKS = 2000, ENDING_PATIENCE = 200 };

/* A block that looks wrong; class HAK_CLASSES: a huge one. */
struct suspect {
    const void *p;
    uint32_t class;
    bool free; /* free in its span */
    enum hak_wrong wrong;
};

struct suspects {
    uint32_t count;
    uint64_t until;
    struct suspect blocks[ENDING_SUSPECTS];
};

static bool out_of_time(const struct suspects *found)
{
    return hak__os->now_ms() > found->until || found->count == ENDING_SUSPECTS;
}

/* --- one block ------------------------------------------------------------------------------------------------------------- */

/* Whether a thread was sealing or clearing the block when last seen, perhaps interrupted there for good. */
static bool is_being_worked(const void *p)
{
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++) {
        const struct hak_quarantine *quarantine = hak_peek(&hak__heap_by_id(id)->quarantine);
        if (quarantine != NULL && hak_peek(&quarantine->at) == p)
            return true;
    }
    return false;
}

/* Tries only once for a heap that stayed locked before. */
static bool enter_at_end(struct hak_heap *heap)
{
    static const struct hak_heap *stays_busy;
    bool entered = hak__enter_foreign(heap, heap == stays_busy ? 1 : ENDING_PATIENCE);
    if (!entered)
        stays_busy = heap;
    return entered;
}

/* Caller holds the lock of the span's heap. */
static enum hak_wrong look_in_span(const struct hak_span *span, uint32_t index, const void *p, bool *free)
{
    uint64_t bits = span->free[index / 64] | hak_load(&span->remote[index / 64], HAK_RELAXED);
    enum hak_wrong wrong = HAK_WRONG_NOTHING;
    *free = (bits >> index % 64 & 1) != 0;
    if (!*free)
        wrong = hak__harden_wrong(p, span->class);
    else if (hak__hardened.zero && !hak__hardened_is_closed(p, span->class) && !hak__harden_is_left(p, span->class))
        wrong = HAK_WRONG_SEAL;
    return wrong != HAK_WRONG_NOTHING && is_being_worked(p) ? HAK_WRONG_NOTHING : wrong;
}

/* Locks the heap of the span that begins at the slab; NULL: the span is not hardened, or its heap stays locked. */
static const struct hak_span *enter_span(size_t slab, struct hak_heap **heap)
{
    uint32_t word = hak__owner_at(slab), id = hak__owner_id(word);
    const struct hak_span *span = &hak__spans[slab];
    if (id == 0 || id > hak__heap_last_id() || hak__owner_class(word) >= HAK_CLASSES || hak_load(&span->back, HAK_RELAXED) != 0)
        return NULL;
    *heap = hak__heap_by_id(id);
    if (!enter_at_end(*heap))
        return NULL;
    if (hak__owner_at(slab) == word && hak__hardened_at(slab) && span->keys == HAK_SPAN_HARDENED)
        return span;
    hak__heap_unlock(*heap);
    return NULL;
}

static enum hak_wrong look_at_huge(size_t super)
{
    size_t bytes = hak_load(&hak__supers[super].huge_bytes, HAK_RELAXED);
    bool huge = hak__owner_at(super * HAK_SUPER_SLABS) == hak__owner_huge();
    return huge && bytes != 0 ? hak__harden_huge_wrong(hak__super_start(super), bytes) : HAK_WRONG_NOTHING;
}

/* Whether the block still looks wrong. */
static bool look_again(struct suspect *suspect)
{
    struct hak_heap *heap;
    uint32_t index;
    size_t slab = hak__slab_of(suspect->p);
    if (suspect->class == HAK_CLASSES)
        return (suspect->wrong = look_at_huge(slab / HAK_SUPER_SLABS)) != HAK_WRONG_NOTHING;
    const struct hak_span *span = enter_span(hak__span_slab(hak__span_at(slab)), &heap);
    if (span == NULL)
        return false;
    bool block = hak__span_index(span, suspect->p, &index) == HAK_SPAN_OK && index < span->frontier;
    suspect->wrong = block ? look_in_span(span, index, suspect->p, &suspect->free) : HAK_WRONG_NOTHING;
    hak__heap_unlock(heap);
    return suspect->wrong != HAK_WRONG_NOTHING;
}

/* --- all of them ------------------------------------------------------------------------------------------------------------ */

static void add_suspect(struct suspects *found, const void *p, uint32_t class, bool free, enum hak_wrong wrong)
{
    if (wrong != HAK_WRONG_NOTHING && found->count < ENDING_SUSPECTS)
        found->blocks[found->count++] = (struct suspect){ p, class, free, wrong };
}

static void look_at_slab(struct suspects *found, size_t slab)
{
    struct hak_heap *heap;
    const struct hak_span *span = enter_span(slab, &heap);
    if (span == NULL)
        return;
    const char *block = hak__span_start(span);
    for (uint32_t i = 0; i < span->frontier; i++, block += hak__classes[span->class].size) {
        bool free;
        enum hak_wrong wrong = look_in_span(span, i, block, &free);
        add_suspect(found, block, span->class, free, wrong);
    }
    hak__heap_unlock(heap);
}

static void look_at_all(struct suspects *found, bool alone)
{
    for (size_t super = 0; super < hak__arena_top() && !out_of_time(found); super++) {
        uint32_t kind = hak_load(&hak__supers[super].kind, HAK_RELAXED);
        if (kind == HAK_SUPER_HUGE && alone)
            add_suspect(found, hak__super_start(super), HAK_CLASSES, false, look_at_huge(super));
        for (unsigned i = 0; kind == HAK_SUPER_IN_SLABS && i < HAK_SUPER_SLABS; i++)
            look_at_slab(found, super * HAK_SUPER_SLABS + i);
    }
}

static void keep_what_stays(struct suspects *found)
{
    for (unsigned looks = 0; looks < ENDING_LOOKS && found->count != 0; looks++) {
        uint32_t kept = 0;
        hak__yield(looks);
        for (uint32_t i = 0; i < found->count; i++)
            if (look_again(&found->blocks[i]))
                found->blocks[kept++] = found->blocks[i];
        found->count = kept;
    }
}

/* --- reports ---------------------------------------------------------------------------------------------------------------- */

static void say_suspect(const struct suspect *suspect)
{
    const void *p = suspect->p;
    bool huge = suspect->class == HAK_CLASSES;
    size_t size = huge ? hak__huge_usable(p) : hak__classes[suspect->class].size, asked = 0;
    bool freed = suspect->free || (!huge && suspect->wrong == HAK_WRONG_SEAL && hak__cache_has_freed(NULL, suspect->class, p));
    char text[64];
    bool known = !huge && suspect->wrong == HAK_WRONG_SLACK && hak__is_sealed(p, suspect->class, &asked);
    if (known || hak__trace_asked(p, &asked))
        hak__format(text, sizeof text, "%u-byte block, %u asked for", (uint64_t)size, (uint64_t)asked);
    else
        hak__format(text, sizeof text, "%u-byte block", (uint64_t)size);
    if (freed)
        hak__warn("at exit: %p (%s) was written after free", p, text);
    else
        hak__warn("at exit: overflow of %p (%s): something was written past its end", p, text);
    hak__trace_tell(p);
}

static void report_suspects(const struct suspects *found)
{
    for (uint32_t i = 0; i < found->count && i < ENDING_SAID; i++)
        say_suspect(&found->blocks[i]);
    if (found->count > ENDING_SAID)
        hak__warn("at exit: at least %u more damaged blocks", (uint64_t)found->count - ENDING_SAID);
    if (found->count != 0 && !hak__misuse_is_survived())
        abort();
}

/* --- the check --------------------------------------------------------------------------------------------------------------- */

/* Whether no thread holds a heap's lock or the arena's: a thread stopped for good leaves its work half done. */
static bool is_quiet(void)
{
    for (unsigned tries = 0; tries < ENDING_PATIENCE; tries++) {
        uint32_t id = 1;
        while (id <= hak__heap_last_id() && hak_load(&hak__heap_by_id(id)->lock, HAK_RELAXED) == HAK_LOCK_FREE)
            id++;
        if (id > hak__heap_last_id() && !hak__arena_is_locked())
            return true;
        hak__yield(tries);
    }
    return false;
}

void hak__ending_check(bool alone)
{
    struct suspects found = { .count = 0, .until = hak__os->now_ms() + ENDING_MS };
    struct hak_broken broken = { NULL, NULL };
    hak__fork_check();
    if (hak__check_is_half_done() || !is_quiet())
        alone = false;
    if (!hak__check_is_half_done()) {
        look_at_all(&found, alone);
        keep_what_stays(&found);
        report_suspects(&found);
    }
    if (out_of_time(&found) || !is_quiet() || hak__check_structure(&broken))
        return;
    hak__warn("at exit: broken at %p: %s", broken.where, broken.what == NULL ? "an invariant" : broken.what);
    abort();
}
