/* Which requests are sampled, and their blocks from request to free (profile.h, sample/sample.h). */
#include "base/bits.h"
#include "cache/cache.h"
#include "diag/report.h"
#include "os/os.h"
#include "profile/sites.h"

enum { FRACTION_BITS = 24, UNIFORM_BITS = 53 };

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

/* Probes for user-space tracers, by the contract of OpenTelemetry's memory profiling: a nop, and a note in the file with its address
 * and where its arguments are: where a function's are, as some tracers look nowhere else. Only the nop costs anything; notes are not
 * loaded. They follow SystemTap's "stapsdt" notes, version 3. Each probe is one function, so that it has one note. */
#if HAK_HAS_PROBES
#if defined(__x86_64__)
#define PROBE_FIRST "rdi"
#define PROBE_SECOND "rsi"
#define PROBE_THIRD "rdx"
#elif defined(__riscv)
#define PROBE_FIRST "a0"
#define PROBE_SECOND "a1"
#define PROBE_THIRD "a2"
#else
#define PROBE_FIRST "x0"
#define PROBE_SECOND "x1"
#define PROBE_THIRD "x2"
#endif
#define PROBE(name, arguments, ...) \
    __asm__ volatile("990:\tnop\n" \
                     "\t.pushsection .note.stapsdt, \"\", \"note\"\n\t.balign 4\n" \
                     "\t.4byte 992f - 991f, 994f - 993f, 3\n" \
                     "991:\t.asciz \"stapsdt\"\n992:\t.balign 4\n" \
                     "993:\t.8byte 990b, _.hak.probes, hak__profile_tracers\n" \
                     "\t.asciz \"otel_memory\"\n\t.asciz \"" name "\"\n\t.asciz \"" arguments "\"\n" \
                     "994:\t.balign 4\n\t.popsection\n" \
                     "\t.ifndef _.hak.probes\n\t.pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n" \
                     "\t.weak _.hak.probes\n\t.hidden _.hak.probes\n_.hak.probes:\t.space 1\n" \
                     "\t.size _.hak.probes, 1\n\t.popsection\n\t.endif" \
                     : : __VA_ARGS__ : "memory")

static hak_noinline void probe_alloc(uintptr_t block, uint64_t n, uint64_t weight)
{
    register uint64_t first __asm__(PROBE_FIRST) = block, second __asm__(PROBE_SECOND) = n, third __asm__(PROBE_THIRD) = weight;
    PROBE("alloc", "8@%0 8@%1 8@%2", "r"(first), "r"(second), "r"(third));
}

static hak_noinline void probe_free(uintptr_t block)
{
    register uint64_t first __asm__(PROBE_FIRST) = block;
    PROBE("free", "8@%0", "r"(first));
}
#else
static void probe_alloc(uintptr_t block, uint64_t n, uint64_t weight) { (void)block, (void)n, (void)weight; }
static void probe_free(uintptr_t block) { (void)block; }
#endif

static uint32_t sampler_now_ms(void) { return (uint32_t)hak__os->now_ms(); }

static void sampler_missed(void) { hak_fetch_add(&hak__profile.missed, 1, HAK_RELAXED); }

/* `site`: the one for which it counts; NULL: for none. */
static void begin_record(struct hak_record *record, struct hak_profile_site *site, size_t n, const struct hak_sample_design *design)
{
    record->design = design;
    record->site = site;
    record->bytes = n;
    record->born_ms = sampler_now_ms();
    if (site != NULL) {
        hak__profile_site_add(site, n);
        hak_fetch_add(&hak__profile.samples, 1, HAK_RELAXED);
        probe_alloc(record->block, n, hak__profile_weight(site, n));
    }
    /* release: pairs with the acquire of a thread that frees the block or walks all records. */
    hak_store(&record->state, HAK_SAMPLE_LIVE, HAK_RELEASE);
}

static void end_record(const struct hak_record *record)
{
    if (record->site == NULL)
        return;
    hak__profile_site_remove(record->site, record->bytes, (uint32_t)(sampler_now_ms() - record->born_ms));
    probe_free(record->block);
}

static void guarded_end(struct hak_record *record, const char *function)
{
    end_record(record);
    hak__guarded_end(record, function);
}

static void slot_end(struct hak_record *record, const char *function)
{
    end_record(record);
    hak__slot_end(record, function);
}

static void in_place_end(struct hak_record *record, const char *function)
{
    end_record(record);
    hak__in_place_end(record, function);
}

static const struct hak_sample_design with_guards = {
    .end = guarded_end, .lift = hak__guarded_lift, .shrink = hak__guarded_shrink, .tell = hak__guarded_tell
};
static const struct hak_sample_design in_slot = { .end = slot_end, .lift = hak__slot_lift, .shrink = hak__record_shrink };
static const struct hak_sample_design in_place = { .end = in_place_end };

void *hak__sample_take(size_t align, size_t n, bool guarded, bool counts, struct hak_samples *samples)
{
    const struct hak_sample_design *design = &with_guards;
    struct hak_profile_site *site = counts ? hak__profile_site_here(n, samples) : NULL;
    struct hak_record *record = guarded ? hak__guarded_take(align, n, samples) : NULL;
    if (record == NULL && site != NULL) {
        record = hak__slot_take(align <= HAK_ALIGN ? hak__class_of(n) : hak__aligned_class(align, n), n, samples);
        design = &in_slot;
    }
    if (counts && (site == NULL || record == NULL))
        sampler_missed();
    if (record == NULL)
        return NULL;
    begin_record(record, site, n, design);
    return (void *)record->block;
}

bool hak__sample_shrink(struct hak_record *record, size_t n)
{
    if (!hak__record_claim(record))
        return false;
    struct hak_heap *heap = hak__heap_mine();
    bool counts = hak__profile_counts() && (heap->mode & HAK_MODE_SENTINEL) == 0 && hak__profile_due(heap, n);
    end_record(record);
    record->design->shrink(record, n);
    begin_record(record, counts ? hak__profile_site_here(n, hak_load(&record->of, HAK_RELAXED)) : NULL, n, record->design);
    return true;
}

void hak__profile_note(struct hak_heap *heap, void *block, size_t n, struct hak_samples *samples)
{
    if (!hak__profile_due(heap, n))
        return;
    hak__profile_forget(block); /* in case a thread that counts for no profile freed the previous one */
    struct hak_profile_site *site = hak__profile_site_here(n, samples);
    struct hak_record *record = site == NULL ? NULL : hak__in_place_take(block, samples);
    if (record != NULL)
        begin_record(record, site, n, &in_place);
    else
        sampler_missed();
}

void hak__profile_forget(const void *block)
{
    struct hak_record *record = hak__in_place_find(block, true);
    if (record != NULL && hak__record_claim(record))
        in_place_end(record, NULL);
}
