/* See record.h. */
#include "sample/record.h"

#include "base/assert.h"
#include "diag/report.h"

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
    size_t limit = hak_load(&samples->account->limit, HAK_RELAXED), used = hak_load(&samples->account->used, HAK_RELAXED);
    return bytes == 0 || (bytes <= limit && used <= limit - bytes && hak__account_take(samples->account, bytes));
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
    if (start == 0)
        hak__format(text, size, "in the range of sampled blocks, where there is none");
    else if (address < start)
        hak__format(text, size, "%u bytes before a %s sampled block of %u bytes (block %p)", (uint64_t)(start - address), live,
                    (uint64_t)record->counted, block);
    else if (address - start < record->counted)
        hak__format(text, size, "inside a %s sampled block of %u bytes, offset %u (block %p)", live, (uint64_t)record->counted,
                    (uint64_t)(address - start), block);
    else
        hak__format(text, size, "%u bytes beyond the end of a %s sampled block of %u bytes (block %p)",
                    (uint64_t)(address - start - record->counted), live, (uint64_t)record->counted, block);
}
