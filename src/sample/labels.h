/* Labels: what a thread works for (hak_label_set in include/hakmem.h), noted with each of its samples. Labels of the thread are in
 * its notes (base/lock.h); only samples read them.
 *
 * Keys, values and combinations are parts. A part is found by what it is made of, so the same labels are always the same address;
 * it never changes or ends, and lies in metadata.
 *
 *   part          of       under                         text
 *   key           NULL     NULL                          its name
 *   value         its key  NULL                          its text
 *   combination   a value  the rest, or NULL: no more    ""
 *
 * Invariant: from a combination down `under`, keys descend by number, so no key comes twice and the order of setting them is no
 * matter. Bounds: HAK_LABEL_KEYS keys, HAK_LABEL_VALUES values of a key, HAK_LABEL_PARTS parts. What exceeds one of the last two
 * gets the value "(other)", for which HAK_LABEL_SPARE parts remain; what exceeds all is not set. */
#pragma once

#include "sample/record.h"

enum { HAK_LABEL_KEYS = 16, HAK_LABEL_VALUES = 4096, HAK_LABEL_PARTS = 1 << 16, HAK_LABEL_SPARE = 1 << 12 };
enum { HAK_LABEL_KEY_BYTES = 63, HAK_LABEL_VALUE_BYTES = 255, HAK_LABEL_BUCKETS = 1 << 9 };

struct hak_labels {
    struct hak_labels *next; /* with the same hash */
    const struct hak_labels *of, *under;
    uint32_t number; /* of a key: 0 for the first that was made */
    char text[];
};

struct hak_label_table {
    _Atomic uint32_t keys, values[HAK_LABEL_KEYS], parts; /* made so far; `parts` without keys */
    _Atomic(struct hak_labels *) buckets[HAK_LABEL_BUCKETS];
};
extern struct hak_label_table hak__label_table;

/* `labels` with this value of the key, or without the key if it is NULL. Longer texts are cut. */
hak_cold const struct hak_labels *hak__labels_with(const struct hak_labels *labels, const char *key, const char *value);

/* Those of a sample that the calling thread takes now: its own, and the user heap's name as `heap`. */
hak_cold const struct hak_labels *hak__labels_here(const struct hak_samples *samples);

hak_inline const char *hak__label_key(const struct hak_labels *labels) { return labels->of->of->text; }
hak_inline const char *hak__label_value(const struct hak_labels *labels) { return labels->of->text; }
