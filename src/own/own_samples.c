/* Samples (sample/record.h), whichever kind they are of: with guards, or for a profile; and those of heaps of one's own. Called where an
 * address is none of the window's: free_slow.c, pointer.c, realloc.c. */
#include "base/assert.h"
#include "own/own.h"

void hak__sampled_free(void *p, const char *function)
{
    hak_assert(hak__is_sampled(p), "an address among samples");
    hak__sample_has(p) ? hak__sample_free(p, function) : hak__profile_free(p, function);
}

size_t hak__sampled_usable(const void *p, const char *function)
{
    hak_assert(hak__is_sampled(p), "an address among samples");
    return hak__sample_has(p) ? hak__sample_usable(p, function) : hak__profile_usable(p, function);
}

void hak__sampled_allow(const void *p, const char *function)
{
    hak_assert(hak__is_sampled(p), "an address among samples");
    hak__sample_has(p) ? hak__sample_allow(p, function) : hak__profile_allow(p);
}

void hak__own_samples_end(struct hak_own *own, bool close, const char *function)
{
    for (struct hak_record *record; (record = hak__samples_end_one(&own->samples, close)) != NULL;) {
        if (hak__sample_has((void *)record->block))
            hak__sample_end_record(record, function);
        else
            hak__profile_end_record(record);
    }
}

struct hak_own *hak__own_of_sample(const void *p)
{
    struct hak_record *record = hak__sample_has(p) ? hak__sample_record_of(p) : hak__profile_record_of(p);
    bool live = record != NULL && record->block == (uintptr_t)p && hak_load(&record->state, HAK_ACQUIRE) == HAK_SAMPLE_LIVE;
    struct hak_samples *samples = live ? hak_load(&record->of, HAK_RELAXED) : NULL;
    return samples == NULL ? NULL : (struct hak_own *)((char *)samples - offsetof(struct hak_own, samples));
}
