/* What all samples have in common, those with guards (sample.h) and those that count for a profile (profile/places.h): a record beside
 * the block, which says whose the block is. A sample of a user heap is in that heap's list, counts against its limit and in its figures,
 * and ends or is merged with it.
 *
 *   the state   meaning                                         leaves it
 *   UNUSED      never served                                    an allocation -> TAKEN
 *   TAKEN       being made ready                                its thread -> LIVE, or back; HOLE: foreign memory is there
 *   LIVE        the program's                                   a free, or its heap's end -> ENDING; there is only one
 *   ENDING      being emptied                                   its thread -> FREE
 *   FREE        may serve again                                 an allocation -> TAKEN
 *
 * Invariants: record.of == heap <=> the record is in heap's list;  heap.count, heap.bytes = records of the list with `counted` != 0, and the
 * sum of that, which is also what they have taken of heap.account. The list's lock covers all of it; in a forked child the list is
 * whole as `next` has it. */
#pragma once

#include "base/lock.h"
#include "heap/state.h"

enum hak_sample_state { HAK_SAMPLE_UNUSED, HAK_SAMPLE_TAKEN, HAK_SAMPLE_LIVE, HAK_SAMPLE_ENDING, HAK_SAMPLE_FREE, HAK_SAMPLE_HOLE };

struct hak_record;

/* What the samples of one design have in common: with guards, for a profile in a place of its own, or in the window. */
struct hak_sample_design {
    void (*end)(struct hak_record *record, const char *function); /* what a free does with one that has been claimed */
    void (*lift)(struct hak_record *record); /* before it is read: the program may have taken rights from its pages */
    void (*tell)(const struct hak_record *record); /* more on the block, on further lines of a report; NULL: nothing */
};

struct hak_record {
    _Atomic uint32_t state;
    uint32_t counted; /* usable bytes, of a block outside of the window; else 0 */
    uintptr_t block;
    _Atomic(struct hak_samples *) of; /* the user heap; NULL: malloc's */
    struct hak_record *next, *before;
    const struct hak_sample_design *design;
};

/* Of a user heap. */
struct hak_samples {
    struct hak_lock lock;
    bool closed; /* the heap has ended */
    struct hak_account *account;
    struct hak_record *first;
    _Atomic uint64_t count, bytes;
};

hak_cold void hak__samples_open(struct hak_samples *samples, struct hak_account *account);

/* A record that is TAKEN joins the heap; NULL is malloc. False: the limit does not allow it, or the heap has ended. */
hak_cold bool hak__record_join(struct hak_record *record, struct hak_samples *samples, size_t counted);

/* From LIVE to ENDING; false: another call was first, or there was no block. */
hak_cold bool hak__record_claim(struct hak_record *record);

/* One that is ENDING leaves its heap, unless that has given it up before. */
hak_cold void hak__record_leave(struct hak_record *record);

/* All of the heap's blocks end, before its spans, whose addresses some are known by. `close`: nothing joins any more. */
hak_cold void hak__samples_end(struct hak_samples *samples, bool close, const char *function);

/* The heap's blocks become malloc's. */
hak_cold void hak__samples_merge(struct hak_samples *samples);

/* Calls for each block that lies outside of the heap's spans, until one gives something else than 0: the result. */
hak_cold int hak__samples_visit(struct hak_samples *samples, int (*visit)(void *, size_t, void *), void *argument);

/* What an address is, in the block or near it, as the crash report says it. NULL: no block was ever there. */
hak_cold void hak__record_describe(const struct hak_record *record, uintptr_t address, char *text, size_t size);

hak_cold void hak__samples_fork_child(struct hak_samples *samples);
