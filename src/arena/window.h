/* The window of addresses: its choice at start, its parts, and its end. Beside it lie two ranges, for sampled blocks
 * (sample/sample.h) and for blocks of size 0. These are only numbers; nothing is reserved. In the first range, only the pages of
 * blocks in use are mapped, so a freed block faults and costs neither memory nor a mapping. Any thread maps there, without a lock.
 *
 * A part of the window is 64 SuperSlabs, one word of bits. It is opened when a run in it is first taken: its span descriptors are
 * mapped then, and walks visit it. A part that a wide alignment skips, or that others have mapped, stays closed: it costs a bit for
 * each 128 MiB, and walks pass over 64 of them at once. Parts open under the arena's lock; walks of other layers read the bits
 * without it, because a part never closes again.
 *
 *   open                 its SuperSlabs' state is valid, as far as they lie below the frontier
 *   closed               free, and as new; the tables that a free reads exist all the same
 *   closed and foreign   mapped by others */
#pragma once

#include "arena/arena.h"

/* Chooses a base and maps the first piece of each metadata window; sets hak__window. 0 or an errno code. */
int hak__window_choose(void);

/* The number of SuperSlabs that the window can hold. */
size_t hak__window_supers(void);

/* --- sampled blocks, and blocks of size 0 -------------------------------------------------------------------------------- */

/* The start of the range of sampled blocks, 0 before the window has been chosen; its bytes, a multiple of HAK_GUARDED_STRIDE. */
uintptr_t hak__guarded_start(void);
size_t hak__guarded_size(void);

/* The start of the range of blocks of size 0, behind the other one: nothing is ever mapped there. */
uintptr_t hak__zero_size_start(void);

/* Maps fresh zeroed pages exactly there; 0 or an errno code: EEXIST if a foreign mapping is in the way. This memory does not count
 * towards HAKMEM_LIMIT. */
hak_cold int hak__guarded_map(uintptr_t address, size_t bytes);
hak_cold bool hak__guarded_unmap(uintptr_t address, size_t bytes);

extern _Atomic size_t hak__guarded_bytes; /* mapped now */

/* --- for the arena, under its lock ------------------------------------------------------------------------------------ */

/* How many parts from this one on are alike, all free or all foreign, as far as one read shows; 1 if it is open. */
size_t hak__parts_alike(size_t part);

uint64_t hak__part_free(size_t part); /* a bit for each free SuperSlab, by its place in it */
size_t hak__parts_foreign(void); /* how many closed ones are foreign */

/* Opens the parts of a run and raises the frontier above it: the metadata of its SuperSlabs exists afterwards. 0, an errno code
 * other than EEXIST, or HAK_PASSED: a foreign mapping lies where a part's descriptors should be, and the part was marked
 * foreign. */
enum { HAK_PASSED = -1 };
int hak__run_open(size_t first, size_t count);

/* Marks a SuperSlab with a foreign mapping as never to be used, and the next ones as far as the mapping extends. The caller has
 * removed the free ones there. */
void hak__hole_make(size_t super);

/* In a forked child: undoes the growth that another thread had begun. */
void hak__window_fork_child(void);
