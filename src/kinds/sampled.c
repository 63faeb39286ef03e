/* Samples up to the mid classes (sample/sample.h). Larger ones keep their block's kind. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/text.h"
#include "diag/report.h"
#include "kinds/kind.h"
#include "sample/sample.h"
#include "trace/unwind.h"
#include "userheap/userheap.h"

static bool sampled_has(const void *p) { return hak__sample_has(p); }

static hak_cold hak_noreturn void sampled_misuse(const struct hak_record *record, const void *p, uint32_t state,
                                                 const char *function)
{
    bool start = state != HAK_SAMPLE_UNUSED && record->block == (uintptr_t)p && state != HAK_SAMPLE_HOLE;
    if (start && hak_begins(function, "free"))
        hak__say_double_free(function, p, record->counted);
    else
        hak__say_invalid(function, p,
                         start                        ? "this block is free"
                         : state == HAK_SAMPLE_UNUSED ? "this block was never allocated"
                                                      : "not the start of a block");
    if (state == HAK_SAMPLE_UNUSED || record->design == NULL || record->design->tell == NULL)
        hak__misuse_end(p);
    hak__frames_say_here("called");
    record->design->tell(record);
    abort();
}

/* The record of the block in use that begins at p; ends the program if there is none. */
static struct hak_record *sampled_at(const void *p, const char *function)
{
    struct hak_record *record = hak__sample_record_of(p);
    /* acquire: pairs with the release that made the block live. */
    uint32_t state = record == NULL ? HAK_SAMPLE_UNUSED : hak_load(&record->state, HAK_ACQUIRE);
    if (hak_unlikely(state != HAK_SAMPLE_LIVE || record->block != (uintptr_t)p))
        sampled_misuse(record, p, state, function);
    return record;
}

static void sampled_free(void *p, uint32_t word, const char *function)
{
    struct hak_record *record = sampled_at(p, function);
    (void)word;
    if (hak_unlikely(!hak__record_claim(record)))
        sampled_misuse(record, p, HAK_SAMPLE_FREE, function);
    hak_assert(record->design != NULL, "a block in use has a design");
    record->design->end(record, function);
}

static size_t sampled_usable(const void *p, const char *function) { return sampled_at(p, function)->counted; }

static void sampled_check_size(const void *p, size_t align, size_t n, const char *function)
{
    hak__check_class_size(p, hak__class_of(sampled_usable(p, function)), align, n, function);
}

/* A guarded block must end exactly where the request does. */
static bool sampled_stays(const void *p, size_t have, size_t n)
{
    return hak__guarded_has(p) ? have == n : hak__size_stays(have, n);
}

static void sampled_lift(const void *p, const char *function)
{
    struct hak_record *record = sampled_at(p, function);
    record->design->lift(record);
}

static struct hak_uheap *sampled_heap(const void *p)
{
    const struct hak_record *record = hak__sample_record_of(p);
    bool live = record != NULL && record->block == (uintptr_t)p && hak_load(&record->state, HAK_ACQUIRE) == HAK_SAMPLE_LIVE;
    struct hak_samples *samples = live ? hak_load(&record->of, HAK_RELAXED) : NULL;
    return samples == NULL ? NULL : (struct hak_uheap *)((char *)samples - offsetof(struct hak_uheap, samples));
}

static void sampled_describe(uintptr_t address, char *text, size_t size)
{
    hak__record_describe(hak__sample_record_of((const void *)address), address, text, size);
}

const struct hak_kind hak__kind_sampled = {
    .has = sampled_has,
    .free = sampled_free,
    .usable = sampled_usable,
    .check_size = sampled_check_size,
    .stays = sampled_stays,
    .lift = sampled_lift,
    .heap = sampled_heap,
    .describe = sampled_describe,
};
