/* The window of addresses: its choice at start, its parts, and its end; and the metadata windows. Beside it lie two ranges, for
 * sampled blocks (sample/sample.h) and for blocks of size 0. These are only numbers; nothing is reserved. In the first range, only
 * the pages of blocks in use are mapped, so a freed block faults and costs neither memory nor a mapping. Any thread maps there,
 * without a lock.
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

/* --- for the arena, under its lock ------------------------------------------------------------------------------------ */

/* How many parts from this one on are alike, all free, all foreign or all full, as far as one read shows; 1 if it is another open
 * one. */
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

/* --- metadata --------------------------------------------------------------------------------------------------------- */

/* The metadata windows: address ranges beside the user data that grow with it. The first half is only for arena/. Each window is
 * mapped from its start, the pool and the words from their ends, in steps, and never shrinks; span descriptors of closed parts are left out. All
 * changes happen under the arena's lock. */

/* In address order. The words of SuperSlabs go on downwards from the first ones, which are in front of the table of SuperSlabs, on its
 * first page. */
enum hak_meta_window {
    HAK_META_POOL,
    HAK_META_HEAPS,
    HAK_META_SPANS,
    HAK_META_MAP,
    HAK_META_WORDS,
    HAK_META_SUPERS,
    HAK_META_WINDOWS
};
enum { HAK_META_FIRST_WORDS = 16 };

/* Lays the windows out from `start` for a data window of `supers` SuperSlabs; maps nothing. Returns the first address after the
 * last one. */
uintptr_t hak__meta_layout(uintptr_t start, size_t supers);

/* The address range that the layout needs. */
size_t hak__meta_span(size_t supers);

uintptr_t hak__meta_begin(void); /* the lowest address that a window may ever use; the blocks follow the last one */
uintptr_t hak__meta_start(enum hak_meta_window window); /* its lowest mapped address */

/* Maps the window's first `bytes` bytes (of the pool, its last), if they are not mapped. 0 or an errno code. */
int hak__meta_ensure(enum hak_meta_window window, size_t bytes);

size_t hak__meta_mapped(enum hak_meta_window window); /* from its start on; of descriptors, the first part's */
size_t hak__meta_bytes(void); /* of all windows */

/* Maps a piece of a window apart from its start: descriptors of a part other than the first, or the rest of a heap. The caller
 * calls hak__meta_piece_done once it has noted the piece; until then hak__meta_piece_begun returns its offset. */
int hak__meta_piece(enum hak_meta_window window, size_t offset, size_t bytes);
void hak__meta_piece_done(void);
#define HAK_META_NO_PIECE SIZE_MAX   /* none in this window */
size_t hak__meta_piece_begun(enum hak_meta_window window);

/* Maps the first *bytes bytes of a heap. Ids are consecutive; if the last one is asked for again, *bytes returns how many it
 * has. */
int hak__meta_heap(size_t id, size_t *bytes);
size_t hak__meta_heaps(void); /* how many there are */

/* Unmaps what hak__meta_ensure or hak__meta_heap has mapped, if a base is given up before anything else was mapped. */
void hak__meta_give_up(enum hak_meta_window window);

/* In a forked child: undoes a growth that another thread had begun, and unmaps an unfinished piece of descriptors. */
void hak__meta_fork_child(void);

/* --- for other layers; these take the lock ---------------------------------------------------------------------------- */

/* Metadata that is never given back. Zeroed, 64-byte aligned; NULL if the system refuses. */
void *hak__meta_alloc(size_t bytes);
bool hak__meta_has(const void *p); /* whether the address is among it: it can be read */

/* A word of metadata that is zero again in forked children; NULL if the system has no such memory. Its room is set aside at the
 * start, so asking for it takes no lock. */
void hak__meta_absent_init(void);
_Atomic uint32_t *hak__meta_wiped_word(void);
bool hak__meta_is_copy(void); /* without wiping: whether this memory is a copy, in which the page is absent; maps it again */

/* The memory of a heap: its first *bytes bytes of HAK_HEAP_STRIDE, zeroed the first time. NULL if refused or out of range.
 * hak__heap_extend maps `bytes` more behind them. */
void *hak__heap_memory(uint32_t id, size_t *bytes);
bool hak__heap_extend(uint32_t id, size_t from, size_t bytes);
void *hak__heap_address(uint32_t id); /* without mapping it */

/* Zeroes the first `bytes` bytes of a heap's memory and returns their pages to the system. */
void hak__heap_forget(void *heap, size_t bytes);

/* The parallel array of span descriptors, 128 bytes per slab, for span/. */
void *hak__span_memory(void);
