/* Emptied SuperSlabs, kept for a while (lru.c). */
#pragma once

#include "arena/arena.h"

/* Returns to the system the SuperSlabs that have been empty for HAKMEM_PURGE_DELAY at `now_ms`; all: newer ones too. Gives the bytes. */
size_t hak__arena_purge(uint64_t now_ms, bool all);

/* --- for the arena, under its lock ------------------------------------------------------------------------------------ */

/* A free SuperSlab whose first `dirty` bytes may hold old data joins the list as its newest, or leaves it. */
void hak__lru_add(size_t super, uint32_t dirty, uint64_t now_ms);
void hak__lru_remove(size_t super);

/* No more than the first `dirty` bytes of an emptied SuperSlab hold old data; with none it leaves the list. */
void hak__lru_cut(size_t super, uint32_t dirty);

/* A run is free from now on, and what is mapped of it counts as dirty. */
void hak__lru_add_run(size_t first, size_t count, uint64_t now_ms);

/* The SuperSlab that was emptied last; HAK_NO_SUPER when none is kept. */
size_t hak__lru_newest(void);

/* Returns the pages of SuperSlabs emptied at or before `before_ms`, the oldest first, until `keep` dirty bytes are
 * left. Gives the bytes returned. */
size_t hak__lru_purge(uint64_t before_ms, size_t keep);

/* Takes the lock and returns the oldest until `keep` dirty bytes are left. Gives those that are. */
size_t hak__lru_shorten(size_t keep);

/* Whether so many bytes more may be unused and stay. */
bool hak__lru_has_room(size_t bytes, uint64_t now_ms);

/* Part of every give and take: cheap, unless the list is too long or was last checked long ago. */
void hak__lru_due(uint64_t now_ms);

/* Notes how much is in use, before that falls, since it may be a peak. */
void hak__lru_note(uint64_t now_ms);

/* Unmaps a free SuperSlab. False: the system refuses, and the SuperSlab stays. */
bool hak__super_unmap(size_t super);

/* Unmaps every free SuperSlab, and tails. Returns whether there was one. */
bool hak__lru_unmap_all(void);

/* In a forked child: links the list anew. */
void hak__lru_rebuild(void);
hak_cold bool hak__lru_is_valid(void);
