/* Runs of SuperSlabs, as other layers take and return them: span/ single ones, huge/ runs, upkeep/ memory ahead of need. All take the
 * arena's lock.
 *
 * Bare SuperSlabs: if the system refuses 2 MiB at once, a SuperSlab is opened as addresses alone, in which each span maps the few
 * pages that it uses (span/span.c, hak__span_reach), and unmaps them when it ends. A thrifty process does so from the start: it has
 * little room (RLIMIT_AS, RLIMIT_DATA), or its new memory is resident at once and locked (MCL_FUTURE), so that unused memory costs
 * as much as used memory. A bare SuperSlab has hak_super.mapped == 0 and nothing mapped in its unused slabs: when all are unused,
 * it is free and as new. state.pieces is the sum of the pieces, and part of state.mapped. */
#pragma once

#include "arena/arena.h"

/* Starts the arena: chooses the window and maps the first metadata. 0, or an errno code; may be called again. */
int hak__arena_init(void);

/* Takes `count` adjacent SuperSlabs, the first at a multiple of `align` SuperSlabs, with the first `bytes` bytes mapped. *fresh
 * says whether those bytes are known to be zero. HAK_NO_SUPER if the system refuses. */
size_t hak__supers_take(size_t count, size_t align, size_t bytes, enum hak_super_kind kind, bool *fresh);

/* Takes the SuperSlabs after a run of `count`, so that it has `new_count` of them and `bytes` mapped bytes. False: unchanged. */
bool hak__supers_extend(size_t first, size_t count, size_t new_count, size_t bytes);

/* Gives back a run. Its mapped prefixes count as dirty. */
void hak__supers_give(size_t first, size_t count);

/* Moves the pages of one taken run to another, both huge/'s: [from) of `size` bytes to [to) of `new_size`. False, and nothing has
 * changed: the system refuses, as it does (EFAULT) if the block lies in several mappings. */
bool hak__supers_move(size_t from, size_t size, size_t to, size_t new_size);

/* Opens a SuperSlab for slabs: wholly mapped, or bare. Refuses `whole` in a thrifty process; if new memory turns out to be resident
 * at once, the SuperSlab is bare after all. */
size_t hak__supers_open(bool whole, bool *fresh);

/* Bytes of slabs in use in bare SuperSlabs that have no piece. span/pool.c counts the slabs that come into use and go out of it. */
extern hak_counter hak__pieces_missing;

/* Map and unmap a piece of a bare SuperSlab, in the caller's slabs. 0 or an errno code; false: the system refuses. */
int hak__piece_map(void *start, size_t bytes);
bool hak__piece_unmap(void *start, size_t bytes);

/* For upkeep: maps SuperSlabs ahead of need until HAKMEM_RESERVE of them are free and mapped, but no more than a quarter of those
 * in use, and none that a limit would count. Gives the number mapped. */
size_t hak__reserve_refill(void);

void hak__arena_fork_child(void);
hak_cold bool hak__arena_is_valid(void);
