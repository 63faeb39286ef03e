/* Sampled blocks, and where they lie; each has a record. profile/sampler.c chooses which requests get one.
 *
 *   guarded     in a slot of a range where nothing else is mapped, with guard pages on both sides (guarded.c)
 *   in a slot   of its class, in addresses reserved by the first profile: aligned like any block of the class (store.c)
 *   in place    above the mid classes: a block of the window, which a table by slabs marks as sampled (store.c)
 *
 * A free of the first two reaches the slow path by itself, because no owner map has their addresses. Every change is one
 * compare-and-swap or store, and no thread waits for another: a child forked in between loses at most the records that other
 * threads were changing. */
#pragma once

#include "base/lock.h"
#include "cache/cache.h"
#include "diag/options.h"
#include "heap/state.h"

/* --- records (record.c) ----------------------------------------------------------------------------------------------- */

/* The record of a sampled block: its state, its owner, and the site for which it counts in a profile. A user heap's
 * sample is in that heap's list, counts against its limit and in its figures, and ends or is merged with it.
 *
 *   the state   meaning                                         leaves it
 *   UNUSED      never served                                    an allocation -> TAKEN
 *   TAKEN       being made ready                                its thread -> LIVE, or back; HOLE: foreign memory is there
 *   LIVE        the program's                                   a free, or its heap's end -> ENDING; there is only one
 *   ENDING      being emptied                                   its thread -> FREE
 *   FREE        may serve again                                 an allocation -> TAKEN
 *
 * Invariants: record.of == heap <=> the record is in heap's list;  heap.count, heap.bytes = the number and sum of the list's
 * nonzero `counted`, which is also their share of heap.account. The list's lock covers all of it; in a forked child only the
 * `next` links are reliable. */
enum hak_sample_state { HAK_SAMPLE_UNUSED, HAK_SAMPLE_TAKEN, HAK_SAMPLE_LIVE, HAK_SAMPLE_ENDING, HAK_SAMPLE_FREE, HAK_SAMPLE_HOLE };

struct hak_record;

/* What samples that lie alike share: guarded ones, those in a slot of a class, those in the window; and how each ends if it counts
 * for a profile. */
struct hak_sample_design {
    void (*end)(struct hak_record *record, const char *function); /* frees a claimed record's block */
    void (*lift)(struct hak_record *record); /* before a read: the program may have revoked access to the block's pages */
    void (*shrink)(struct hak_record *record, size_t n); /* shortens a claimed record's block */
    void (*tell)(const struct hak_record *record); /* describes the block on further lines of a report; NULL: adds nothing */
};

struct hak_record {
    _Atomic uint32_t state;
    uint32_t counted; /* usable bytes of a block outside the window; else 0 */
    uintptr_t block;
    _Atomic(struct hak_samples *) of; /* the user heap; NULL: malloc's */
    struct hak_record *next, *before;
    const struct hak_sample_design *design;

    /* of a profile (profile/) */
    struct hak_profile_site *site; /* NULL: counts for none */
    uint64_t bytes; /* asked for; of a free slot: resident, and counted as such (store.c) */
    uint32_t born_ms; /* modulo 2^32 */
    uint32_t marked; /* reached by the leak search, ... */
    struct hak_record *leak_next; /* ... and waiting to be searched */
    _Atomic uint32_t free_next; /* of a free record: the next one's number plus one (store.c) */
};

/* A user heap's samples. */
struct hak_samples {
    struct hak_lock lock;
    bool closed; /* the heap has ended */
    struct hak_account *account;
    struct hak_record *first;
    _Atomic uint64_t count, bytes;
};

/* The live samples outside the window, of all heaps, and their usable bytes. */
struct hak_sampled {
    _Atomic uint64_t count, bytes;
};
extern struct hak_sampled hak__sampled;

hak_cold void hak__samples_open(struct hak_samples *samples, struct hak_account *account);

/* Adds a TAKEN record to the heap; NULL is malloc. False: the limit forbids it, or the heap has ended. */
hak_cold bool hak__record_join(struct hak_record *record, struct hak_samples *samples, size_t counted);

/* Moves LIVE to ENDING; false: another call came first, or there was no block. */
hak_cold bool hak__record_claim(struct hak_record *record);

/* Counts n bytes for an ENDING record, fewer than before. */
hak_cold void hak__record_shrink(struct hak_record *record, size_t n);

/* Removes an ENDING record from its heap, unless the heap has dropped it already. */
hak_cold void hak__record_leave(struct hak_record *record);

/* Ends all the heap's blocks; call it before the spans end, because some blocks are known by their addresses. `close`: no record
 * joins any more. */
hak_cold void hak__samples_end(struct hak_samples *samples, bool close, const char *function);

/* Gives the heap's blocks to malloc. */
hak_cold void hak__samples_merge(struct hak_samples *samples);

/* Visits each block outside the heap's spans until `visit` returns a nonzero result, and returns that. */
hak_cold int hak__samples_visit(struct hak_samples *samples, int (*visit)(void *, size_t, void *), void *argument);

/* Describes an address in or near the block for the crash report. NULL: no block was ever there. */
hak_cold void hak__record_describe(const struct hak_record *record, uintptr_t address, char *text, size_t size);

hak_cold void hak__samples_fork_child(struct hak_samples *samples);

/* --- where they lie --------------------------------------------------------------------------------------------------- */

struct hak_sample {
    uintptr_t start; /* of the guarded slots */
    size_t bytes; /* 0: there are none */
    struct hak_guarded_slot *guarded;
    uintptr_t slots; /* the slots of classes */
    size_t slots_bytes;
    uintptr_t store_end; /* from the slots' end to here: tables */
    _Atomic uint64_t allocated, freed, refused; /* guarded ones; refused: over the rate, or no slot or memory left */
};
extern struct hak_sample hak__sample;

hak_inline bool hak__guarded_has(const void *p) { return hak_unlikely((uintptr_t)p - hak__sample.start < hak__sample.bytes); }
hak_inline bool hak__slots_have(const void *p) { return hak_unlikely((uintptr_t)p - hak__sample.slots < hak__sample.slots_bytes); }
hak_inline bool hak__store_owns(uintptr_t at) { return at - hak__sample.slots < hak__sample.store_end - hak__sample.slots; }
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
hak_cold void hak__guarded_shrink(struct hak_record *record, size_t n);

/* Describes the block on further lines of a report. */
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

/* Reserves addresses for slots, records and tables; once. `sites` and `ghosts` (addresses without memory) are the profile's. 0 or
 * ENOMEM. */
hak_cold int hak__store_begin(struct hak_area *sites, struct hak_area *ghosts);

/* As for guarded blocks; NULL: no slot is free. n: the bytes asked for. The block is not zeroed. */
hak_cold struct hak_record *hak__slot_take(uint32_t class, size_t n, struct hak_samples *samples);
hak_cold void hak__slot_end(struct hak_record *record, const char *function);
hak_cold void hak__slot_lift(struct hak_record *record);

/* Take makes a record for a block of the window; find looks it up, and with `remove` forgets the block. NULL: there is none. */
hak_cold struct hak_record *hak__in_place_take(const void *block, struct hak_samples *samples);
hak_cold struct hak_record *hak__in_place_find(const void *block, bool remove);
hak_cold void hak__in_place_end(struct hak_record *record, const char *function);

/* --- labels (record.c) ------------------------------------------------------------------------------------------------ */

/* What a thread works for (hak_label_set in include/hakmem.h), noted with each of its samples. Labels of the thread are in
 * its notes (base/lock.h); only samples read them.
 *
 * Keys, values and combinations are parts. A part is found by what it is made of, so the same labels are always the same address;
 * it never changes or ends, and lies in metadata.
 *
 *   part          of       under                         text
 *   key           NULL     NULL                          its name
 *   value         its key  NULL                          its text
 *   combination   a value  the rest, or NULL: no more    ""
 *
 * Invariant: from a combination down `under`, keys descend by number, so no key comes twice and the order of setting them is no
 * matter. Bounds: HAK_LABEL_KEYS keys, HAK_LABEL_VALUES values of a key, HAK_LABEL_PARTS parts. What exceeds one of the last two
 * gets the value "(other)", for which HAK_LABEL_SPARE parts remain; what exceeds all is not set. */
enum { HAK_LABEL_KEYS = 16, HAK_LABEL_VALUES = 4096, HAK_LABEL_PARTS = 1 << 16, HAK_LABEL_SPARE = 1 << 12 };
enum { HAK_LABEL_KEY_BYTES = 63, HAK_LABEL_VALUE_BYTES = 255, HAK_LABEL_BUCKETS = 1 << 9 };

struct hak_labels {
    struct hak_labels *next; /* with the same hash */
    const struct hak_labels *of, *under;
    uint32_t number; /* of a key: 0 for the first that was made */
    char text[];
};

struct hak_label_table {
    _Atomic uint32_t keys, values[HAK_LABEL_KEYS], parts; /* made so far; `parts` without keys */
    _Atomic(struct hak_labels *) buckets[HAK_LABEL_BUCKETS];
};
extern struct hak_label_table hak__label_table;

/* `labels` with this value of the key, or without the key if it is NULL. Longer texts are cut. */
hak_cold const struct hak_labels *hak__labels_with(const struct hak_labels *labels, const char *key, const char *value);

/* Those of a sample that the calling thread takes now: its own, and the user heap's name as `heap`. */
hak_cold const struct hak_labels *hak__labels_here(const struct hak_samples *samples);

hak_inline const char *hak__label_key(const struct hak_labels *labels) { return labels->of->of->text; }
hak_inline const char *hak__label_value(const struct hak_labels *labels) { return labels->of->text; }
