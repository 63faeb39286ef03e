/* Tails. Behind a huge block lies a guard: the rest of its last SuperSlab is unmapped, and no use to anybody while the block lives. But
 * pages that a block before it has used stay, in place of a guard: the next block there would fault them in again, which was most of
 * what a program paid that replaces blocks of 1 to 25 MiB (docs/decisions/0083). A write beyond the block's end is then a write to
 * memory that nobody uses.
 *
 * A tail is unused memory like an emptied SuperSlab: both together may be as much as the policy lets the latter be, and a tail is
 * unmapped when it has been there for HAKMEM_PURGE_DELAY.
 *
 * Invariants: tail != 0 => the SuperSlab is taken, for a huge block, and the last `tail` bytes that are mapped in it are not the
 * block's;  state.tails is their sum. */
#include "arena/tail.h"

#include "arena/lru.h"
#include "arena/regions.h"
#include "arena/state.h"
#include "os/os.h"

/* So much lies behind the block at least, in place of its guard. */
enum { TAIL_LEAST = 64 << 10 };

static void set_tail(size_t super, size_t bytes)
{
    hak__arena_state.tails += bytes - hak__supers[super].tail;
    hak__supers[super].tail = (uint32_t)bytes;
}

static void set_mapped(size_t super, size_t bytes)
{
    hak__arena_state.mapped += bytes - hak__supers[super].mapped;
    hak__super_set_mapped(super, (uint32_t)bytes);
}

/* The state changes first: a child that is forked in between may at worst take mapped memory for unmapped. */
static void unmap_tail(size_t super)
{
    size_t bytes = hak__supers[super].tail, mapped = hak__supers[super].mapped;
    set_mapped(super, mapped - bytes);
    set_tail(super, 0);
    if (hak__os_unmap((uintptr_t)hak__super_start(super) + mapped - bytes, bytes) == 0)
        return;
    set_mapped(super, mapped);
    set_tail(super, bytes);
}

bool hak__tail_keep(size_t super, size_t need)
{
    struct hak_super *me = &hak__supers[super];
    size_t bytes = me->mapped - hak_min(need, me->mapped);
    uint64_t now = hak__os->now_ms();
    if (need == 0 || bytes < TAIL_LEAST || me->dirty != me->mapped || !hak__lru_has_room(bytes, now))
        return false;
    set_tail(super, bytes);
    hak_store(&me->freed_ms, now, HAK_RELAXED);
    return true;
}

void hak__tail_end(size_t super)
{
    if (hak__super_tail(super) != 0)
        set_tail(super, 0);
}

size_t hak__tails_purge(uint64_t before_ms)
{
    size_t before = hak__arena_state.tails;
    if (before == 0)
        return 0;
    for (size_t i = hak__super_from(0); i < hak__arena_top(); i = hak__super_from(i + 1))
        if (hak__super_tail(i) != 0 && hak_load(&hak__supers[i].freed_ms, HAK_RELAXED) <= before_ms)
            unmap_tail(i);
    return before - hak__arena_state.tails;
}
