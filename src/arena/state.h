/* What the files of the arena share: its state and its lock. For arena.c, regions.c, lru.c, reserve.c, pieces.c, lend.c and
 * crowd.c alone; everything here is read and written under the lock. */
#ifndef HAK_ARENA_STATE_H
#define HAK_ARENA_STATE_H

#include "arena/arena.h"
#include "base/bits.h"
#include "base/retain.h"

struct hak_arena_state {
    hak_line_aligned size_t mapped;   /* user bytes mapped, now; then at most */
    size_t peak;
    size_t dirty;             /* of free SuperSlabs: bytes that may hold old data */
    size_t taken, holes;      /* SuperSlabs */
    size_t spare;             /* bytes mapped of those that are not taken */
    size_t kept;              /* SuperSlabs in the list of emptied ones */
    size_t moved;             /* the sum of all SuperSlabs' */
    size_t pieces;            /* bytes mapped in bare SuperSlabs (pieces.c) */
    size_t ends;              /* where what is mapped ends; with `moved` about the number of mappings (crowd.c) */
    uint32_t newest, oldest;  /* its ends: a SuperSlab's number plus one; 0: the list is empty */
    uint64_t lock_takes;      /* times that the lock was taken */
    uint64_t waited;          /* requests that had memory mapped */
    uint64_t reserved;        /* SuperSlabs mapped ahead of need, so far */
    uint64_t returned_by_age, returned_by_bytes;   /* bytes of emptied SuperSlabs, so far */
    uint64_t looked_ms;       /* when the list was last looked at for its age */
};

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

/* --- regions.c: which parts of the window are in use --------------------------------------------------------------- */

/* Opens the regions of a run, and raises the frontier above it: the metadata of its SuperSlabs exists afterwards. 0 or an
 * errno code. */
int hak__run_open(size_t first, size_t count);

/* How many regions, from this one on, are free, or foreign, all alike; 1 if it is open. As far as one look tells. */
size_t hak__regions_alike(size_t region);

uint64_t hak__region_free(size_t region);   /* which of its SuperSlabs are, by their place in it */
size_t hak__regions_foreign(void);          /* how many closed ones are foreign */

/* Somebody else's mapping lies in a SuperSlab: it is never used again, nor are those behind it where that mapping goes on. */
void hak__hole_make(size_t super);

/* --- lru.c: emptied SuperSlabs ------------------------------------------------------------------------------------- */

/* A free SuperSlab whose first `dirty` bytes may hold old data joins the list as its newest, or leaves it. */
void hak__lru_add(size_t super, uint32_t dirty, uint64_t now_ms);
void hak__lru_remove(size_t super);

/* Of an emptied SuperSlab no more than the first `dirty` bytes hold old data; without any it leaves the list. */
void hak__lru_cut(size_t super, uint32_t dirty);

/* The SuperSlab that was emptied last; HAK_NO_SUPER when none is kept. */
size_t hak__lru_newest(void);

/* Returns the pages of SuperSlabs emptied at or before `before_ms`, the oldest first, until `keep` dirty bytes are
 * left. Gives the bytes returned. */
size_t hak__lru_purge(uint64_t before_ms, size_t keep);

/* Takes the lock and returns the oldest until `keep` dirty bytes are left. Gives those that are. */
size_t hak__lru_shorten(size_t keep);

/* What every give and take does: cheap unless the list is too long or its last look is long ago. */
void hak__lru_due(uint64_t now_ms);

/* Notes what is in use: before less is, since it may be a peak. */
void hak__lru_note(uint64_t now_ms);

/* Says that a SuperSlab is taken or is not. */
void hak__super_set_taken(size_t super, bool taken);

/* Unmaps a free SuperSlab; false when the system refuses, and the SuperSlab is kept then. */
bool hak__super_unmap(size_t super);

/* Unmaps every free SuperSlab: the last resort before a request is refused. Whether there was one. */
bool hak__lru_unmap_all(void);

/* In a forked child: links the list anew. */
void hak__lru_rebuild(void);
hak_cold bool hak__lru_is_valid(void);

/* --- crowd.c: few mappings ----------------------------------------------------------------------------------------- */

/* Says how many bytes of a SuperSlab are mapped, from its start; state.mapped is the caller's. */
void hak__super_set_mapped(size_t super, uint32_t bytes);
size_t hak__crowd_count(void);   /* what state.ends is to be */

/* Whether there are so many mappings that no more are to be made. */
bool hak__is_crowded(void);

void hak__crowd_publish(void);   /* notes it for hak__arena_crowded */

/* Of a run for `bytes` bytes, what to map: then the tail of its last SuperSlab too. */
size_t hak__crowd_bytes(size_t bytes);

/* Maps `length` bytes behind what is mapped of a SuperSlab, and with it the gap below if mappings are few. The caller says in
 * the state what he has asked for. 0 or an errno code. */
int hak__crowd_map(size_t super, size_t length);

/* --- reserve.c ----------------------------------------------------------------------------------------------------- */

/* The lowest SuperSlab that is free and wholly mapped; HAK_NO_SUPER if there is none. */
size_t hak__reserve_find(void);

/* Says that a run was mapped ahead. If its pages are there at once, it is unmapped and hak__ahead_counts from now on. */
void hak__ahead_mapped(size_t first, size_t count);

#endif
