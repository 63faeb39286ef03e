/* See profile.h: the countdown, and samples from their request to their free. */
#include <string.h>

#include "cache/tune.h"
#include "arena/arena.h"
#include "base/bits.h"
#include "diag/report.h"
#include "os/os.h"
#include "os/reserved.h"
#include "profile/places.h"
#include "profile/probes.h"
#include "slab/hardened.h"

enum { FRACTION_BITS = 24, UNIFORM_BITS = 53, DISCARD_FROM = 16 << 10, RESIDENT_LEAST = 512 << 10, RESIDENT_SHARE = 128 };

static _Atomic size_t resident_places;   /* bytes of free places of DISCARD_FROM and more that have not been discarded */

/* --- when ------------------------------------------------------------------------------------------------------------------- */

/* -log2(u) for u = numerator / 2^53 in (0, 1], in units of 2^-24: the whole part by the highest bit, each further bit by one
 * squaring. */
static uint64_t minus_log2(uint64_t numerator)
{
    unsigned msb = hak_msb64(numerator);
    uint64_t mantissa = numerator << (63 - msb) >> 32, log = 0;   /* in [2^31, 2^32): [1, 2) */
    for (unsigned bit = FRACTION_BITS; bit-- > 0;) {
        mantissa = mantissa * mantissa >> 31;
        log |= (mantissa >> 32) << bit;
        mantissa >>= mantissa >> 32;
    }
    return ((uint64_t)(UNIFORM_BITS - msb) << FRACTION_BITS) - log;
}

static uint64_t sampler_uniform(void)
{
    static _Atomic uint64_t state;
    if (hak_unlikely(hak_load(&state, HAK_RELAXED) == 0))
        hak_store(&state, hak__os->random() | 1, HAK_RELAXED);
    uint64_t mix = hak_fetch_add(&state, 0x9e3779b97f4a7c15ull, HAK_RELAXED);   /* splitmix64 */
    mix = (mix ^ mix >> 30) * 0xbf58476d1ce4e5b9ull;
    mix = (mix ^ mix >> 27) * 0x94d049bb133111ebull;
    return ((mix ^ mix >> 31) >> (64 - UNIFORM_BITS)) + 1;
}

/* Bytes until the next sample, beyond which it lies: a request of n takes it if n > sampler_draw. A mean of one byte means all. */
static int64_t sampler_draw(void)
{
    const uint64_t ln2 = 2977044472u;   /* times 2^32 */
    uint64_t mean = hak_load(&hak__profile.interval, HAK_RELAXED);
    if (mean <= 1)
        return -1;
    unsigned __int128 nats = (unsigned __int128)minus_log2(sampler_uniform()) * ln2;
    return (int64_t)(nats * mean >> (32 + FRACTION_BITS));
}

void hak__profile_join(struct hak_heap *heap)
{
    uint32_t session = hak_load(&hak__profile.session, HAK_RELAXED);
    if (hak_likely(heap->profile_session == session))
        return;
    heap->profile_session = session;
    heap->profile_left = sampler_draw();
    if (hak__heap_lock(heap)) {
        hak__cache_profile(heap);
        hak__heap_unlock(heap);
    }
}

bool hak__profile_due(struct hak_heap *heap, size_t n)
{
    hak__profile_join(heap);
    int64_t left = heap->profile_left - (int64_t)hak_min(n, PTRDIFF_MAX);
    heap->profile_left = left < 0 ? sampler_draw() : left;
    return left < 0;
}

/* --- samples ------------------------------------------------------------------------------------------------------------------ */

static uint32_t sampler_now_ms(void) { return (uint32_t)hak__os->now_ms(); }

static void sampler_missed(void) { hak_fetch_add(&hak__profile.missed, 1, HAK_RELAXED); }

static void begin_record(struct hak_profile_record *record, struct hak_profile_site *site, size_t n)
{
    record->site = site;
    record->bytes = n;
    record->born_ms = sampler_now_ms();
    hak__profile_site_add(site, n);
    hak_fetch_add(&hak__profile.samples, 1, HAK_RELAXED);
    /* release: pairs with the acquire of a thread that frees the block, or walks all records. */
    hak_store(&record->state, HAK_RECORD_LIVE, HAK_RELEASE);
    HAK_PROBE3(sample_alloc, record->block, n, hak__profile_weight(site, n));
}

static void end_record(const struct hak_profile_record *record)
{
    hak__profile_site_remove(record->site, record->bytes, (uint32_t)(sampler_now_ms() - record->born_ms));
    HAK_PROBE3(sample_free, record->block, record->bytes, hak__profile_weight(record->site, record->bytes));
}

void *hak__profile_take(uint32_t class, size_t n)
{
    struct hak_profile_site *site = hak__profile_site_here(n);
    struct hak_profile_record *record = site == NULL ? NULL : hak__profile_place_take(class);
    if (record == NULL) {
        sampler_missed();
        return NULL;
    }
    if (record->bytes != 0)
        hak_fetch_sub(&resident_places, record->bytes, HAK_RELAXED);
    begin_record(record, site, n);
    return (void *)record->block;
}

void hak__profile_note(struct hak_heap *heap, void *block, size_t n)
{
    if (!hak__profile_due(heap, n))
        return;
    struct hak_profile_site *site = hak__profile_site_here(n);
    struct hak_profile_record *record = site == NULL ? NULL : hak__profile_outer_take(block);
    if (record != NULL)
        begin_record(record, site, n);
    else
        sampler_missed();
}

void hak__profile_forget(const void *block)
{
    struct hak_profile_record *record = hak__profile_outer_find(block, true);
    uint32_t live = HAK_RECORD_LIVE;
    if (record == NULL || !hak_cas_strong(&record->state, &live, HAK_RECORD_FREE, HAK_ACQUIRE, HAK_RELAXED))
        return;
    end_record(record);
    hak__profile_outer_give(record);
}

/* --- blocks of the range ---------------------------------------------------------------------------------------------------------- */

static struct hak_profile_record *live_at(const void *p, uint32_t *class, const char *function)
{
    struct hak_profile_record *record = hak__profile_record_at(p, class);
    uint32_t state = record == NULL ? HAK_RECORD_UNUSED : hak_load(&record->state, HAK_ACQUIRE);
    if (state == HAK_RECORD_UNUSED)
        hak__misuse_invalid(function, p, "this block was never allocated");
    if (record->block != (uintptr_t)p)
        hak__misuse_invalid(function, p, "not the start of a block");
    return state == HAK_RECORD_LIVE ? record : NULL;
}

/* A free place may stay resident: to discard it interrupts every processor that runs the program, and its pages fault again. Of
 * the large ones only so much stays, and the rest is discarded. Returns the bytes that count against that. */
static size_t empty_place(void *p, size_t size)
{
    size_t page = hak__page_size();
    uintptr_t start = hak_align_up((uintptr_t)p, page), end = hak_align_down((uintptr_t)p + size, page);
    bool large = size >= DISCARD_FROM && end > start;
    size_t most = RESIDENT_LEAST + hak_counted(&hak__arena_published.mapped) / RESIDENT_SHARE;
    if (large && hak_fetch_add(&resident_places, size, HAK_RELAXED) + size > most) {
        hak_fetch_sub(&resident_places, size, HAK_RELAXED);
        hak__os_discard(start, end - start);
        return 0;
    }
    if (hak__hardened.on)
        memset(p, 0, size);
    return large ? size : 0;
}

void hak__profile_free(void *p, const char *function)
{
    uint32_t class = 0, live = HAK_RECORD_LIVE;
    struct hak_profile_record *record = live_at(p, &class, function);
    /* acquire: what is known of the block is complete. */
    if (record == NULL || !hak_cas_strong(&record->state, &live, HAK_RECORD_FREE, HAK_ACQUIRE, HAK_RELAXED))
        hak__misuse_double_free(function, p, hak__classes[class].size);
    end_record(record);
    record->bytes = empty_place(p, hak__classes[class].size);
    hak__profile_place_give(record, class);
}

size_t hak__profile_usable(const void *p, const char *function)
{
    uint32_t class = 0;
    if (live_at(p, &class, function) == NULL)
        hak__misuse_invalid(function, p, "this block is free");
    return hak__classes[class].size;
}
