/* Slots of classes, and the table of blocks in place (sample.h).
 *
 * The range of slots consists of 64 KiB chunks, each for one class and laid out like a one-slab span, so a slot is aligned like a
 * block of its class. A chunk's slots have consecutive record numbers: address and record follow from each other. A class's free
 * slots are a stack of record numbers; each change of its head carries a tag, so that no pop uses a stale link. Records are never
 * given back, so a stale number still leads to a record. */
#include "sample/sample.h"

#include <errno.h>
#include <string.h>

#include "arena/arena.h"
#include "arena/limit.h"
#include "base/assert.h"
#include "base/bits.h"
#include "harden/mode.h"
#include "os/groups.h"
#include "os/os.h"
#include "span/shield.h"

enum { CHUNK = 64 << 10, SLOT_CLASSES = HAK_CLASS_MID_LAST + 1, IN_PLACE = SLOT_CLASSES };
enum { SMALLER = 2, RESERVE_TRIES = 8, LEFT_PART = 4, TABLE_LEAST = 1 << 20 };
enum { AREA_STEP = 256 << 10, DISCARD_FROM = 16 << 10, RESIDENT_LEAST = 512 << 10, RESIDENT_SHARE = 128 };

struct chunk {
    uint32_t first; /* the first slot's record number */
    uint32_t class; /* plus one; 0: unused */
    _Atomic uint32_t uses; /* its slots in use, plus one; 0 (set and left under the arena's lock): its memory is not counted */
};

static hak_rare_data struct hak_area records, chunks, slot_range, in_place_table;
static hak_rare_data _Atomic uint64_t free_records[SLOT_CLASSES + 1]; /* tag << 32 | the first one's number plus one */
static hak_rare_data _Atomic uint64_t fresh_slots[SLOT_CLASSES]; /* used slots of the chunk << 32 | the chunk's number plus one */
static _Atomic size_t resident_slots; /* bytes of free slots of DISCARD_FROM and more that still have pages */

static struct hak_record *record_by(uint32_t number) { return (struct hak_record *)records.start + number; }

static uint32_t number_of(const struct hak_record *record) { return (uint32_t)(record - (struct hak_record *)records.start); }

static struct chunk *chunk_by(size_t number) { return (struct chunk *)chunks.start + number; }

/* --- layout ----------------------------------------------------------------------------------------------------------------- */

/* Commits up to there. */
static bool area_reach(struct hak_area *area, size_t end)
{
    size_t done = hak_load(&area->committed, HAK_ACQUIRE); /* acquire: pairs with the release below; the pages are committed */
    if (end <= done)
        return true;
    size_t goal = hak_min(hak_align_up(end, AREA_STEP), area->size);
    if (end > area->size || hak__os_commit(area->start + done, goal - done) != 0)
        return false;
    hak__os_dump(area->start + done, goal - done);
    while (done < goal && !hak_cas_weak(&area->committed, &done, goal, HAK_RELEASE, HAK_RELAXED))
        continue; /* another thread has committed as much, or less: committing twice is harmless */
    return true;
}

uintptr_t hak__area_take(struct hak_area *area, size_t bytes)
{
    size_t at = hak_load(&area->used, HAK_RELAXED);
    do {
        if (bytes > area->size - at)
            return 0;
    } while (!hak_cas_weak(&area->used, &at, at + bytes, HAK_RELAXED, HAK_RELAXED));
    return area_reach(area, at + bytes) ? area->start + at : 0;
}

static void lay_out(struct hak_area *area, size_t size, uintptr_t *at)
{
    area->start = *at;
    area->size = size;
    *at += size;
}

/* How many addresses may be reserved: under RLIMIT_AS a part of what is left for the program. */
static size_t addresses_left(void)
{
    struct hak_os_process own = { .address_limit = HAK_OS_UNLIMITED };
    if (!hak__os_is_filtered())
        hak__os_process_look(&own);
    bool limited = own.address_limit != HAK_OS_UNLIMITED && own.addresses != 0;
    return limited ? (own.address_limit - hak_min(own.addresses, own.address_limit)) / LEFT_PART : SIZE_MAX;
}

/* A process limited to fewer addresses gets by with fewer. */
int hak__store_begin(struct hak_area *sites, struct hak_area *ghosts)
{
    size_t most = addresses_left();
    for (unsigned try = 0, less = 0; try < RESERVE_TRIES; try++, less += SMALLER) {
        size_t slot_bytes = (size_t)64 << 30 >> less, table_bytes = hak_max((size_t)1 << 30 >> less, TABLE_LEAST);
        size_t chunk_bytes = slot_bytes / CHUNK * sizeof(struct chunk), bytes = slot_bytes + 3 * table_bytes + chunk_bytes + CHUNK;
        uintptr_t at = bytes <= most ? hak__os_reserve(bytes) : 0;
        if (at == 0)
            continue;
        at = hak_align_up(at, CHUNK);
        lay_out(&slot_range, slot_bytes, &at);
        lay_out(&records, table_bytes / 2, &at);
        lay_out(&in_place_table, table_bytes, &at);
        lay_out(sites, table_bytes / 2, &at);
        lay_out(ghosts, table_bytes, &at);
        lay_out(&chunks, chunk_bytes, &at); /* may end within a page */
        hak__sample.slots = slot_range.start;
        hak__sample.store_end = at;
        hak__shield_watch(slot_range.start, slot_bytes);
        hak_owner_store(&hak__sample.slots_bytes, slot_bytes);
        return 0;
    }
    return ENOMEM;
}

/* --- free records --------------------------------------------------------------------------------------------------------------- */

static struct hak_record *pop_record(_Atomic uint64_t *head)
{
    /* acquire: pairs with the push's release; the record's link and its free are complete. */
    uint64_t before = hak_load(head, HAK_ACQUIRE), after;
    do {
        if ((uint32_t)before == 0)
            return NULL;
        uint32_t next = hak_load(&record_by((uint32_t)before - 1)->free_next, HAK_RELAXED);
        after = ((before >> 32) + 1) << 32 | next;
    } while (!hak_cas_weak(head, &before, after, HAK_ACQUIRE, HAK_ACQUIRE));
    return record_by((uint32_t)before - 1);
}

static void push_record(_Atomic uint64_t *head, struct hak_record *record)
{
    uint64_t before = hak_load(head, HAK_RELAXED), after;
    do {
        hak_store(&record->free_next, (uint32_t)before, HAK_RELAXED);
        after = ((before >> 32) + 1) << 32 | (number_of(record) + 1);
    } while (!hak_cas_weak(head, &before, after, HAK_RELEASE, HAK_RELAXED));
}

/* --- slots ------------------------------------------------------------------------------------------------------------------------ */

static uint32_t slots_in_chunk(uint32_t class) { return CHUNK / hak__classes[class].size; }

static struct hak_record *slot_by(size_t chunk, uint32_t class, uint32_t index)
{
    struct hak_record *record = record_by(chunk_by(chunk)->first + index);
    record->block = slot_range.start + chunk * CHUNK + (size_t)index * hak__classes[class].size;
    return record;
}

/* If two threads do so at once, one chunk's slots except the first stay unused. */
static struct hak_record *open_chunk(uint32_t class, uint64_t before)
{
    uint32_t count = slots_in_chunk(class);
    uintptr_t at = hak__area_take(&slot_range, CHUNK);
    uintptr_t first = at == 0 ? 0 : hak__area_take(&records, count * sizeof(struct hak_record));
    size_t number = (at - slot_range.start) / CHUNK;
    if (first == 0 || !area_reach(&chunks, (number + 1) * sizeof(struct chunk)))
        return NULL;
    chunk_by(number)->first = number_of((struct hak_record *)first);
    hak_owner_store(&chunk_by(number)->class, class + 1);
    /* release: pairs with the acquire of the thread that takes the next slot; the chunk is described. */
    hak_cas_strong(&fresh_slots[class], &before, (uint64_t)1 << 32 | (number + 1), HAK_RELEASE, HAK_RELAXED);
    return slot_by(number, class, 0);
}

static struct hak_record *fresh_slot(uint32_t class)
{
    uint64_t before = hak_load(&fresh_slots[class], HAK_ACQUIRE);
    do {
        if ((uint32_t)before == 0 || before >> 32 >= slots_in_chunk(class))
            return open_chunk(class, before);
    } while (!hak_cas_weak(&fresh_slots[class], &before, before + ((uint64_t)1 << 32), HAK_ACQUIRE, HAK_ACQUIRE));
    return slot_by((uint32_t)before - 1, class, (uint32_t)(before >> 32));
}

/* The chunk that holds the address; NULL: none has been opened there. */
static struct chunk *chunk_at(uintptr_t address)
{
    size_t number = (address - slot_range.start) / CHUNK;
    bool there = (number + 1) * sizeof(struct chunk) <= hak_load(&chunks.committed, HAK_ACQUIRE);
    return there && hak_peek(&chunk_by(number)->class) != 0 ? chunk_by(number) : NULL;
}

/* Counts one more slot as in use; false: the chunk's memory would exceed the limit. */
static bool chunk_enter(struct chunk *chunk)
{
    uint32_t uses = hak_load(&chunk->uses, HAK_RELAXED);
    while (uses != 0)
        if (hak_cas_weak(&chunk->uses, &uses, uses + 1, HAK_RELAXED, HAK_RELAXED))
            return true;
    hak__arena_lock();
    bool counts = hak_load(&chunk->uses, HAK_RELAXED) != 0, may = counts || hak__limit_allows(hak__arena_state.mapped, CHUNK);
    if (may && !counts)
        hak__arena_count_samples(CHUNK);
    if (may)
        hak_fetch_add(&chunk->uses, counts ? 1 : 2, HAK_RELAXED);
    hak__arena_unlock();
    return may;
}

/* Where mapped bytes count, an unused chunk's pages go back. */
static void chunk_leave(struct chunk *chunk)
{
    bool returns = hak__limit_unmaps();
    uint32_t uses = hak_load(&chunk->uses, HAK_RELAXED), after;
    if (returns)
        hak__arena_lock();
    do
        after = returns && uses == 2 ? 0 : uses - 1;
    while (!hak_cas_weak(&chunk->uses, &uses, after, HAK_RELAXED, HAK_RELAXED));
    if (after == 0) {
        hak__os_discard(slot_range.start + (size_t)(chunk - chunk_by(0)) * CHUNK, CHUNK);
        hak__arena_count_samples(0 - (size_t)CHUNK);
    }
    if (returns)
        hak__arena_unlock();
}

static void give_record(_Atomic uint64_t *head, struct hak_record *record)
{
    hak_assert(hak_load(&record->of, HAK_RELAXED) == NULL, "it has left its heap");
    hak_store(&record->state, HAK_SAMPLE_FREE, HAK_RELAXED);
    push_record(head, record);
}

struct hak_record *hak__slot_take(uint32_t class, size_t n, struct hak_samples *samples)
{
    hak_assert(class < SLOT_CLASSES, "larger blocks are sampled in place");
    struct hak_record *record = pop_record(&free_records[class]);
    if (record == NULL && (record = fresh_slot(class)) == NULL)
        return NULL;
    hak_store(&record->state, HAK_SAMPLE_TAKEN, HAK_RELAXED);
    struct chunk *chunk = chunk_at(record->block);
    bool enters = chunk_enter(chunk),
         joins = enters && hak__record_join(record, samples, hak__hardened.on ? n : hak__classes[class].size);
    if (enters && !joins)
        chunk_leave(chunk);
    if (!joins) {
        give_record(&free_records[class], record);
        return NULL;
    }
    if (record->bytes != 0)
        hak_fetch_sub(&resident_slots, record->bytes, HAK_RELAXED);
    return record;
}

static struct hak_record *slot_at(uintptr_t address)
{
    const struct chunk *chunk = chunk_at(address);
    size_t offset = (address - slot_range.start) % CHUNK;
    return chunk == NULL ? NULL : record_by(chunk->first + (uint32_t)(offset / hak__classes[chunk->class - 1].size));
}

/* The program may have revoked access to the block's pages, also by calls that the library does not see: restores it before the
 * slot is read, written or reused. A block without a whole page cannot have lost any. False: the system refuses. */
static bool slot_allow(uintptr_t block, size_t size)
{
    return hak__shield_lift_range((const void *)block, size) && (size < hak__page_size() || hak__os_commit(block, size) == 0);
}

void hak__slot_lift(struct hak_record *record) { slot_allow(record->block, hak__classes[chunk_at(record->block)->class - 1].size); }

/* A free slot may stay resident: discarding it interrupts every processor that runs the program, and its pages fault again. Of
 * the large ones a limited amount stays, and the rest is discarded. Returns the bytes that count against the limit. */
static size_t slot_empty(uintptr_t block, size_t size)
{
    size_t page = hak__page_size();
    uintptr_t start = hak_align_up(block, page), end = hak_align_down(block + size, page);
    bool large = size >= DISCARD_FROM && end > start;
    size_t most = RESIDENT_LEAST + hak_counted(&hak__arena_published.mapped) / RESIDENT_SHARE;
    if (large && hak_fetch_add(&resident_slots, size, HAK_RELAXED) + size > most) {
        hak_fetch_sub(&resident_slots, size, HAK_RELAXED);
        hak__os_discard(start, end - start);
        return 0;
    }
    if (hak__hardened.on)
        memset((void *)block, 0, size);
    return large ? size : 0;
}

void hak__slot_end(struct hak_record *record, const char *function)
{
    uint32_t class = chunk_at(record->block)->class - 1;
    (void)function;
    hak__record_leave(record);
    if (!slot_allow(record->block, hak__classes[class].size)) /* the slot is lost */
        return;
    record->bytes = slot_empty(record->block, hak__classes[class].size);
    chunk_leave(chunk_at(record->block));
    give_record(&free_records[class], record);
}

/* --- blocks in place --------------------------------------------------------------------------------------------------------- */

/* The slab's word: the number of the record of the block that begins there, plus one; 0: none. */
static _Atomic uint32_t *in_place_at(const void *block, bool make)
{
    size_t slab = hak__slab_of(block), end = (slab + 1) * sizeof(uint32_t);
    bool there = make ? area_reach(&in_place_table, end) : end <= hak_load(&in_place_table.committed, HAK_ACQUIRE);
    return there ? (_Atomic uint32_t *)in_place_table.start + slab : NULL;
}

struct hak_record *hak__in_place_take(const void *block, struct hak_samples *samples)
{
    _Atomic uint32_t *word = in_place_at(block, true);
    struct hak_record *record = word == NULL ? NULL : pop_record(&free_records[IN_PLACE]);
    if (record == NULL && word != NULL)
        record = (void *)hak__area_take(&records, sizeof *record);
    if (record == NULL)
        return NULL;
    record->block = (uintptr_t)block;
    hak_store(&record->state, HAK_SAMPLE_TAKEN, HAK_RELAXED);
    hak_store(word, number_of(record) + 1, HAK_RELAXED); /* ordered by how the program hands the block to the freeing thread */
    hak__record_join(record, samples, 0);
    return record;
}

/* Two blocks that begin in one slab are both shorter than a slab. */
struct hak_record *hak__in_place_find(const void *block, bool remove)
{
    _Atomic uint32_t *word = in_place_at(block, false);
    uint32_t number = word == NULL ? 0 : hak_load(word, HAK_RELAXED);
    if (number == 0 || record_by(number - 1)->block != (uintptr_t)block)
        return NULL;
    if (remove)
        hak_store(word, 0, HAK_RELAXED);
    return record_by(number - 1);
}

void hak__in_place_end(struct hak_record *record, const char *function)
{
    (void)function;
    hak__in_place_find((void *)record->block, true);
    hak__record_leave(record);
    give_record(&free_records[IN_PLACE], record);
}

/* --- all records ----------------------------------------------------------------------------------------------------------------- */

struct hak_record *hak__sample_record_of(const void *p)
{
    hak_assert(hak__sample_has(p), "an address in a slot");
    return hak__slots_have(p) ? slot_at((uintptr_t)p)
                              : &hak__sample.guarded[((uintptr_t)p - hak__sample.start) / HAK_GUARDED_STRIDE].record;
}

struct hak_record *hak__sample_record_next(uint32_t *number)
{
    size_t end = hak_min(hak_load(&records.used, HAK_RELAXED), hak_load(&records.committed, HAK_ACQUIRE));
    uint32_t stored = (uint32_t)(end / sizeof(struct hak_record)), i = (*number)++;
    if (i < stored)
        return record_by(i);
    return i - stored < hak__sample.bytes / HAK_GUARDED_STRIDE ? &hak__sample.guarded[i - stored].record : NULL;
}
