/* SuperSlabs in pieces. If the system refuses 2 MiB at once, a SuperSlab is opened bare: as addresses, in which each span maps
 * what it uses, a few pages at a time (span/span.c, hak__span_reach), and unmaps it when it ends. A thrifty process does so from the
 * start: it has little room (RLIMIT_AS, RLIMIT_DATA), or what it maps is resident at once and locked (MCL_FUTURE), so that unused
 * memory costs as much as used memory.
 *
 * Of a bare SuperSlab hak_super.mapped is 0, and an unused slab has nothing mapped: it is free, wholly unmapped and as new when
 * all its slabs are unused. The pieces are summed up in state.pieces, which is a part of state.mapped.
 * Called by span/pool.c and span/span.c, with no lock held. */
#include "arena/pieces.h"

#include <errno.h>

#include "arena/limit.h"
#include "arena/lru.h"
#include "arena/mapping.h"
#include "arena/state.h"
#include "arena/thp.h"
#include "arena/waiting.h"
#include "os/os.h"

/* How many new SuperSlabs are checked for pages that are resident at once. */
enum { LOOKED_AT_MOST = 16 };

/* Nobody has touched the SuperSlab, so one resident page means that all are. */
static bool there_at_once(size_t super)
{
    static _Atomic uint32_t looks;
    unsigned char page = 0;
    size_t bytes = hak__page_size();
    return hak_load(&looks, HAK_RELAXED) < LOOKED_AT_MOST && hak_fetch_add(&looks, 1, HAK_RELAXED) < LOOKED_AT_MOST
           && hak__os_resident((uintptr_t)hak__super_start(super + 1) - bytes, bytes, &page) == 0 && page != 0;
}

static size_t make_bare(size_t super, bool *fresh)
{
    if (!hak__supers_trim(super, 1, 0)) {
        hak__supers_give(super, 1);
        return HAK_NO_SUPER;
    }
    hak__supers[super].bare = 1;
    *fresh = true;
    return super;
}

size_t hak__supers_open(bool whole, bool *fresh)
{
    if (whole && hak__is_thrifty())
        return HAK_NO_SUPER;
    size_t super = hak__supers_take(1, 1, whole ? HAK_SUPER_SIZE : 0, HAK_SUPER_IN_SLABS, fresh);
    if (super == HAK_NO_SUPER)
        return super;
    if (whole && *fresh && there_at_once(super)) {
        hak__thrift_begin();
        whole = false;
    }
    if (!whole)
        return make_bare(super, fresh);
    hak__supers[super].bare = 0;
    return super;
}

static int map_piece(uintptr_t start, size_t bytes)
{
    return hak__limit_allows(hak__arena_state.mapped, bytes) ? hak__arena_map(start, bytes) : ENOMEM;
}

int hak__piece_map(void *start, size_t bytes)
{
    hak__arena_lock();
    hak__waiting_end_locked();
    int code = map_piece((uintptr_t)start, bytes);
    if (hak__arena_gives_up(code))
        code = map_piece((uintptr_t)start, bytes);
    if (code == 0) {
        hak__thp_mapped((uintptr_t)start, bytes);
        hak__arena_state.pieces += bytes;
        hak__arena_state.mapped += bytes;
        hak__arena_state.peak = hak_max(hak__arena_state.peak, hak__arena_state.mapped);
    }
    hak__arena_unlock();
    return code;
}

bool hak__piece_unmap(void *start, size_t bytes)
{
    hak__arena_lock();
    bool done = hak__os_unmap((uintptr_t)start, bytes) == 0;
    if (done) {
        hak__arena_state.pieces -= bytes;
        hak__arena_state.mapped -= bytes;
    }
    hak__arena_unlock();
    return done;
}
