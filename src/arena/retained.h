/* Unused memory that stays mapped for a while: emptied SuperSlabs with their old pages, and tails behind huge blocks.
 *
 * Emptied SuperSlabs are reused newest first, and returned to the system oldest first: by age, or when there
 * are many, as the policy says (base/retain.h). The list runs through the descriptors, so joining and leaving it takes a few stores. A bitmap
 * (`dirty`) serves to find adjacent ones, for huge blocks and for returning several by one call.
 *
 * A tail is the rest of a huge block's last SuperSlab, behind the block's end. Usually a guard lies there: the rest is unmapped.
 * But pages that an earlier block has used stay, because the next block there would fault them in again: in programs that replace
 * blocks of 1 to 25 MiB, that was most of the cost (docs/decisions/0083). A write beyond the block's end then hits unused memory.
 * Tails and emptied SuperSlabs together are bounded by the policy (base/retain.h); tails are unmapped at the same age.
 *
 * Invariants: in the list <=> the bit in `dirty` is set;  freed_ms does not grow from the newest to the oldest;  state.dirty is the sum
 * of their dirty bytes;  tail != 0 => the SuperSlab is taken, for a huge block, and the last `tail` bytes that are mapped in it are not
 * the block's;  state.tails is their sum. */
#pragma once

#include "arena/arena.h"
#include "base/retain.h"

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
