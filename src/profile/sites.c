/* See sites.h. */
#include "profile/sites.h"

#include <string.h>

#include "base/bits.h"
#include "os/loaded.h"
#include "os/os.h"
#include "trace/unwind.h"

static struct hak_area sites_area, sites_ghosts;
_Atomic(struct hak_profile_site *) *hak__profile_buckets;
static _Atomic uint64_t live_weight, peak_weight, peak_epoch, peak_ms;

/* --- sites ------------------------------------------------------------------------------------------------------------------ */

void hak__profile_sites_begin(struct hak_area area, struct hak_area ghosts)
{
    sites_area = area;
    sites_ghosts = ghosts;
    hak__profile_buckets = (void *)hak__area_take(&sites_area, HAK_PROFILE_BUCKETS * sizeof *hak__profile_buckets);
}

/* Huge sizes have four groups to each doubling, as classes are. */
static uint32_t group_of(size_t n)
{
    if (n <= HAK_LARGE_MAX)
        return hak__class_of(n);
    unsigned msb = hak_msb64(n - 1);
    return (uint32_t)(msb * 4 + ((n - 1) >> (msb - 2)) % 4);
}

/* Tells a site from all others. */
struct site_key {
    uintptr_t frames[HAK_PROFILE_FRAMES];
    uint64_t interval;
    const struct hak_labels *labels;
    uint32_t group, count;
};

static uint32_t bucket_of(const struct site_key *key)
{
    uint64_t hash = (key->interval << 8) + key->group + 1 + (uintptr_t)key->labels * 0x9e3779b97f4a7c15ull;
    for (uint32_t i = 0; i < key->count; i++)
        hash = (hash ^ key->frames[i]) * 0x9e3779b97f4a7c15ull, hash ^= hash >> 29;
    return (uint32_t)(hash % HAK_PROFILE_BUCKETS);
}

/* A library may have been closed and another loaded at its address. */
static bool site_holds(const struct hak_profile_site *site)
{
    uint32_t i = 0;
    while (i < site->module_count && hak__profile_module_holds(site->modules[i]))
        i++;
    return i == site->module_count;
}

static struct hak_profile_site *find_site(struct hak_profile_site *at, const struct hak_profile_site *end,
                                          const struct site_key *key)
{
    for (; at != end; at = at->next)
        if (at->interval == key->interval && at->group == key->group && at->labels == key->labels && at->frame_count == key->count
            && memcmp(at->frames, key->frames, key->count * sizeof *key->frames) == 0 && site_holds(at))
            return at;
    return NULL;
}

static struct hak_profile_site *new_site(const struct site_key *key)
{
    struct hak_profile_module *modules[HAK_PROFILE_FRAMES];
    struct hak_profile_site *site;
    uint32_t known = hak__profile_modules_note(&sites_area, key->frames, key->count, modules);
    size_t frames_bytes = key->count * sizeof *key->frames, bytes = sizeof *site + frames_bytes + known * sizeof *modules;
    site = (void *)hak__area_take(&sites_area, hak_align_up(bytes, 16));
    if (site == NULL)
        return NULL;
    site->interval = key->interval;
    site->labels = key->labels;
    site->group = key->group;
    site->frame_count = (uint16_t)key->count;
    site->module_count = (uint16_t)known;
    site->modules = (struct hak_profile_module **)(site->frames + key->count);
    memcpy(site->frames, key->frames, frames_bytes);
    memcpy(site->modules, modules, known * sizeof *modules);
    return site;
}

struct hak_profile_site *hak__profile_site_here(size_t n, const struct hak_samples *samples)
{
    struct site_key key;
    bool asked = hak__profile_is_asked();
    key.count = asked ? hak__frames_here(key.frames, HAK_PROFILE_FRAMES) : 0;
    key.labels = asked ? hak__labels_here(samples) : NULL;
    key.group = asked ? group_of(n) : HAK_PROFILE_TRACED_SITE;
    key.interval = hak_load(&hak__profile.interval, HAK_RELAXED);
    _Atomic(struct hak_profile_site *) *bucket = &hak__profile_buckets[bucket_of(&key)];
    /* acquire: pairs with the release below; a site found is complete. */
    struct hak_profile_site *head = hak_load(bucket, HAK_ACQUIRE), *seen = NULL, *made = NULL;
    for (;;) {
        struct hak_profile_site *found = find_site(head, seen, &key);
        if (found != NULL)
            return found; /* a site made in vain stays unused */
        if (made == NULL && (made = new_site(&key)) == NULL)
            return NULL;
        made->next = seen = head;
        if (hak_cas_strong(bucket, &head, made, HAK_ACQ_REL, HAK_ACQUIRE))
            return made;
    }
}

uintptr_t hak__profile_site_frame(const struct hak_profile_site *site, uint32_t i)
{
    uintptr_t frame = site->frames[i];
    for (uint32_t at = 0; at < site->module_count; at++)
        if (frame - site->modules[at]->start < site->modules[at]->end - site->modules[at]->start)
            return frame + hak_load(&site->modules[at]->moved, HAK_RELAXED);
    return frame;
}

void hak__profile_sites_settle(void) { hak__profile_modules_settle(&sites_ghosts); }

bool hak__profile_site_next(uint32_t *bucket, struct hak_profile_site **site)
{
    if (hak__profile_buckets == NULL)
        return false;
    uint64_t interval = hak_load(&hak__profile.interval, HAK_RELAXED);
    do {
        *site = *site == NULL ? NULL : (*site)->next;
        for (; *site == NULL && *bucket < HAK_PROFILE_BUCKETS; ++*bucket)
            *site = hak_load(&hak__profile_buckets[*bucket], HAK_ACQUIRE);
    } while (*site != NULL && ((*site)->interval != interval || (*site)->group == HAK_PROFILE_TRACED_SITE));
    return *site != NULL;
}

/* --- live bytes and their peak ------------------------------------------------------------------------------------------------ */

/* n / (1 - exp(-n / mean)): by its series while n is small, else of exp(-x) = exp(-x / 64)^64, that by its series. */
uint64_t hak__profile_weight(const struct hak_profile_site *site, uint64_t n)
{
    double x = (double)n / (double)site->interval, part = x / 64;
    if (site->interval <= 1 || x > 40 || n == 0)
        return n;
    if (x < 0.1)
        return (uint64_t)((double)site->interval * (1 + x / 2 + x * x / 12) + 0.5);
    double missed = 1 - part * (1 - part / 2 * (1 - part / 3 * (1 - part / 4 * (1 - part / 5))));
    for (unsigned i = 0; i < 6; i++)
        missed *= missed;
    return (uint64_t)((double)n / (1 - missed) + 0.5);
}

/* Keeps the figures of the peak before a site's figures change. */
static void keep_peak(struct hak_profile_site *site)
{
    uint64_t epoch = hak_load(&peak_epoch, HAK_RELAXED), before = hak_load(&site->peak_epoch, HAK_RELAXED);
    if (before == epoch || !hak_cas_strong(&site->peak_epoch, &before, epoch, HAK_RELAXED, HAK_RELAXED))
        return;
    uint64_t freed = hak_load(&site->freed, HAK_RELAXED), freed_bytes = hak_load(&site->freed_bytes, HAK_RELAXED);
    hak_store(&site->peak, hak_load(&site->allocated, HAK_RELAXED) - freed, HAK_RELAXED);
    hak_store(&site->peak_bytes, hak_load(&site->allocated_bytes, HAK_RELAXED) - freed_bytes, HAK_RELAXED);
}

static void note_peak(uint64_t weight)
{
    uint64_t most = hak_load(&peak_weight, HAK_RELAXED);
    while (weight > most)
        if (hak_cas_weak(&peak_weight, &most, weight, HAK_RELAXED, HAK_RELAXED)) {
            hak_store(&peak_ms, hak__os->now_ms(), HAK_RELAXED);
            hak_fetch_add(&peak_epoch, 1, HAK_RELAXED);
            return;
        }
}

void hak__profile_site_add(struct hak_profile_site *site, size_t n)
{
    if (site->group == HAK_PROFILE_TRACED_SITE)
        return;
    uint64_t weight = hak__profile_weight(site, n);
    keep_peak(site);
    hak_fetch_add(&site->allocated, 1, HAK_RELAXED);
    hak_fetch_add(&site->allocated_bytes, n, HAK_RELAXED);
    note_peak(hak_fetch_add(&live_weight, weight, HAK_RELAXED) + weight);
}

static uint32_t lifetime_of(uint64_t ms)
{
    uint32_t place = ms == 0 ? 0 : hak_msb64(ms) / 2 + 1;
    return (uint32_t)hak_min(place, HAK_PROFILE_LIFETIMES - 1);
}

void hak__profile_site_remove(struct hak_profile_site *site, size_t n, uint64_t lived_ms)
{
    if (site->group == HAK_PROFILE_TRACED_SITE)
        return;
    keep_peak(site);
    hak_fetch_add(&site->freed, 1, HAK_RELAXED);
    hak_fetch_add(&site->freed_bytes, n, HAK_RELAXED);
    hak_fetch_add(&site->lifetimes[lifetime_of(lived_ms)], 1, HAK_RELAXED);
    hak_fetch_sub(&live_weight, hak__profile_weight(site, n), HAK_RELAXED);
}

void hak__profile_site_peak(const struct hak_profile_site *site, uint64_t *count, uint64_t *bytes)
{
    if (hak_load(&site->peak_epoch, HAK_RELAXED) == hak_load(&peak_epoch, HAK_RELAXED)) {
        *count = hak_load(&site->peak, HAK_RELAXED);
        *bytes = hak_load(&site->peak_bytes, HAK_RELAXED);
        return;
    }
    *count = hak_load(&site->allocated, HAK_RELAXED) - hak_load(&site->freed, HAK_RELAXED);
    *bytes = hak_load(&site->allocated_bytes, HAK_RELAXED) - hak_load(&site->freed_bytes, HAK_RELAXED);
}

uint64_t hak__profile_peak_ms(void) { return hak_load(&peak_ms, HAK_RELAXED); }
