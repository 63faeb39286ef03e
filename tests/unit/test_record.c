/* sample/record.h: records join a heap as far as its limit and its life allow, leave it in any order, are visited, end and are merged; and
 * a forked child makes whole what a thread was in the middle of that it does not have. */
#include "sample/record.h"

#include "support/check.h"

enum { RECORDS = 5, BYTES = 1000 };

static struct hak_record records[RECORDS];
static struct hak_samples samples;
static struct hak_account account;

static void begin(size_t limit)
{
    memset(records, 0, sizeof records);
    memset(&samples, 0, sizeof samples);
    account = (struct hak_account){ .limit = limit };
    hak__samples_open(&samples, &account);
}

static unsigned ended;
static void end(struct hak_record *record, const char *function)
{
    expect(strcmp(function, "hak_heap_destroy") == 0 && record != &records[3] && hak_load(&record->of, HAK_RELAXED) == NULL);
    expect_eq(hak_load(&record->state, HAK_RELAXED), HAK_SAMPLE_ENDING);
    ended++;
}

static const struct hak_sample_design design = { .end = end };

static bool join(unsigned i, size_t counted)
{
    records[i].block = 16 * (i + 1);
    records[i].design = &design;
    hak_store(&records[i].state, HAK_SAMPLE_TAKEN, HAK_RELAXED);
    bool joined = hak__record_join(&records[i], &samples, counted);
    hak_store(&records[i].state, joined ? HAK_SAMPLE_LIVE : HAK_SAMPLE_FREE, HAK_RELAXED);
    return joined;
}

static bool leave(unsigned i)
{
    if (!hak__record_claim(&records[i]))
        return false;
    hak__record_leave(&records[i]);
    hak_store(&records[i].state, HAK_SAMPLE_FREE, HAK_RELAXED);
    return true;
}

static void expect_list(unsigned count, unsigned outside)
{
    unsigned found = 0;
    for (struct hak_record *at = samples.first, *before = NULL; at != NULL; before = at, at = at->next, found++)
        expect(at->before == before && hak_load(&at->of, HAK_RELAXED) == &samples);
    expect_eq(found, count);
    expect_eq(hak_load(&samples.count, HAK_RELAXED), outside);
    expect_eq(hak_load(&samples.bytes, HAK_RELAXED), outside * BYTES);
    expect_eq(hak_load(&account.used, HAK_RELAXED), outside * BYTES);
}

static void come_and_go(void **state)
{
    static const unsigned orders[][RECORDS] = { { 0, 1, 2, 3, 4 }, { 4, 3, 2, 1, 0 }, { 2, 0, 4, 1, 3 } };
    (void)state;
    for (unsigned order = 0; order < 3; order++) {
        begin(SIZE_MAX);
        for (unsigned i = 0; i < RECORDS; i++)
            expect(join(i, BYTES));
        for (unsigned i = 0; i < RECORDS; i++) {
            expect_list(RECORDS - i, RECORDS - i);
            expect(leave(orders[order][i]));
            expect(!leave(orders[order][i]));
        }
        expect_list(0, 0);
    }
    hak_store(&records[0].state, HAK_SAMPLE_TAKEN, HAK_RELAXED);
    expect(hak__record_join(&records[0], NULL, BYTES));   /* malloc's are in no list */
    expect(hak_load(&records[0].of, HAK_RELAXED) == NULL);
}

/* A refusal is the sample's alone: the request may be served otherwise, so none is counted. */
static void within_the_limit(void **state)
{
    (void)state;
    begin(2 * BYTES + BYTES / 2);
    expect(join(0, BYTES) && join(1, BYTES) && !join(2, BYTES));
    expect(join(3, 0));   /* one in a span, which has been counted */
    expect_list(3, 2);
    expect_eq(hak_load(&account.refused, HAK_RELAXED), 0);
    hak_store(&account.limit, BYTES, HAK_RELAXED);
    expect(leave(0) && !join(0, BYTES));
    expect_list(2, 1);
}

static int see(void *block, size_t size, void *argument)
{
    unsigned *seen = argument;
    expect(size == BYTES && (uintptr_t)block % 16 == 0);
    return ++*seen == 2 ? 55 : 0;
}

static void ends_and_merges(void **state)
{
    unsigned seen = 0;
    (void)state;
    begin(SIZE_MAX);
    for (unsigned i = 0; i < RECORDS; i++)
        expect(join(i, i == 0 ? 0 : BYTES));
    expect_eq(hak__samples_visit(&samples, see, &seen), 55);
    expect_eq(seen, 2);
    expect(hak__record_claim(&records[3]));   /* a free that is under way */
    hak__samples_end(&samples, true, "hak_heap_destroy");
    expect_eq(ended, RECORDS - 1);
    expect_list(0, 0);
    hak__record_leave(&records[3]);
    expect(!join(0, BYTES));
    begin(SIZE_MAX);
    expect(join(0, BYTES) && join(1, BYTES));
    hak__samples_merge(&samples);
    expect_list(0, 0);
    expect(leave(0) && leave(1));
    expect_list(0, 0);
}

/* Between the steps of joining and of leaving: the list is what `next` says, and what is not in it can leave all the same. */
static void in_a_forked_child(void **state)
{
    (void)state;
    begin(SIZE_MAX);
    expect(join(0, BYTES) && join(1, BYTES) && join(2, BYTES));
    samples.lock.held = 1;
    records[3].next = samples.first;                       /* joins: first, and does not say so yet */
    records[3].counted = BYTES;
    samples.first = &records[3];
    hak__samples_fork_child(&samples);
    hak_store(&account.used, 4 * BYTES, HAK_RELAXED);
    hak_store(&records[3].state, HAK_SAMPLE_LIVE, HAK_RELAXED);
    expect_list(4, 4);
    samples.lock.held = 1;
    samples.first = records[3].next;                       /* is merged: out of the list, and says that it is in it */
    hak__samples_fork_child(&samples);
    hak_store(&account.used, 3 * BYTES, HAK_RELAXED);
    expect_list(3, 3);
    expect(leave(3));
    expect_list(3, 3);
    expect(leave(1) && leave(2) && leave(0));
    expect_list(0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(come_and_go),
        cmocka_unit_test(within_the_limit),
        cmocka_unit_test(ends_and_merges),
        cmocka_unit_test(in_a_forked_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
