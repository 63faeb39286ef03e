/* Heaps in regions: made, attached, locked, ended, and their blocks. */
#include "userheap/region.h"

#include <errno.h>
#include <string.h>

#include "base/forked.h"
#include "base/lock.h"
#include "cache/cache.h"
#include "diag/report.h"
#include "os/os.h"
#include "userheap/userheap.h"

enum { REGION_VERSION = 1, REGION_PRESSURE_CALLS = 16, REGION_SHIFT_LEAST = 10 };

/* --- this process's regions --------------------------------------------------------------------------------------- */

hak_rare_data struct hak_region_row hak__region_rows[HAK_REGIONS_MOST];
static _Atomic uint32_t region_count; /* rows that have ever been used */
static struct hak_lock regions_lock = HAK_LOCK_INIT(HAK_RANK_OWNS);

/* A heap without a row is found only by its handle. */
static void region_enter_row(const struct hak_region *region)
{
    hak__lock_acquire(&regions_lock);
    for (uint32_t i = 0; i < HAK_REGIONS_MOST; i++) {
        if (hak_load(&hak__region_rows[i].size, HAK_RELAXED) != 0)
            continue;
        hak_store(&hak__region_rows[i].start, (uintptr_t)region, HAK_RELAXED);
        hak_store(&hak__region_rows[i].serial, hak__uheap_serial(), HAK_RELAXED);
        /* release, twice: pair with the acquires in hak__region_of. */
        hak_store(&hak__region_rows[i].size, region->size, HAK_RELEASE);
        if (i >= hak_load(&region_count, HAK_RELAXED))
            hak_store(&region_count, i + 1, HAK_RELEASE);
        break;
    }
    hak__lock_release(&regions_lock);
}

static void region_leave_row(const struct hak_region *region)
{
    hak__lock_acquire(&regions_lock);
    for (uint32_t i = 0; i < hak_load(&region_count, HAK_RELAXED); i++)
        if (hak_load(&hak__region_rows[i].start, HAK_RELAXED) == (uintptr_t)region)
            hak_store(&hak__region_rows[i].size, 0, HAK_RELEASE);
    hak__lock_release(&regions_lock);
}

/* The program may have unmapped a region, revoked access to it or reused its addresses without telling the library; and a child
 * lacks pages that the parent marked MADV_DONTFORK. */
static bool region_is_there(const struct hak_region *region)
{
    return hak__os_readable((uintptr_t)region) != EFAULT && hak__is_region(region);
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
        size_t size = hak_load(&hak__region_rows[i].size, HAK_ACQUIRE);
        uintptr_t start = hak_load(&hak__region_rows[i].start, HAK_ACQUIRE);
        if ((uintptr_t)p - start < size && hak_load(&hak__region_rows[i].size, HAK_RELAXED) == size)
            found = region_inner(found, (struct hak_region *)start);
    }
    return found;
}

/* 0: it has no row. */
static uint64_t region_serial(const struct hak_region *region)
{
    for (uint32_t i = 0; i < hak_load(&region_count, HAK_ACQUIRE); i++)
        if (hak_load(&hak__region_rows[i].start, HAK_RELAXED) == (uintptr_t)region
            && hak_load(&hak__region_rows[i].size, HAK_RELAXED) != 0)
            return hak_load(&hak__region_rows[i].serial, HAK_RELAXED);
    return 0;
}

/* A child has private memory where the parent's region was, unless the region is shared: then the lock may belong to a living
 * process. */
void hak__region_fork_child(void)
{
    hak__lock_fork_child(&regions_lock);
    hak__robust_fork_child();
    for (uint32_t i = 0; i < hak_load(&region_count, HAK_RELAXED); i++) {
        struct hak_region *region = (struct hak_region *)hak_load(&hak__region_rows[i].start, HAK_RELAXED);
        if (hak_load(&hak__region_rows[i].size, HAK_RELAXED) == 0)
            continue;
        if (!region_is_there(region))
            hak_store(&hak__region_rows[i].size, 0, HAK_RELAXED); /* a child has one thread, so nothing needs ordering */
        else if ((region->flags & HAK_HEAP_SHARED) == 0)
            hak__robust_orphan(&region->lock);
    }
}

/* --- the lock ----------------------------------------------------------------------------------------------------- */

/* A thread keeps its identity for the lock in its heap; a thread without one determines it in `here` each time. A fork may have
 * left the lock behind. */
static struct hak_robust_thread *region_me(struct hak_robust_thread *here)
{
    hak__fork_check();
    struct hak_heap *heap = hak__heap_current();
    here->generation = 0;
    return (heap->mode & HAK_MODE_SENTINEL) != 0 ? here : &heap->share.robust;
}

static void region_unlock(struct hak_region *region, struct hak_robust_thread *me) { hak__robust_release(&region->lock, me); }

static void region_lock(struct hak_region *region, struct hak_robust_thread *me, const char *function)
{
    if (hak_unlikely(!hak__is_region(region)))
        hak__uheap_misuse((const struct hak_uheap *)region, function);
    bool whole = hak__robust_acquire(&region->lock, me) || hak__region_repair(region);
    if (hak_likely(whole && hak__is_region(region)))
        return;
    region_unlock(region, me);
    if (whole)
        hak__uheap_misuse((const struct hak_uheap *)region, function);
    hak__fatal("%s(): the heap at %p has been written over", function, (const void *)region);
}

/* --- beginning ---------------------------------------------------------------------------------------------------- */

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
    size_t length = options->name == NULL ? 0 : hak_min(strlen(options->name), sizeof region->name - 1);
    if (length != 0)
        memcpy(region->name, options->name, length);
    region->flags = options->flags;
    hak_store(&region->limit, options->limit == 0 ? UINT64_MAX : options->limit, HAK_RELAXED);
    region->pressure = options->pressure;
    region->argument = options->argument;
    region->version = REGION_VERSION;
}

int hak__region_new(const struct hak_heap_options *options, struct hak_region **out)
{
    uintptr_t start = (uintptr_t)options->region, end = start + options->region_size;
    bool shared = (options->flags & HAK_HEAP_SHARED) != 0;
    if (options->region_size < HAK_REGION_LEAST || end < start || (shared && start % HAK_REGION_PAGE != 0))
        return EINVAL;
    if (options->purge != HAK_HEAP_PURGE_LATER || (shared && options->pressure != NULL))
        return EINVAL;
    if ((options->flags & HAK_HEAP_HARDENED) != 0)
        return ENOTSUP;
    struct hak_region *region = (struct hak_region *)hak_align_up(start, HAK_REGION_ALIGN);
    region_leave_row(region); /* of a previous heap here */
    memset(region, 0, sizeof *region);
    region->size = end - (uintptr_t)region;
    region->unit_shift = unit_shift_for(region->size);
    region_lay_out(region);
    set_region_options(region, options);
    hak__region_plan_slabs(region);
    region_enter_row(region);
    /* release: pairs with the acquire in hak__is_region. */
    hak_store(&region->magic, HAK_REGION_ALIVE, HAK_RELEASE);
    *out = region;
    return 0;
}

int hak__region_attach(void *start, size_t size, struct hak_region **out)
{
    struct hak_region *region = start;
    if (size < HAK_REGION_LEAST || (uintptr_t)start % HAK_REGION_PAGE != 0 || !hak__is_region(region))
        return EINVAL;
    if (region->version != REGION_VERSION || region->size > size || (region->flags & HAK_HEAP_SHARED) == 0)
        return EINVAL;
    region_leave_row(region);
    region_enter_row(region);
    *out = region;
    return 0;
}

/* --- ends --------------------------------------------------------------------------------------------------------- */

void hak__region_detach(struct hak_region *region) { region_leave_row(region); }

void hak__region_destroy(struct hak_region *region, const char *function)
{
    struct hak_robust_thread here, *me = region_me(&here);
    region_lock(region, me, function);
    hak_store(&region->magic, HAK_OWN_GONE, HAK_RELEASE); /* pairs with the acquire in hak__is_region */
    region_unlock(region, me);
    region_leave_row(region);
}

void hak__region_reset(struct hak_region *region, const char *function)
{
    struct hak_robust_thread here, *me = region_me(&here);
    region_lock(region, me, function);
    hak_store(&region->frontier, 0, HAK_RELEASE); /* as in hak__run_set; the repair rebuilds what follows from it */
    hak__region_repair(region);
    region_unlock(region, me);
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

void *hak__region_alloc(struct hak_region *region, size_t align, size_t n, const char *function)
{
    struct hak_robust_thread here, *me = region_me(&here);
    for (unsigned calls = 0;; calls++) {
        region_lock(region, me, function);
        void *block = hak__region_take(region, align, n);
        size_t used = hak__region_used(region), room = (size_t)region->units << region->unit_shift;
        size_t limit = hak_min(hak_load(&region->limit, HAK_RELAXED), room);
        region_unlock(region, me);
        if (hak_likely(block != NULL) || calls == REGION_PRESSURE_CALLS)
            return block;
        if (!hak__uheap_ask(region->pressure, (hak_heap_t *)region, used, limit, n, region->argument))
            return NULL;
    }
}

/* Caller holds the lock; releases it before the report. */
static hak_noreturn hak_cold void region_misuse(struct hak_region *region, struct hak_robust_thread *me, const void *p,
                                                const struct hak_region_block *block, const char *function, bool freeing)
{
    bool inside = (uintptr_t)p - (uintptr_t)region < region->size;
    region_unlock(region, me);
    if (!inside)
        hak__fatal("%s(): %p is not a block of heap %p", function, p, (const void *)region);
    if (block->freed && freeing)
        hak__misuse_double_free(function, p, block->size);
    hak__misuse_invalid(function, p, block->why_not);
}

/* Locks the block's region; ends the program unless p is the start of a block. */
static struct hak_region_block region_lock_block(struct hak_region *region, struct hak_robust_thread *me, const void *p,
                                                 const char *function, bool freeing)
{
    region_lock(region, me, function);
    struct hak_region_block block = hak__region_find(region, p);
    if (hak_unlikely(block.why_not != NULL))
        region_misuse(region, me, p, &block, function, freeing);
    return block;
}

void hak__region_end(struct hak_region *region, void *p, const char *function)
{
    struct hak_robust_thread here, *me = region_me(&here);
    struct hak_region_block block = region_lock_block(region, me, p, function, true);
    hak__region_give(region, &block);
    region_unlock(region, me);
}

size_t hak__region_usable(struct hak_region *region, const void *p, const char *function)
{
    struct hak_robust_thread here, *me = region_me(&here);
    struct hak_region_block block = region_lock_block(region, me, p, function, false);
    region_unlock(region, me);
    return block.size;
}

bool hak__region_has(struct hak_region *region, const void *p, const char *function)
{
    struct hak_robust_thread here, *me = region_me(&here);
    region_lock(region, me, function);
    bool has = hak__region_find(region, p).why_not == NULL;
    region_unlock(region, me);
    return has;
}

void *hak__region_realloc(struct hak_region *region, void *p, size_t n, const char *function)
{
    struct hak_robust_thread here, *me = region_me(&here);
    struct hak_region_block block = region_lock_block(region, me, p, function, false);
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
    struct hak_robust_thread here, *me = region_me(&here);
    region_lock(region, me, function);
    hak_store(&region->limit, limit == 0 ? UINT64_MAX : limit, HAK_RELAXED);
    region_unlock(region, me);
}

static struct hak_heap_figures region_figures(const struct hak_region *region)
{
    uint64_t limit = hak_load(&region->limit, HAK_RELAXED);
    return (struct hak_heap_figures){
        .name = region->name,
        .serial = region_serial(region),
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
    struct hak_robust_thread here, *me = region_me(&here);
    region_lock(region, me, function);
    *out = region_figures(region);
    region_unlock(region, me);
}

/* The region of the first used row from *i on, and advances *i past it; NULL: none is left. */
static struct hak_region *region_from(uint32_t *i)
{
    while (*i < hak_load(&region_count, HAK_ACQUIRE)) {
        const struct hak_region_row *row = &hak__region_rows[(*i)++];
        size_t size = hak_load(&row->size, HAK_ACQUIRE); /* as in hak__region_of */
        struct hak_region *region = (struct hak_region *)hak_load(&row->start, HAK_ACQUIRE);
        if (size != 0 && hak_load(&row->size, HAK_RELAXED) == size && region_is_there(region))
            return region;
    }
    return NULL;
}

bool hak__region_next_figures(uint32_t *i, struct hak_heap_figures *out)
{
    const struct hak_region *region = region_from(i);
    if (region != NULL)
        *out = region_figures(region);
    return region != NULL;
}

struct hak_region *hak__region_after(const struct hak_region *region)
{
    uint32_t i = 0;
    while (region != NULL && i < hak_load(&region_count, HAK_ACQUIRE))
        if (hak_load(&hak__region_rows[i++].start, HAK_RELAXED) == (uintptr_t)region)
            break;
    return region_from(&i);
}
