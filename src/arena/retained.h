/* Unused memory that stays mapped for a while: emptied SuperSlabs with their old pages, and tails behind huge blocks.
 *
 * Emptied SuperSlabs are reused newest first, and returned to the system oldest first: by age, or when there are many, as the
 * policy says (returned.h). The list runs through the descriptors, so joining and leaving it takes a few stores. A bitmap (`dirty`)
 * serves to find adjacent ones, for huge blocks and for returning several by one call.
 *
 * A tail is the rest of a huge block's last SuperSlab, behind the block's end. Usually a guard lies there: the rest is unmapped.
 * But pages that an earlier block has used stay, because the next block there would fault them in again: in programs that replace
 * blocks of 1 to 25 MiB, that was most of the cost (docs/decisions/0083). A write beyond the block's end then hits unused memory.
 * Tails and emptied SuperSlabs together are bounded by the policy (returned.h); tails are unmapped at the same age.
 *
 * Invariants: in the list <=> the bit in `dirty` is set;  freed_ms does not grow from the newest to the oldest;  state.dirty is the sum
 * of their dirty bytes;  tail != 0 => the SuperSlab is taken, for a huge block, and the last `tail` bytes that are mapped in it are not
 * the block's;  state.tails is their sum. */
#pragma once

#include "arena/arena.h"
#include "arena/returned.h"

/* Returns to the system the SuperSlabs that have been empty long enough at `now_ms`, or with `all` newer ones too. Gives the bytes. */
size_t hak__arena_purge(uint64_t now_ms, bool all);

/* How many of `idle` bytes of unused slabs with old data may stay when a SuperSlab is opened while `used` bytes are in use. Emptied
 * SuperSlabs count too; if all together exceed the limit, the oldest of those go back first. */
size_t hak__arena_room(size_t idle, size_t used, uint64_t now_ms);

/* Unmaps the pages beyond `bytes` of a taken run of `count` SuperSlabs. False: the system refuses a part. */
bool hak__supers_trim(size_t first, size_t count, size_t bytes);

/* Returns the pages beyond `bytes` of a taken run of `count` SuperSlabs: unmaps them, unless the process is crowded or the system
 * refuses; with `tail`, all but the old pages that may stay: a tail, or those of a SuperSlab that the block does not reach. Returns
 * whether nothing is mapped there afterwards. */
bool hak__supers_shorten(size_t first, size_t count, size_t bytes, bool tail);

/* --- for the arena, under its lock ------------------------------------------------------------------------------------ */

/* Adds a free SuperSlab whose first `dirty` bytes may hold old data to the list, as its newest, or removes it. */
void hak__retained_add(size_t super, size_t dirty, uint64_t now_ms);
void hak__retained_remove(size_t super);

/* Notes that at most the first `dirty` bytes of an emptied SuperSlab hold old data; with none it leaves the list. */
void hak__retained_cut(size_t super, size_t dirty);

/* Frees a run; its mapped memory counts as dirty. */
void hak__retained_add_run(size_t first, size_t count, uint64_t now_ms);

/* The SuperSlab that was emptied last; HAK_NO_SUPER if none is kept. */
size_t hak__retained_newest(void);

/* Takes the lock and returns the oldest SuperSlabs until `keep` dirty bytes are left. Gives the dirty bytes left. */
size_t hak__retained_shorten(size_t keep);

/* Part of every take and give: cheap, unless the list is too long or was last checked long ago. */
void hak__retained_due(uint64_t now_ms);

/* Notes the bytes in use before they fall, since they may be a peak. */
void hak__retained_note(uint64_t now_ms);

/* Unmaps a free SuperSlab. False: the system refuses, and the SuperSlab stays. */
bool hak__super_unmap(size_t super);

/* Unmaps every free SuperSlab, and all tails. Returns whether there was one. */
bool hak__retained_unmap_all(void);

/* Ends the tail in a SuperSlab: the mapped memory behind the block is now free, or the block's. Any SuperSlab of a taken run may be
 * given. */
void hak__tail_end(size_t super);

/* In a forked child: links the list anew. */
void hak__retained_rebuild(void);
hak_cold bool hak__retained_is_valid(void);

/* --- freed memory that huge blocks use again (recycled.c) ------------------------------------------------------------- */

/* Called by huge/.
 *
 * Waiting runs: the runs that a thread freed last wait in front of the arena for its next requests of exactly those sizes. Such a
 * pair of free and malloc takes no lock and reads nothing of the arena's.
 *
 *   a word    0: nothing waits;  else (bytes << 12) | first SuperSlab
 *   a line    the runs of one heap, or of a few that share it by their numbers, and how many bytes may wait there
 *
 * A waiting run is still taken, of kind HUGE and mapped; only its owner word says that it holds no block. A thread puts it into a
 * word or takes it out by an exchange, and then owns it alone.
 *
 * The arena never lacks waiting memory: each request for a run or a longer one first gives all of them back
 * (hak__waiting_end_locked), as does each step of upkeep and each count of memory in use. So they never exceed recent use, and
 * raise no peak. The retention policy bounds their sum: lines draw on it, and it is whole again when all runs have been given back.
 * A line's bytes are summed each time, not counted: a count kept by several threads without a lock can fall below zero, and would
 * then allow everything. Two threads that put at once into one line may exceed its room by a run.
 *
 * Lent pages: a run is chosen by its addresses, and parts of it may have no pages while emptied SuperSlabs elsewhere have some.
 * Moving these costs a hundredth of faulting new ones in, and nothing is resident twice (docs/decisions/0049). A piece that has
 * moved is a separate mapping until it is unmapped (hak_super.moved), so their number is limited. */

enum { HAK_WAITING_BITS = 24 }; /* of a SuperSlab's number */
_Static_assert(HAK_WINDOW_SUPERS <= 1ull << HAK_WAITING_BITS, "a SuperSlab's number fits below the bytes of whole pages");

struct hak_waiting_line {
    hak_line_aligned _Atomic uint64_t run[HAK_WAITING_RUNS];
    _Atomic size_t room; /* bytes that may wait here in all, which the line has drawn */
};
_Static_assert(sizeof(struct hak_waiting_line) == 64, "a thread touches one line");
extern struct hak_waiting_line hak__waiting[HAK_WAITING_LINES];

/* Every thread reads them, few change them. */
struct hak_waiting_rules {
    hak_line_aligned _Atomic size_t left; /* bytes that no line has drawn */
    _Atomic size_t page; /* hak__page_size */
    _Atomic bool any; /* a run may have been put since all were last given back; true at the start */
};
extern struct hak_waiting_rules hak__waiting_rules;

hak_inline struct hak_waiting_line *hak__waiting_line(uint32_t heap_id) { return &hak__waiting[heap_id % HAK_WAITING_LINES]; }

hak_inline size_t hak__waiting_bytes(uint64_t run) { return (size_t)(run >> HAK_WAITING_BITS) << 12; }

/* Reserves bytes of the shared allowance until `bytes` may wait in the line; false: too little is left. */
bool hak__waiting_draw(struct hak_waiting_line *line, size_t bytes);

/* The first free word for a run of `bytes` bytes; NULL if none is free, or if the run would exceed the bytes that may wait. The
 * runs are summed as they are: their SuperSlabs' numbers together may count as one page for each run, at most. */
hak_inline _Atomic uint64_t *hak__waiting_word(struct hak_waiting_line *line, size_t bytes)
{
    uint64_t runs = 0;
    uint32_t free = 0;
    hak_hide(line); /* otherwise gcc computes each word's address anew */
    while (hak_load(&line->run[free], HAK_RELAXED) != 0)
        if (++free == HAK_WAITING_RUNS)
            return NULL;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < HAK_WAITING_RUNS; i++)
        runs += hak_load(&line->run[i], HAK_RELAXED);
    bytes += hak__waiting_bytes(runs);
    return hak_likely(bytes <= hak_load(&line->room, HAK_RELAXED)) || hak__waiting_draw(line, bytes) ? &line->run[free] : NULL;
}

/* Returns whether the run waits from now on; false: another run took the word. seq_cst with the read of `any`: a thread that gives
 * back clears `any` before it reads the words, so one of the two sees the other. */
hak_inline bool hak__waiting_put(_Atomic uint64_t *word, size_t first, size_t bytes)
{
    hak_assert(bytes % 4096 == 0 && first < HAK_WINDOW_SUPERS, "a word has room for whole pages and a SuperSlab's number");
    uint64_t none = 0, run = (uint64_t)bytes << (HAK_WAITING_BITS - 12) | first;
    if (!hak_cas_strong(word, &none, run, HAK_SEQ_CST, HAK_RELAXED))
        return false;
    if (!hak_load(&hak__waiting_rules.any, HAK_SEQ_CST))
        hak_store(&hak__waiting_rules.any, true, HAK_RELAXED);
    return true;
}

/* Takes out a run that is n bytes long in whole pages: returns its first SuperSlab and stores its bytes; or HAK_NO_SUPER. acquire:
 * pairs with another thread's put. */
hak_inline size_t hak__waiting_take(struct hak_waiting_line *line, size_t n, size_t *bytes)
{
    size_t page = hak_load(&hak__waiting_rules.page, HAK_RELAXED);
    for (uint32_t i = 0; i < HAK_WAITING_RUNS; i++) {
        uint64_t run = hak_load(&line->run[i], HAK_RELAXED);
        *bytes = hak__waiting_bytes(run);
        if (n <= *bytes && *bytes - n < page && hak_cas_strong(&line->run[i], &run, 0, HAK_ACQUIRE, HAK_RELAXED))
            return (size_t)run & (((size_t)1 << HAK_WAITING_BITS) - 1);
    }
    return HAK_NO_SUPER;
}

/* Gives back all waiting runs. The policy is then asked anew. */
void hak__waiting_end(void);

/* Moves pages of emptied SuperSlabs into the gaps of a run just taken for a block of `bytes` bytes; the block's content is then
 * undefined. False: a part of the run is no longer mapped, so the block cannot be allocated. */
bool hak__supers_fill(size_t first, size_t bytes);

/* --- for the arena, under its lock ------------------------------------------------------------------------------------ */

void hak__waiting_end_locked(void);
