/* See thp.h. */
#include "arena/thp.h"

#include <errno.h>

#include "arena/limit.h"
#include "base/bits.h"
#include "diag/options.h"
#include "os/os.h"

/* A SuperSlab unmarked for collapsing is a mapping of its own; at most one in so many of the process's mappings may be one. */
enum { MAPPINGS_PER_UNMARKED = 16 };

/* One page in so many may be absent where memory is dense. */
enum { ABSENT_SHARE = 16, PAGES_OF_SUPER = HAK_SUPER_SIZE / 4096 };

static _Atomic uint32_t setting_seen;   /* the system's setting plus one; 0: not looked at */
static _Atomic bool impossible;         /* the kernel cannot collapse */
struct hak_thp_counts hak__thp_counts;

/* Read once: a later change of the setting does not concern what is already mapped. */
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
    if (hak__option(HAK_OPTION_thp) == HAK_THP_ALWAYS)
        hak__os_advise(start, bytes, HAK_OS_HUGE);
    else if (thp_setting() == HAK_OS_HUGE_ALWAYS)
        hak__os_advise(start, bytes, HAK_OS_NO_HUGE);
}

bool hak__thp_must_stay(size_t super)
{
    struct hak_super *at = &hak__supers[super];
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
    uintptr_t start = (uintptr_t)hak__super_start(super);
    if (thp_setting() == HAK_OS_HUGE_ALWAYS || hak__supers[super].no_huge)   /* it was marked, and a marked one is refused */
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

bool hak__thp_may_prefault(void)
{
    bool fits = hak__page_size() * PAGES_OF_SUPER == HAK_SUPER_SIZE;   /* where pages are larger, a SuperSlab is no huge page */
    return fits && hak__option(HAK_OPTION_thp) == HAK_THP_AUTO && thp_setting() != HAK_OS_HUGE_NEVER;
}

/* If the kernel gives a page of the usual size, the next one is absent. */
bool hak__thp_prefault(size_t super)
{
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
