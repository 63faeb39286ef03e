/* Records, and the labels noted with them. See sample.h. */
#include <string.h>

#include "arena/window.h"
#include "base/assert.h"
#include "base/bits.h"
#include "base/lock.h"
#include "diag/report.h"
#include "sample/sample.h"

struct hak_sampled hak__sampled;

static void count_live(const struct hak_record *record, uint64_t one)
{
    hak_fetch_add(&hak__sampled.count, record->counted != 0 ? one : 0, HAK_RELAXED);
    hak_fetch_add(&hak__sampled.bytes, record->counted * one, HAK_RELAXED);
}

void hak__samples_open(struct hak_samples *samples, struct hak_account *account)
{
    hak_assert(samples->first == NULL, "the samples of the heap before have ended");
    samples->lock.rank = HAK_RANK_SAMPLES;
    samples->account = account;
    samples->closed = false;
}

/* --- the list, under its lock ----------------------------------------------------------------------------------------- */

/* Charges the pages if the limit allows, without counting a refusal: the heap's spans can still serve the request. */
static bool samples_charge(struct hak_samples *samples, size_t bytes)
{
    return bytes == 0 || hak__account_try(samples->account, bytes, true) == NULL;
}

static void samples_link(struct hak_samples *samples, struct hak_record *record)
{
    record->before = NULL;
    record->next = samples->first;
    if (record->next != NULL)
        record->next->before = record;
    samples->first = record;
    hak_store(&record->of, samples, HAK_RELAXED);
    hak_fetch_add(&samples->count, record->counted != 0, HAK_RELAXED);
    hak_fetch_add(&samples->bytes, record->counted, HAK_RELAXED);
}

static void samples_unlink(struct hak_samples *samples, struct hak_record *record)
{
    struct hak_record *before = record->before, *next = record->next;
    hak_assert(hak_load(&record->of, HAK_RELAXED) == samples, "in this list");
    if (before != NULL)
        before->next = next;
    else
        samples->first = next;
    if (next != NULL)
        next->before = before;
    hak_fetch_sub(&samples->count, record->counted != 0, HAK_RELAXED);
    hak_fetch_sub(&samples->bytes, record->counted, HAK_RELAXED);
    hak__account_give(samples->account, record->counted);
    /* release: pairs with the acquire in hak__record_leave; after it the record may be reused. */
    hak_store(&record->of, NULL, HAK_RELEASE);
}

/* Excludes a record that a thread, missing in this forked child, was about to unlink. */
static bool samples_have(const struct hak_samples *samples, struct hak_record *record)
{
    const struct hak_record *there = record->before != NULL ? record->before->next : samples->first;
    return hak_load(&record->of, HAK_RELAXED) == samples && there == record;
}

/* --- one record ---------------------------------------------------------------------------------------------------------- */

bool hak__record_join(struct hak_record *record, struct hak_samples *samples, size_t counted)
{
    hak_assert(hak_load(&record->state, HAK_RELAXED) == HAK_SAMPLE_TAKEN, "the caller's");
    record->counted = (uint32_t)counted;
    bool joins = true;
    if (samples != NULL) {
        hak__lock_acquire(&samples->lock);
        joins = !samples->closed && samples_charge(samples, counted);
        if (joins)
            samples_link(samples, record);
        hak__lock_release(&samples->lock);
    }
    count_live(record, joins);
    return joins;
}

bool hak__record_claim(struct hak_record *record)
{
    uint32_t live = HAK_SAMPLE_LIVE;
    /* acquire: pairs with the release that made the block live; the record is complete. */
    return hak_cas_strong(&record->state, &live, HAK_SAMPLE_ENDING, HAK_ACQUIRE, HAK_RELAXED);
}

void hak__record_shrink(struct hak_record *record, size_t n)
{
    struct hak_samples *samples = hak_load(&record->of, HAK_ACQUIRE);
    size_t less = record->counted - n;
    hak_assert(n != 0 && n < record->counted, "realloc to no bytes is a free");
    hak_fetch_sub(&hak__sampled.bytes, less, HAK_RELAXED);
    record->counted = (uint32_t)n;
    if (samples == NULL)
        return;
    hak__lock_acquire(&samples->lock);
    if (samples_have(samples, record)) {
        hak_fetch_sub(&samples->bytes, less, HAK_RELAXED);
        hak__account_give(samples->account, less);
    }
    hak__lock_release(&samples->lock);
}

void hak__record_leave(struct hak_record *record)
{
    struct hak_samples *samples = hak_load(&record->of, HAK_ACQUIRE);
    hak_assert(hak_load(&record->state, HAK_RELAXED) == HAK_SAMPLE_ENDING, "the caller's");
    count_live(record, (uint64_t)-1);
    if (samples == NULL)
        return;
    hak__lock_acquire(&samples->lock);
    if (samples_have(samples, record))
        samples_unlink(samples, record);
    else
        hak_store(&record->of, NULL, HAK_RELAXED);
    hak__lock_release(&samples->lock);
}

/* --- whole heaps ------------------------------------------------------------------------------------------------------ */

/* Skips records that a free has just claimed. */
static struct hak_record *samples_end_one(struct hak_samples *samples, bool close)
{
    struct hak_record *record;
    bool claimed = false;
    hak__lock_acquire(&samples->lock);
    samples->closed |= close;
    while (!claimed && (record = samples->first) != NULL) {
        claimed = hak__record_claim(record);
        samples_unlink(samples, record);
    }
    hak__lock_release(&samples->lock);
    return claimed ? record : NULL;
}

void hak__samples_end(struct hak_samples *samples, bool close, const char *function)
{
    for (struct hak_record *record; (record = samples_end_one(samples, close)) != NULL;)
        record->design->end(record, function);
}

void hak__samples_merge(struct hak_samples *samples)
{
    hak__lock_acquire(&samples->lock);
    while (samples->first != NULL)
        samples_unlink(samples, samples->first);
    hak__lock_release(&samples->lock);
}

/* The list's next live sample. */
static struct hak_record *samples_next(struct hak_samples *samples, struct hak_record *record)
{
    hak__lock_acquire(&samples->lock);
    do
        record = record == NULL ? samples->first : record->next;
    while (record != NULL && (record->counted == 0 || hak_load(&record->state, HAK_ACQUIRE) != HAK_SAMPLE_LIVE));
    hak__lock_release(&samples->lock);
    return record;
}

/* Takes no lock: the program's function may allocate. Its sample is live, so it stays in the list. */
int hak__samples_visit(struct hak_samples *samples, int (*visit)(void *, size_t, void *), void *argument)
{
    int stop = 0;
    for (struct hak_record *record = NULL; stop == 0 && (record = samples_next(samples, record)) != NULL;)
        stop = visit((void *)record->block, record->counted, argument);
    return stop;
}

/* A thread missing in the child may have been changing the list. */
void hak__samples_fork_child(struct hak_samples *samples)
{
    uint64_t count = 0, bytes = 0;
    if (!hak__lock_fork_child(&samples->lock))
        return;
    for (struct hak_record *record = samples->first, *before = NULL; record != NULL; before = record, record = record->next) {
        record->before = before;
        hak_store(&record->of, samples, HAK_RELAXED);
        count += record->counted != 0;
        bytes += record->counted;
    }
    hak_store(&samples->count, count, HAK_RELAXED);
    hak_store(&samples->bytes, bytes, HAK_RELAXED);
}

/* --- descriptions ------------------------------------------------------------------------------------------------------- */

void hak__record_describe(const struct hak_record *record, uintptr_t address, char *text, size_t size)
{
    uint32_t state = record == NULL ? HAK_SAMPLE_UNUSED : hak_load(&record->state, HAK_ACQUIRE);
    uintptr_t start = state < HAK_SAMPLE_LIVE || state == HAK_SAMPLE_HOLE ? 0 : record->block;
    const void *block = (const void *)start;
    const char *live = state == HAK_SAMPLE_LIVE ? "live" : "freed";
    char far[HAK_DISTANCE];
    if (start == 0)
        hak__format(text, size, "in the range of sampled blocks, where there is none");
    else if (address < start)
        hak__format(text, size, "%s before a %s sampled block of %u bytes (block %p)",
                    hak__distance(far, sizeof far, start - address), live, (uint64_t)record->counted, block);
    else if (address - start < record->counted)
        hak__format(text, size, "inside a %s sampled block of %u bytes, offset %u (block %p)", live, (uint64_t)record->counted,
                    (uint64_t)(address - start), block);
    else
        hak__format(text, size, "%s beyond the end of a %s sampled block of %u bytes (block %p)",
                    hak__distance(far, sizeof far, address - start - record->counted), live, (uint64_t)record->counted, block);
}

/* --- labels ----------------------------------------------------------------------------------------------------------- */

/* Lock-free, but for the arena's lock where a new part gets its memory. */
static const char label_other[] = "(other)";
hak_rare_data struct hak_label_table hak__label_table;

struct label_part {
    const struct hak_labels *of, *under;
    const char *text;
    size_t length;
};

static bool part_is_other(const struct label_part *part)
{
    return strcmp(part->of != NULL && part->of->of != NULL ? part->of->text : part->text, label_other) == 0;
}

/* The key's place among the counters of values. */
static _Atomic uint32_t *values_of(const struct label_part *part) { return &hak__label_table.values[part->of->number]; }

/* Whether the bounds allow the part. Threads that make values at the same moment may exceed them by their number. */
static bool part_fits(const struct label_part *part)
{
    if (part->of == NULL)
        return hak_load(&hak__label_table.keys, HAK_RELAXED) < HAK_LABEL_KEYS;
    bool other = part_is_other(part), value = part->of->of == NULL;
    bool key_is_full = value && !other && hak_load(values_of(part), HAK_RELAXED) >= HAK_LABEL_VALUES;
    return !key_is_full && hak_load(&hak__label_table.parts, HAK_RELAXED) < HAK_LABEL_PARTS + (other ? HAK_LABEL_SPARE : 0);
}

/* Counts what has got its memory: a part that did not leaves its room to others. False: it is a key too many. */
static bool part_count(struct hak_labels *made, const struct label_part *part)
{
    if (part->of == NULL) {
        made->number = hak_fetch_add(&hak__label_table.keys, 1, HAK_RELAXED);
        return made->number < HAK_LABEL_KEYS;
    }
    hak_fetch_add(&hak__label_table.parts, 1, HAK_RELAXED);
    if (part->of->of == NULL)
        hak_fetch_add(values_of(part), 1, HAK_RELAXED);
    return true;
}

static struct hak_labels *part_make(const struct label_part *part)
{
    struct hak_labels *made = part_fits(part) ? hak__meta_alloc(sizeof *made + part->length + 1) : NULL;
    if (made == NULL || !part_count(made, part))
        return NULL;
    made->of = part->of;
    made->under = part->under;
    memcpy(made->text, part->text, part->length);
    return made;
}

static uint32_t bucket_of_part(const struct label_part *part)
{
    uint64_t hash = ((uintptr_t)part->of >> 6) * 0x9e3779b97f4a7c15ull ^ (uintptr_t)part->under >> 6;
    for (size_t i = 0; i < part->length; i++)
        hash = (hash ^ (unsigned char)part->text[i]) * 0x9e3779b97f4a7c15ull, hash ^= hash >> 29;
    hash *= 0x9e3779b97f4a7c15ull;
    return (uint32_t)(hash >> 32) % HAK_LABEL_BUCKETS;
}

static const struct hak_labels *find_part(const struct hak_labels *at, const struct hak_labels *end, const struct label_part *part)
{
    for (; at != end; at = at->next)
        if (at->of == part->of && at->under == part->under && strncmp(at->text, part->text, part->length) == 0
            && at->text[part->length] == 0)
            return at;
    return NULL;
}

/* NULL: the bounds or the system do not allow a new one. */
static const struct hak_labels *label_part(const struct hak_labels *of, const struct hak_labels *under, const char *text,
                                           size_t length)
{
    struct label_part part = { of, under, text, length };
    _Atomic(struct hak_labels *) *bucket = &hak__label_table.buckets[bucket_of_part(&part)];
    /* acquire: pairs with the release below; a part found is complete. */
    struct hak_labels *head = hak_load(bucket, HAK_ACQUIRE), *seen = NULL, *made = NULL;
    for (;;) {
        const struct hak_labels *found = find_part(head, seen, &part);
        if (found != NULL)
            return found; /* a part made in vain stays unused */
        if (made == NULL && (made = part_make(&part)) == NULL)
            return NULL;
        made->next = seen = head;
        if (hak_cas_strong(bucket, &head, made, HAK_ACQ_REL, HAK_ACQUIRE))
            return made;
    }
}

static const struct hak_labels *value_of(const struct hak_labels *key, const char *text)
{
    const struct hak_labels *value = label_part(key, NULL, text, hak_text_within(text, HAK_LABEL_VALUE_BYTES));
    return value != NULL ? value : label_part(key, NULL, label_other, sizeof label_other - 1);
}

static const struct hak_labels *put_on(const struct hak_labels *under, const struct hak_labels *value)
{
    const struct hak_labels *labels = label_part(value, under, "", 0);
    if (labels == NULL && (value = value_of(value->of, label_other)) != NULL)
        labels = label_part(value, under, "", 0);
    return labels != NULL ? labels : under;
}

static const struct hak_labels *replace(const struct hak_labels *labels, const struct hak_labels *key,
                                        const struct hak_labels *value)
{
    hak_assert(value == NULL || value->of == key, "a value of this key");
    if (labels != NULL && labels->of->of->number > key->number)
        return put_on(replace(labels->under, key, value), labels->of);
    if (labels != NULL && labels->of->of == key)
        labels = labels->under;
    return value == NULL ? labels : put_on(labels, value);
}

const struct hak_labels *hak__labels_with(const struct hak_labels *labels, const char *key, const char *value)
{
    if (key == NULL || key[0] == 0)
        return labels;
    const struct hak_labels *known = label_part(NULL, NULL, key, hak_text_within(key, HAK_LABEL_KEY_BYTES));
    if (known == NULL)
        return labels;
    return replace(labels, known, value == NULL ? NULL : value_of(known, value));
}

/* The names of a heap and those above it, as "server/request", to the end of the room; what is too long loses its beginning. */
static const char *path_of(const struct hak_account *account, char *end, size_t room)
{
    *end = 0;
    for (const struct hak_account *at = account; at != NULL; at = at->above) {
        const char *name = at->name == NULL || at->name[0] == 0 ? "(unnamed)" : at->name;
        size_t length = strlen(name), slash = at != account;
        if (length + slash > room)
            break;
        end[-1] = slash ? '/' : 0;
        room -= length + slash;
        end = memcpy(end - slash - length, name, length);
    }
    return end;
}

const struct hak_labels *hak__labels_here(const struct hak_samples *samples)
{
    char path[HAK_LABEL_VALUE_BYTES + 1];
    const struct hak_labels *labels = hak__thread_notes.labels;
    if (samples == NULL)
        return labels;
    return hak__labels_with(labels, "heap", path_of(samples->account, &path[HAK_LABEL_VALUE_BYTES], HAK_LABEL_VALUE_BYTES));
}
