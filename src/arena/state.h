/* What the files of the arena share: its state and its lock. For arena.c, regions.c, lru.c, reserve.c, pieces.c, lend.c and
 * crowd.c alone; everything here is read and written under the lock. */
#pragma once

#include "arena/arena.h"
#include "base/bits.h"
#include "base/retain.h"

struct hak_arena_state {
#define X(name) uint64_t name;
    HAK_ARENA_COUNTS(X)
#undef X
    size_t spare;             /* bytes mapped of SuperSlabs that are not taken */
    size_t moved;             /* the sum of all SuperSlabs' */
    size_t pieces;            /* bytes mapped in bare SuperSlabs (pieces.c) */
    size_t ends;              /* where what is mapped ends; with `moved` about the number of mappings (crowd.c) */
    uint32_t newest, oldest;  /* the ends of the list of emptied ones: a SuperSlab's number plus one; 0: the list is empty */
    uint64_t looked_ms;       /* when that was last looked at for its age */
} hak_line_aligned;

extern struct hak_arena_state hak__arena_state;

void hak__arena_lock(void);
bool hak__arena_is_locked(void);
void hak__arena_unlock(void);   /* and publishes the state for readers that must not wait */

hak_inline void hak__mark(uint64_t *word, size_t super, bool value)
{
    uint64_t bit = 1ull << super % 64;
    *word = value ? *word | bit : *word & ~bit;
}
hak_inline bool hak__super_is_taken(size_t super) { return hak__super_words[super / 64].taken >> super % 64 & 1; }
hak_inline bool hak__super_is_dirty(size_t super) { return hak__super_words[super / 64].dirty >> super % 64 & 1; }

/* The bytes of the run's i-th SuperSlab that a block of `bytes` bytes needs. */
hak_inline size_t hak__super_need(size_t i, size_t bytes)
{
    size_t before = i << HAK_SUPER_SHIFT;
    return bytes <= before ? 0 : hak_min(bytes - before, HAK_SUPER_SIZE);
}

hak_inline void hak__super_set_moved(size_t super, size_t pieces)
{
    hak__arena_state.moved += pieces - hak__supers[super].moved;
    hak__supers[super].moved = (uint16_t)pieces;
}

/* Maps what is missing of a run in open regions with as few calls as there are gaps. 0, or an errno code, and *at is the
 * SuperSlab that failed; what has been mapped before it stays mapped and is accounted for. */
int hak__run_map(size_t first, size_t count, size_t bytes, size_t *at);

/* After a move to a mapped place was refused: kernels before 6.17 have unmapped it by then, and it is mapped anew. False: that
 * was refused too. */
bool hak__place_stays(uintptr_t place, size_t bytes);

/* Unmaps what of a taken run is mapped beyond the first `bytes` bytes; false if the system refuses. */
bool hak__run_trim(size_t first, size_t count, size_t bytes);

/* Says that a SuperSlab is taken or is not. */
void hak__super_set_taken(size_t super, bool taken);
