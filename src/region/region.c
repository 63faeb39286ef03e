/* Heaps in regions: made, attached, locked, ended, and their blocks. */
#include "region/region.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "diag/report.h"
#include "kinds/kind.h"
#include "os/os.h"
#include "process/process.h"
#include "userheap/userheap.h"

enum { REGION_VERSION = 1, REGION_PRESSURE_CALLS = 16, REGION_SHIFT_LEAST = 10 };

static const struct hak_regions *regions_join(void); /* NULL: no memory */

/* --- this process's regions --------------------------------------------------------------------------------------- */

static struct hak_region_row region_rows[HAK_REGIONS_MOST];
static _Atomic uint32_t region_count; /* rows that have ever been used */
static struct hak_robust rows_lock; /* never taken together with a region's */

/* A thread's identity for these locks. A fork may have left one behind. */
static struct hak_robust_thread *region_me(void)
{
    static __thread struct hak_robust_thread me;
    hak__fork_look();
    return &me;
}

/* NULL: it has none. */
static struct hak_region_row *region_row(const struct hak_region *region)
{
    for (uint32_t i = 0; i < hak_load(&region_count, HAK_ACQUIRE); i++)
        if (hak_load(&region_rows[i].start, HAK_RELAXED) == (uintptr_t)region && hak_load(&region_rows[i].size, HAK_RELAXED) != 0)
            return &region_rows[i];
    return NULL;
}

/* Ends one use of the heap, or with `ended` all. False: it has no row. */
static bool region_row_leave(const struct hak_region *region, bool ended)
{
    struct hak_robust_thread *me = region_me();
    hak__robust_acquire(&rows_lock, me);
    struct hak_region_row *row = region_row(region);
    if (row != NULL && (ended || --row->uses == 0))
        hak_store(&row->size, 0, HAK_RELEASE);
    hak__robust_release(&rows_lock, me);
    return row != NULL;
}

/* A heap without a row is found only by its handle. */
static void region_row_enter(const struct hak_region *region)
{
    struct hak_robust_thread *me = region_me();
    hak__robust_acquire(&rows_lock, me);
    struct hak_region_row *row = region_row(region);
    bool shared = (region->flags & HAK_HEAP_SHARED) != 0;
    uint32_t i = 0;
    while (i < HAK_REGIONS_MOST && hak_load(&region_rows[i].size, HAK_RELAXED) != 0)
        i++;
    if (row != NULL) {
        row->uses++;
        row->shared = shared;
        hak_store(&row->size, region->size, HAK_RELEASE); /* another process may have made it anew */
    } else if (i < HAK_REGIONS_MOST) {
        region_rows[i].uses = 1;
        region_rows[i].shared = shared;
        hak_store(&region_rows[i].start, (uintptr_t)region, HAK_RELAXED);
        hak_store(&region_rows[i].serial, hak__uheap_serial(), HAK_RELAXED);
        /* release, twice: pair with the acquires in hak__region_of. */
        hak_store(&region_rows[i].size, region->size, HAK_RELEASE);
        if (i >= hak_load(&region_count, HAK_RELAXED))
            hak_store(&region_count, i + 1, HAK_RELEASE);
    }
    hak__robust_release(&rows_lock, me);
}

static bool region_is_alive(const struct hak_region *region) { return hak_load(&region->magic, HAK_ACQUIRE) == HAK_OWN_IN_REGION; }

/* The program may have unmapped a region, revoked access to it or reused its addresses without telling the library; and a child
 * lacks pages that the parent marked MADV_DONTFORK. */
static bool region_is_there(const struct hak_region *region)
{
    return hak__os_readable((uintptr_t)region) != EFAULT && region_is_alive(region);
}

/* Of two overlapping regions, the one that counts: the inner one, which lies in a block of the other, or the one that still
 * exists. */
static struct hak_region *region_inner(struct hak_region *one, struct hak_region *other)
{
    if (one == NULL)
        return other;
    if (!region_is_there(other))
        return one;
    return !region_is_there(one) || other->size < one->size ? other : one;
}

struct hak_region *hak__region_of(const void *p)
{
    uint32_t count = hak_load(&region_count, HAK_ACQUIRE);
    struct hak_region *found = NULL;
    for (uint32_t i = 0; i < count; i++) {
        size_t size = hak_load(&region_rows[i].size, HAK_ACQUIRE);
        uintptr_t start = hak_load(&region_rows[i].start, HAK_ACQUIRE);
        if ((uintptr_t)p - start < size && hak_load(&region_rows[i].size, HAK_RELAXED) == size)
            found = region_inner(found, (struct hak_region *)start);
    }
    return found;
}

/* A child has private memory where the parent's region was, unless the region is shared: then the lock may belong to a living
 * process, or another one has destroyed the heap, and the child may detach it all the same. */
static void region_fork_child(void)
{
    hak__robust_fork_child();
    hak__robust_orphan(&rows_lock);
    for (uint32_t i = 0; i < hak_load(&region_count, HAK_RELAXED); i++) {
        struct hak_region *region = (struct hak_region *)hak_load(&region_rows[i].start, HAK_RELAXED);
        if (hak_load(&region_rows[i].size, HAK_RELAXED) == 0)
            continue;
        bool shared = region_rows[i].shared;
        bool there = shared ? hak__os_readable((uintptr_t)region) != EFAULT : region_is_there(region);
        if (!there)
            hak_store(&region_rows[i].size, 0, HAK_RELAXED); /* a child has one thread, so nothing needs ordering */
        else if (!shared)
            hak__robust_orphan(&region->lock);
    }
}

/* --- the lock ----------------------------------------------------------------------------------------------------- */

static hak_heap_t *region_handle(const struct hak_region *region) { return (hak_heap_t *)(uintptr_t)region; }

static void region_unlock(struct hak_region *region, struct hak_robust_thread *me) { hak__robust_release(&region->lock, me); }

/* False: the heap has ended, which has been reported. */
static bool region_lock(struct hak_region *region, struct hak_robust_thread *me, const char *function)
{
    bool alive = region_is_alive(region), whole = alive && (hak__robust_acquire(&region->lock, me) || hak__region_repair(region));
    if (hak_likely(whole && region_is_alive(region)))
        return true;
    if (alive)
        region_unlock(region, me);
    if (whole || !alive) {
        hak__uheap_misuse(region_handle(region), function);
        return false;
    }
    hak__fatal("%s(): the heap at %p has been written over", function, (const void *)region);
}

/* --- beginning ---------------------------------------------------------------------------------------------------- */

static void *region_fail(int code)
{
    errno = code;
    return NULL;
}

/* Small regions have small units, so that a slab is a small part of one. */
static uint32_t unit_shift_for(size_t size)
{
    return size <= (size_t)1 << 20 ? REGION_SHIFT_LEAST : size <= (size_t)64 << 20 ? 12 : size <= (size_t)4 << 30 ? 14 : 16;
}

static size_t region_parts_end(struct hak_region *region)
{
    region->begins = hak_align_up(sizeof *region + region->units * sizeof region->unit[0], 64);
    region->bits = region->begins + hak_div_up(region->units, 64) * sizeof(uint64_t);
    size_t end = region->bits + ((size_t)region->units << (region->unit_shift - 7));
    size_t align = hak_max(hak__region_unit_bytes(region), HAK_REGION_PAGE);
    region->first = hak_align_up((uintptr_t)region + end, align) - (uintptr_t)region;
    return region->first + ((size_t)region->units << region->unit_shift);
}

/* Lays out as many units as fit. */
static void region_lay_out(struct hak_region *region)
{
    size_t each = hak__region_unit_bytes(region) + sizeof region->unit[0] + ((size_t)1 << (region->unit_shift - 7));
    size_t units = (region->size - sizeof *region) / each;
    region->units = (uint32_t)hak_min(units, UINT32_MAX / 2);
    while (region_parts_end(region) > region->size)
        region->units--;
}

static void set_region_options(struct hak_region *region, const struct hak_heap_options *options)
{
    size_t length = options->name == NULL ? 0 : hak_text_within(options->name, sizeof region->name - 1);
    if (length != 0)
        memcpy(region->name, options->name, length);
    region->flags = options->flags;
    hak_store(&region->limit, options->limit == 0 ? UINT64_MAX : options->limit, HAK_RELAXED);
    region->pressure = options->pressure;
    region->argument = options->argument;
    region->version = REGION_VERSION;
}

struct hak_region *hak__region_new(const struct hak_heap_options *options)
{
    uintptr_t start = (uintptr_t)options->region, end = start + options->region_size;
    bool shared = (options->flags & HAK_HEAP_SHARED) != 0;
    if (options->region_size < HAK_REGION_LEAST || end < start || (shared && start % HAK_REGION_PAGE != 0))
        return region_fail(EINVAL);
    if (options->purge != HAK_HEAP_PURGE_LATER || (shared && options->pressure != NULL))
        return region_fail(EINVAL);
    if ((options->flags & HAK_HEAP_HARDENED) != 0)
        return region_fail(ENOTSUP);
    if (regions_join() == NULL)
        return region_fail(ENOMEM);
    struct hak_region *region = (struct hak_region *)hak_align_up(start, HAK_REGION_ALIGN);
    region_row_leave(region, true); /* of a previous heap here */
    memset(region, 0, sizeof *region);
    region->size = end - (uintptr_t)region;
    region->unit_shift = unit_shift_for(region->size);
    region_lay_out(region);
    set_region_options(region, options);
    hak__region_plan_slabs(region);
    region_row_enter(region);
    /* release: pairs with the acquire in region_is_alive. */
    hak_store(&region->magic, HAK_OWN_IN_REGION, HAK_RELEASE);
    return region;
}

static hak_heap_t *region_attach(void *start, size_t size)
{
    struct hak_region *region = start;
    if (size < HAK_REGION_LEAST || (uintptr_t)start % HAK_REGION_PAGE != 0 || !region_is_alive(region))
        return region_fail(EINVAL);
    if (region->version != REGION_VERSION || region->size > size || (region->flags & HAK_HEAP_SHARED) == 0)
        return region_fail(EINVAL);
    region_row_enter(region);
    return region_handle(region);
}

hak_export hak_heap_t *hak_heap_attach(void *start, size_t size)
{
    const struct hak_regions *joined = regions_join();
    return joined == NULL ? region_fail(ENOMEM) : joined->attach(start, size);
}

/* --- ends --------------------------------------------------------------------------------------------------------- */

/* Reads no memory of a heap with a row: another process may have destroyed it and have put anything there. */
static void region_detach(hak_heap_t *heap)
{
    struct hak_region *region = (struct hak_region *)(void *)heap;
    if (!region_row_leave(region, false) && !region_is_there(region))
        hak__uheap_misuse(heap, "hak_heap_detach");
}

hak_export void hak_heap_detach(hak_heap_t *heap)
{
    const struct hak_regions *joined = regions_join();
    if (joined != NULL)
        joined->detach(heap);
}

void hak__region_destroy(struct hak_region *region, const char *function)
{
    struct hak_robust_thread *me = region_me();
    if (!region_lock(region, me, function))
        return;
    hak_store(&region->magic, HAK_OWN_GONE, HAK_RELEASE); /* pairs with the acquire in region_is_alive */
    region_unlock(region, me);
    region_row_leave(region, true);
}

void hak__region_reset(struct hak_region *region, const char *function)
{
    struct hak_robust_thread *me = region_me();
    if (!region_lock(region, me, function))
        return;
    hak_store(&region->frontier, 0, HAK_RELEASE); /* as in hak__run_set; the repair rebuilds what follows from it */
    hak__region_repair(region);
    region_unlock(region, me);
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

static size_t region_room(const struct hak_region *region) { return (size_t)region->units << region->unit_shift; }

void *hak__region_alloc(struct hak_region *region, size_t align, size_t n, const char *function)
{
    struct hak_robust_thread *me = region_me();
    if ((region->flags & HAK_HEAP_SHARED) != 0 && align > HAK_REGION_PAGE)
        return region_fail(EINVAL);
    for (unsigned calls = 0;; calls++) {
        if (!region_lock(region, me, function))
            return region_fail(EINVAL);
        void *block = hak__region_take(region, hak_max(align, HAK_ALIGN), n);
        size_t used = hak__region_used(region), limit = hak_min(hak_load(&region->limit, HAK_RELAXED), region_room(region));
        region_unlock(region, me);
        if (hak_likely(block != NULL))
            return block;
        if (calls == REGION_PRESSURE_CALLS
            || !hak__uheap_ask(region->pressure, region_handle(region), used, limit, n, region->argument))
            return region_fail(ENOMEM);
    }
}

/* Caller holds the lock; releases it before the report. */
static hak_cold void region_misuse(struct hak_region *region, struct hak_robust_thread *me, const void *p,
                                   const struct hak_region_block *block, const char *function, bool freeing)
{
    bool inside = (uintptr_t)p - (uintptr_t)region < region->size;
    region_unlock(region, me);
    if (!inside)
        hak__misuse(&(struct hak_mistake){ .kind = HAK_MISUSE_INVALID, .function = function, .p = p },
                    "%s(): %p is not a block of heap %p", function, p, (const void *)region);
    else if (block->freed && freeing)
        hak__misuse_double_free(function, p, block->size);
    else
        hak__misuse_invalid(function, p, block->why_not);
}

/* Locks the block's region, and keeps it locked unless the result has a `why_not`: p is not the start of a block, which has been
 * reported. */
static struct hak_region_block region_lock_block(struct hak_region *region, struct hak_robust_thread *me, const void *p,
                                                 const char *function, bool freeing)
{
    if (!region_lock(region, me, function))
        return (struct hak_region_block){ .why_not = "" };
    struct hak_region_block block = hak__region_find(region, p);
    if (hak_unlikely(block.why_not != NULL))
        region_misuse(region, me, p, &block, function, freeing);
    return block;
}

void hak__region_end(struct hak_region *region, void *p, const char *function)
{
    struct hak_robust_thread *me = region_me();
    struct hak_region_block block = region_lock_block(region, me, p, function, true);
    if (hak_unlikely(block.why_not != NULL))
        return;
    hak__region_give(region, &block);
    region_unlock(region, me);
}

size_t hak__region_usable(struct hak_region *region, const void *p, const char *function)
{
    struct hak_robust_thread *me = region_me();
    struct hak_region_block block = region_lock_block(region, me, p, function, false);
    if (hak_unlikely(block.why_not != NULL))
        return HAK_NO_BLOCK;
    region_unlock(region, me);
    return block.size;
}

void *hak__region_realloc(struct hak_region *region, void *p, size_t n, const char *function)
{
    struct hak_robust_thread *me = region_me();
    struct hak_region_block block = region_lock_block(region, me, p, function, false);
    if (hak_unlikely(block.why_not != NULL))
        return region_fail(EINVAL);
    bool done = n != 0 && hak__region_resize(region, &block, n);
    region_unlock(region, me);
    if (done)
        return p;
    void *moved = n == 0 ? NULL : hak__region_alloc(region, HAK_ALIGN, n, function);
    if (moved == NULL && n != 0)
        return n <= block.size ? p : NULL;
    if (moved != NULL)
        memcpy(moved, p, hak_min(n, block.size));
    hak__region_end(region, p, function);
    return moved;
}

/* --- settings and figures ----------------------------------------------------------------------------------------- */

void hak__region_set_limit(struct hak_region *region, size_t limit, const char *function)
{
    struct hak_robust_thread *me = region_me();
    if (!region_lock(region, me, function))
        return;
    hak_store(&region->limit, limit == 0 ? UINT64_MAX : limit, HAK_RELAXED);
    region_unlock(region, me);
}

static struct hak_heap_figures region_figures(const struct hak_region *region)
{
    const struct hak_region_row *row = region_row(region);
    uint64_t limit = hak_load(&region->limit, HAK_RELAXED);
    return (struct hak_heap_figures){
        .name = region->name,
        .serial = row == NULL ? 0 : hak_load(&row->serial, HAK_RELAXED),
        .used_bytes = hak__region_used(region),
        .peak_bytes = hak_counted(&region->peak_bytes),
        .live_blocks = hak_counted(&region->live_blocks),
        .live_bytes = hak_counted(&region->live_bytes),
        .limit = limit == UINT64_MAX ? 0 : limit,
        .refused = hak_counted(&region->refused),
        .slab_bytes = hak_counted(&region->slab_units) << region->unit_shift,
        .huge_blocks = hak_counted(&region->large_count),
        .huge_bytes = hak_counted(&region->large_units) << region->unit_shift,
    };
}

void hak__region_figures(struct hak_region *region, struct hak_heap_figures *out, const char *function)
{
    struct hak_robust_thread *me = function == NULL ? NULL : region_me();
    if (me != NULL && !region_lock(region, me, function))
        me = NULL;
    *out = region_figures(region);
    if (me != NULL)
        region_unlock(region, me);
}

static struct hak_region *region_next(const struct hak_region *region)
{
    uint32_t count = hak_load(&region_count, HAK_ACQUIRE), i = 0;
    while (region != NULL && i < count)
        if (hak_load(&region_rows[i++].start, HAK_RELAXED) == (uintptr_t)region)
            break;
    for (; i < count; i++) {
        size_t size = hak_load(&region_rows[i].size, HAK_ACQUIRE); /* as in hak__region_of */
        struct hak_region *next = (struct hak_region *)hak_load(&region_rows[i].start, HAK_ACQUIRE);
        if (size != 0 && hak_load(&region_rows[i].size, HAK_RELAXED) == size && region_is_there(next))
            return next;
    }
    return NULL;
}

/* --- the kind of their blocks ------------------------------------------------------------------------------------- */

static bool region_kind_has(const void *p) { return hak__region_of(p) != NULL; }

static void region_kind_free(void *p, uint32_t word, const char *function)
{
    (void)word;
    hak_assert(word == 0, "no slab of the window");
    hak__region_end(hak__region_of(p), p, function);
}

static size_t region_kind_usable(const void *p, const char *function) { return hak__region_usable(hak__region_of(p), p, function); }

static void *region_kind_realloc(void *p, size_t n) { return hak__region_realloc(hak__region_of(p), p, n, "realloc"); }

static hak_heap_t *region_kind_heap(const void *p) { return region_handle(hak__region_of(p)); }

static bool region_kind_live(const void *p)
{
    struct hak_robust_thread *me = region_me();
    struct hak_region *region = hak__region_of(p);
    bool locked = region_is_alive(region) && region_lock(region, me, "hak_heap_of");
    bool live = locked && hak__region_find(region, p).why_not == NULL;
    if (locked)
        region_unlock(region, me);
    return live;
}

static void region_kind_describe(uintptr_t address, char *text, size_t size)
{
    const struct hak_region *region = hak__region_of((const void *)address);
    hak__format(text, size, "in the region of heap %p, offset %u", (const void *)region, (uint64_t)(address - (uintptr_t)region));
}

static const struct hak_kind region_kind = {
    .has = region_kind_has,
    .free = region_kind_free,
    .usable = region_kind_usable,
    .realloc = region_kind_realloc,
    .heap = region_kind_heap,
    .live = region_kind_live,
    .describe = region_kind_describe,
};

/* --- what malloc's library gets to know --------------------------------------------------------------------------- */

#define AT(type, member) offsetof(struct type, member)
static const struct hak_regions regions = {
    .kind = &region_kind,
    .has = region_kind_has,
    .make = hak__region_new,
    .destroy = hak__region_destroy,
    .reset = hak__region_reset,
    .alloc = hak__region_alloc,
    .realloc = hak__region_realloc,
    .free = hak__region_end,
    .set_limit = hak__region_set_limit,
    .room = region_room,
    .figures = hak__region_figures,
    .visit = hak__region_visit_blocks,
    .next = region_next,
    .fork_child = region_fork_child,
    .attach = region_attach,
    .detach = region_detach,
    .rows = region_rows,
    .numbers = { HAK_REGIONS_MOST, sizeof(struct hak_region_row), AT(hak_region_row, start), AT(hak_region_row, size),
                 AT(hak_region_row, serial), sizeof(struct hak_region), AT(hak_region, name), AT(hak_region, unit_shift),
                 AT(hak_region, slab_units), AT(hak_region, large_units), AT(hak_region, peak_bytes), AT(hak_region, limit),
                 AT(hak_region, refused), AT(hak_region, live_blocks), AT(hak_region, live_bytes) },
};

static const struct hak_regions *regions_join(void) { return hak__regions_join(&regions); }

__attribute__((constructor)) static void regions_loaded(void) { regions_join(); }
