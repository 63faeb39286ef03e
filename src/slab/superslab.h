/* The slabs of a SuperSlab: one atomic word that says which are unused and which may hold old data.
 * Mechanics without policy; called by shared/. Any thread claims and releases, lock-free.
 *
 *   word = unused mask | dirty mask << 32
 *   unused == all ones   the SuperSlab is EMPTY          unused == 0   it is full, or not in slabs at all
 * Orders: a claim acquires what a release has released: the former user's last accesses come before the next one's. */
#pragma once

#include "arena/arena.h"
#include "base/bits.h"

#define HAK_NO_SLAB ((uint32_t)-1)

hak_inline uint32_t hak__slabs_unused(uint64_t word) { return (uint32_t)word; }
hak_inline uint32_t hak__slabs_dirty(uint64_t word) { return (uint32_t)(word >> 32); }

/* The level of a run length: the hint bitmap in which SuperSlabs with such a run surely stand. */
hak_inline unsigned hak__level_of(unsigned run) { return run <= 1 ? 0 : hak_msb64(run - 1) + 1; }

/* The number of levels for which `unused` has a run of 1, 2, 4, 8, 16. */
unsigned hak__slabs_levels(uint32_t unused);

/* Starts a SuperSlab's life in slabs: all unused but the first `count`, which the caller has. */
void hak__slabs_open(struct hak_super *super, unsigned count, bool fresh);

/* Claims a run of `count` slabs, preferably one used before; HAK_NO_SLAB if there is none. *fresh says whether no
 * slab of the run holds old data; *left is the word afterwards. */
uint32_t hak__slabs_claim(struct hak_super *super, unsigned count, bool *fresh, uint64_t *left);

/* Claims the lowest run of unused slabs that hold old data, whatever its length; false if there is none. */
bool hak__slabs_claim_dirty(struct hak_super *super, unsigned *first, unsigned *count, uint64_t *left);

/* Claims exactly the slabs `first`, `first` + 1, ...; false if one of them is used. */
bool hak__slabs_claim_at(struct hak_super *super, unsigned first, unsigned count, uint64_t *left);

/* Give slabs back, as dirty or as clean; return the word afterwards. */
uint64_t hak__slabs_release(struct hak_super *super, unsigned first, unsigned count);
uint64_t hak__slabs_release_clean(struct hak_super *super, unsigned first, unsigned count);

/* If the SuperSlab is EMPTY, ends its life in slabs: the caller alone has it then. */
bool hak__slabs_close(struct hak_super *super);
