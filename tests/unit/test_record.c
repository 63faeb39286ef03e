/* sample/sample.h: records join a heap as far as its limit and its life allow, leave it in any order, are visited, end and are merged; and
 * a forked child makes whole what a thread was in the middle of that it does not have. */
#include "sample/sample.h"

#include <pthread.h>

#include "hakmem.h"
#include "os/os.h"
#include "support/check.h"
#include "support/heaps.h"

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

static void expect_described(uintptr_t address, const char *as)
{
    char text[120];
    hak__record_describe(&records[0], address, text, sizeof text);
    expect_eq(strncmp(text, as, strlen(as)), 0);
}

static void addresses_around_a_block(void **state)
{
    (void)state;
    begin(SIZE_MAX);
    expect(join(0, BYTES));
    expect_described(15, "1 byte before a live sampled block of 1000 bytes (block 0x10)");
    expect_described(14, "2 bytes before a live");
    expect_described(16 + 999, "inside a live sampled block of 1000 bytes, offset 999");
    expect_described(16 + 1000, "directly beyond the end of a live sampled block of 1000 bytes (block 0x10)");
    expect_described(16 + 1001, "1 byte beyond the end of");
    expect_described(16 + 1010, "10 bytes beyond the end of");
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

/* --- labels ----------------------------------------------------------------------------------------------------------- */

/* sample/sample.h: the same labels are the same address, in whatever order they were set and by whichever thread; a key comes once;
 * texts are cut between characters; beyond its bounds a value is "(other)", and other keys go on. */

static const struct hak_labels *with(const struct hak_labels *labels, const char *key, const char *value)
{
    return hak__labels_with(labels, key, value);
}

static void expect_label(const struct hak_labels *labels, const char *key, const char *value)
{
    const struct hak_labels *at = labels;
    while (at != NULL && strcmp(hak__label_key(at), key) != 0)
        at = at->under;
    expect(value == NULL ? at == NULL : at != NULL && strcmp(hak__label_value(at), value) == 0);
}

static unsigned count_of(const struct hak_labels *labels)
{
    return labels == NULL ? 0 : 1 + count_of(labels->under);
}

FRESH_TEST(order_is_no_matter)
{
    (void)argument;
    heaps_start();
    const struct hak_labels *ab = with(with(NULL, "a", "1"), "b", "2"), *ba = with(with(NULL, "b", "2"), "a", "1");
    expect(ab == ba && count_of(ab) == 2);
    expect(with(with(with(ab, "a", "3"), "b", "4"), "a", "1") == with(with(NULL, "a", "1"), "b", "4"));
    expect(with(with(ab, "a", NULL), "b", NULL) == NULL && with(ab, "c", NULL) == ab && with(ab, "b", NULL) == with(NULL, "a", "1"));
    expect(with(ab, NULL, "1") == ab && with(ab, "", "1") == ab);
    expect_label(with(ab, "a", ""), "a", "");
    expect_label(with(ab, "b", "1"), "a", "1"); /* equal texts of two keys are two values */
    expect_label(with(ab, "b", "1"), "b", "1");
}

FRESH_TEST(long_texts_are_cut)
{
    (void)argument;
    heaps_start();
    char text[400] = { 0 };
    memset(text, 'x', 399);
    const struct hak_labels *labels = with(NULL, text, text);
    expect_eq(strlen(hak__label_key(labels)), HAK_LABEL_KEY_BYTES);
    expect_eq(strlen(hak__label_value(labels)), HAK_LABEL_VALUE_BYTES);
    memcpy(text + HAK_LABEL_VALUE_BYTES - 2, "\xe2\x82\xac", 3); /* three bytes, the third of which is one too many */
    expect_eq(strlen(hak__label_value(with(NULL, "euro", text))), HAK_LABEL_VALUE_BYTES - 2);
    text[HAK_LABEL_VALUE_BYTES] = 0;
    expect_eq(strlen(hak__label_value(with(NULL, "short", text))), HAK_LABEL_VALUE_BYTES);
}

FRESH_TEST(keys_and_values_have_bounds)
{
    (void)argument;
    heaps_start();
    char text[32];
    const struct hak_labels *labels = NULL, *tenant = with(NULL, "tenant", "t");
    for (unsigned i = 0; i < 2 * HAK_LABEL_VALUES; i++) {
        snprintf(text, sizeof text, "value %u", i);
        labels = with(tenant, "query", text);
        expect_label(labels, "query", i < HAK_LABEL_VALUES ? text : "(other)");
        expect_label(labels, "tenant", "t");
    }
    expect_label(with(labels, "query", "value 7"), "query", "value 7");
    expect_label(with(labels, "tenant", "late"), "tenant", "late");
    for (unsigned i = 0; i < 2 * HAK_LABEL_KEYS; i++) {
        snprintf(text, sizeof text, "key %u", i);
        labels = with(labels, text, "x");
    }
    expect_eq(count_of(labels), HAK_LABEL_KEYS);
    expect_label(labels, "key 20", NULL);
    expect_label(with(labels, "key 0", "y"), "key 0", "y");
}

/* Combinations beyond the bound: the label that came last is "(other)", then it is left out. */
FRESH_TEST(combinations_have_a_bound)
{
    (void)argument;
    heaps_start();
    char text[32];
    const struct hak_labels *tenants[300];
    for (unsigned i = 0; i < 300; i++) {
        snprintf(text, sizeof text, "tenant %u", i);
        tenants[i] = with(NULL, "tenant", text);
    }
    unsigned whole = 0, other = 0;
    for (unsigned i = 0; i < 300; i++)
        for (unsigned j = 0; j < 300; j++) {
            snprintf(text, sizeof text, "query %u", j);
            const struct hak_labels *labels = with(tenants[i], "query", text);
            expect(labels->under == tenants[i]);
            bool is_other = strcmp(hak__label_value(labels), "(other)") == 0;
            expect(is_other || strcmp(hak__label_value(labels), text) == 0);
            (*(is_other ? &other : &whole))++;
        }
    expect_op(whole, >, HAK_LABEL_PARTS - 1000);
    expect_eq(whole + other, 300 * 300);
    for (unsigned i = 0; i < HAK_LABEL_SPARE + 1000; i++) {
        snprintf(text, sizeof text, "another %u", i % 3000);
        const struct hak_labels *labels = with(tenants[i % 300], i % 2 != 0 ? "job" : "task", text);
        expect(labels == tenants[i % 300] || strcmp(hak__label_value(labels), "(other)") == 0);
    }
}

static int refuse(uintptr_t address, size_t size)
{
    (void)address, (void)size;
    return ENOMEM;
}

/* What the system has refused leaves its room to what comes later, and the labels as they were. */
FRESH_TEST(refusals_leave_no_trace)
{
    (void)argument;
    heaps_start();
    char text[256];
    memset(text, 'x', 255);
    text[255] = 0;
    const struct hak_labels *first = with(NULL, "tenant", "first"), *last = first;
    const struct hak_os *real = hak__os;
    struct hak_os refusing = *real;
    refusing.map = refusing.extend = refuse;
    hak__os = &refusing;
    for (unsigned i = 0; i < 3 * HAK_LABEL_PARTS; i++) {
        text[snprintf(text, 16, "%u", i)] = 'x';
        last = with(first, i % 100 == 0 ? text : "query", text);
        expect(last == first || last->under == first);
    }
    expect(last == first || strcmp(hak__label_value(last), "(other)") == 0);
    hak__os = real;
    expect_label(with(first, "query", "afterwards"), "query", "afterwards");
    expect_op(hak_load(&hak__label_table.keys, HAK_RELAXED), <, HAK_LABEL_KEYS);
}

static void *set_all(void *argument)
{
    char text[32];
    const struct hak_labels **found = argument;
    for (unsigned i = 0; i < 500; i++) {
        snprintf(text, sizeof text, "v%u", i);
        hak_label_set("a", text);
        hak_label_set("b", text);
        found[i] = hak_label_get();
    }
    return NULL;
}

FRESH_TEST(threads_find_the_same)
{
    static const struct hak_labels *found[4][500];
    pthread_t threads[4];
    (void)argument;
    for (unsigned i = 0; i < 4; i++)
        expect_eq(pthread_create(&threads[i], NULL, set_all, found[i]), 0);
    for (unsigned i = 0; i < 4; i++)
        expect_eq(pthread_join(threads[i], NULL), 0);
    for (unsigned i = 0; i < 500; i++)
        expect(found[0][i] != NULL && found[0][i] == found[1][i] && found[0][i] == found[2][i] && found[0][i] == found[3][i]);
    expect(hak_label_get() == NULL);
    expect(hak_label_set("a", "v3") == NULL && hak_label_switch(found[0][3]) != NULL && hak_label_get() == found[1][3]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(come_and_go),
        cmocka_unit_test(addresses_around_a_block),
        cmocka_unit_test(within_the_limit),
        cmocka_unit_test(ends_and_merges),
        cmocka_unit_test(in_a_forked_child),
        cmocka_unit_test(order_is_no_matter),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(keys_and_values_have_bounds),
        cmocka_unit_test(combinations_have_a_bound),
        cmocka_unit_test(refusals_leave_no_trace),
        cmocka_unit_test(threads_find_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
