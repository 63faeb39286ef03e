/* Records of sampled blocks, and the places of those up to the mid classes. Internal to profile/.
 *
 * The range of places consists of 64 KiB chunks, each for one class and laid out like a one-slab span, so a place is aligned
 * like a block of its class. A chunk's places have consecutive record numbers: address and record follow from each other. A
 * class's free places are a stack of record numbers; each change of its head carries a tag, so that no pop uses a stale link.
 * Records are never given back, so a stale number still leads to a record. */
#pragma once

#include "profile/sites.h"
#include "sample/record.h"

struct hak_profile_record {
    struct hak_record sample;
    _Atomic uint32_t next; /* of a free record: the next one's number plus one */
    struct hak_profile_site *site;
    uint64_t bytes; /* asked for; of a free place: resident, and counted as such (sampler.c) */
    uint32_t born_ms; /* modulo 2^32 */
    uint32_t marked; /* reached by the leak search (leaks.c), ... */
    struct hak_profile_record *leak_next; /* ... and waiting to be searched */
};

/* Lays everything out in reserved addresses; once. 0 or ENOMEM. */
hak_cold int hak__profile_places_begin(void);

/* A place of the class, its record TAKEN; NULL: none is free. */
hak_cold struct hak_profile_record *hak__profile_place_take(uint32_t class);
hak_cold void hak__profile_place_give(struct hak_profile_record *record, uint32_t class);

/* Take makes a record for a block of the window; find looks it up, and with `remove` forgets the block. NULL: there is none. */
hak_cold struct hak_profile_record *hak__profile_outer_take(const void *block);
hak_cold struct hak_profile_record *hak__profile_outer_find(const void *block, bool remove);
hak_cold void hak__profile_outer_give(struct hak_profile_record *record);

/* The record and class of the place that contains p; NULL: there has never been a block. */
hak_cold struct hak_profile_record *hak__profile_record_at(const void *p, uint32_t *class);

/* Whether the address belongs to the profiler's tables or to a place. */
hak_cold bool hak__profile_owns(uintptr_t address);

/* Iterates over records of any state; NULL at the end. *number is 0 at first. */
hak_cold struct hak_profile_record *hak__profile_record_next(uint32_t *number);
