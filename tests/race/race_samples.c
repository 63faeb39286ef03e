/* Samples of user heaps (sample/sample.h), every schedule within the bounds: blocks are freed while their heap ends all, becomes malloc's
 * or takes new ones, and what is free serves again at once. Each block ends in one hand; the list has just the records that say so,
 * its sums are theirs, and the account has given back what has left. */
#include "diag/report.h"
#include "sample/sample.h"
#include "world.h"

enum { RECORDS = 3, BYTES = 100 };

static struct hak_record records[RECORDS];
static struct hak_samples samples, others;
static struct hak_account account, other_account;
static unsigned content[RECORDS];   /* what the hand writes that a block is in, plainly */

/* --- what lies below --------------------------------------------------------------------------------------------------- */

size_t hak__format(char *buffer, size_t size, const char *format, ...) { return (void)buffer, (void)size, (void)format, 0; }

/* --- the threads ------------------------------------------------------------------------------------------------------- */

static void allocate(struct hak_record *record, struct hak_samples *of)
{
    uint32_t state = HAK_SAMPLE_FREE;
    if (!hak_cas_strong(&record->state, &state, HAK_SAMPLE_TAKEN, HAK_ACQUIRE, HAK_RELAXED))
        return;
    content[record - records]++;
    if (hak__record_join(record, of, BYTES))
        hak_store(&record->state, HAK_SAMPLE_LIVE, HAK_RELEASE);
    else
        hak_store(&record->state, HAK_SAMPLE_FREE, HAK_RELEASE);
}

/* The record is claimed. */
static void end(struct hak_record *record, const char *function)
{
    (void)function;
    content[record - records]++;
    hak__record_leave(record);
    EXPLORE_EXPECT(hak_load(&record->of, HAK_RELAXED) == NULL, "it has left its heap");
    hak_store(&record->state, HAK_SAMPLE_FREE, HAK_RELEASE);
}

static const struct hak_sample_design design = { .end = end };

static void free_block(struct hak_record *record)
{
    if (hak__record_claim(record))
        end(record, "free");
}

static void free_first(void) { free_block(&records[0]); }
static void free_and_use_again(void)
{
    free_block(&records[1]);
    allocate(&records[1], &others);
}
static void use_third(void) { allocate(&records[2], &samples); }
static void free_third(void) { free_block(&records[2]); }
static void merge(void) { hak__samples_merge(&samples); }

static void end_all(void) { hak__samples_end(&samples, true, "hak_heap_destroy"); }

/* --- the state before and after ---------------------------------------------------------------------------------------- */

static void samples_setup(void)
{
    world_reset();
    for (unsigned i = 0; i < RECORDS; i++) {
        records[i] = (struct hak_record){ .state = HAK_SAMPLE_FREE, .design = &design };
        content[i] = 0;
    }
    samples = others = (struct hak_samples){ .closed = false };
    account = other_account = (struct hak_account){ .limit = SIZE_MAX };
    hak__samples_open(&samples, &account);
    hak__samples_open(&others, &other_account);
    allocate(&records[0], &samples);
    allocate(&records[1], &samples);
}

static void check_list(const struct hak_samples *of)
{
    unsigned count = 0, said = 0;
    const struct hak_record *before = NULL;
    for (const struct hak_record *record = of->first; record != NULL; before = record, record = record->next) {
        EXPLORE_EXPECT(++count <= RECORDS && record->before == before, "the list leads both ways");
        EXPLORE_EXPECT(atomic_load(&record->of) == of, "a record of the list says so");
    }
    for (unsigned i = 0; i < RECORDS; i++)
        said += atomic_load(&records[i].of) == of;
    EXPLORE_EXPECT(said == count, "who says so is in the list");
    EXPLORE_EXPECT(atomic_load(&of->count) == count && atomic_load(&of->bytes) == count * BYTES, "the sums are the list's");
    EXPLORE_EXPECT(atomic_load(&of->account->used) == count * BYTES, "the account has what is in the list");
}

static void samples_check(void)
{
    check_list(&samples);
    check_list(&others);
    for (unsigned i = 0; i < RECORDS; i++)
        EXPLORE_EXPECT(atomic_load(&records[i].state) != HAK_SAMPLE_ENDING, "a block that nobody ends");
}

static void samples_check_ended(void)
{
    EXPLORE_EXPECT(samples.first == NULL, "nothing joins what has ended");
    samples_check();
}

static const struct explore_case cases[] = {
    { "one frees, the heap ends", 4, 2, samples_setup, { free_first, end_all }, samples_check_ended },
    { "one frees, the heap is merged", 4, 2, samples_setup, { free_first, merge }, samples_check },
    { "one frees and uses again, the heap is merged", 3, 2, samples_setup, { free_and_use_again, merge }, samples_check },
    { "one frees and uses again, the heap ends", 3, 2, samples_setup, { free_and_use_again, end_all }, samples_check_ended },
    { "one joins, the heap ends", 4, 2, samples_setup, { use_third, end_all }, samples_check_ended },
    { "one joins, another frees that", 4, 2, samples_setup, { use_third, free_third }, samples_check },
    { "two free, one joins", 2, 3, samples_setup, { free_first, free_and_use_again, use_third }, samples_check, 1, 1 },
    { "two free, the heap is merged", 2, 3, samples_setup, { free_first, free_and_use_again, merge }, samples_check, 1, 1 },
};

int main(int argc, char **argv) { return explore_main(cases, sizeof cases / sizeof *cases, argc, argv); }
