/* Samples up to the mid classes (sample/sample.h). Larger ones keep their block's kind. */
#include "base/assert.h"
#include "base/bits.h"
#include "diag/report.h"
#include "harden/mode.h"
#include "kinds/kind.h"
#include "profile/profile.h"
#include "sample/sample.h"
#include "userheap/userheap.h"

static bool sampled_has(const void *p) { return hak__sample_has(p); }

/* The record of the block in use that begins at p, or NULL. */
static struct hak_record *live_record(const void *p)
{
    struct hak_record *record = hak__sample_record_of(p);
    /* acquire: pairs with the release that made the block live. */
    bool live = record != NULL && hak_load(&record->state, HAK_ACQUIRE) == HAK_SAMPLE_LIVE && record->block == (uintptr_t)p;
    return live ? record : NULL;
}

static hak_cold void sampled_misuse(const void *p, const char *function)
{
    const struct hak_record *record = hak__sample_record_of(p);
    uint32_t state = record == NULL ? HAK_SAMPLE_UNUSED : hak_load(&record->state, HAK_ACQUIRE);
    bool start = state != HAK_SAMPLE_UNUSED && record->block == (uintptr_t)p && state != HAK_SAMPLE_HOLE;
    bool tells = state != HAK_SAMPLE_UNUSED && record->design != NULL;
    struct hak_mistake mistake = { HAK_MISUSE_INVALID, function, p, tells ? record->design->tell : NULL, record, NULL };
    if (start && hak_begins(function, "free")) {
        mistake.kind = HAK_MISUSE_DOUBLE_FREE;
        hak__misuse(&mistake, HAK_SAYS_DOUBLE_FREE, function, p, (uint64_t)record->counted);
    } else {
        hak__misuse(&mistake, HAK_SAYS_INVALID, function, p,
                    start                        ? "this block is free"
                    : state == HAK_SAMPLE_UNUSED ? "this block was never allocated"
                                                 : "not the start of a block");
    }
}

/* The same; reports p if there is none. */
static struct hak_record *sampled_at(const void *p, const char *function)
{
    struct hak_record *record = live_record(p);
    if (hak_unlikely(record == NULL))
        sampled_misuse(p, function);
    return record;
}

static void sampled_free(void *p, uint32_t word, const char *function)
{
    struct hak_record *record = sampled_at(p, function);
    (void)word;
    if (hak_unlikely(record == NULL))
        return;
    if (hak_unlikely(!hak__record_claim(record))) {
        sampled_misuse(p, function);
        return;
    }
    hak_assert(record->design != NULL, "a block in use has a design");
    record->design->end(record, function);
}

static size_t sampled_usable(const void *p, const char *function)
{
    const struct hak_record *record = sampled_at(p, function);
    return hak_likely(record != NULL) ? record->counted : HAK_NO_BLOCK;
}

/* A guarded block is as long as was asked for: half of that may be less than its class allows. */
static void sampled_check_size(const void *p, size_t align, size_t n, const char *function)
{
    const struct hak_record *record = live_record(p);
    if (record == NULL || (!hak__hardened.on && n <= record->counted && n >= record->counted - record->counted / 2))
        return;
    hak__check_class_size(p, hak__class_of(record->counted), align, n, function);
}

/* A guarded block must end exactly where the request does. */
static bool sampled_stays(const void *p, size_t have, size_t n)
{
    return hak__guarded_has(p) ? have == n : hak__size_stays(have, n);
}

/* Only where no other block can be had: a copy would end at its guard. In an ordinary process a slot's block is as long as its class. */
static void *sampled_resize(void *p, size_t have, size_t n, enum hak_resize how)
{
    struct hak_record *record = live_record(p);
    bool exact = hak__guarded_has(p) || hak__hardened.on, shrinks = exact && n < have && how != HAK_RESIZE_FITTING;
    return shrinks && record != NULL && hak__sample_shrink(record, n) ? p : NULL;
}

static void sampled_lift(const void *p, const char *function)
{
    struct hak_record *record = live_record(p);
    (void)function;
    if (hak_likely(record != NULL))
        record->design->lift(record);
}

static struct hak_uheap *sampled_heap(const void *p)
{
    const struct hak_record *record = live_record(p);
    struct hak_samples *samples = record == NULL ? NULL : hak_load(&record->of, HAK_RELAXED);
    return samples == NULL ? NULL : (struct hak_uheap *)((char *)samples - offsetof(struct hak_uheap, samples));
}

static bool sampled_live(const void *p) { return live_record(p) != NULL; }

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
    .resize = sampled_resize,
    .lift = sampled_lift,
    .heap = sampled_heap,
    .live = sampled_live,
    .describe = sampled_describe,
};
