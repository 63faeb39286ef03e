/* The arena's state: the table of SuperSlabs, the lock under which it changes, the sums over it, and the figures published for readers
 * that must not wait. The arena is one numeric window of addresses from which all memory comes, in SuperSlabs of 2 MiB, with metadata
 * windows beside it. It is the only caller of the operating system's memory functions. Each file uses only those to its left:
 *
 *   owner < limit < arena < meta < window < returned < mapping < retained < recycled < runs
 *
 * Nothing is reserved: memory is mapped upwards from the window's random base in growing steps, so the virtual size of the process is
 * the heap's. A foreign mapping on the way is a hole, and the arena steps over it.
 *
 * A SuperSlab below the frontier is free or taken (bit in `taken`); a free one may be mapped (a prefix of `mapped` bytes) and dirty (a
 * prefix of `dirty` bytes may hold old data). The lock's sections keep all of it valid at each step: `taken` is set before a run is
 * handed out and cleared after it was given back, so a forked child may take over the lock and go on.
 *
 * Invariants: dirty <= mapped <= HAK_SUPER_SIZE;  taken => not in the list of emptied ones;  the sums are those of hak__arena_is_valid. */
#pragma once

#include "arena/owner.h"
#include "base/bits.h"
#include "base/lock.h"
#include "os/os.h"

enum hak_super_kind { HAK_SUPER_FREE, HAK_SUPER_IN_SLABS, HAK_SUPER_HUGE, HAK_SUPER_HUGE_TAIL, HAK_SUPER_HOLE };

/* One per SuperSlab, out of line. Each has a cache line, because threads that work in different SuperSlabs write to them at the
 * same time. */
struct hak_super {
    hak_line_aligned _Atomic uint64_t slabs; /* bits 0..31: unused slabs; bits 32..63: slabs that may hold old data (span/) */
    uint32_t mapped; /* bytes mapped, from the start */
    uint32_t dirty; /* of a free SuperSlab: bytes that may hold old data, from its start */
    _Atomic uint64_t freed_ms; /* when it was emptied or got its tail; in slabs: when a slab was last given back */
    union {
        uint32_t newer; /* its neighbours in the list of emptied ones, plus one; 0: none (retained.c) */
        uint32_t tail; /* of a huge block: bytes behind its end that stay mapped (retained.c) */
    };
    union {
        uint32_t older;
        _Atomic uint32_t
            shielded; /* of a huge block's first SuperSlab: rights of the block's pages may have changed (span/shield.h) */
    };
    union {
        _Atomic size_t huge_bytes; /* of a huge block's first SuperSlab: bytes mapped for the block */
        _Atomic size_t returned; /* of a free SuperSlab: bytes of its old data that went back to the system (returned.h) */
    };
    _Atomic uint32_t kind; /* enum hak_super_kind */
    _Atomic uint8_t collapsed; /* its pages were made one huge page, and none has been purged since (mapping.h) */
    uint8_t no_huge; /* its memory is marked against huge pages; its neighbours' may not be (mapping.h) */
    uint16_t moved; /* pieces that came by mremap: the SuperSlab is unmapped rather than purged, so that mappings merge */
    _Atomic uint32_t full_ms; /* in slabs: since when it has been nearly full, modulo 2^32 ms; 0: it is not (upkeep/) */
    union {
        _Atomic uint32_t guard; /* of a huge block's first SuperSlab: bytes behind the block that fault; 0: none */
        _Atomic uint32_t bare; /* in slabs: mapped in pieces, as far as its spans need it (runs.h) */
    };
    _Atomic uint32_t assigned_to; /* the heap to which it is assigned (heap/large.c); 0: none */
    _Atomic uint32_t purged_mapped; /* in slabs: an upper bound of the purged bytes that stay mapped */
};

_Static_assert(sizeof(struct hak_super) == 64, "a SuperSlab's entry is a cache line");

/* 64 SuperSlabs' worth of bits, a part of the window (window.h); one cache line. */
#define HAK_PART_SUPERS 64
struct hak_super_word {
    uint64_t taken; /* arena lock */
    uint64_t dirty; /* free, mapped and dirty; arena lock */
    _Atomic uint64_t partial[HAK_LEVELS]; /* hints: has a free run of >= 1, 2, 4, 8, 16 slabs; may be stale (span/) */
    _Atomic uint64_t draining; /* in slabs, DRAINING (span/pool.c) */
};

/* The arena's counts, besides the frontier:
 *   mapped, dirty     user bytes mapped; those of free SuperSlabs that may hold old data
 *   peak              the most user bytes mapped at once
 *   taken, holes      SuperSlabs handed out; those in which a foreign mapping was found
 *   kept              emptied SuperSlabs that keep their old pages
 *   waited, reserved  requests that had memory mapped; SuperSlabs mapped ahead of need; so far, like the next three
 *   returned_by_age, returned_by_bytes   bytes of emptied SuperSlabs returned to the system
 *   lock_takes        times that the arena's lock was taken */
#define HAK_ARENA_COUNTS(X) \
    X(mapped) X(peak) X(dirty) X(taken) X(holes) X(kept) X(waited) X(reserved) X(returned_by_age) X(returned_by_bytes) \
    X(lock_takes)

/* The figures at the last release of the lock; stats/live.c lists their places. The fast path reads other global words, so the
 * figures have a cache line of their own. */
struct hak_arena_published {
#define X(name) hak_counter name;
    HAK_ARENA_COUNTS(X)
#undef X
} hak_line_aligned;
extern struct hak_arena_published hak__arena_published;
extern _Atomic size_t hak__arena_frontier;

#define HAK_NO_SUPER ((size_t)-1)
#define HAK_SUPER_SPANS (HAK_SUPER_SLABS * (size_t)128)   /* bytes of its slabs' descriptors; span/span.h asserts their size */

extern struct hak_super *hak__supers;
extern struct hak_super_word *hak__super_words; /* the first part's; each next one's lies below it (window.h) */

size_t hak__arena_top(void); /* SuperSlabs below the frontier */

size_t hak__page_size(void);

/* Of a SuperSlab in which the caller has slabs, as `bare` is written before any thread can have some; of others it may be outdated. */
hak_inline bool hak__super_is_bare(size_t super) { return hak_load(&hak__supers[super].bare, HAK_RELAXED) != 0; }

/* The bytes of a huge block's tail in a SuperSlab. */
hak_inline size_t hak__super_tail(size_t super)
{
    uint32_t kind = hak_load(&hak__supers[super].kind, HAK_RELAXED);
    return kind == HAK_SUPER_HUGE || kind == HAK_SUPER_HUGE_TAIL ? hak__supers[super].tail : 0;
}

hak_inline char *hak__super_start(size_t super) { return (char *)(hak__window.base + (super << HAK_SUPER_SHIFT)); }
hak_inline size_t hak__super_of(const void *p) { return ((uintptr_t)p - hak__window.base) >> HAK_SUPER_SHIFT; }

/* Walks over all SuperSlabs skip the closed parts of the window (window.h):
 *   for (size_t super = hak__super_from(0); super < hak__arena_top(); super = hak__super_from(super + 1))
 * Elsewhere a walk may only begin in an open part, or at the start of a part. */
bool hak__part_is_open(size_t part);
size_t hak__part_next(size_t part,
                      size_t top); /* the first open one from this one on; if there is none, one that begins at or above `top` */
size_t hak__super_before(size_t super); /* the next lower one in an open part; HAK_NO_SUPER: none */
uint64_t hak__parts_full(size_t part); /* under the lock: a bit for each part without a free SuperSlab, of the 64 around this one */
bool hak__super_is_hole(size_t super); /* below the top: a foreign mapping was found there */

hak_inline size_t hak__super_from(size_t super)
{
    return super % HAK_PART_SUPERS != 0 ? super : hak__part_next(super / HAK_PART_SUPERS, hak__arena_top()) * HAK_PART_SUPERS;
}

void hak__arena_lock(void);
void hak__arena_unlock(void); /* and publishes the state for readers that must not wait */
bool hak__arena_is_locked(void); /* by any thread */

/* --- for the arena's files, under its lock ------------------------------------------------------------------------------ */

struct hak_arena_state {
#define X(name) uint64_t name;
    HAK_ARENA_COUNTS(X)
#undef X
    size_t spare; /* bytes mapped of SuperSlabs that are not taken */
    size_t moved; /* the sum of all SuperSlabs' */
    size_t tails; /* the sum of all SuperSlabs' */
    size_t pieces; /* bytes mapped in bare SuperSlabs */
    size_t samples; /* bytes mapped for sampled blocks outside the window; part of `mapped` */
    size_t ends; /* SuperSlabs in which mapped memory ends; with `moved`, roughly the number of mappings */
    uint32_t newest, oldest; /* the ends of the list of emptied ones: a SuperSlab's number plus one; 0: the list is empty */
    uint64_t look_ms; /* when the list is to be checked for age */
    uintptr_t mapping; /* the range being mapped, until the lock is released; a child forked meanwhile unmaps it, ... */
    size_t mapping_bytes; /* ... unless its SuperSlab already counts as mapped */
} hak_line_aligned;

extern struct hak_arena_state hak__arena_state;

bool hak__arena_is_mine(void); /* whether the calling thread holds the lock */
bool hak__arena_inherit(void); /* in a forked child: takes the lock over from an absent thread; false: none held it */
int hak__arena_map(uintptr_t address, size_t bytes); /* as hak__os_map, and notes the range */
void hak__arena_count_samples(size_t difference); /* more bytes, or fewer modulo 2^64, are mapped for samples */

/* Whether the arena makes no more mappings because the process nears its limit of them (limit.h). */
bool hak__arena_is_crowded(void);

/* Called after each request to the system, with its errno code: if it was refused, unmaps all unused memory. Returns whether there
 * was some, so that the request is worth repeating. hak__arena_on_refusal sets the function that unmaps; it has the same result. */
hak_at_start bool hak__arena_gives_up(int code);
void hak__arena_on_refusal(bool (*unmap_unused)(void));

hak_inline void hak__mark(uint64_t *word, size_t super, bool value)
{
    uint64_t bit = 1ull << super % 64;
    *word = value ? *word | bit : *word & ~bit;
}
hak_inline bool hak__super_is_taken(size_t super) { return (hak__super_words - super / 64)->taken >> super % 64 & 1; }
hak_inline bool hak__super_is_dirty(size_t super) { return (hak__super_words - super / 64)->dirty >> super % 64 & 1; }

/* The bytes of the run's i-th SuperSlab that a block of `bytes` bytes needs. */
hak_inline size_t hak__super_need(size_t i, size_t bytes)
{
    size_t before = i << HAK_SUPER_SHIFT;
    return bytes <= before ? 0 : hak_min(bytes - before, HAK_SUPER_SIZE);
}

/* Change one SuperSlab's part of the sums: whether it is taken; how many of its bytes are mapped, from its start; how many pieces
 * came by mremap. hak__super_count_mapped also adds the difference to `mapped`. */
void hak__super_set_taken(size_t super, bool taken);
void hak__super_set_mapped(size_t super, size_t bytes);
void hak__super_count_mapped(size_t super, size_t bytes);
void hak__super_set_moved(size_t super, size_t pieces);

/* Whether mapped memory ends in a SuperSlab: it is mapped in part, or wholly while the next one is not mapped at all. */
bool hak__super_is_end(size_t super);
