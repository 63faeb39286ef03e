/* The pool of slabs that all threads share. A thread takes the shortest sufficient free run of slabs, the lowest of equals, so that
 * the heap stays dense and its top empties. Called by heap/.
 *
 * Lock-free, except for taking and giving whole SuperSlabs (arena). For each run length 1, 2, 4, 8, 16 a bitmap hints at SuperSlabs
 * that have such a run. A hint may be stale; the SuperSlab's own word decides. */
#pragma once

#include "arena/arena.h"
#include "base/bits.h"

/* --- the slabs of a SuperSlab --------------------------------------------------------------------------------------------
 *
 * One atomic word says which slabs are unused and which may hold old data. Any thread claims and releases, lock-free.
 *
 *   word = unused mask | dirty mask << 32
 *   unused == all ones   the SuperSlab is EMPTY          unused == 0   it is full, or not in slabs at all
 * Orders: a claim acquires what a release has released, so the former user's last accesses precede the next one's. */

#define HAK_NO_SLAB ((uint32_t)-1)

hak_inline uint32_t hak__slabs_unused(uint64_t word) { return (uint32_t)word; }
hak_inline uint32_t hak__slabs_dirty(uint64_t word) { return (uint32_t)(word >> 32); }

/* The level of a run length: every SuperSlab in its hint bitmap has such a run. */
hak_inline unsigned hak__level_of(unsigned run) { return run <= 1 ? 0 : hak_msb64(run - 1) + 1; }

/* The number of levels, 1, 2, 4, 8, 16, for which `unused` has a run. */
unsigned hak__slabs_levels(uint32_t unused);

/* Starts a SuperSlab's life in slabs: all are unused except the first `count`, which the caller has. */
void hak__slabs_open(struct hak_super *super, unsigned count, bool fresh);

/* Claims a run of `count` slabs, preferably one used before; HAK_NO_SLAB if there is none. *fresh says whether no
 * slab of the run holds old data; *left is the word afterwards. */
uint32_t hak__slabs_claim(struct hak_super *super, unsigned count, bool *fresh, uint64_t *left);

/* Claims the lowest run of unused slabs that hold old data, whatever its length; false if there is none. */
bool hak__slabs_claim_dirty(struct hak_super *super, unsigned *first, unsigned *count, uint64_t *left);

/* Claims exactly the slabs `first`, `first` + 1, ...; false if one of them is in use. */
bool hak__slabs_claim_at(struct hak_super *super, unsigned first, unsigned count, uint64_t *left);

/* Give slabs back, as dirty or as clean; return the word afterwards. */
uint64_t hak__slabs_release(struct hak_super *super, unsigned first, unsigned count);
uint64_t hak__slabs_release_clean(struct hak_super *super, unsigned first, unsigned count);

/* Ends an EMPTY SuperSlab's life in slabs; only the caller has it then. False: it is not EMPTY. */
bool hak__slabs_close(struct hak_super *super);

/* --- tiers ---------------------------------------------------------------------------------------------------------------
 *
 * The tier of a SuperSlab in slabs tells how well used it is, so that requests fill the well-used ones and let the others empty.
 * heap/ reads it too.
 *
 *   HOT        serves first, the fullest before others
 *   DRAINING   few of its slabs are used: serves only before a new SuperSlab is opened
 *   EMPTY      no slab is used: it goes back to the arena, which keeps it for a while (arena/retained.c)
 *
 *   HOT -> DRAINING    a step of upkeep finds HAK_TIER_LOW slabs used, or fewer, and other SuperSlabs with room
 *   DRAINING -> HOT    a claim raises the used slabs to HAK_TIER_HIGH or more
 * Between the two marks the tier stays, and draining begins only by the clock. So a SuperSlab near a mark does not change back and
 * forth, and releasing slabs costs nothing more. */

enum { HAK_TIER_LOW = 8, HAK_TIER_HIGH = 12 }; /* used slabs of 32 */
_Static_assert(HAK_TIER_LOW < HAK_TIER_HIGH, "the marks lie apart");

/* The counters of tiers; stats/live.c lists where they lie. hot + draining: the SuperSlabs in slabs. */
struct hak_tier_figures {
    hak_line_aligned _Atomic uint64_t hot; /* now, like the next */
    _Atomic uint64_t draining;
    _Atomic uint64_t to_draining, to_hot; /* changes so far */
    _Atomic uint64_t emptied; /* DRAINING ones that have become EMPTY */
    _Atomic uint64_t drawn; /* claims that DRAINING ones served, because no other could */
};
extern struct hak_tier_figures hak__tier_counts;

hak_inline unsigned hak__slabs_used(uint64_t word) { return HAK_SUPER_SLABS - hak_popcount32(hak__slabs_unused(word)); }

/* Whether the SuperSlab is DRAINING. */
hak_inline bool hak__tier_draining(size_t super)
{
    return (hak_load(&(hak__super_words - super / 64)->draining, HAK_RELAXED) >> super % 64 & 1) != 0;
}

/* After a claim of `count` slabs has made the SuperSlab's word `word`: updates its tier and the missing pieces. From any thread. */
void hak__tier_claimed(size_t super, uint64_t word, unsigned count);

/* Makes little-used SuperSlabs drain. For upkeep; any thread, at any time. */
void hak__tiers_step(void);

/* --- the pool ------------------------------------------------------------------------------------------------------------ */

/* SuperSlabs opened for slabs so far, and those that emptied and went back to the arena; stats/live.c lists where the counts
 * lie. */
struct hak_pool_counts {
    hak_line_aligned _Atomic uint64_t opened;
    _Atomic uint64_t closed;
};
extern struct hak_pool_counts hak__pool_counts;

#define HAK_NO_RUN ((size_t)-1)

/* Takes a run of `count` adjacent slabs (1..16) from the SuperSlabs already in slabs: returns its first slab's number, or
 * HAK_NO_RUN. Prefers slabs used before; *fresh says whether they hold no old data. */
size_t hak__pool_take(unsigned count, bool *fresh);

/* The same, but only from the SuperSlab that contains `slab`, so that threads that each stay in one do not meet. */
size_t hak__pool_take_near(size_t slab, unsigned count, bool *fresh);

/* The use for which a SuperSlab is opened. */
enum hak_opening {
    HAK_OPEN_BARE, /* anything, as a bare SuperSlab (arena/runs.h) */
    HAK_OPEN_SMALL, /* blocks of the tiny and the mid pool */
    HAK_OPEN_LARGE, /* blocks of the large pool */
};

/* The same from a new SuperSlab; HAK_NO_RUN if the system refuses memory. */
size_t hak__pool_open(unsigned count, enum hak_opening opening, bool *fresh);

/* The same from SuperSlabs assigned to other heaps: before a new one is opened, from those that got no slab back for a moment;
 * `active_too`, when none can be opened: from all of them. */
size_t hak__pool_take_assigned(unsigned count, bool active_too, bool *fresh);

/* Assigns a SuperSlab to the heap `id`, which has slabs of it: the searches above skip it. False: it is assigned to another
 * heap. */
bool hak__pool_assign(size_t super, uint32_t id);

/* Ends that assignment, if there is one. Closes the SuperSlab if it is empty. */
void hak__pool_unassign(size_t super, uint32_t id);

/* Grows a run in place into unused slabs right behind it, in the same SuperSlab. */
bool hak__pool_extend(size_t slab, unsigned count, unsigned new_count);

/* Gives back a run, or the tail of one. */
void hak__pool_give(size_t slab, unsigned count);

/* Gives back a run; a SuperSlab assigned to the heap `id` stays open when it empties, and the result is true. */
bool hak__pool_give_assigned(size_t slab, unsigned count, uint32_t id);

/* The same in a forked child for a run whose pages are its parent's too: they go back to the system at once, because a use would
 * copy them. */
void hak__pool_give_inherited(size_t slab, unsigned count);

/* The same for a run that has been idle: it does not count as activity in its SuperSlab. */
void hak__pool_give_idle(size_t slab, unsigned count);

/* Returns the pages of unused slabs in SuperSlabs that got no slabs back since `before_ms`, until they are `most` bytes. Any thread, at any
 * time: it claims each run of slabs while its pages go. */
size_t hak__pool_purge(uint64_t before_ms, size_t most);

/* The same whatever their age, from the top down. */
size_t hak__pool_shed(size_t most);

/* The earliest last activity among the SuperSlabs that the last hak__pool_purge left alone; UINT64_MAX: there are none. */
uint64_t hak__pool_waiting_ms(void);

/* Purges unused slabs from the top down until the policy's limit holds. Called before a SuperSlab is opened, and
 * after an equal number of non-resident slabs has been taken. In a heap of many SuperSlabs it acts once per growth by a 256th.
 * Returns the bytes. */
size_t hak__pool_trim(void);
