/* Walks everything that has an invariant.
 *
 * Some state changes under no lock that a walker could take: slabs are claimed and released, huge blocks come and go. The check
 * repeats what looks broken there, and reports only what stays broken through ATTEMPTS whole walks, between which other threads
 * get ever more time to run. */
#include "guard/check.h"

#include <stdlib.h>

#include "arena/arena.h"
#include "arena/runs.h"
#include "arena/window.h"
#include "base/lock.h"
#include "cache/cache.h"
#include "diag/report.h"
#include "harden/harden.h"
#include "heap/heap.h"
#include "span/pool.h"

/* Tries for a heap's lock before the check skips it: its thread may be the one that the check interrupted, or lie in a forked child's
 * past. A walk waits so long WAITS_PER_WALK times, not for each slab of such a heap. */
enum { ATTEMPTS = 12, PATIENCE_OF_CHECK = 1000, NAPS = 20, WAITS_PER_WALK = 4 };

/* Set in a child of a parent with several threads: blocks that the others were sealing or clearing, and huge blocks that they
 * were growing or moving, stay half done. */
static _Atomic bool half_done;

void hak__check_fork_child(void) { hak_store(&half_done, true, HAK_RELAXED); }
bool hak__check_is_half_done(void) { return hak_load(&half_done, HAK_RELAXED); }

/* --- heaps ------------------------------------------------------------------------------------------------------------- */

static bool check_enter(struct hak_heap *heap, unsigned *waits)
{
    bool mine = hak__lock_word_is_mine(&heap->lock);
    bool entered = hak__enter_foreign(heap, mine || *waits == 0 ? 1 : PATIENCE_OF_CHECK);
    *waits -= !entered && *waits != 0 && hak_load(&heap->lock, HAK_RELAXED) != HAK_LOCK_FREE;
    return entered;
}

/* A cached block of the heap's own counts as allocated in its span. */
static bool check_ready(const struct hak_heap *heap, uint32_t class, const void *block)
{
    uint32_t index, word = hak__owner_of(block);
    if (hak__owner_id(word) != heap->id || hak__owner_class(word) != class)
        return true; /* another heap's; hak__cache_is_valid has checked its class */
    const struct hak_span *span = hak__span_at(hak__slab_of(block));
    if (!hak__holds(hak__span_index(span, block, &index) == HAK_SPAN_OK && index < span->frontier,
                    "a ready block is one that has been handed out", block))
        return false;
    return hak__holds((span->free[index / 64] >> index % 64 & 1) == 0, "a ready block is not free in its span", block);
}

static bool check_heap(struct hak_heap *heap)
{
    bool valid = hak__heap_is_valid(heap) && hak__cache_is_valid(heap);
    for (uint32_t class = 0; class < HAK_CLASSES && valid; class++) {
        void **bottom = heap->classes[class].bottom, **top = hak_peek(&hak__heap_bin(heap, class)->top);
        for (void **slot = bottom; slot < top && valid; slot++) {
            const void *block = hak_peek(slot);
            valid = block == NULL || check_ready(heap, class, block);
        }
    }
    return valid;
}

static bool check_heaps(unsigned *waits)
{
    bool valid = true;
    for (uint32_t id = 1; id <= hak__heap_last_id() && valid; id++) {
        struct hak_heap *heap = hak__heap_by_id(id);
        if (!check_enter(heap, waits))
            continue;
        valid = check_heap(heap);
        hak__heap_unlock(heap);
    }
    return valid;
}

/* --- spans ---------------------------------------------------------------------------------------------------------------- */

static bool check_span(size_t slab, uint32_t word)
{
    const struct hak_span *span = &hak__spans[slab];
    bool valid = hak__holds(hak__owner_class(word) == span->class, "the map has the span's class", span);
    valid = valid && hak__holds(span->slabs >= 1 && span->slabs <= HAK_SPAN_SLABS_MAX, "a span has 1 to 16 slabs", span);
    for (uint32_t i = 0; i < span->slabs && valid; i++)
        valid = hak__holds((span->blocks == 1 || hak_load(&hak__spans[slab + i].back, HAK_RELAXED) == i)
                               && hak__owner_id(hak__owner_at(slab + i)) == hak__owner_id(word),
                           "all slabs of a span are its own", hak__slab_start(slab + i));
    return valid && hak__span_is_valid(span);
}

/* Hardened mode: checks the bytes behind blocks in use, and freed blocks. */
static bool check_blocks(const struct hak_span *span)
{
    const char *block = hak__span_start(span);
    bool valid = true;
    for (uint32_t i = 0; i < span->frontier && valid; i++, block += hak__classes[span->class].size) {
        uint64_t free = span->free[i / 64] | hak_load(&span->remote[i / 64], HAK_RELAXED);
        if ((free >> i % 64 & 1) == 0)
            valid = hak__harden_check(block, span->class);
    }
    return valid;
}

/* Checks a span under its heap's lock, so that it neither ends nor changes hands. Skips single-block spans, which any thread may
 * end at any time. */
static bool check_slab(size_t slab, bool blocks, unsigned *waits)
{
    uint32_t word = hak__owner_at(slab), id = hak__owner_id(word);
    if (id == 0 || id > hak__heap_last_id() || hak__owner_is_inner(word) || hak_load(&hak__spans[slab].back, HAK_RELAXED) != 0)
        return true;
    if (hak__owner_class(word) >= HAK_CLASSES)
        return hak__holds(false, "the map names a class", hak__slab_start(slab));
    if (!check_enter(hak__heap_by_id(id), waits))
        return true;
    bool hardened = hak__hardened_at(slab), whole = !hak_load(&half_done, HAK_RELAXED);
    bool same = hak__heap_has_span(hak__heap_by_id(id), &hak__spans[slab]) && hak__owner_at(slab) == word;
    bool valid = !same || (check_span(slab, word) && (!hardened || !whole || !blocks || check_blocks(&hak__spans[slab])));
    hak__heap_unlock(hak__heap_by_id(id));
    return valid;
}

/* An unused slab has no owner. */
static bool check_unused(size_t super)
{
    uint64_t before = hak_load(&hak__supers[super].slabs, HAK_ACQUIRE);
    uint32_t used = 0;
    for (uint32_t unused = hak__slabs_unused(before); unused != 0; unused &= unused - 1)
        if (hak__owner_at(super * HAK_SUPER_SLABS + hak_ctz32(unused)) != 0)
            used = unused & (0 - unused);
    if (used == 0 || hak_load(&hak__supers[super].slabs, HAK_ACQUIRE) != before)
        return true;
    return hak__holds(false, "an unused slab has no owner", hak__slab_start(super * HAK_SUPER_SLABS + hak_ctz32(used)));
}

static bool check_slabs(bool blocks, unsigned *waits)
{
    bool valid = true;
    for (size_t super = hak__super_from(0); super < hak__arena_top() && valid; super = hak__super_from(super + 1)) {
        if (hak_load(&hak__supers[super].kind, HAK_RELAXED) != HAK_SUPER_IN_SLABS)
            continue;
        valid = check_unused(super);
        for (unsigned i = 0; i < HAK_SUPER_SLABS && valid; i++)
            valid = check_slab(super * HAK_SUPER_SLABS + i, blocks, waits);
    }
    return valid;
}

/* --- huge blocks ------------------------------------------------------------------------------------------------------------ */

static bool check_huge_run(size_t first, size_t bytes)
{
    const struct hak_super *super = &hak__supers[first];
    bool valid = hak__holds(bytes != 0 && bytes % hak__page_size() == 0, "a huge block is of whole pages", hak__super_start(first));
    for (size_t i = 0; i << HAK_SUPER_SHIFT < bytes && valid; i++) {
        size_t need = hak_min(bytes - (i << HAK_SUPER_SHIFT), HAK_SUPER_SIZE);
        uint32_t kind = i == 0 ? HAK_SUPER_HUGE : HAK_SUPER_HUGE_TAIL;
        valid = hak__holds(first + i < hak__arena_top() && super[i].mapped >= need && hak_load(&super[i].kind, HAK_RELAXED) == kind,
                           "a huge block's run is taken and mapped", hak__super_start(first));
    }
    return valid;
}

static bool check_huge(void)
{
    bool valid = true;
    if (hak_load(&half_done, HAK_RELAXED))
        return true;
    hak__arena_lock();
    for (size_t i = hak__super_from(0); i < hak__arena_top() && valid; i = hak__super_from(i + 1)) {
        size_t bytes = hak_load(&hak__supers[i].huge_bytes, HAK_RELAXED);
        if (hak__owner_at(i * HAK_SUPER_SLABS) == hak__owner_huge())
            valid = check_huge_run(i, bytes);
    }
    hak__arena_unlock();
    return valid;
}

/* --- the check --------------------------------------------------------------------------------------------------------------- */

static bool check_all(struct hak_broken *broken, bool blocks)
{
    for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
        unsigned waits = WAITS_PER_WALK;
        hak_owner_store(&hak__broken.what, NULL);
        if (hak__arena_is_valid() && check_huge() && check_slabs(blocks, &waits) && check_heaps(&waits))
            return true;
        *broken = hak__broken;
        for (unsigned i = 0; i < NAPS * attempt; i++)
            hak__nap(PATIENCE_OF_CHECK); /* an interrupted thread needs a processor */
    }
    return false;
}

bool hak__check(struct hak_broken *broken) { return check_all(broken, true); }
bool hak__check_structure(struct hak_broken *broken) { return check_all(broken, false); }

bool hak__check_report(const char *who)
{
    struct hak_broken broken = { NULL, NULL };
    if (hak__check(&broken))
        return true;
    hak__warn("%s: broken at %p: %s", who, broken.where, broken.what == NULL ? "an invariant" : broken.what);
    return false;
}

void hak__check_or_die(const char *who)
{
    if (!hak__check_report(who))
        abort();
}

void hak__check_count(void)
{
    static _Atomic uint64_t calls;
    if (hak_fetch_add(&calls, 1, HAK_RELAXED) % hak__option(HAK_OPTION_check) == 0)
        hak__check_or_die("HAKMEM_CHECK");
}
