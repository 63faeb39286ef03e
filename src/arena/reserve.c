/* SuperSlabs mapped ahead of need, so that a growing heap does not wait for the system. Upkeep maps them. A reserved SuperSlab is free
 * like any other, serves first when a request needs one, and is unmapped with the rest before a request is refused (waiting.c,
 * hak__arena_gives_up). Nobody touches it, so it takes no resident memory. */
#include "arena/reserve.h"

#include "arena/limit.h"
#include "arena/lru.h"
#include "arena/mapping.h"
#include "arena/opening.h"
#include "arena/regions.h"
#include "arena/state.h"
#include "diag/options.h"
#include "os/os.h"

enum { READY_LOOKS = 256 };

static size_t refused_at;   /* bytes that were mapped when the system last refused; it is not asked again until that changes */

static bool is_ready(size_t super) { return !hak__super_is_taken(super) && hak__supers[super].mapped == HAK_SUPER_SIZE; }

/* Nobody has touched them, so one resident page means that all are. */
void hak__ahead_mapped(size_t first, size_t count)
{
    unsigned char page = 0;
    size_t bytes = hak__page_size();
    for (size_t i = first; i < first + count; i++)
        hak_store(&hak__supers[i].freed_ms, hak__os->now_ms(), HAK_RELAXED);   /* since when it has been unused */
    if (hak__os_resident((uintptr_t)hak__super_start(first + count) - bytes, bytes, &page) != 0 || page == 0)
        return;
    hak__ahead_end();
    for (size_t i = first; i < first + count; i++)
        hak__super_unmap(i);
}

/* The lowest SuperSlab that is free and wholly mapped; HAK_NO_SUPER if there is none. */
size_t hak__reserve_find(void)
{
    unsigned looks = READY_LOOKS;
    for (size_t word = hak__region_next(0); word * 64 < hak__arena_top() && looks > 0; word = hak__region_next(word + 1)) {
        uint64_t bits = ~hak__super_words[word].taken;
        for (; bits != 0 && looks > 0; bits &= bits - 1, looks--) {
            size_t super = word * 64 + hak_ctz64(bits);
            if (super < hak__arena_top() && is_ready(super))
                return super;
        }
    }
    return HAK_NO_SUPER;
}

/* Counts what is ready, up to `enough`; *gap is the lowest free SuperSlab that could become so. */
static size_t count_ready(size_t enough, size_t *gap)
{
    size_t ready = 0;
    *gap = hak__arena_top();
    for (size_t super = hak__super_from(0); super < hak__arena_top() && ready < enough; super = hak__super_from(super + 1)) {
        if (is_ready(super))
            ready++;
        else if (!hak__super_is_taken(super) && super < *gap)
            *gap = super;
    }
    return ready;
}

/* Whether so much more may be mapped without need: below both limits. */
static bool may_map(size_t more)
{
    size_t soft = hak__option(HAK_OPTION_soft_limit);
    return hak__limit_allows(hak__arena_state.mapped, more) && (soft == 0 || hak__arena_state.mapped + more <= soft);
}

static bool map_one(size_t super)
{
    size_t at;
    if (!may_map(HAK_SUPER_SIZE) || hak__arena_state.mapped == refused_at)
        return false;
    if (hak__run_open(super, 1) == 0 && hak__run_map(super, 1, HAK_SUPER_SIZE, &at) == 0)
        return true;
    refused_at = hak__arena_state.mapped;   /* no memory, or somebody else's mapping: the next request finds out */
    return false;
}

size_t hak__reserve_refill(void)
{
    size_t want = hak__option(HAK_OPTION_reserve), gap, done = 0;
    if (want == 0 || hak__ahead_counts())
        return 0;
    hak__arena_lock();
    size_t may = hak__retain((struct hak_retention){ .taken = hak__arena_state.taken << HAK_SUPER_SHIFT }).reserve;
    want = hak_min(want, may >> HAK_SUPER_SHIFT);   /* small processes have none */
    while (count_ready(want, &gap) < want && map_one(gap))
        done++;
    hak__arena_state.reserved += done;
    hak__arena_unlock();
    return done;
}
