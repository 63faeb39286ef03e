/* The record of a sampled block (sample.h): its state, its owner, and the site for which it counts in a profile. A user heap's
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
#pragma once

#include "base/lock.h"
#include "heap/state.h"

enum hak_sample_state { HAK_SAMPLE_UNUSED, HAK_SAMPLE_TAKEN, HAK_SAMPLE_LIVE, HAK_SAMPLE_ENDING, HAK_SAMPLE_FREE, HAK_SAMPLE_HOLE };

struct hak_record;

/* What samples that lie alike share: guarded ones, those in a slot of a class, those in the window; and how each ends if it counts
 * for a profile. */
struct hak_sample_design {
    void (*end)(struct hak_record *record, const char *function); /* frees a claimed record's block */
    void (*lift)(struct hak_record *record); /* before a read: the program may have revoked access to the block's pages */
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
    const char *name; /* the heap's */
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
