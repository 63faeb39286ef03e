/* The layout of a heap in memory that the program provides. All of it lies in its region and locates things by unit numbers, so the
 * region may be mapped at several addresses; the heap makes no system calls for memory.
 *
 *   header | a hak_region_unit per unit | a bit per unit: a run begins there | bits of blocks | units ...
 *   ^ the handle                                                                              ^ first
 *
 * The units before `frontier` are a chain of runs: free runs, slabs of blocks of one size class, single large blocks. Units after
 * it have never been touched, so a large region costs nothing before it is used.
 *
 * A slab's bits, a word per 64 blocks, say which blocks are allocated. They lie where the bits of the slab's first units are.
 *
 * One lock guards everything (robust.h). Its holder may die at any point: each change takes effect by one store, of a run's state,
 * the frontier or a word of bits, and the chain is whole before and after it. All other state follows from these, and the next
 * holder rebuilds it (hak__region_repair).
 *
 * Invariants, checked by hak__region_is_valid:
 *   1. the runs' units add up to `frontier`; no two free runs are neighbours, and none ends at the frontier
 *   2. begins[u] == 1 <=> a run begins at u, for u < known; frontier <= known
 *   3. a free run of n units: in the list of region_bin(n); the last unit's `before` == n
 *   4. slab: free == blocks - set bits; it is in its class's list <=> free != 0; if free == blocks,
 *      it is alone there */
#pragma once

#include "hakmem.h"
#include "region/robust.h"
#include "size/size.h"
#include "userheap/userheap.h"

#define HAK_REGION_LEAST ((size_t)64 << 10)
#define HAK_REGION_ALIGN 64u                     /* of the handle */
#define HAK_REGION_PAGE ((size_t)4 << 10)        /* every mapping of a shared region is a multiple of this */

enum { HAK_REGION_BINS = 128, HAK_REGION_SLAB_UNITS = 16, HAK_REGION_NAME = 48 };

enum hak_region_kind { HAK_RUN_NONE, HAK_RUN_FREE, HAK_RUN_SLAB, HAK_RUN_LARGE };

/* A run's first unit describes it. Links are unit numbers plus one; 0: none. */
struct hak_region_unit {
    _Atomic uint64_t state; /* units << 16 | class << 8 | enum hak_region_kind */
    uint32_t next, prev; /* a free run's: in its bin; a slab's with free blocks: in its class's list */
    uint32_t free; /* a slab's free blocks */
    uint32_t before; /* a free run's last unit: the run's units; a slab's first: no free block in the words before it */
};

struct hak_region_class {
    uint32_t first; /* slabs with free blocks */
    uint16_t blocks; /* in a slab */
    uint16_t units; /* of a slab; 0: no slabs, the class's blocks are large */
};

struct hak_region {
    _Atomic uint64_t magic; /* HAK_OWN_IN_REGION or HAK_OWN_GONE, as any heap's (userheap/userheap.h) */
    size_t size; /* of the region, from here */
    uint32_t version, flags; /* HAK_HEAP_... */
    struct hak_robust lock;
    uint32_t unit_shift, units;
    size_t begins, bits, first; /* offsets of the parts */
    _Atomic uint32_t frontier;
    uint32_t known; /* units up to which `begins` has been set */
    uint64_t bins_used[HAK_REGION_BINS / 64];
    uint32_t bins[HAK_REGION_BINS];
    struct hak_region_class classes[HAK_CLASSES];
    hak_heap_pressure *pressure;
    void *argument;
    /* Written under the lock; statistics read them without. */
    _Atomic uint64_t limit; /* bytes of units; UINT64_MAX: none */
    hak_counter refused, peak_bytes;
    hak_counter slab_units, large_units, large_count, live_blocks, live_bytes;
    char name[HAK_REGION_NAME];
    struct hak_region_unit unit[];
};

/* --- runs of units; the lock is held ------------------------------------------------------------------------------ */

hak_inline uint64_t hak__run_state(enum hak_region_kind kind, uint32_t class, uint32_t units)
{
    return (uint64_t)units << 16 | class << 8 | kind;
}
hak_inline enum hak_region_kind hak__run_kind(uint64_t state) { return (enum hak_region_kind)(state & 0xff); }
hak_inline uint32_t hak__run_class(uint64_t state) { return state >> 8 & 0xff; }
hak_inline uint32_t hak__run_units(uint64_t state) { return (uint32_t)(state >> 16); }
hak_inline uint64_t hak__run_at(const struct hak_region *region, uint32_t unit)
{
    return hak_load(&region->unit[unit].state, HAK_RELAXED);
}
/* release: if the process dies, the repairing one sees its stores in this order. */
hak_inline void hak__run_set(struct hak_region *region, uint32_t unit, uint64_t state)
{
    hak_store(&region->unit[unit].state, state, HAK_RELEASE);
}

hak_inline size_t hak__region_unit_bytes(const struct hak_region *region) { return (size_t)1 << region->unit_shift; }
hak_inline size_t hak__region_used(const struct hak_region *region)
{
    return (hak_counted(&region->slab_units) + hak_counted(&region->large_units)) << region->unit_shift;
}
hak_inline char *hak__region_unit_start(const struct hak_region *region, uint32_t unit)
{
    return (char *)(uintptr_t)region + region->first + ((size_t)unit << region->unit_shift);
}
/* Adds a run to, or removes it from, the list that begins at *first: a bin's or a class's. */
hak_inline void hak__run_link(struct hak_region *region, uint32_t *first, uint32_t unit)
{
    region->unit[unit].prev = 0;
    region->unit[unit].next = *first;
    if (*first != 0)
        region->unit[*first - 1].prev = unit + 1;
    *first = unit + 1;
}
hak_inline void hak__run_unlink(struct hak_region *region, uint32_t *first, uint32_t unit)
{
    const struct hak_region_unit *run = &region->unit[unit];
    *(run->prev != 0 ? &region->unit[run->prev - 1].next : first) = run->next;
    if (run->next != 0)
        region->unit[run->next - 1].prev = run->prev;
}

uint32_t hak__region_bin(uint32_t units);
void hak__region_bin_add(struct hak_region *region, uint32_t unit, uint32_t units);

/* The first unit of the run that covers `unit`; looks back at most `most` units. UINT32_MAX: not found. */
uint32_t hak__run_start(const struct hak_region *region, uint32_t unit, uint32_t most);
void hak__run_begins(struct hak_region *region, uint32_t unit, bool begins);
void hak__run_know(struct hak_region *region, uint32_t units); /* `begins` becomes valid up to there */

/* Takes a run whose start is a multiple of `align` as a large block. UINT32_MAX: there is none. */
uint32_t hak__run_take(struct hak_region *region, uint32_t units, size_t align);
void hak__run_give(struct hak_region *region, uint32_t unit);
/* Grows or shrinks a large run in place; false: what follows is not free. */
bool hak__run_resize(struct hak_region *region, uint32_t unit, uint32_t units);

/* --- blocks (blocks.c) ------------------------------------------------------------------------------------------------ */

/* Small ones in slabs by the library's size classes, others as single runs. The lock is held. */

void hak__region_plan_slabs(struct hak_region *region);
void *hak__region_take(struct hak_region *region, size_t align, size_t n);

/* The result of looking for a block at p: why_not is NULL if one begins there. */
struct hak_region_block {
    uint32_t unit, index, class; /* class: HAK_CLASSES for a large one */
    size_t size;
    const char *why_not;
    bool freed; /* a free block of a slab */
};
struct hak_region_block hak__region_find(const struct hak_region *region, const void *p);
void hak__region_give(struct hak_region *region, const struct hak_region_block *block);
bool hak__region_resize(struct hak_region *region, const struct hak_region_block *block, size_t n);
int hak__region_visit_blocks(struct hak_region *region, const struct hak_visit *visit);

/* --- repair (blocks.c) ------------------------------------------------------------------------------------------------ */

/* After the lock's holder has died. The lock is held. */

/* Rebuilds what follows from the chain and the bits. False: the chain is broken. */
hak_cold bool hak__region_repair(struct hak_region *region);
hak_cold bool hak__region_is_valid(const struct hak_region *region);
