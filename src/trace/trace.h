/* Hardened mode records which calls allocated and freed a block, as the latest stacks, for reports of misuse. Two tables of
 * fixed size in metadata; new entries replace old ones.
 *
 *   stacks    TRACE_SETS sets of TRACE_WAYS; the first address and the stack pointer choose a stack's set. Each
 *             return address has its position on the stack: comparing addresses and positions recognises a
 *             known stack without unwinding (trace/unwind.h). `edition` is odd while a stack is being written and
 *             tells the stacks of one slot apart: an id is slot and edition.
 *   blocks    the ids of the two calls, and the bytes asked for. Blocks that are neighbours in their slab are so in the table: calls
 *             that come to neighbouring blocks find their entries in the processor's cache. The place, the tag and `shift`
 *             (which depends on the class) tell the address. The tag is mixed with `rest`, so an entry torn between two threads
 *             matches no block.
 *
 * Each heap has an allowance for unwinding: HAK_UNWINDS_MOST at first, and some more with every few calls (harden/kinds.c). A
 * call beyond it gets a stack of one address, as does every call on processors that unwind.h does not support. No function waits
 * or locks; signal handlers may call them too. */
#pragma once

#include "base/atomic.h"
#include "harden/quarantine.h"
#include "trace/unwind.h"

enum { TRACE_SETS = 2048, TRACE_WAYS = 4, TRACE_INDEX_BITS = 13, TRACE_BLOCKS_SHIFT = 16 };
_Static_assert(TRACE_SETS * TRACE_WAYS == 1 << TRACE_INDEX_BITS, "an id has room for the place");

struct hak_trace {
    _Atomic uint32_t edition;
    uint32_t count;
    uintptr_t frames[HAK_HERE_FRAMES]; /* the second is repeated behind the last; the complement of a caller alone, which was not
                                        * unwound */
    uint64_t places[HAK_HERE_FRAMES / 4]; /* sixteen bits each: words above the stack pointer */
};

struct hak_trace_block {
    uint64_t made; /* the id of the allocation; in the upper half the tag */
    uint64_t rest; /* the bytes asked for; in the upper half the id of the free */
};

struct hak_trace_tables {
    struct hak_trace *stacks; /* NULL: no tables */
    struct hak_trace_block *blocks;
};
extern struct hak_trace_tables hak__trace_tables;

/* Once, in hardened mode or when blocks are sampled: gives reports of misuse the caller's stack; in hardened mode also makes the
 * tables. */
hak_cold void hak__trace_begin(bool hardened);

/* The id of the calling thread's stack, 0 if there is none; `here` is HAK_HERE() in the function that the program called. */
hak_aside uint32_t hak__trace_slow(struct hak_heap *heap, const struct hak_here *here, size_t set);

hak_inline struct hak_trace *hak__trace_at(size_t set, unsigned way) { return &hak__trace_tables.stacks[set * TRACE_WAYS + way]; }

hak_inline size_t hak__trace_set(const struct hak_here *here)
{
    uint64_t hash = (here->pc << 9 ^ (here->sp & 0xff8)) * 0x9e3779b97f4a7c15ull;
    return hash >> (64 - TRACE_INDEX_BITS + 2);
}

hak_inline uint32_t hak__trace_id(const struct hak_trace *trace, uint32_t edition)
{
    return edition << TRACE_INDEX_BITS | (uint32_t)(trace - hak__trace_tables.stacks);
}

hak_inline uintptr_t hak__trace_place(const uint64_t *places, unsigned frame)
{
    return (uint16_t)(places[frame / 4] >> frame % 4 * 16) * sizeof(uintptr_t);
}

/* What the return address at that place on the stack differs by. */
hak_inline uint64_t hak__trace_differs(const struct hak_trace *trace, const uint64_t *places, const struct hak_here *here,
                                       unsigned frame)
{
    uintptr_t found = hak__unwind_word(here->sp + hak__trace_place(places, frame));
    return HAK_RETURN_ADDRESS(found) ^ hak_peek(&trace->frames[frame]);
}

/* The id if this is the stack, else 0. */
hak_inline uint32_t hak__trace_match(const struct hak_trace *trace, const struct hak_here *here)
{
    uint32_t edition = hak_load(&trace->edition, HAK_ACQUIRE), last = hak_peek(&trace->count) - 1;
    uint64_t differs = hak_peek(&trace->frames[0]) ^ here->pc;
    if (hak_likely(differs != 0) || hak_unlikely((edition & 1) != 0 || last >= HAK_HERE_FRAMES))
        return 0;
    if (last != 0) {
        /* All of one stack, which the last is the farthest of: a stack that is being replaced could lead beyond this one. */
        const uint64_t places[] = { hak_peek(&trace->places[0]), hak_peek(&trace->places[1]) };
        if (hak_unlikely(hak_load(&trace->edition, HAK_ACQUIRE) != edition
                         || here->sp + hak__trace_place(places, last) >= here->end))
            return 0;
        if ((differs = hak__trace_differs(trace, places, here, 1)) != 0)
            return 0;
#pragma GCC unroll 8
        for (unsigned i = 2; i < HAK_HERE_FRAMES; i++)
            differs |= hak__trace_differs(trace, places, here, i);
        if (differs != 0)
            return 0;
    }
    return hak_load(&trace->edition, HAK_ACQUIRE) == edition ? hak__trace_id(trace, edition) : 0;
}

hak_inline uint32_t hak__trace_take(struct hak_heap *heap, const struct hak_here *here)
{
    if (hak_unlikely(hak__trace_tables.stacks == NULL))
        return 0;
    size_t set = hak__trace_set(here);
    for (const struct hak_trace *trace = hak__trace_at(set, 0), *end = trace + TRACE_WAYS; trace < end; trace++) {
        uint32_t id = hak__trace_match(trace, here);
        if (id != 0)
            return id;
    }
    return hak__trace_slow(heap, here, set);
}

/* --- blocks --------------------------------------------------------------------------------------------------------------- */

enum { TRACE_LEAST_SHIFT = 4, TRACE_STRIDE = 40503 /* slabs in turn fall far apart */ };
#define TRACE_ASKED_UNKNOWN UINT32_MAX
_Static_assert(TRACE_BLOCKS_SHIFT == HAK_SLAB_SHIFT, "a place has as many bits as an offset in a slab");

hak_inline struct hak_trace_block *hak__trace_block(const void *p, unsigned shift)
{
    size_t slab = (uintptr_t)p >> HAK_SLAB_SHIFT, offset = (uintptr_t)p % HAK_SLAB_SIZE;
    return &hak__trace_tables.blocks[(slab * TRACE_STRIDE + (offset >> shift)) % (1u << TRACE_BLOCKS_SHIFT)];
}

/* What the place does not tell: the address's upper half, the offset in the slab, and how the place was found. */
hak_inline uint64_t hak__trace_tag(const void *p, unsigned shift, uint64_t rest)
{
    uint64_t offset = (uintptr_t)p % HAK_SLAB_SIZE, above = (uint64_t)(uintptr_t)p >> 32;
    hak_assert(offset % HAK_ALIGN == 0 && shift - TRACE_LEAST_SHIFT < HAK_ALIGN, "a block's address, and the shift of a class");
    return ((above << 16 | offset | (shift - TRACE_LEAST_SHIFT)) << 32) ^ (rest * 0x9e3779b97f4a7c15ull & ~(uint64_t)UINT32_MAX);
}

hak_inline void hak__trace_put(struct hak_trace_block *block, const void *p, unsigned shift, uint32_t made, uint64_t rest)
{
    hak_slot_store(&block->made, hak__trace_tag(p, shift, rest) | made);
    hak_slot_store(&block->rest, rest);
}

/* Notes that the call with that id has allocated a block of n bytes. Here and below `shift` is that of the block's class
 * (harden/mode.h), or the least. */
hak_inline void hak__trace_allocated(const void *p, unsigned shift, uint32_t id, size_t n)
{
    if (hak_likely(id != 0))
        hak__trace_put(hak__trace_block(p, shift), p, shift, id, hak_likely(n < UINT32_MAX) ? n : TRACE_ASKED_UNKNOWN);
}

/* Gives what is known of the block's calls and size; false: nothing. */
hak_inline bool hak__trace_known(const void *p, unsigned shift, uint32_t *made, uint64_t *rest)
{
    struct hak_trace_block *block = hak__trace_block(p, shift);
    uint64_t word = hak_peek(&block->made);
    *rest = hak_peek(&block->rest);
    *made = (uint32_t)word;
    return (word ^ hak__trace_tag(p, shift, *rest)) <= UINT32_MAX;
}

hak_inline void hak__trace_freed(const void *p, unsigned shift, uint32_t id)
{
    uint64_t rest;
    uint32_t made;
    if (hak_unlikely(id == 0))
        return;
    if (hak_unlikely(!hak__trace_known(p, shift, &made, &rest))) {
        made = 0;
        rest = TRACE_ASKED_UNKNOWN;
    }
    hak__trace_put(hak__trace_block(p, shift), p, shift, made, (uint32_t)rest | (uint64_t)id << 32);
}

/* Notes that the block was resized in place; its allocation stays. */
hak_inline void hak__trace_resized(const void *p, unsigned shift, size_t n)
{
    uint64_t rest;
    uint32_t made;
    if (hak_likely(hak__trace_tables.stacks != NULL) && hak__trace_known(p, shift, &made, &rest))
        hak__trace_put(hak__trace_block(p, shift), p, shift, made, n < UINT32_MAX ? n : TRACE_ASKED_UNKNOWN);
}

/* --- reports --------------------------------------------------------------------------------------------------------------- */

/* Prints which calls allocated and freed the block that begins at p, as far as known. */
hak_cold void hak__trace_tell(const void *p);
struct hak_mistake;
hak_cold void hak__trace_tell_mistake(
    const struct hak_mistake *mistake); /* where it was made; then the same, or what it can tell */

/* The bytes asked for, of a block in use; false: unknown. */
hak_cold bool hak__trace_asked(const void *p, size_t *n);
