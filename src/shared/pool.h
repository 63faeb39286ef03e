/* The pool of slabs that all threads share. A thread takes a run of slabs here: the shortest sufficient free run, the lowest of
 * equals, so that the heap stays dense and its top empties. Called by heap/.
 *
 * Lock-free, except for taking and giving whole SuperSlabs (arena). For each run length 1, 2, 4, 8, 16 a bitmap hints at SuperSlabs
 * that have such a run. A hint may be stale; the SuperSlab's own word decides. */
#pragma once

#include "slab/superslab.h"

/* SuperSlabs put in slabs so far, and those that emptied and went back to the arena; stats/live.c says where the counts lie. */
struct hak_pool_counts {
    hak_line_aligned _Atomic uint64_t opened;
    _Atomic uint64_t closed;
};
extern struct hak_pool_counts hak__pool_counts;

#define HAK_NO_RUN ((size_t)-1)

/* A run of `count` adjacent slabs (1..16) of the SuperSlabs that are in slabs already: its first slab's number, or
 * HAK_NO_RUN. Prefers one that was used before; *fresh says whether it holds no old data. */
size_t hak__pool_take(unsigned count, bool *fresh);

/* The same, but only from the SuperSlab in which `slab` lies, so that threads which each stay in one do not meet. */
size_t hak__pool_take_near(size_t slab, unsigned count, bool *fresh);

/* What a SuperSlab is opened for. */
enum hak_opening {
    HAK_OPEN_BARE,    /* anything, as addresses alone (arena/pieces.h) */
    HAK_OPEN_SMALL,   /* blocks of the tiny and the mid pool */
    HAK_OPEN_LARGE,   /* blocks of the large pool */
};

/* The same from a new SuperSlab; HAK_NO_RUN when the system refuses memory. */
size_t hak__pool_open(unsigned count, enum hak_opening opening, bool *fresh);

/* The same from SuperSlabs assigned to other heaps: from those where no slab has come back for a moment, before a new one is opened;
 * `active_too`: from all of them, when none can be opened. */
size_t hak__pool_take_assigned(unsigned count, bool active_too, bool *fresh);

/* Assigns a SuperSlab to the heap `id`, which has slabs of it: the searches above pass it over. False: another heap has it. */
bool hak__pool_assign(size_t super, uint32_t id);

/* Takes that back; nothing happens if the heap did not have it. A SuperSlab that is empty is closed. */
void hak__pool_unassign(size_t super, uint32_t id);

/* Grows a run in place into unused slabs right behind it, in the same SuperSlab. */
bool hak__pool_extend(size_t slab, unsigned count, unsigned new_count);

/* Gives back a run, or the tail of one. */
void hak__pool_give(size_t slab, unsigned count);

/* Gives back a run; a SuperSlab assigned to the heap `id` stays open when it empties, and the result is true. */
bool hak__pool_give_assigned(size_t slab, unsigned count, uint32_t id);

/* The same for a run that nobody has used lately; it does not count as activity in its SuperSlab. */
void hak__pool_give_idle(size_t slab, unsigned count);

/* Returns the pages of unused slabs of SuperSlabs to which no slabs have come back since `before_ms`; returns the bytes. Any thread,
 * at any time: it claims each run of slabs while its pages go. */
size_t hak__pool_purge(uint64_t before_ms);

/* Since when the oldest SuperSlab has waited that the last hak__pool_purge left alone; UINT64_MAX: none. */
uint64_t hak__pool_waiting_ms(void);

/* Purges unused slabs from the top down until the dirty limit and the growth limit hold. Called before a SuperSlab is opened,
 * and after as many slabs have been taken that were not resident. In a heap of many SuperSlabs it acts once while the heap grows by a
 * 256th. Returns the bytes. */
size_t hak__pool_trim(void);
