/* Runs of huge blocks that wait in front of the arena: what a thread has freed last, if it is not large, for its next request of just
 * that size. Such a pair of free and malloc takes no lock, and no look at anything that the arena knows. Called by huge/.
 *
 *   word of a place    0: nothing waits;  else (bytes << 12) | first SuperSlab
 *
 * A run that waits is taken, of kind HUGE, and mapped as it was; only its owner word says that no block is there. Whoever puts it into
 * a place or takes it out by an exchange has it to himself.
 *
 * Nothing waits behind the arena's back: every request for a run, and for more of one, has all of them given back first
 * (hak__waiting_end_locked), and so does every step of upkeep, and whoever counts what is in use. So what waits is at most what was
 * in use a moment ago, no peak is higher for it, and `most`, which comes from the policy of retention, bounds the sum. */
#pragma once

#include "arena/arena.h"

enum { HAK_WAITING_BITS = 24 };   /* of a SuperSlab's number */
_Static_assert(HAK_WINDOW_SUPERS <= 1ull << HAK_WAITING_BITS, "a SuperSlab's number fits below the bytes of whole pages");

struct hak_waiting_place {
    hak_line_aligned _Atomic uint64_t run;
};
extern struct hak_waiting_place hak__waiting[HAK_WAITING_PLACES];

/* What every put reads, and few change. */
struct hak_waiting_rules {
    hak_line_aligned _Atomic size_t most;   /* bytes of a run that may wait; 0: none may */
    _Atomic size_t page;                    /* hak__page_size */
    _Atomic bool any;                       /* something may have been put since they were last given back; true at the start */
};
extern struct hak_waiting_rules hak__waiting_rules;

/* Each thread has a place, by its heap's number; few share one. */
hak_inline _Atomic uint64_t *hak__waiting_place(uint32_t heap_id) { return &hak__waiting[heap_id % HAK_WAITING_PLACES].run; }

hak_inline bool hak__waiting_may(uint32_t heap_id, size_t bytes)
{
    return bytes <= hak_load(&hak__waiting_rules.most, HAK_RELAXED) && hak_load(hak__waiting_place(heap_id), HAK_RELAXED) == 0;
}

/* Whether the run waits from now on; false: another one does. seq_cst with the look at `any`: whoever gives back clears that first
 * and looks at the places afterwards, so that one of the two sees the other. */
hak_inline bool hak__waiting_put(uint32_t heap_id, size_t first, size_t bytes)
{
    uint64_t none = 0, run = (uint64_t)bytes << (HAK_WAITING_BITS - 12) | first;
    if (!hak_cas_strong(hak__waiting_place(heap_id), &none, run, HAK_SEQ_CST, HAK_RELAXED))
        return false;
    if (!hak_load(&hak__waiting_rules.any, HAK_SEQ_CST))
        hak_store(&hak__waiting_rules.any, true, HAK_RELAXED);
    return true;
}

/* The first SuperSlab of a run that is n bytes long in whole pages, and its bytes; or HAK_NO_SUPER. acquire: pairs with the put of
 * another thread. */
hak_inline size_t hak__waiting_take(uint32_t heap_id, size_t n, size_t *bytes)
{
    _Atomic uint64_t *place = hak__waiting_place(heap_id);
    uint64_t run = hak_load(place, HAK_RELAXED);
    *bytes = (size_t)(run >> HAK_WAITING_BITS) << 12;
    if (n > *bytes || *bytes - n >= hak_load(&hak__waiting_rules.page, HAK_RELAXED) || !hak_cas_strong(place, &run, 0, HAK_ACQUIRE, HAK_RELAXED))
        return HAK_NO_SUPER;
    return (size_t)run & (((size_t)1 << HAK_WAITING_BITS) - 1);
}

/* Gives back what waits; the first asks the policy anew how much may. */
void hak__waiting_end(void);
void hak__waiting_end_locked(void);
