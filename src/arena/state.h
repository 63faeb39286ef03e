/* The state that the files of the arena share, and its lock. For those files alone, which read and write it under the lock. */
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
    size_t tails;             /* the sum of all SuperSlabs' */
    size_t pieces;            /* bytes mapped in bare SuperSlabs (pieces.c) */
    size_t ends;              /* SuperSlabs in which what is mapped ends; with `moved` about the number of mappings (crowd.c) */
    uint32_t newest, oldest;  /* the ends of the list of emptied ones: a SuperSlab's number plus one; 0: the list is empty */
    uint64_t looked_ms;       /* when that was last looked at for its age */
    uintptr_t mapping;        /* the range that is being mapped, until the lock is released; a child of that moment unmaps it, */
    size_t mapping_bytes;     /* unless its SuperSlab says already that it is mapped */
} hak_line_aligned;

extern struct hak_arena_state hak__arena_state;

void hak__arena_lock(void);
bool hak__arena_is_locked(void);
int hak__arena_map(uintptr_t address, size_t bytes);   /* as hak__os_map, and notes the range */
void hak__arena_unlock(void);       /* and publishes the state for readers that must not wait */
bool hak__arena_is_left(void);      /* in a forked child: another thread had the lock */
void hak__arena_lock_reset(void);   /* unlocks it then */

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

/* Says that a SuperSlab is taken or is not; how many bytes of it are mapped, from its start: state.mapped is the caller's. */
void hak__super_set_taken(size_t super, bool taken);
void hak__super_set_mapped(size_t super, uint32_t bytes);

/* Whether what is mapped ends in a SuperSlab: it is mapped in part, or wholly and the next one not at all. */
bool hak__super_is_end(size_t super);
