/* Sample places: taking, freeing, quarantine. */
#include "sample/sample.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arena/arena.h"
#include "arena/meta.h"
#include "arena/window.h"
#include "base/bits.h"
#include "base/syscall.h"
#include "cache/cache.h"
#include "diag/report.h"
#include "os/os.h"
#include "span/hardened.h"
#include "span/shield.h"
#include "trace/frames.h"
#include "trace/unwind.h"

/* A reused place is the oldest of PICKS random ones: old ones come first, and none is predictable. */
enum { PICKS = 4, TRIES = 16, SAMPLE_BURST = 64 };

struct hak_sample hak__sample;
static _Atomic uint32_t places_used; /* places below this have served */
static _Atomic uint64_t frees;
static _Atomic uint64_t allowance_us; /* when the samples so far are paid off */

/* --- how often --------------------------------------------------------------------------------------------------- */

/* Allows as many samples per second as there are places. Each sample moves the time at which all are paid off by its share of a
 * second, up to SAMPLE_BURST shares ahead. */
static bool rate_allows(void)
{
    uint64_t now = hak__os->now_ms() * 1000, share = 1000000 / hak__option(HAK_OPTION_sample_slots);
    uint64_t before = hak_load(&allowance_us, HAK_RELAXED), after;
    do {
        after = hak_max(before, now) + share;
        if (after > now + SAMPLE_BURST * share)
            return false;
    } while (!hak_cas_weak(&allowance_us, &before, after, HAK_RELAXED, HAK_RELAXED));
    return true;
}

/* --- places ------------------------------------------------------------------------------------------------------- */

static struct hak_sample_place *sample_claim(struct hak_sample_place *place, uint32_t state)
{
    /* acquire: pairs with the release of the thread that freed it; what it wrote about the block is complete. */
    bool done = hak_cas_strong(&place->sample.state, &state, HAK_SAMPLE_TAKEN, HAK_ACQUIRE, HAK_RELAXED);
    return done ? place : NULL;
}

static struct hak_sample_place *next_unused(void)
{
    uint32_t count = (uint32_t)hak__option(HAK_OPTION_sample_slots), used = hak_load(&places_used, HAK_RELAXED);
    while (used < count)
        if (hak_cas_weak(&places_used, &used, used + 1, HAK_RELAXED, HAK_RELAXED))
            return sample_claim(&hak__sample.places[used], HAK_SAMPLE_UNUSED);
    return NULL;
}

static struct hak_sample_place *pick_freed(void)
{
    uint64_t count = hak__option(HAK_OPTION_sample_slots), random = hak__os->random();
    struct hak_sample_place *oldest = NULL;
    unsigned found = 0;
    for (unsigned i = 0; i < TRIES && found < PICKS; i++, random = random * 6364136223846793005ull + 1442695040888963407ull) {
        struct hak_sample_place *place = &hak__sample.places[(random >> 32) % count];
        if (hak_load(&place->sample.state, HAK_RELAXED) != HAK_SAMPLE_FREE)
            continue;
        found++;
        if (oldest == NULL || hak_load(&place->freed_at, HAK_RELAXED) < hak_load(&oldest->freed_at, HAK_RELAXED))
            oldest = place;
    }
    return oldest == NULL ? NULL : sample_claim(oldest, HAK_SAMPLE_FREE);
}

struct hak_record *hak__sample_record_of(const void *p)
{
    return &hak__sample.places[((uintptr_t)p - hak__sample.start) / HAK_GUARDED_STRIDE].sample;
}

static uintptr_t start_of(const struct hak_sample_place *place)
{
    return hak__sample.start + (size_t)(place - hak__sample.places) * HAK_GUARDED_STRIDE;
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

/* Decides where the block lies. Requests for wide alignments arrive as class sizes that are multiples of them, so aligning the
 * block to its size suffices; above a page, pages begin at the end of the place's first quarter. */
static void lay_out(struct hak_sample_place *place, size_t n, bool at_end)
{
    size_t page = hak__page_size(), bytes = hak_align_up(n, page), align = n & (0 - n);
    place->pages = start_of(place) + HAK_GUARDED_STRIDE / 4;
    place->page_bytes = bytes;
    place->sample.block = place->pages + (at_end ? bytes - hak_align_up(n, hak_max(HAK_ALIGN, hak_min(align, page))) : 0);
}

/* The checked slack on one side of the block. */
static uint8_t *slack_before(const struct hak_sample_place *place, size_t *bytes)
{
    *bytes = hak_min(place->sample.block - place->pages, HAK_SAMPLE_SLACK_MOST);
    return (uint8_t *)place->sample.block - *bytes;
}

static uint8_t *slack_behind(const struct hak_sample_place *place, size_t *bytes)
{
    uintptr_t end = place->sample.block + place->sample.counted;
    *bytes = hak_min(place->pages + place->page_bytes - end, HAK_SAMPLE_SLACK_MOST);
    return (uint8_t *)end;
}

static void fill_slack(const struct hak_sample_place *place)
{
    size_t bytes;
    uint8_t *at = slack_before(place, &bytes);
    memset(at, HAK_SAMPLE_SLACK_BYTE, bytes);
    at = slack_behind(place, &bytes);
    memset(at, HAK_SAMPLE_SLACK_BYTE, bytes);
}

static const uint8_t *sample_changed(const uint8_t *at, size_t bytes)
{
    for (; bytes > 0; bytes--, at++)
        if (*at != HAK_SAMPLE_SLACK_BYTE)
            return at;
    return NULL;
}

static void sample_note(struct hak_sample_event *event)
{
    event->thread = (uint32_t)hak__syscall(SYS_gettid);
    event->frames = hak__unwind(event->trace, HAK_SAMPLE_FRAMES);
}

/* Gives up a claimed place that got no memory, and forgets its previous block. */
static void give_up(struct hak_sample_place *place, bool foreign)
{
    place->sample.block = 0;
    place->page_bytes = 0;
    hak_store(&place->sample.state, foreign ? HAK_SAMPLE_HOLE : HAK_SAMPLE_FREE, HAK_RELEASE);
}

static bool sample_map(struct hak_sample_place *place, size_t n)
{
    if (place->page_bytes != 0 && !hak__guarded_unmap(place->pages, place->page_bytes)) {
        hak_store(&place->sample.state, HAK_SAMPLE_FREE, HAK_RELEASE); /* unmapping was refused before, and is again */
        return false;
    }
    lay_out(place, n, hak__os->random() >> 32 & 1);
    int code = hak__guarded_map(place->pages, place->page_bytes);
    if (code != 0)
        give_up(place, code != ENOMEM);
    return code == 0;
}

/* --- frees --------------------------------------------------------------------------------------------------------- */

static void check_slack(struct hak_sample_place *place, const char *function)
{
    size_t bytes;
    const uint8_t *at = slack_before(place, &bytes), *found = sample_changed(at, bytes);
    const char *what = "underflow";
    if (found == NULL) {
        at = slack_behind(place, &bytes);
        found = sample_changed(at, bytes);
        what = "overflow";
    }
    if (found == NULL)
        return;
    hak__warn("%s(): %s of %p (%u-byte block): %p was written before", function, what, (void *)place->sample.block,
              (uint64_t)place->sample.counted, found);
    hak__frames_say_here("called");
    hak__sample_tell(&place->sample);
    abort();
}

static bool sample_allow(const struct hak_sample_place *place)
{
    return hak__shield_lift_range((const void *)place->pages, place->page_bytes)
        && hak__os_commit(place->pages, place->page_bytes) == 0;
}

static void sample_lift(struct hak_record *record) { sample_allow((struct hak_sample_place *)record); }

static void sample_end(struct hak_record *record, const char *function)
{
    struct hak_sample_place *place = (struct hak_sample_place *)record;
    if (sample_allow(place))
        check_slack(place, function);
    sample_note(&place->freed);
    hak__record_leave(record);
    if (hak__guarded_unmap(place->pages, place->page_bytes))
        place->page_bytes = 0;
    hak_store(&place->freed_at, hak_fetch_add(&frees, 1, HAK_RELAXED) + 1, HAK_RELAXED);
    hak_fetch_add(&hak__sample.freed, 1, HAK_RELAXED);
    /* release: pairs with the acquire of the place's next allocation. */
    hak_store(&record->state, HAK_SAMPLE_FREE, HAK_RELEASE);
}

static const struct hak_sample_design guarded_design = { .end = sample_end, .lift = sample_lift, .tell = hak__sample_tell };

/* --- requests ------------------------------------------------------------------------------------------------------ */

static void *sample_alloc(size_t n, struct hak_samples *samples)
{
    struct hak_sample_place *place = next_unused();
    if (place == NULL)
        place = pick_freed();
    if (place == NULL || !sample_map(place, n))
        return NULL;
    if (!hak__record_join(&place->sample, samples, n)) {
        hak_store(&place->sample.state, HAK_SAMPLE_FREE, HAK_RELEASE); /* frees its pages for the next one's */
        return NULL;
    }
    fill_slack(place);
    place->freed.thread = 0;
    sample_note(&place->allocated);
    place->sample.design = &guarded_design;
    hak_fetch_add(&hak__sample.allocated, 1, HAK_RELAXED);
    hak_store(&place->sample.state, HAK_SAMPLE_LIVE, HAK_RELEASE);
    return (void *)place->sample.block;
}

bool hak__sample_due(struct hak_heap *heap, uint32_t class)
{
    return class <= HAK_CLASS_MID_LAST && hak__sample.places != NULL && hak__cache_unmark(heap, class);
}

void *hak__sample_take(size_t n, struct hak_samples *samples)
{
    void *block = rate_allows() ? sample_alloc(hak_max(n, 1), samples) : NULL;
    if (block == NULL)
        hak_fetch_add(&hak__sample.refused, 1, HAK_RELAXED);
    return block;
}

void *hak__sample_malloc(struct hak_heap *heap, size_t n)
{
    if ((heap->mode & (HAK_MODE_SENTINEL | HAK_MODE_REDIRECTED)) != 0 || n > HAK_MID_MAX || !hak__heap_lock(heap))
        return NULL;
    bool due = hak__sample_due(heap, hak__class_of(n));
    hak__heap_unlock(heap);
    return due ? hak__sample_take(n, NULL) : NULL;
}

/* --- start --------------------------------------------------------------------------------------------------------- */

_Static_assert(HAK_GUARDED_STRIDE / 4 + HAK_MID_MAX + (64u << 10) <= HAK_GUARDED_STRIDE, "a page of nothing behind blocks");

void hak__sample_begin(void)
{
    size_t count = hak__option(HAK_OPTION_sample_slots);
    if (!hak__sample_on() || hak__sample.places != NULL || count * HAK_GUARDED_STRIDE > hak__guarded_size())
        return;
    hak__sample.places = hak__meta_alloc(count * sizeof *hak__sample.places);
    if (hak__sample.places == NULL)
        return;
    hak__sample.start = hak__guarded_start();
    hak__sample.bytes = count * HAK_GUARDED_STRIDE;
    hak_store(&hak__hardened.open, true, HAK_RELAXED); /* requests check it from now on */
    hak__sample_handle_faults();
}
