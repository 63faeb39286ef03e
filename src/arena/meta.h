/* The metadata windows: address ranges beside the user data that grow as the data does. Internal to arena/.
 * Each is mapped from its start in steps and never shrinks, but for the span descriptors: there, those of regions that are
 * closed are left out (regions.c). All change under the arena's lock. */
#ifndef HAK_ARENA_META_H
#define HAK_ARENA_META_H

#include "base/compiler.h"

enum hak_meta_window { HAK_META_MAP, HAK_META_SUPERS, HAK_META_WORDS, HAK_META_HEAPS, HAK_META_POOL, HAK_META_SPANS,
                       HAK_META_WINDOWS };

/* Lays the windows out from `start` for a data window of `supers` SuperSlabs; nothing is mapped. Gives the first
 * address after the last one. */
uintptr_t hak__meta_layout(uintptr_t start, size_t supers);

/* The address range that the layout needs. */
size_t hak__meta_span(size_t supers);

uintptr_t hak__meta_start(enum hak_meta_window window);

/* The first `bytes` bytes of the window are mapped afterwards. 0 or an errno code. */
int hak__meta_ensure(enum hak_meta_window window, size_t bytes);

size_t hak__meta_mapped(enum hak_meta_window window);   /* from its start on; of descriptors those of the first region */
size_t hak__meta_bytes(void);                           /* of all windows */

/* Maps a piece of a window that has more than its beginning: descriptors of a region that is not the first, or a part of a heap.
 * Once the caller has noted it, it says so. */
int hak__meta_piece(enum hak_meta_window window, size_t offset, size_t bytes);
void hak__meta_piece_done(void);

/* The first *bytes bytes of a heap are mapped afterwards; ids follow one another, and *bytes says how many it were if the last
 * one is asked for again. */
int hak__meta_heap(size_t id, size_t *bytes);
size_t hak__meta_heaps(void);      /* how many there are */

/* Unmaps what hak__meta_ensure or hak__meta_heap has mapped, when a base is given up before anything else was. */
void hak__meta_give_up(enum hak_meta_window window);

/* In a forked child: undoes a growth that another thread had begun and that does not go on here. */
void hak__meta_fork_child(void);

#endif
