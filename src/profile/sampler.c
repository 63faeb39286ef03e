/* The countdown, and samples from request to free (profile.h). */
#include <string.h>

#include "arena/arena.h"
#include "base/bits.h"
#include "cache/tune.h"
#include "diag/report.h"
#include "os/os.h"
#include "profile/places.h"
#include "profile/probes.h"
#include "span/hardened.h"
#include "span/shield.h"

enum { FRACTION_BITS = 24, UNIFORM_BITS = 53, DISCARD_FROM = 16 << 10, RESIDENT_LEAST = 512 << 10, RESIDENT_SHARE = 128 };

static _Atomic size_t resident_places; /* bytes of free places of DISCARD_FROM and more that still have pages */

/* --- when ------------------------------------------------------------------------------------------------------------------- */

/* -log2(u) for u = numerator / 2^53 in (0, 1], in units of 2^-24: the highest bit gives the integer part, one squaring each
 * further bit. */
static uint64_t minus_log2(uint64_t numerator)
{
    unsigned msb = hak_msb64(numerator);
    uint64_t mantissa = numerator << (63 - msb) >> 32, log = 0; /* in [2^31, 2^32): [1, 2) */
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
    uint64_t mix = hak_fetch_add(&state, 0x9e3779b97f4a7c15ull, HAK_RELAXED); /* splitmix64 */
    mix = (mix ^ mix >> 30) * 0xbf58476d1ce4e5b9ull;
    mix = (mix ^ mix >> 27) * 0x94d049bb133111ebull;
    return ((mix ^ mix >> 31) >> (64 - UNIFORM_BITS)) + 1;
}

/* Bytes up to the next sample: a request of n takes it if n > sampler_draw. A mean of one byte means all. */
static int64_t sampler_draw(void)
{
    const uint64_t ln2 = 2977044472u; /* times 2^32 */
    uint64_t mean = hak_load(&hak__profile.interval, HAK_RELAXED);
    if (mean <= 1)
        return -1;
    unsigned __int128 nats = (unsigned __int128)minus_log2(sampler_uniform()) * ln2;
    return (int64_t)(nats * mean >> (32 + FRACTION_BITS));
}

void hak__profile_join(struct hak_heap *heap)
{
    if (hak_likely(hak__profile_has_joined(heap)))
        return;
    heap->profile_session = hak_load(&hak__profile.session, HAK_RELAXED);
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

static void begin_record(struct hak_profile_record *record, struct hak_profile_site *site, size_t n,
                         const struct hak_sample_design *design)
{
    record->sample.design = design;
    record->site = site;
    record->bytes = n;
    record->born_ms = sampler_now_ms();
    hak__profile_site_add(site, n);
    hak_fetch_add(&hak__profile.samples, 1, HAK_RELAXED);
    /* release: pairs with the acquire of a thread that frees the block or walks all records. */
    hak_store(&record->sample.state, HAK_SAMPLE_LIVE, HAK_RELEASE);
    HAK_PROBE3(sample_alloc, record->sample.block, n, hak__profile_weight(site, n));
}

static void end_record(const struct hak_profile_record *record)
{
    hak__profile_site_remove(record->site, record->bytes, (uint32_t)(sampler_now_ms() - record->born_ms));
    HAK_PROBE3(sample_free, record->sample.block, record->bytes, hak__profile_weight(record->site, record->bytes));
}

/* Ends a claimed record of a block in the window. */
static void outer_end(struct hak_record *sample, const char *function)
{
    struct hak_profile_record *record = (struct hak_profile_record *)sample;
    (void)function;
    hak__profile_outer_find((void *)sample->block, true);
    end_record(record);
    hak__record_leave(sample);
    hak__profile_outer_give(record);
}

static const struct hak_sample_design outer_design = { .end = outer_end };

void hak__profile_forget(const void *block)
{
    struct hak_profile_record *record = hak__profile_outer_find(block, true);
    if (record != NULL && hak__record_claim(&record->sample))
        outer_end(&record->sample, NULL);
}

void hak__profile_note(struct hak_heap *heap, void *block, size_t n, struct hak_samples *samples)
{
    if (!hak__profile_due(heap, n))
        return;
    hak__profile_forget(block); /* in case a thread that counts for no profile freed the previous one */
    struct hak_profile_site *site = hak__profile_site_here(n);
    struct hak_profile_record *record = site == NULL ? NULL : hak__profile_outer_take(block);
    if (record == NULL) {
        sampler_missed();
        return;
    }
    hak__record_join(&record->sample, samples, 0);
    begin_record(record, site, n, &outer_design);
}

/* --- blocks of the range ---------------------------------------------------------------------------------------------------------- */

/* The program may have revoked access to the block's pages, also by calls that the library does not see: restores it before the
 * place is read, written or reused. A block without a whole page cannot have lost any. False: the system refuses. */
static bool allow_place(const void *p, size_t size)
{
    return hak__shield_lift_range(p, size) && (size < hak__page_size() || hak__os_commit((uintptr_t)p, size) == 0);
}

/* A free place may stay resident: discarding it interrupts every processor that runs the program, and its pages fault again. Of
 * the large ones a limited amount stays, and the rest is discarded. Returns the bytes that count against the limit. */
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

/* Ends a claimed record. */
static void place_end(struct hak_record *sample, const char *function)
{
    uint32_t class = 0;
    void *p = (void *)sample->block;
    struct hak_profile_record *record = hak__profile_record_at(p, &class);
    (void)function;
    end_record(record);
    hak__record_leave(&record->sample);
    if (!allow_place(p, hak__classes[class].size)) /* the place is lost */
        return;
    record->bytes = empty_place(p, hak__classes[class].size);
    hak__profile_place_give(record, class);
}

static void place_lift(struct hak_record *sample)
{
    uint32_t class = 0;
    hak__profile_record_at((void *)sample->block, &class);
    allow_place((void *)sample->block, hak__classes[class].size);
}

static const struct hak_sample_design place_design = { .end = place_end, .lift = place_lift };

void *hak__profile_take(uint32_t class, size_t n, struct hak_samples *samples)
{
    struct hak_profile_site *site = hak__profile_site_here(n);
    struct hak_profile_record *record = site == NULL ? NULL : hak__profile_place_take(class);
    bool joined = record != NULL && hak__record_join(&record->sample, samples, hak__hardened.on ? n : hak__classes[class].size);
    if (record != NULL && !joined)
        hak__profile_place_give(record, class);
    if (!joined) {
        sampler_missed();
        return NULL;
    }
    if (record->bytes != 0)
        hak_fetch_sub(&resident_places, record->bytes, HAK_RELAXED);
    begin_record(record, site, n, &place_design);
    return (void *)record->sample.block;
}

struct hak_record *hak__profile_record_of(const void *p)
{
    uint32_t class;
    struct hak_profile_record *record = hak__profile_record_at(p, &class);
    return record != NULL ? &record->sample : NULL;
}
