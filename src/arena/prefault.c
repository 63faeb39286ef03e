/* See prefault.h. */
#include "arena/prefault.h"

#include "arena/limit.h"
#include "arena/thp.h"
#include "os/os.h"

enum {
    PREFAULT_FROM = 8,     /* SuperSlabs in slabs besides */
    PROBE_EVERY = 8,
    PREFAULT_PAUSE = 64,   /* SuperSlabs after one for which the kernel had no huge page */
};

/* Threads that open SuperSlabs at the same time may overwrite each other's probe; one of them counts. */
static struct {
    _Atomic uint32_t probe;        /* the SuperSlab left to fault page by page, plus one; 0: it has been looked at */
    _Atomic uint32_t opened;       /* so far, modulo 2^32 */
    _Atomic bool dense;            /* what the last probe has shown */
    _Atomic uint32_t pause_left;
} prefaults;

static bool prefault_may(size_t others)
{
    return others >= PREFAULT_FROM && hak__thp_may_prefault() && !hak__ahead_counts();
}

static bool probe_is_dense(size_t super)
{
    return hak_load(&hak__supers[super].kind, HAK_RELAXED) == HAK_SUPER_IN_SLABS && hak__thp_is_dense(super);
}

static void look_at_probe(void)
{
    uint32_t probe = hak_exchange(&prefaults.probe, 0, HAK_RELAXED);
    if (probe != 0)
        hak_store(&prefaults.dense, probe_is_dense(probe - 1), HAK_RELAXED);
}

/* False: the kernel had no huge page. Not asked again for a while, since it may have searched for one. */
static bool prefault_now(size_t super)
{
    uint32_t left = hak_load(&prefaults.pause_left, HAK_RELAXED);
    if (left != 0)
        hak_store(&prefaults.pause_left, left - 1, HAK_RELAXED);
    if (left != 0 || hak__thp_prefault(super))
        return left == 0;
    hak_store(&prefaults.pause_left, PREFAULT_PAUSE, HAK_RELAXED);
    return false;
}

void hak__prefault(size_t super, size_t others)
{
    bool may = prefault_may(others);
    if (may)
        look_at_probe();
    bool turn = hak_fetch_add(&prefaults.opened, 1, HAK_RELAXED) % PROBE_EVERY != 0;
    if (!may || !turn || !hak_load(&prefaults.dense, HAK_RELAXED) || !prefault_now(super))
        hak_store(&prefaults.probe, (uint32_t)super + 1, HAK_RELAXED);
}

void hak__prefault_even(size_t first, size_t count)
{
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
