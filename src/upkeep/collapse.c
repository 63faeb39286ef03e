/* Which SuperSlabs become huge pages. See collapse.h. */
#include "upkeep/collapse.h"

#include "arena/hugepages.h"
#include "arena/window.h"
#include "base/bits.h"

enum {
    FULL_MS = 10000,                    /* how long a SuperSlab has to be nearly full */
    UNUSED_MOST = 1,                    /* slabs: of 32 */
    LOOKS = 256, READS = 16,            /* in one walk: SuperSlabs, and those of which the kernel is asked */
};

static size_t next_look;

/* Nearly full now, and at every look for FULL_MS. A time of 0 is "not full": the clock is not 0 for long. */
static bool long_full(struct hak_super *super, uint32_t now)
{
    uint64_t word = hak_load(&super->slabs, HAK_RELAXED);
    bool in_slabs = hak_load(&super->kind, HAK_RELAXED) == HAK_SUPER_IN_SLABS;
    uint32_t since = hak_load(&super->full_ms, HAK_RELAXED);
    if (!in_slabs || hak_popcount32((uint32_t)word) > UNUSED_MOST)
        now = since = 0;
    else if (since == 0)
        since = now;
    hak_store(&super->full_ms, since, HAK_RELAXED);
    return since != 0 && now - since >= FULL_MS;
}

void hak__collapse_walk(uint64_t now_ms)
{
    size_t top = hak__arena_top();
    if (!hak__thp_may_collapse())
        return;
    for (unsigned looks = 0, reads = 0; looks < LOOKS && looks < top && reads < READS; looks++) {
        size_t super = hak__super_from(next_look);
        super = super < top ? super : hak__super_from(0);
        struct hak_super *at = &hak__supers[super];
        next_look = super + 1;
        if (!long_full(at, (uint32_t)now_ms) || hak_load(&at->collapsed, HAK_RELAXED))
            continue;
        reads++;
        hak_store(&at->full_ms, (uint32_t)now_ms, HAK_RELAXED);   /* if it is not collapsed: not to be asked at once again */
        if (hak__thp_is_dense(super)) {
            hak__thp_collapse(super);
            return;
        }
    }
}
