/* Records of sampled blocks, and the places of those up to the mid pool. Internal to profile/.
 *
 * The range of places consists of chunks of 64 KiB, each for one class, laid out like a span of one slab: so a place is aligned
 * as a block of the class is. A chunk's places have records of consecutive numbers: address and record follow from one another.
 * Free places of a class are a stack of record numbers; a change of its head carries a tag, so that no pop takes a stale link.
 * Records are never given back, so that a stale number still leads to a record. */
#pragma once

#include "profile/sites.h"
#include "sample/record.h"

struct hak_profile_record {
    struct hak_record sample;
    _Atomic uint32_t next; /* of the free ones: the number of the next one plus one */
    struct hak_profile_site *site;
    uint64_t bytes; /* asked for; of a free place: resident, and counted as such (sampler.c) */
    uint32_t born_ms; /* modulo 2^32 */
    uint32_t marked; /* reached by the search for leaks (leaks.c), ... */
    struct hak_profile_record *leak_next; /* ... and waiting to be searched */
};

/* Lays everything out in reserved addresses; once. 0 or ENOMEM. */
hak_cold int hak__profile_places_begin(void);

/* A place of the class, its record TAKEN; NULL: there is none. */
hak_cold struct hak_profile_record *hak__profile_place_take(uint32_t class);
hak_cold void hak__profile_place_give(struct hak_profile_record *record, uint32_t class);

/* A record for a block of the window; and the one of such a block, which is not known any more then. NULL: there is none. */
hak_cold struct hak_profile_record *hak__profile_outer_take(const void *block);
hak_cold struct hak_profile_record *hak__profile_outer_find(const void *block, bool remove);
hak_cold void hak__profile_outer_give(struct hak_profile_record *record);

/* The record of the place in which the address lies, and the place's class; NULL: there has never been a block. */
hak_cold struct hak_profile_record *hak__profile_record_at(const void *p, uint32_t *class);

/* Whether the address is one of the profiler's own tables, or of a place. */
hak_cold bool hak__profile_owns(uintptr_t address);

/* One record after another, of any state; NULL at the end. *number is 0 at first. */
hak_cold struct hak_profile_record *hak__profile_record_next(uint32_t *number);
