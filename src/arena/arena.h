/* The arena: one numeric window of addresses from which all memory comes, in SuperSlabs of 2 MiB, and the metadata
 * windows beside it. The only caller of the operating system's memory functions.
 *
 * Nothing is reserved: memory is mapped upwards from the window's random base in growing steps, so the virtual size
 * of the process is the heap's. A foreign mapping on the way is a hole; the arena steps over it, whatever its size (opening.c).
 *
 * A SuperSlab below `top` is free or taken (bit in `taken`); a free one may be mapped (a prefix of `mapped` bytes) and
 * dirty (a prefix of `dirty` bytes may hold old data). All of this changes only under the arena's lock, in an order
 * that leaves it valid at each step: taken is set before a run is handed out and cleared after it has been given
 * back, so a forked child may reset the lock and go on.
 *
 * Invariants: dirty <= mapped <= HAK_SUPER_SIZE;  `partial` hints only name SuperSlabs of kind IN_SLABS, or are stale. */
#pragma once

#include "arena/owner.h"
#include "base/lock.h"
#include "os/os.h"

enum hak_super_kind { HAK_SUPER_FREE, HAK_SUPER_IN_SLABS, HAK_SUPER_HUGE, HAK_SUPER_HUGE_TAIL, HAK_SUPER_HOLE };

/* One per SuperSlab, out of line; a cache line each, because threads that each work in a SuperSlab of their own write to
 * them at the same time. */
struct hak_super {
    hak_line_aligned _Atomic uint64_t slabs;   /* bits 0..31: unused slabs; bits 32..63: slabs that may hold old data (shared/) */
    uint32_t mapped;             /* bytes mapped, from the start */
    uint32_t dirty;              /* of a free SuperSlab: bytes that may hold old data, from the start */
    _Atomic uint64_t freed_ms;   /* when it was emptied or got its tail, or in slabs: when a slab was last given back */
    union {
        uint32_t newer;          /* its neighbours in the list of emptied ones, plus one; 0: none (arena/lru.c) */
        uint32_t tail;           /* of a huge block: bytes behind its end that stay mapped (tail.c) */
    };
    union {
        uint32_t older;
        _Atomic uint32_t shielded;  /* of a huge block's first SuperSlab: rights of the block's pages may have changed (span/shield.h) */
    };
    _Atomic size_t huge_bytes;   /* of a huge block's first SuperSlab: bytes mapped for the block */
    _Atomic uint32_t kind;       /* enum hak_super_kind */
    _Atomic uint8_t collapsed;   /* its pages were made one huge page, and none has been purged since (thp.h) */
    uint8_t no_huge;             /* its memory is marked against huge pages, perhaps unlike its neighbours' (prefault.h) */
    uint16_t moved;              /* pieces of it that came by mremap: unmapped rather than purged, so that mappings merge */
    _Atomic uint32_t full_ms;   /* in slabs: since when it has been nearly full, modulo 2^32 ms; 0: it is not (upkeep/) */
    union {
        uint32_t guard;          /* of a huge block's first SuperSlab: bytes behind the block that fault; 0: none */
        uint32_t bare;           /* in slabs: it is mapped in pieces, as far as its spans need it (pieces.c) */
    };
    _Atomic uint32_t assigned_to;/* the heap that it is assigned to (heap/large.c); 0: none */
    _Atomic uint32_t purged_mapped;     /* in slabs, under HAKMEM_UNMAP: bytes that were purged and stay mapped, at most */
};

_Static_assert(sizeof(struct hak_super) == 64, "a SuperSlab's entry is a cache line");

/* 64 SuperSlabs' worth of bits; one cache line. */
struct hak_super_word {
    uint64_t taken;                              /* arena lock */
    uint64_t dirty;                              /* free, mapped and dirty; arena lock */
    _Atomic uint64_t partial[HAK_LEVELS];        /* hints: has a free run of >= 1, 2, 4, 8, 16 slabs (shared/) */
    _Atomic uint64_t draining;                   /* in slabs, and left to empty (span/pool.c) */
};

/* The arena's counts, besides the frontier:
 *   mapped, dirty     user bytes mapped; those of free SuperSlabs that may hold old data
 *   peak              the most user bytes mapped at once
 *   taken, holes      SuperSlabs handed out; those where somebody else's mapping was found
 *   kept              SuperSlabs emptied and kept with their old pages
 *   waited, reserved  requests that had memory mapped; SuperSlabs mapped ahead of need; so far, like the next three
 *   returned_by_age, returned_by_bytes   bytes of emptied SuperSlabs that went back to the system
 *   lock_takes        times that the arena's lock was taken */
#define HAK_ARENA_COUNTS(X) \
    X(mapped) X(peak) X(dirty) X(taken) X(holes) X(kept) X(waited) X(reserved) X(returned_by_age) X(returned_by_bytes) \
    X(lock_takes)

/* The figures as they were when the lock was last released, for readers that must not wait for it; stats/live.c says where they
 * lie. The fast path reads words that are global too, so they have a line of their own. */
struct hak_arena_published {
#define X(name) hak_counter name;
    HAK_ARENA_COUNTS(X)
#undef X
} hak_line_aligned;
extern struct hak_arena_published hak__arena_published;
extern _Atomic size_t hak__arena_frontier;

#define HAK_NO_SUPER ((size_t)-1)
#define HAK_SUPER_SPANS (HAK_SUPER_SLABS * (size_t)128)   /* bytes of its slabs' descriptors; span/span.h asserts their size */

/* Starts the arena: chooses the window and maps the first metadata. 0, or an errno code; may be called again. */
int hak__arena_init(void);

/* `count` adjacent SuperSlabs, the first at an address that is a multiple of `align` SuperSlabs, of which the first
 * `bytes` bytes are mapped. *fresh says whether those bytes are known to be zero. HAK_NO_SUPER when the system refuses. */
size_t hak__supers_take(size_t count, size_t align, size_t bytes, enum hak_super_kind kind, bool *fresh);

/* Takes the SuperSlabs after a run of `count`, so that it has `new_count` and `bytes` are mapped. False: unchanged. */
bool hak__supers_extend(size_t first, size_t count, size_t new_count, size_t bytes);

/* Gives back a run. Its mapped prefixes count as dirty. */
void hak__supers_give(size_t first, size_t count);

/* Moves the pages of one taken run to another, both taken by huge/: [from) of `size` bytes to [to) of `new_size`. False, and
 * nothing has changed: the system refuses, as it does (EFAULT) where the block lies in several mappings. */
bool hak__supers_move(size_t from, size_t size, size_t to, size_t new_size);

/* How many of `idle` bytes of unused slabs with old data may stay when a SuperSlab is opened (HAKMEM_DIRTY_LIMIT). Emptied SuperSlabs
 * count too; if all together exceed the limit, the oldest of those go back first. */
size_t hak__arena_dirty_room(size_t idle);

/* The same when new memory becomes resident: the `used` bytes in use and what may stay do not exceed the most in use lately and
 * HAKMEM_DIRTY_LIMIT. */
size_t hak__arena_growth_room(size_t idle, size_t used, uint64_t now_ms);

/* Returns the pages of a range of one SuperSlab that is the caller's alone; it then reads as zeros. False: the system refused, or under
 * HAKMEM_UNMAP too much would be mapped and not resident. */
bool hak__arena_purge_range(void *start, size_t bytes);

/* Makes whole pages of the caller's run fault when touched, or new again (HAK_OS_GUARD, HAK_OS_UNGUARD); or forbids and allows access,
 * which keeps their content. 0 or an errno code: EINVAL if the kernel has no such guards. */
int hak__arena_advise(void *start, size_t bytes, enum hak_os_advice advice);

extern struct hak_super *hak__supers;
extern struct hak_super_word *hak__super_words;

size_t hak__arena_top(void);                 /* SuperSlabs below the frontier */

size_t hak__page_size(void);

void hak__arena_fork_child(void);
hak_cold bool hak__arena_is_valid(void);

/* For a SuperSlab in which the caller has slabs: `bare` is written before anybody can have some. */
hak_inline bool hak__super_is_bare(size_t super) { return hak__supers[super].bare != 0; }

/* The bytes of a huge block's tail in a SuperSlab (arena/tail.c). */
hak_inline size_t hak__super_tail(size_t super)
{
    uint32_t kind = hak_load(&hak__supers[super].kind, HAK_RELAXED);
    return kind == HAK_SUPER_HUGE || kind == HAK_SUPER_HUGE_TAIL ? hak__supers[super].tail : 0;
}

hak_inline char *hak__super_start(size_t super) { return (char *)(hak__window.base + (super << HAK_SUPER_SHIFT)); }
