/* Samples of up to the mid pool, with guards (sample/sample.h) or for a profile (profile/profile.h). Larger ones are of their block's
 * kind. See kind.h. */
#include "diag/report.h"
#include "kinds/kind.h"
#include "own/own.h"

static bool sampled_has(const void *p) { return hak__sample_has(p) || hak__profile_has(p); }

static void sampled_free(void *p, uint32_t word, const char *function)
{
    (void)word;
    hak__sample_has(p) ? hak__sample_free(p, function) : hak__profile_free(p, function);
}

static size_t sampled_usable(const void *p, const char *function)
{
    return hak__sample_has(p) ? hak__sample_usable(p, function) : hak__profile_usable(p, function);
}

static void sampled_check_size(const void *p, size_t align, size_t n, const char *function)
{
    hak__check_class_size(p, hak__class_of(sampled_usable(p, function)), align, n, function);
}

/* A guarded block ends where the program wants it. */
static bool sampled_stays(const void *p, size_t have, size_t n) { return hak__sample_has(p) ? have == n : hak__size_stays(have, n); }

static void sampled_lift(const void *p, const char *function)
{
    hak__sample_has(p) ? hak__sample_allow(p, function) : hak__profile_allow(p);
}

static struct hak_own *sampled_heap(const void *p)
{
    struct hak_record *record = hak__sample_has(p) ? hak__sample_record_of(p) : hak__profile_record_of(p);
    bool live = record != NULL && record->block == (uintptr_t)p && hak_load(&record->state, HAK_ACQUIRE) == HAK_SAMPLE_LIVE;
    struct hak_samples *samples = live ? hak_load(&record->of, HAK_RELAXED) : NULL;
    return samples == NULL ? NULL : (struct hak_own *)((char *)samples - offsetof(struct hak_own, samples));
}

static void sampled_describe(uintptr_t address, char *text, size_t size)
{
    if (hak__sample_has((const void *)address))
        hak__sample_describe(address, text, size);
    else
        hak__profile_describe(address, text, size);
}

const struct hak_kind hak__kind_sampled = {
    .has = sampled_has, .free = sampled_free, .usable = sampled_usable, .check_size = sampled_check_size, .stays = sampled_stays,
    .lift = sampled_lift, .heap = sampled_heap, .describe = sampled_describe,
};
