/* sample/labels.h: the same labels are the same address, in whatever order they were set and by whichever thread; a key comes once;
 * texts are cut between characters; beyond its bounds a value is "(other)", and other keys go on. */
#include "sample/labels.h"

#include <pthread.h>

#include "hakmem.h"
#include "support/heaps.h"

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
        cmocka_unit_test(order_is_no_matter),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(keys_and_values_have_bounds),
        cmocka_unit_test(combinations_have_a_bound),
        cmocka_unit_test(threads_find_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
