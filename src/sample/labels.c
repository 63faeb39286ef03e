/* See labels.h. Lock-free, but for the arena's lock where a new part gets its memory. */
#include "sample/labels.h"

#include <string.h>

#include "arena/meta.h"
#include "base/assert.h"
#include "base/lock.h"

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

/* Whether the bounds allow the part; *number: of a key. Threads that make parts at the same moment may exceed them by their number. */
static bool part_counts(const struct label_part *part, uint32_t *number)
{
    struct hak_label_table *table = &hak__label_table;
    if (part->of == NULL)
        return hak_load(&table->keys, HAK_RELAXED) < HAK_LABEL_KEYS
            && (*number = hak_fetch_add(&table->keys, 1, HAK_RELAXED)) < HAK_LABEL_KEYS;
    bool other = part_is_other(part), value = part->of->of == NULL;
    uint32_t most = HAK_LABEL_PARTS + (other ? HAK_LABEL_SPARE : 0), key = value ? part->of->number : 0;
    if (hak_load(&table->parts, HAK_RELAXED) >= most
        || (value && !other && hak_load(&table->values[key], HAK_RELAXED) >= HAK_LABEL_VALUES))
        return false;
    hak_fetch_add(&table->parts, 1, HAK_RELAXED);
    hak_fetch_add(&table->values[key], value, HAK_RELAXED);
    return true;
}

static struct hak_labels *part_make(const struct label_part *part)
{
    uint32_t number = 0;
    struct hak_labels *made = part_counts(part, &number) ? hak__meta_alloc(sizeof *made + part->length + 1) : NULL;
    if (made == NULL)
        return NULL;
    made->of = part->of;
    made->under = part->under;
    made->number = number;
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

/* Cuts a text between two characters of UTF-8. */
static size_t label_length(const char *text, size_t most)
{
    size_t length = strnlen(text, most + 1);
    if (length <= most)
        return length;
    for (length = most; length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80;)
        length--;
    return length;
}

static const struct hak_labels *value_of(const struct hak_labels *key, const char *text)
{
    const struct hak_labels *value = label_part(key, NULL, text, label_length(text, HAK_LABEL_VALUE_BYTES));
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
    const struct hak_labels *known = label_part(NULL, NULL, key, label_length(key, HAK_LABEL_KEY_BYTES));
    if (known == NULL)
        return labels;
    return replace(labels, known, value == NULL ? NULL : value_of(known, value));
}

const struct hak_labels *hak__labels_here(const struct hak_samples *samples)
{
    const struct hak_labels *labels = hak__thread_notes.labels;
    if (samples == NULL)
        return labels;
    return hak__labels_with(labels, "heap", samples->name == NULL || samples->name[0] == 0 ? "(unnamed)" : samples->name);
}
