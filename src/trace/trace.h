/* Hardened mode records which calls allocated and freed a block, as the latest stacks, for reports of misuse. Two tables of
 * fixed size in metadata; new entries replace old ones.
 *
 *   stacks    TRACE_SETS sets of TRACE_WAYS; the first address and the stack pointer choose a stack's set. Each
 *             return address has its position on the stack: comparing addresses and positions recognises a
 *             known stack without unwinding (trace/unwind.h). `edition` is odd while a stack is being written and
 *             tells the stacks of one slot apart: an id is slot and edition.
 *   blocks    by a hash of the address: the ids of the two calls, and the bytes asked for. The first word mixes
 *             the others with the address, so an entry torn between two threads matches no block.
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

enum { HAK_TRACE_ALONE = 1 };

struct hak_trace {
    _Atomic uint32_t edition;
    uint32_t count;
    uintptr_t frames[HAK_HERE_FRAMES];
    uint16_t places[HAK_HERE_FRAMES]; /* words above the stack pointer; 0 for the first, or HAK_TRACE_ALONE */
};

struct hak_trace_block {
    uint64_t key, ids, asked; /* ids: of the allocation; of the free in the upper half */
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

/* The id if this is the stack, else 0. `alone`: matches a stack that was not unwound, the caller alone. */
hak_inline uint32_t hak__trace_match(const struct hak_trace *trace, const struct hak_here *here, bool alone)
{
    uint32_t edition = hak_load(&trace->edition, HAK_ACQUIRE), count = hak_peek(&trace->count);
    if (hak_peek(&trace->frames[0]) != here->pc || (edition & 1) != 0 || count - 1 >= HAK_HERE_FRAMES)
        return 0;
    if (hak_unlikely((hak_peek(&trace->places[0]) == HAK_TRACE_ALONE) != alone))
        return 0;
    if (hak_unlikely(count > 1 && here->sp + hak_peek(&trace->places[count - 1]) * sizeof(uintptr_t) >= here->end))
        return 0;
    for (uint32_t i = 1; i < count; i++)
        if (hak_peek(&trace->frames[i])
            != (hak__unwind_word(here->sp + hak_peek(&trace->places[i]) * sizeof(uintptr_t)) & HAK_ADDRESS_BITS))
            return 0;
    return hak_load(&trace->edition, HAK_ACQUIRE) == edition ? hak__trace_id(trace, edition) : 0;
}

hak_inline uint32_t hak__trace_take(struct hak_heap *heap, const struct hak_here *here)
{
    if (hak_unlikely(hak__trace_tables.stacks == NULL))
        return 0;
    size_t set = hak__trace_set(here);
    for (unsigned way = 0; way < TRACE_WAYS; way++) {
        uint32_t id = hak__trace_match(hak__trace_at(set, way), here, false);
        if (id != 0)
            return id;
    }
    return hak__trace_slow(heap, here, set);
}

/* --- blocks --------------------------------------------------------------------------------------------------------------- */

enum { TRACE_ASKED_UNKNOWN = -1 };

hak_inline struct hak_trace_block *hak__trace_block(const void *p)
{
    return &hak__trace_tables.blocks[((uintptr_t)p >> 4) * 0x9e3779b97f4a7c15ull >> (64 - TRACE_BLOCKS_SHIFT)];
}

hak_inline void hak__trace_put(struct hak_trace_block *block, const void *p, uint64_t ids, uint64_t asked)
{
    hak_slot_store(&block->key, (uintptr_t)p ^ ids ^ asked);
    hak_slot_store(&block->ids, ids);
    hak_slot_store(&block->asked, asked);
}

/* Notes that the call with that id has allocated a block of n bytes. */
hak_inline void hak__trace_allocated(const void *p, uint32_t id, size_t n)
{
    if (hak_likely(id != 0))
        hak__trace_put(hak__trace_block(p), p, id, n);
}

/* Gives what is known of the block's calls and size; false: nothing. */
hak_inline bool hak__trace_known(const void *p, uint64_t *ids, uint64_t *asked)
{
    struct hak_trace_block *block = hak__trace_block(p);
    uint64_t key = hak_peek(&block->key);
    *ids = hak_peek(&block->ids);
    *asked = hak_peek(&block->asked);
    return (key ^ *ids ^ *asked) == (uintptr_t)p;
}

hak_inline void hak__trace_freed(const void *p, uint32_t id)
{
    uint64_t ids, asked;
    if (hak_unlikely(id == 0))
        return;
    if (hak_unlikely(!hak__trace_known(p, &ids, &asked))) {
        ids = 0;
        asked = (uint64_t)TRACE_ASKED_UNKNOWN;
    }
    hak__trace_put(hak__trace_block(p), p, (uint32_t)ids | (uint64_t)id << 32, asked);
}

/* Notes that the block was resized in place; its allocation stays. */
hak_inline void hak__trace_resized(const void *p, size_t n)
{
    uint64_t ids, asked;
    if (hak_likely(hak__trace_tables.stacks != NULL) && hak__trace_known(p, &ids, &asked))
        hak__trace_put(hak__trace_block(p), p, ids, n);
}

/* --- reports --------------------------------------------------------------------------------------------------------------- */

/* Prints which calls allocated and freed the block that begins at p, as far as known. */
hak_cold void hak__trace_tell(const void *p);
struct hak_mistake;
hak_cold void hak__trace_tell_mistake(
    const struct hak_mistake *mistake); /* where it was made; then the same, or what it can tell */

/* The bytes asked for, of a block in use; false: unknown. */
hak_cold bool hak__trace_asked(const void *p, size_t *n);
