/* Sampled blocks, and where they lie; each has a record (record.h). profile/sampler.c chooses which requests get one.
 *
 *   guarded     in a slot of a range where nothing else is mapped, with guard pages on both sides (guarded.c, faults.c)
 *   in a slot   of its class, in addresses reserved by the first profile: aligned like any block of the class (store.c)
 *   in place    above the mid classes: a block of the window, which a table by slabs marks as sampled (store.c)
 *
 * A free of the first two reaches the slow path by itself, because no owner map has their addresses. Every change is one
 * compare-and-swap or store, and no thread waits for another: a child forked in between loses at most the records that other
 * threads were changing. */
#pragma once

#include "cache/cache.h"
#include "diag/options.h"
#include "sample/record.h"

struct hak_sample {
    uintptr_t start; /* of the guarded slots */
    size_t bytes; /* 0: there are none */
    struct hak_guarded_slot *guarded;
    uintptr_t slots; /* the slots of classes */
    size_t slots_bytes;
    _Atomic uint64_t allocated, freed, refused; /* guarded ones; refused: over the rate, or no slot or memory left */
};
extern struct hak_sample hak__sample;

hak_inline bool hak__guarded_has(const void *p) { return hak_unlikely((uintptr_t)p - hak__sample.start < hak__sample.bytes); }
hak_inline bool hak__slots_have(const void *p) { return hak_unlikely((uintptr_t)p - hak__sample.slots < hak__sample.slots_bytes); }
hak_inline bool hak__sample_has(const void *p) { return hak__guarded_has(p) || hak__slots_have(p); }

/* The record of the slot that contains p, an address that hak__sample_has; NULL: no block was ever there. Its usable bytes
 * (`counted`) are a class's, or for guarded blocks and in a hardened process those asked for. */
hak_cold struct hak_record *hak__sample_record_of(const void *p);

/* Iterates over records of any state; NULL at the end. *number is 0 at first. */
hak_cold struct hak_record *hak__sample_record_next(uint32_t *number);

/* --- guarded blocks (guarded.c) ---------------------------------------------------------------------------------------------
 *
 * HAKMEM_SAMPLE_GUARDS=N, in the manner of GWP-ASan. A free unmaps the pages, and the slot stays unused while older ones exist. A
 * wrong access then faults; the report names the block and the calls that allocated and freed it.
 *
 *   a slot:   | nothing | slack | block | slack | nothing |      the block at the first or the last byte of its pages that
 *                      [      its pages        ]                its alignment allows; slack is checked when it is freed */

enum { HAK_SAMPLE_FRAMES = 12, HAK_SAMPLE_SLACK_BYTE = 0xa7, HAK_SAMPLE_SLACK_MOST = 256 };
struct hak_sample_event {
    uint32_t thread, frames; /* the kernel's thread number; entries of `trace` */
    uintptr_t trace[HAK_SAMPLE_FRAMES];
};

struct hak_guarded_slot {
    struct hak_record record;
    uintptr_t pages;
    size_t page_bytes; /* mapped at `pages`; 0: none */
    _Atomic uint64_t freed_at; /* the number of the free */
    struct hak_sample_event allocated, freed;
};

hak_inline bool hak__guarded_wanted(void) { return hak__option(HAK_OPTION_sample_guards) != 0; }

/* Makes the slots and installs the handler; once at start, when the C library is ready. */
hak_noinline void hak__guarded_begin(void);

/* A zeroed block, its record TAKEN and joined, of a user heap, or malloc's if NULL. NULL: over the rate, or no slot or memory
 * left. The caller makes it LIVE. */
hak_cold struct hak_record *hak__guarded_take(size_t align, size_t n, struct hak_samples *samples);
hak_cold void hak__guarded_end(struct hak_record *record, const char *function); /* ends a claimed record */
hak_cold void hak__guarded_lift(struct hak_record *record);

/* Reports (faults.c): installs the handler; describes a block on further lines. */
hak_cold void hak__guarded_handle_faults(void);
hak_cold void hak__guarded_tell(const struct hak_record *record);

/* --- slots, and blocks in place (store.c) --------------------------------------------------------------------------------------- */

/* Memory for tables: reserved addresses, committed with use. */
struct hak_area {
    uintptr_t start;
    size_t size;
    _Atomic size_t used, committed;
};

/* The next `bytes` of the area, zeroed; 0 when it is full or the system refuses. */
hak_cold uintptr_t hak__area_take(struct hak_area *area, size_t bytes);
hak_cold bool hak__area_reach(struct hak_area *area, size_t end); /* commits up to there */

/* Reserves addresses for slots, records and tables; once. `sites` and `ghosts` (addresses without memory) are the profile's. 0 or
 * ENOMEM. */
hak_cold int hak__store_begin(struct hak_area *sites, struct hak_area *ghosts);
hak_cold bool hak__store_owns(uintptr_t address);

/* As for guarded blocks; NULL: no slot is free. n: the bytes asked for. The block is not zeroed. */
hak_cold struct hak_record *hak__slot_take(uint32_t class, size_t n, struct hak_samples *samples);
hak_cold void hak__slot_end(struct hak_record *record, const char *function);
hak_cold void hak__slot_lift(struct hak_record *record);

/* Take makes a record for a block of the window; find looks it up, and with `remove` forgets the block. NULL: there is none. */
hak_cold struct hak_record *hak__in_place_take(const void *block, struct hak_samples *samples);
hak_cold struct hak_record *hak__in_place_find(const void *block, bool remove);
hak_cold void hak__in_place_end(struct hak_record *record, const char *function);
