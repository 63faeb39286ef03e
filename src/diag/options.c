/* Parsing and storing options. Called by init.c at start and by the API by name; see options.def for the list. */
#include "diag/options.h"

#include <errno.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/bits.h"
#include "diag/report.h"

#define X(name, kind, value, least, most, when, help) { #name, help, value, least, most, HAK_##kind, HAK_##when },
const struct hak_option_row hak__option_rows[HAK_OPTIONS] = {
#include "diag/options.def"
};
#undef X

#define X(name, kind, value, least, most, when, help) value,
_Atomic uint64_t hak__option_values[HAK_OPTIONS] = {
#include "diag/options.def"
};
#undef X

enum { NAME_MAX_LENGTH = 31, PREFIX_LENGTH = 7 };
static const char prefix[] = "HAKMEM_";
static unsigned char origins[HAK_OPTIONS];
char hak__stats_file[HAK_STATS_FILE_SIZE];

/* A piece of text that need not end with a 0. */
struct text {
    const char *start;
    size_t length;
};

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c; }

static bool begins(const char *text, const char *start)
{
    while (*start != 0 && *text == *start)
        text++, start++;
    return *start == 0;
}

static bool same(struct text a, const char *name)
{
    size_t i = 0;
    while (i < a.length && name[i] != 0 && lower(a.start[i]) == name[i])
        i++;
    return i == a.length && name[i] == 0;
}

static int find(struct text key)
{
    if (key.length > PREFIX_LENGTH && begins(key.start, prefix)) {
        key.start += PREFIX_LENGTH;
        key.length -= PREFIX_LENGTH;
    }
    for (int i = 0; i < HAK_OPTIONS; i++)
        if (same(key, hak__option_rows[i].name))
            return i;
    return -1;
}

/* The edit distance between a key and a name, by one row of the usual table. */
static unsigned distance(struct text key, const char *name)
{
    unsigned row[NAME_MAX_LENGTH + 1], columns = (unsigned)hak_min(strlen(name), NAME_MAX_LENGTH);
    for (unsigned j = 0; j <= columns; j++)
        row[j] = j;
    for (unsigned i = 0; i < key.length && i < 2 * NAME_MAX_LENGTH; i++) {
        unsigned diagonal = row[0];
        row[0] = i + 1;
        for (unsigned j = 0; j < columns; j++) {
            unsigned change = diagonal + (lower(key.start[i]) != name[j]);
            diagonal = row[j + 1];
            row[j + 1] = (unsigned)hak_min(change, 1 + hak_min(row[j], row[j + 1]));
        }
    }
    return row[columns];
}

static const char *nearest(struct text key)
{
    const char *best = hak__option_rows[0].name;
    unsigned least = (unsigned)-1;
    for (int i = 0; i < HAK_OPTIONS; i++) {
        unsigned d = distance(key, hak__option_rows[i].name);
        if (d < least) {
            least = d;
            best = hak__option_rows[i].name;
        }
    }
    return best;
}

/* --- values --------------------------------------------------------------------------------------------------- */

struct word {
    const char *name;
    uint64_t value;
};
static const struct word words[] = {
    { "false", 0 }, { "off", 0 }, { "no", 0 }, { "true", 1 }, { "on", 1 }, { "yes", 1 }, { "exact", HAK_STATS_EXACT },
};
static const struct word units[] = {
    { "k", 1ull << 10 }, { "m", 1ull << 20 }, { "g", 1ull << 30 }, { "kib", 1ull << 10 }, { "mib", 1ull << 20 },
    { "gib", 1ull << 30 }, { "", 1 },
};
static const struct word times[] = { { "ms", 1 }, { "s", 1000 }, { "", 1 } };

static bool look_up(const struct word *table, size_t rows, struct text key, uint64_t *value)
{
    for (size_t i = 0; i < rows; i++) {
        if (same(key, table[i].name)) {
            *value = table[i].value;
            return true;
        }
    }
    return false;
}

/* "json:FILE" or "prom:FILE" with a name that has room; *file is the name. */
static bool parse_file(struct text text, uint64_t *value, struct text *file)
{
    enum { FORMAT_LENGTH = 5 };
    *file = (struct text){ text.start + FORMAT_LENGTH, text.length - FORMAT_LENGTH };
    if (text.length <= FORMAT_LENGTH || file->length >= HAK_STATS_FILE_SIZE)
        return false;
    text.length = FORMAT_LENGTH;
    *value = same(text, "json:") ? HAK_STATS_JSON : HAK_STATS_PROM;
    return *value == HAK_STATS_JSON || same(text, "prom:");
}

static bool parse(const struct hak_option_row *row, struct text text, uint64_t *value)
{
    struct text file;
    if (row->kind == HAK_STATS && parse_file(text, value, &file))
        return true;
    uint64_t number = 0, unit = 1;
    size_t digits = 0;
    for (; digits < text.length && text.start[digits] >= '0' && text.start[digits] <= '9'; digits++)
        if (__builtin_mul_overflow(number, 10, &number)
            || __builtin_add_overflow(number, (uint64_t)(text.start[digits] - '0'), &number))
            return false;
    struct text rest = { text.start + digits, text.length - digits };
    bool known = rest.length == 0;
    if (digits == 0)
        known = (row->kind == HAK_FLAG || row->kind == HAK_STATS)
                && look_up(words, sizeof words / sizeof *words, text, &number);
    else if (row->kind == HAK_BYTES)
        known = look_up(units, sizeof units / sizeof *units, rest, &unit);
    else if (row->kind == HAK_TIME)
        known = look_up(times, sizeof times / sizeof *times, rest, &unit);
    if (!known || __builtin_mul_overflow(number, unit, &number) || number < row->least || number > row->most)
        return false;
    *value = number;
    return true;
}

static const char *const kind_names[] = {
    [HAK_COUNT] = "a number", [HAK_BYTES] = "a size in bytes (or with K, M, G)", [HAK_TIME] = "a time in ms (or with s)",
    [HAK_FLAG] = "0 or 1,", [HAK_STATS] = "json:FILE, prom:FILE, exact or a number",
};

static void copy_text(char *to, size_t size, struct text text)
{
    size_t length = hak_min(text.length, size - 1);
    for (size_t i = 0; i < length; i++)
        to[i] = text.start[i] >= ' ' && text.start[i] <= '~' ? text.start[i] : '?';
    to[length] = 0;
}

/* One assignment from the environment. Complains at most once per call and keeps the value in force otherwise. */
static void assign(struct text key, struct text text, enum hak_option_origin origin)
{
    char shown[64], shown_key[64];
    int option = find(key);
    uint64_t value;
    copy_text(shown_key, sizeof shown_key, key);
    copy_text(shown, sizeof shown, text);
    if (option < 0) {
        hak__warn("option %s is not known; the nearest one is %s", shown_key, nearest(key));
        return;
    }
    const struct hak_option_row *row = &hak__option_rows[option];
    if (!parse(row, text, &value)) {
        hak__warn("option %s: '%s' is not %s from %u to %u; %u is kept", row->name, shown, kind_names[row->kind],
                  row->least, row->most, hak__option((enum hak_option)option));
        return;
    }
    if (origin < origins[option])
        return;
    origins[option] = (unsigned char)origin;
    hak_store(&hak__option_values[option], value, HAK_RELAXED);
    if (row->kind == HAK_STATS && parse_file(text, &value, &text)) {
        memcpy(hak__stats_file, text.start, text.length);
        hak__stats_file[text.length] = 0;
    }
}

/* --- sources --------------------------------------------------------------------------------------------------- */

/* Up to the first of two characters, or the end. This and begins() run in every process at start: the C library's
 * functions of the kind would bring further pages of it into every process (tests/programs, footprint). */
static struct text until(const char *start, char stop, char other)
{
    const char *end = start;
    while (*end != 0 && *end != stop && *end != other)
        end++;
    return (struct text){ start, (size_t)(end - start) };
}

/* "key:value,key:value": the first colon ends the key, a comma ends the value. */
static void read_conf(const char *conf)
{
    while (*conf != 0) {
        struct text key = until(conf, ':', ',');
        conf += key.length;
        struct text value = { conf, 0 };
        if (*conf == ':')
            value = until(conf + 1, ',', ',');
        if (key.length != 0 || value.length != 0)
            assign(key, value, HAK_FROM_CONF);
        conf = value.start + value.length;
        conf += *conf == ',';
    }
}

bool hak__options_read(void)
{
    if (environ == NULL)
        return false;
    if (getauxval(AT_SECURE) != 0)
        return true;
    for (char **entry = environ; *entry != NULL; entry++) {
        struct text key = until(*entry, '=', '=');
        if (key.length <= PREFIX_LENGTH || !begins(*entry, prefix))
            continue;
        const char *value = *entry + key.length + (*entry)[key.length] / '=';
        if (same(key, "hakmem_conf"))
            read_conf(value);
        else
            assign(key, (struct text){ value, strlen(value) }, HAK_FROM_VARIABLE);
    }
    return true;
}

int hak__option_set(const char *name, const char *value)
{
    int option = find((struct text){ name, strlen(name) });
    uint64_t number;
    if (option < 0)
        return ENOENT;
    if (!parse(&hak__option_rows[option], (struct text){ value, strlen(value) }, &number))
        return EINVAL;
    if (hak__option_rows[option].when == HAK_AT_START)
        return EPERM;
    origins[option] = HAK_FROM_API;
    hak_store(&hak__option_values[option], number, HAK_RELAXED);
    return 0;
}

int hak__option_get(const char *name, uint64_t *value)
{
    int option = find((struct text){ name, strlen(name) });
    if (option < 0)
        return ENOENT;
    *value = hak__option((enum hak_option)option);
    return 0;
}

enum hak_option_origin hak__option_origin(enum hak_option option)
{
    return (enum hak_option_origin)origins[option];
}
