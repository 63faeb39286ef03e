/* See hugepages.h. */
#include "arena/hugepages.h"

#include <errno.h>

#include "arena/limit.h"
#include "diag/options.h"

/* A SuperSlab unmarked for collapsing is a separate mapping; at most this share of the process's mappings may be such. */
enum { MAPPINGS_PER_UNMARKED = 16 };

/* Memory is dense if no more than this share of its pages is absent. */
enum { ABSENT_SHARE = 16, PAGES_OF_SUPER = HAK_SUPER_SIZE / 4096 };

static _Atomic uint32_t setting_seen; /* the system's setting plus one; 0: not looked at */
static _Atomic bool impossible; /* the kernel does not support collapsing */
struct hak_thp_counts hak__thp_counts;

/* Read once: a later change of the setting does not affect what is already mapped. */
static enum hak_os_huge_setting thp_setting(void)
{
    uint32_t seen = hak_load(&setting_seen, HAK_RELAXED);
    if (seen == 0) {
        seen = (uint32_t)hak__os->huge_setting() + 1;
        hak_store(&setting_seen, seen, HAK_RELAXED);
    }
    return (enum hak_os_huge_setting)(seen - 1);
}

void hak__thp_look(void) { thp_setting(); }

void hak__thp_mapped(uintptr_t start, size_t bytes)
{
    hak_assert(start % hak__page_size() == 0 && bytes % hak__page_size() == 0, "whole pages are mapped");
    if (hak__option(HAK_OPTION_thp) == HAK_THP_ALWAYS)
        hak__os_advise(start, bytes, HAK_OS_HUGE);
    else if (thp_setting() == HAK_OS_HUGE_ALWAYS)
        hak__os_advise(start, bytes, HAK_OS_NO_HUGE);
}

bool hak__thp_must_stay(size_t super)
{
    struct hak_super *at = &hak__supers[super];
    hak_assert(hak_load(&at->kind, HAK_RELAXED) == HAK_SUPER_IN_SLABS, "only a SuperSlab in slabs is purged in part");
    bool collapsed = hak_load(&at->collapsed, HAK_RELAXED);
    if (!collapsed && hak__option(HAK_OPTION_thp) != HAK_THP_ALWAYS)
        return false;
    if (hak_popcount32((uint32_t)hak_load(&at->slabs, HAK_RELAXED)) < HAK_SUPER_SLABS / 2)
        return true;
    if (collapsed && hak_exchange(&at->collapsed, false, HAK_RELAXED))
        hak_fetch_add(&hak__thp_counts.split, 1, HAK_RELAXED);
    return false;
}

bool hak__thp_is_dense(size_t super)
{
    unsigned char pages[PAGES_OF_SUPER];
    size_t count = HAK_SUPER_SIZE / hak__page_size(), present = 0;
    if (count > PAGES_OF_SUPER || hak__os_resident((uintptr_t)hak__super_start(super), HAK_SUPER_SIZE, pages) != 0)
        return false;
    for (size_t i = 0; i < count; i++)
        present += pages[i] & 1;
    return present >= count - count / ABSENT_SHARE;
}

bool hak__thp_may_collapse(void)
{
    size_t unmarked = hak_load(&hak__thp_counts.collapsed, HAK_RELAXED), most = hak__limit_mappings() / MAPPINGS_PER_UNMARKED;
    return hak__option(HAK_OPTION_thp) == HAK_THP_AUTO && !hak_load(&impossible, HAK_RELAXED)
        && (thp_setting() == HAK_OS_HUGE_MADVISE || (thp_setting() == HAK_OS_HUGE_ALWAYS && unmarked < most));
}

bool hak__thp_collapse(size_t super)
{
    hak_assert(hak__supers[super].mapped == HAK_SUPER_SIZE && !hak__super_is_bare(super), "a huge page is a whole SuperSlab");
    uintptr_t start = (uintptr_t)hak__super_start(super);
    if (thp_setting() == HAK_OS_HUGE_ALWAYS || hak__supers[super].no_huge) /* collapsing a marked SuperSlab is refused */
        hak__os_advise(start, HAK_SUPER_SIZE, HAK_OS_HUGE);
    int code = hak__os_advise(start, HAK_SUPER_SIZE, HAK_OS_COLLAPSE);
    if (code == 0) {
        hak_store(&hak__supers[super].collapsed, true, HAK_RELAXED);
        hak_fetch_add(&hak__thp_counts.collapsed, 1, HAK_RELAXED);
        return true;
    }
    hak_fetch_add(&hak__thp_counts.refused, 1, HAK_RELAXED);
    if (code == EINVAL && hak_load(&hak__thp_counts.collapsed, HAK_RELAXED) == 0)
        hak_store(&impossible, true, HAK_RELAXED);
    return false;
}

/* --- prefaulting ------------------------------------------------------------------------------------------------------ */

static bool thp_may_prefault(void)
{
    bool fits = hak__page_size() * PAGES_OF_SUPER == HAK_SUPER_SIZE; /* where pages are larger, a SuperSlab is no huge page */
    return fits && hak__option(HAK_OPTION_thp) == HAK_THP_AUTO && thp_setting() != HAK_OS_HUGE_NEVER;
}

/* If the kernel gives a page of the usual size, the next one is absent. */
static bool thp_prefault(size_t super)
{
    hak_assert(hak__supers[super].mapped == HAK_SUPER_SIZE, "a huge page is a whole SuperSlab");
    uintptr_t start = (uintptr_t)hak__super_start(super);
    size_t page = hak__page_size();
    unsigned char next = 0;
    if (hak__os_advise(start, HAK_SUPER_SIZE, HAK_OS_HUGE) != 0)
        return false;
    *(volatile char *)start = 0;
    bool whole = hak__os_resident(start + page, page, &next) == 0 && (next & 1) != 0;
    hak__os_advise(start, HAK_SUPER_SIZE, HAK_OS_NO_HUGE);
    hak__supers[super].no_huge = thp_setting() == HAK_OS_HUGE_MADVISE;
    hak_fetch_add(&hak__thp_counts.prefaulted, whole, HAK_RELAXED);
    return whole;
}

enum {
    PREFAULT_FROM = 8, /* SuperSlabs already in slabs */
    PROBE_EVERY = 8,
    PREFAULT_PAUSE = 64, /* SuperSlabs to skip after one for which the kernel had no huge page */
};

/* Threads that open SuperSlabs at the same time may overwrite each other's probe; one of them counts. */
static struct {
    _Atomic uint32_t probe; /* the SuperSlab left to fault page by page, plus one; 0: it has been looked at */
    _Atomic uint32_t opened; /* so far, modulo 2^32 */
    _Atomic bool dense; /* the result of the last probe */
    _Atomic uint32_t pause_left;
} prefaults;

static void look_at_probe(void)
{
    size_t super = (size_t)hak_exchange(&prefaults.probe, 0, HAK_RELAXED) - 1;
    if (super != HAK_NO_SUPER)
        hak_store(&prefaults.dense,
                  hak_load(&hak__supers[super].kind, HAK_RELAXED) == HAK_SUPER_IN_SLABS && hak__thp_is_dense(super), HAK_RELAXED);
}

/* False: the kernel had no huge page. It is not asked again for a while, since it may have searched for one. */
static bool prefault_now(size_t super)
{
    uint32_t left = hak_load(&prefaults.pause_left, HAK_RELAXED);
    if (left != 0)
        hak_store(&prefaults.pause_left, left - 1, HAK_RELAXED);
    if (left != 0 || thp_prefault(super))
        return left == 0;
    hak_store(&prefaults.pause_left, PREFAULT_PAUSE, HAK_RELAXED);
    return false;
}

void hak__prefault(size_t super, size_t others)
{
    hak_assert(!hak__super_is_bare(super), "a bare SuperSlab has no memory to touch");
    bool may = others >= PREFAULT_FROM && thp_may_prefault() && !hak__ahead_counts();
    if (may)
        look_at_probe();
    bool turn = hak_fetch_add(&prefaults.opened, 1, HAK_RELAXED) % PROBE_EVERY != 0;
    if (!may || !turn || !hak_load(&prefaults.dense, HAK_RELAXED) || !prefault_now(super))
        hak_store(&prefaults.probe, (uint32_t)super + 1, HAK_RELAXED);
}

void hak__prefault_even(size_t first, size_t count)
{
    hak_assert(hak__arena_is_mine() && hak__super_is_taken(first), "the run is the caller's, under the arena's lock");
    size_t marked = 0, bytes = 0;
    for (size_t i = first; i < first + count; i++) {
        marked += hak__supers[i].no_huge;
        bytes += hak__supers[i].mapped;
    }
    if (hak_likely(marked == 0) || marked == count || bytes == 0)
        return;
    hak__os_advise((uintptr_t)hak__super_start(first), bytes, HAK_OS_NO_HUGE);
    for (size_t i = first; i < first + count; i++)
        hak__supers[i].no_huge = 1;
}
