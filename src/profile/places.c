/* See places.h. */
#include "profile/places.h"

#include <errno.h>

#include "base/assert.h"
#include "base/bits.h"
#include "os/os.h"
#include "span/shield.h"

enum { CHUNK = 64 << 10, PLACE_CLASSES = HAK_CLASS_MID_LAST + 1, OUTER = PLACE_CLASSES, PLACE_SMALLER = 4, PLACE_TRIES = 3 };

struct chunk {
    uint32_t first; /* the first place's record number */
    uint32_t class; /* plus one; 0: unused */
};

static uintptr_t reserved_start, reserved_end;
static struct hak_profile_area place_records, place_chunks, place_range, outer_table;
static hak_rare_data _Atomic uint64_t free_records[PLACE_CLASSES + 1]; /* tag << 32 | the first one's number plus one */
static hak_rare_data _Atomic uint64_t
    fresh_places[PLACE_CLASSES]; /* used places of the chunk << 32 | the chunk's number plus one */

static struct hak_profile_record *record_by(uint32_t number) { return (struct hak_profile_record *)place_records.start + number; }

static uint32_t number_of(const struct hak_profile_record *record)
{
    return (uint32_t)(record - (struct hak_profile_record *)place_records.start);
}

static struct chunk *chunk_by(size_t number) { return (struct chunk *)place_chunks.start + number; }

/* --- layout ----------------------------------------------------------------------------------------------------------------- */

/* A process limited to fewer addresses gets by with fewer. */
int hak__profile_places_begin(void)
{
    static const size_t most[] = { (size_t)64 << 30, (size_t)1 << 30, (size_t)512 << 20,
                                   (size_t)512 << 20 }; /* places, outer table and ghosts, records, sites */
    for (unsigned try = 0, less = 0; try < PLACE_TRIES; try++, less += PLACE_SMALLER) {
        size_t place_bytes = most[0] >> less, record_bytes = most[2] >> less, outer_bytes = most[1] >> less;
        size_t site_bytes = most[3] >> less, chunk_bytes = place_bytes / CHUNK * sizeof(struct chunk);
        size_t bytes = place_bytes + record_bytes + 2 * outer_bytes + site_bytes + chunk_bytes + CHUNK;
        uintptr_t at = hak__os_reserve(bytes);
        if (at == 0)
            continue;
        reserved_start = at, reserved_end = at + bytes;
        place_range.start = hak_align_up(at, CHUNK), place_range.size = place_bytes;
        place_records.start = place_range.start + place_bytes, place_records.size = record_bytes;
        outer_table.start = place_records.start + record_bytes, outer_table.size = outer_bytes;
        place_chunks.start = outer_table.start + outer_bytes, place_chunks.size = chunk_bytes;
        struct hak_profile_area sites = { .start = place_chunks.start + chunk_bytes, .size = site_bytes };
        hak__profile_sites_begin(sites, (struct hak_profile_area){ .start = sites.start + site_bytes, .size = outer_bytes });
        hak__profile.places = place_range.start;
        hak__shield_watch(place_range.start, place_bytes);
        hak_owner_store(&hak__profile.places_bytes, place_bytes);
        return 0;
    }
    return ENOMEM;
}

bool hak__profile_owns(uintptr_t address) { return address - reserved_start < reserved_end - reserved_start; }

/* --- free records --------------------------------------------------------------------------------------------------------------- */

static struct hak_profile_record *pop_record(_Atomic uint64_t *head)
{
    /* acquire: pairs with the push's release; the record's link and its free are complete. */
    uint64_t before = hak_load(head, HAK_ACQUIRE), after;
    do {
        if ((uint32_t)before == 0)
            return NULL;
        uint32_t next = hak_load(&record_by((uint32_t)before - 1)->next, HAK_RELAXED);
        after = ((before >> 32) + 1) << 32 | next;
    } while (!hak_cas_weak(head, &before, after, HAK_ACQUIRE, HAK_ACQUIRE));
    return record_by((uint32_t)before - 1);
}

static void push_record(_Atomic uint64_t *head, struct hak_profile_record *record)
{
    uint64_t before = hak_load(head, HAK_RELAXED), after;
    do {
        hak_store(&record->next, (uint32_t)before, HAK_RELAXED);
        after = ((before >> 32) + 1) << 32 | (number_of(record) + 1);
    } while (!hak_cas_weak(head, &before, after, HAK_RELEASE, HAK_RELAXED));
}

/* --- places ------------------------------------------------------------------------------------------------------------------------ */

static uint32_t places_in_chunk(uint32_t class) { return CHUNK / hak__classes[class].size; }

static struct hak_profile_record *place_by(size_t chunk, uint32_t class, uint32_t index)
{
    struct hak_profile_record *record = record_by(chunk_by(chunk)->first + index);
    record->sample.block = place_range.start + chunk * CHUNK + (size_t)index * hak__classes[class].size;
    return record;
}

/* If two threads do so at once, one chunk's places except the first stay unused. */
static struct hak_profile_record *open_chunk(uint32_t class, uint64_t before)
{
    uint32_t count = places_in_chunk(class);
    uintptr_t at = hak__profile_area_take(&place_range, CHUNK);
    uintptr_t first = at == 0 ? 0 : hak__profile_area_take(&place_records, count * sizeof(struct hak_profile_record));
    size_t number = (at - place_range.start) / CHUNK;
    if (first == 0 || !hak__profile_area_reach(&place_chunks, (number + 1) * sizeof(struct chunk)))
        return NULL;
    chunk_by(number)->first = number_of((struct hak_profile_record *)first);
    hak_owner_store(&chunk_by(number)->class, class + 1);
    /* release: pairs with the acquire of the thread that takes the next place; the chunk is described. */
    hak_cas_strong(&fresh_places[class], &before, (uint64_t)1 << 32 | (number + 1), HAK_RELEASE, HAK_RELAXED);
    return place_by(number, class, 0);
}

static struct hak_profile_record *fresh_place(uint32_t class)
{
    uint64_t before = hak_load(&fresh_places[class], HAK_ACQUIRE);
    do {
        if ((uint32_t)before == 0 || before >> 32 >= places_in_chunk(class))
            return open_chunk(class, before);
    } while (!hak_cas_weak(&fresh_places[class], &before, before + ((uint64_t)1 << 32), HAK_ACQUIRE, HAK_ACQUIRE));
    return place_by((uint32_t)before - 1, class, (uint32_t)(before >> 32));
}

struct hak_profile_record *hak__profile_place_take(uint32_t class)
{
    struct hak_profile_record *record = pop_record(&free_records[class]);
    if (record == NULL)
        record = fresh_place(class);
    if (record != NULL)
        hak_store(&record->sample.state, HAK_SAMPLE_TAKEN, HAK_RELAXED);
    return record;
}

static void give_record(_Atomic uint64_t *head, struct hak_profile_record *record)
{
    hak_assert(hak_load(&record->sample.of, HAK_RELAXED) == NULL, "it has left its heap");
    hak_store(&record->sample.state, HAK_SAMPLE_FREE, HAK_RELAXED);
    push_record(head, record);
}

void hak__profile_place_give(struct hak_profile_record *record, uint32_t class) { give_record(&free_records[class], record); }

struct hak_profile_record *hak__profile_record_at(const void *p, uint32_t *class)
{
    size_t offset = (uintptr_t)p - place_range.start, number = offset / CHUNK;
    if ((number + 1) * sizeof(struct chunk) > hak_load(&place_chunks.committed, HAK_ACQUIRE)
        || hak_peek(&chunk_by(number)->class) == 0)
        return NULL;
    *class = chunk_by(number)->class - 1;
    return record_by(chunk_by(number)->first + (uint32_t)(offset % CHUNK / hak__classes[*class].size));
}

/* --- blocks of the window ------------------------------------------------------------------------------------------------------------ */

static _Atomic uint32_t *outer_at(const void *block, bool make)
{
    size_t slab = hak__slab_of(block), end = (slab + 1) * sizeof(uint32_t);
    bool there = make ? hak__profile_area_reach(&outer_table, end) : end <= hak_load(&outer_table.committed, HAK_ACQUIRE);
    return there ? (_Atomic uint32_t *)outer_table.start + slab : NULL;
}

struct hak_profile_record *hak__profile_outer_take(const void *block)
{
    _Atomic uint32_t *place = outer_at(block, true);
    struct hak_profile_record *record = place == NULL ? NULL : pop_record(&free_records[OUTER]);
    if (record == NULL && place != NULL)
        record = (void *)hak__profile_area_take(&place_records, sizeof *record);
    if (record == NULL)
        return NULL;
    record->sample.block = (uintptr_t)block;
    hak_store(&record->sample.state, HAK_SAMPLE_TAKEN, HAK_RELAXED);
    hak_store(place, number_of(record) + 1, HAK_RELAXED); /* ordered by how the program hands the block to the freeing thread */
    return record;
}

/* Two blocks that begin in one slab are both shorter than a slab. */
struct hak_profile_record *hak__profile_outer_find(const void *block, bool remove)
{
    _Atomic uint32_t *place = outer_at(block, false);
    uint32_t number = place == NULL ? 0 : hak_load(place, HAK_RELAXED);
    if (number == 0 || record_by(number - 1)->sample.block != (uintptr_t)block)
        return NULL;
    if (remove)
        hak_store(place, 0, HAK_RELAXED);
    return record_by(number - 1);
}

void hak__profile_outer_give(struct hak_profile_record *record) { give_record(&free_records[OUTER], record); }

struct hak_profile_record *hak__profile_record_next(uint32_t *number)
{
    size_t end = hak_min(hak_load(&place_records.used, HAK_RELAXED), hak_load(&place_records.committed, HAK_ACQUIRE));
    return *number < end / sizeof(struct hak_profile_record) ? record_by((*number)++) : NULL;
}
