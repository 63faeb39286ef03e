/* Parsing and storing options. Called by start.c at start and by the API by name; see options.def for the list. */
#include "diag/options.h"

#include <errno.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/bits.h"
#include "diag/report.h"

#define X(name, kind, value, least, most, when, group, help) #name, help,
hak_rare_table const struct hak_option_text hak__option_text = {
#include "diag/options.def"
};
#undef X

#define PLACE(member) offsetof(struct hak_option_text, member)
#define X(name, kind, value, least, most, when, group, help) \
    { value, least, most, PLACE(name##_name), PLACE(name##_help), HAK_##kind, HAK_##when },
hak_rare_table const struct hak_option_row hak__option_rows[HAK_OPTIONS] = {
#include "diag/options.def"
};
#undef X

/* On cache lines of its own, because misses read it and locks precede it. */
#define X(name, kind, value, least, most, when, group, help) value,
hak_line_aligned _Atomic uint64_t hak__option_words[HAK_OPTIONS] = {
#include "diag/options.def"
};
#undef X

/* A program's own configuration of the library that it links: see hakmem.h. */
extern const char *hak_conf __attribute__((weak, visibility("default")));

enum { NAME_MAX_LENGTH = 31, PREFIX_LENGTH = 7, BANDS = 8, WARNINGS_MAX = 16 };
static const char prefix[] = "HAKMEM_";
hak_rare_data char hak__stats_file[HAK_STATS_FILE_SIZE];
hak_rare_data char hak__profile_prefix[HAK_PROFILE_PREFIX_SIZE], hak__misuse_file[HAK_PROFILE_PREFIX_SIZE];
hak_rare_data char hak__blackbox_folder[HAK_BLACKBOX_FOLDER_SIZE];

#define X(name) + sizeof #name
static hak_rare_data char harden_list[0 HAK_HARDEN_PARTS(X)]; /* the option harden's value, if it has several parts */
#undef X

/* A piece of text, not necessarily 0-terminated. */
struct text {
    const char *start;
    size_t length;
};

static char lower_case(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c; }

static bool option_same(struct text a, const char *name)
{
    size_t i = 0;
    while (i < a.length && name[i] != 0 && lower_case(a.start[i]) == name[i])
        i++;
    return i == a.length && name[i] == 0;
}

static struct text without_prefix(struct text key)
{
    if (key.length <= PREFIX_LENGTH || !hak_begins(key.start, prefix))
        return key;
    return (struct text){ key.start + PREFIX_LENGTH, key.length - PREFIX_LENGTH };
}

static hak_cold int option_find(struct text key)
{
    key = without_prefix(key);
    for (int i = 0; i < HAK_OPTIONS; i++)
        if (option_same(key, hak__option_name(i)))
            return i;
    return -1;
}

/* The edit distance between a key and a name, computed with one row of the usual table. */
static unsigned edit_distance(struct text key, const char *name)
{
    unsigned row[NAME_MAX_LENGTH + 1], columns = (unsigned)hak_min(strlen(name), NAME_MAX_LENGTH);
    for (unsigned j = 0; j <= columns; j++)
        row[j] = j;
    for (unsigned i = 0; i < key.length && i < 2 * NAME_MAX_LENGTH; i++) {
        unsigned diagonal = row[0];
        row[0] = i + 1;
        for (unsigned j = 0; j < columns; j++) {
            unsigned change = diagonal + (lower_case(key.start[i]) != name[j]);
            diagonal = row[j + 1];
            row[j + 1] = (unsigned)hak_min(change, 1 + hak_min(row[j], row[j + 1]));
        }
    }
    return row[columns];
}

/* The best of the names offered so far. */
struct guess {
    const char *name;
    unsigned distance;
};

static hak_cold void option_offer(struct guess *guess, struct text key, const char *name)
{
    unsigned d = edit_distance(key, name);
    if (guess->name == NULL || d < guess->distance)
        *guess = (struct guess){ name, d };
}

static const char *nearest_option(struct text key)
{
    struct guess guess = { NULL, 0 };
    for (int i = 0; i < HAK_OPTIONS; i++)
        option_offer(&guess, without_prefix(key), hak__option_name(i));
    return guess.name;
}

/* --- values --------------------------------------------------------------------------------------------------- */

struct word {
    char name[16];
    uint64_t value;
};
static const struct word flags[] = {
    { "false", 0 }, { "off", 0 }, { "no", 0 }, { "true", 1 }, { "on", 1 }, { "yes", 1 }, { "exact", HAK_STATS_EXACT },
};
static const struct word backgrounds[] = {
    { "0", 0 }, { "1", 1 }, { "auto", HAK_OPTION_AUTO }, { "off", 0 }, { "no", 0 }, { "false", 0 }, { "on", 1 },
    { "yes", 1 }, { "true", 1 },
};
#define X(name) { #name, HAK_HARDEN_##name },
static const struct word hardens[] = {
    HAK_HARDEN_PARTS(X) { "0", 0 }, { "1", HAK_HARDEN_ALL }, { "off", 0 }, { "no", 0 }, { "false", 0 },
    { "on", HAK_HARDEN_ALL }, { "yes", HAK_HARDEN_ALL }, { "true", HAK_HARDEN_ALL },
};
#undef X
static const struct word thps[] = { { "auto", HAK_THP_AUTO }, { "always", HAK_THP_ALWAYS }, { "never", HAK_THP_NEVER } };
static const struct word profilings[] = {
    { "0", HAK_PROFILING_OFF }, { "1", HAK_PROFILING_ON }, { "ready", HAK_PROFILING_READY }, { "auto", HAK_PROFILING_AUTO },
    { "leaks", HAK_PROFILING_LEAKS },
};
static const struct word misuses[] = { { "abort", HAK_MISUSE_ABORTS }, { "report", HAK_MISUSE_REPORTS } };
enum { UNITS_OF_PERCENT = 2, UNITS_OF_TIME = 4, UNITS = 11 }; /* percentages, times, no unit, bytes */
static const struct word option_units[UNITS] = {
    { "%", 1 }, { "", 1 }, { "ms", 1 }, { "s", 1000 }, { "", 1 }, { "k", 1ull << 10 }, { "m", 1ull << 20 }, { "g", 1ull << 30 }, { "kib", 1ull << 10 },
    { "mib", 1ull << 20 }, { "gib", 1ull << 30 },
};
#define X(name, ...) { #name, HAK_PRESET_##name },
static const struct word presets[HAK_PRESETS] = {
    { "adaptive", HAK_PRESET_adaptive },
#include "diag/presets.def"
};
#undef X

static hak_cold bool look_up(const struct word *table, size_t rows, struct text key, uint64_t *value)
{
    for (size_t i = 0; i < rows; i++)
        if (option_same(key, table[i].name))
            return *value = table[i].value, true;
    return false;
}

/* The names of an option whose only values are names; the first of several equal values is shown. */
static const struct word *names_of(const struct hak_option_row *row, size_t *rows)
{
    switch (row->kind) {
    case HAK_PRESET: *rows = HAK_PRESETS; return presets;
    case HAK_BACKGROUND: *rows = sizeof backgrounds / sizeof *backgrounds; return backgrounds;
    case HAK_HARDEN: *rows = sizeof hardens / sizeof *hardens; return hardens;
    case HAK_THP: *rows = sizeof thps / sizeof *thps; return thps;
    case HAK_PROFILE: *rows = sizeof profilings / sizeof *profilings; return profilings;
    case HAK_MISUSE: *rows = sizeof misuses / sizeof *misuses; return misuses;
    default: return NULL;
    }
}

static const char *nearest_name(const struct word *names, size_t rows, struct text key)
{
    struct guess guess = { NULL, 0 };
    for (size_t i = 0; i < rows; i++)
        option_offer(&guess, key, names[i].name);
    return guess.name;
}

/* The first word of a list; `rest` is the text behind its comma or plus sign, or starts with NULL. */
static struct text first_word(struct text text, struct text *rest)
{
    size_t length = 0;
    while (length < text.length && text.start[length] != ',' && text.start[length] != '+')
        length++;
    *rest = length == text.length ? (struct text){ NULL, 0 } : (struct text){ text.start + length + 1, text.length - length - 1 };
    return (struct text){ text.start, length };
}

/* One word of the table, or several parts; `wrong` is the first word that is neither. */
static hak_cold bool parse_harden(struct text text, uint64_t *value, struct text *wrong)
{
    struct text rest;
    uint64_t parts = 0, part;
    bool is_list = first_word(text, &rest).length != text.length;
    do {
        *wrong = first_word(text, &rest);
        if (!look_up(hardens, is_list ? HAK_HARDEN_PLACES - 1 : sizeof hardens / sizeof *hardens, *wrong, &part))
            return false;
        parts |= part;
        text = rest;
    } while (rest.start != NULL);
    *value = parts == HAK_HARDEN_EVERY_PART ? HAK_HARDEN_ALL : parts;
    return true;
}

/* The first mistake in a value of the option harden; *rows is how many words could have been meant: in a list, only the names of
 * parts. */
static hak_cold struct text wrong_part(struct text text, size_t *rows)
{
    uint64_t value;
    struct text wrong;
    parse_harden(text, &value, &wrong);
    if (wrong.length != text.length)
        *rows = HAK_HARDEN_PLACES - 1;
    return wrong;
}

/* "json:FILE", "prom:FILE" or "text:FILE" with a name that fits; *file is the name. */
static hak_cold bool parse_file(struct text text, uint64_t *value, struct text *file)
{
    enum { FORMAT_LENGTH = 5 };
    *file = (struct text){ text.start + FORMAT_LENGTH, text.length - FORMAT_LENGTH };
    if (text.length <= FORMAT_LENGTH || file->length >= HAK_STATS_FILE_SIZE)
        return false;
    text.length = FORMAT_LENGTH;
    *value = option_same(text, "json:") ? HAK_STATS_JSON : option_same(text, "prom:") ? HAK_STATS_PROM : HAK_STATS_TEXT;
    return *value != HAK_STATS_TEXT || option_same(text, "text:");
}

/* The part of "1:PREFIX" before the colon; *rest is the part behind it, or empty. */
static hak_cold struct text before_prefix(struct text text, struct text *rest)
{
    size_t length = 0;
    while (length < text.length && text.start[length] != ':')
        length++;
    size_t more = length + (length < text.length);
    *rest = (struct text){ text.start + more, text.length - more };
    return (struct text){ text.start, length };
}

/* Digits and a unit, within the bounds. */
static hak_cold bool parse_number(const struct hak_option_row *row, struct text text, uint64_t *value)
{
    uint64_t number = 0, unit;
    size_t digits = 0, first = row->kind == HAK_TIME || row->kind == HAK_EVERY ? UNITS_OF_PERCENT : UNITS_OF_TIME;
    size_t end = row->kind == HAK_BYTES || row->kind == HAK_EVERY ? UNITS : UNITS_OF_TIME + 1;
    if (row->kind == HAK_PERCENT)
        first = 0, end = UNITS_OF_PERCENT;
    for (; digits < text.length && text.start[digits] >= '0' && text.start[digits] <= '9'; digits++)
        if (__builtin_mul_overflow(number, 10, &number)
            || __builtin_add_overflow(number, (uint64_t)(text.start[digits] - '0'), &number))
            return false;
    struct text rest = { text.start + digits, text.length - digits };
    if (digits == 0 || !look_up(option_units + first, end - first, rest, &unit) || __builtin_mul_overflow(number, unit, &number))
        return false;
    uint64_t bytes = row->kind == HAK_EVERY && unit >= 1 << 10 ? HAK_EVERY_BYTES : 0;
    *value = number == 0 ? 0 : number + bytes;
    return number >= row->least && number <= (row->kind == HAK_EVERY && bytes == 0 ? HAK_EVERY_MS_MOST : row->most - bytes);
}

static hak_cold bool option_parse(const struct hak_option_row *row, struct text text, uint64_t *value)
{
    struct text file;
    if (row->kind == HAK_STATS && parse_file(text, value, &file))
        return true;
    if (row->kind == HAK_FOLDER) {
        *value = text.length != 0 && !option_same(text, "0");
        return text.length < HAK_BLACKBOX_FOLDER_SIZE;
    }
    if (row->kind == HAK_HARDEN)
        return parse_harden(text, value, &file);
    size_t rows;
    const struct word *names = names_of(row, &rows);
    bool prefixed = row->kind == HAK_PROFILE || row->kind == HAK_MISUSE;
    if (prefixed)
        text = before_prefix(text, &file);
    if (names != NULL)
        return look_up(names, rows, text, value) && (!prefixed || file.length < HAK_PROFILE_PREFIX_SIZE);
    if ((row->kind == HAK_FLAG || row->kind == HAK_STATS) && look_up(flags, sizeof flags / sizeof *flags, text, value))
        return *value <= row->most;
    return parse_number(row, text, value);
}

static const char value_kinds[][40] = {
    [HAK_COUNT] = "a number", [HAK_BYTES] = "a size in bytes (or with K, M, G)", [HAK_TIME] = "a time in ms (or with s)",
    [HAK_PERCENT] = "a percentage",
    [HAK_FOLDER] = "a path short enough,", [HAK_FLAG] = "0 or 1,", [HAK_STATS] = "exact, json/prom/text:FILE or a number",
};

static hak_cold void copy_text(char *to, size_t size, struct text text)
{
    size_t length = hak_min(text.length, size - 1);
    for (size_t i = 0; i < length; i++)
        to[i] = text.start[i] >= ' ' && text.start[i] <= '~' ? text.start[i] : '?';
    to[length] = 0;
}

/* Prints each line only once, and a limited number of them, so that a text full of mistakes does not flood a log. */
static hak_cold void warn_once(const char *format, ...)
{
    static hak_rare_data uint32_t said[WARNINGS_MAX];
    static unsigned count;
    char line[400];
    uint32_t hash = 2166136261u; /* FNV-1a */
    va_list arguments;
    va_start(arguments, format);
    size_t length = hak__format_list(line, sizeof line, format, arguments);
    va_end(arguments);
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)line[i]) * 16777619u;
    for (unsigned i = 0; i < count; i++)
        if (said[i] == hash)
            return;
    if (count == WARNINGS_MAX)
        return;
    said[count++] = hash;
    hak__warn("%s", count == WARNINGS_MAX ? "further mistakes in options are not shown" : line);
}

static hak_cold void warn_unknown(struct text key)
{
    char shown[64];
    copy_text(shown, sizeof shown, key);
    warn_once("option %s is not known; the nearest one is %s", shown, nearest_option(key));
}

static hak_cold void warn_every(const char *name, const char *shown, uint64_t most, uint64_t kept)
{
    uint64_t bytes = hak__every_bytes(kept);
    bool whole = bytes % (1 << 20) == 0;
    const char *unit = bytes == 0 ? "ms" : whole ? "M" : "K";
    warn_once(
        "option %s: '%s' is not a time in ms (or with s) up to %us, nor bytes of growth (with K, M, G) up to %uG; %u%s is kept",
        name, shown, (uint64_t)HAK_EVERY_MS_MOST / 1000, hak__every_bytes(most) >> 30,
        bytes == 0 ? kept : bytes >> (whole ? 20 : 10), unit);
}

static hak_cold void warn_value(int option, struct text text)
{
    const struct hak_option_row *row = &hak__option_rows[option];
    const char *name = hak__option_name(option);
    uint64_t kept = hak__option((enum hak_option)option);
    char shown[64];
    size_t rows;
    const struct word *names = names_of(row, &rows);
    if (row->kind == HAK_HARDEN)
        text = wrong_part(text, &rows);
    copy_text(shown, sizeof shown, text);
    if (names != NULL)
        warn_once("option %s: '%s' is not known; the nearest one is %s; %s is kept", name, shown, nearest_name(names, rows, text),
                  hak__option_word((enum hak_option)option, kept));
    else if (row->kind == HAK_EVERY)
        warn_every(name, shown, row->most, kept);
    else
        warn_once("option %s: '%s' is not %s from %u to %u; %u is kept", name, shown, value_kinds[row->kind], row->least, row->most,
                  kept);
}

/* --- storing --------------------------------------------------------------------------------------------------- */

/* Stores a value and its origin unless the present one has an origin above `most`. */
static hak_cold bool option_put(int option, uint64_t value, enum hak_option_origin origin, enum hak_option_origin most)
{
    hak_assert(value <= HAK_VALUE_MASK && origin <= most, "a value leaves room for its origin, which may replace itself");
    uint64_t word = hak_load(&hak__option_words[option], HAK_RELAXED);
    do {
        if (word >> HAK_ORIGIN_SHIFT > most)
            return false;
    } while (
        !hak_cas_weak(&hak__option_words[option], &word, (uint64_t)origin << HAK_ORIGIN_SHIFT | value, HAK_RELAXED, HAK_RELAXED));
    return true;
}

#define X(name, ...) { __VA_ARGS__ },
static const uint16_t preset_capacities[HAK_PRESETS - 1][BANDS] = {
#include "diag/presets.def"
};
#undef X

/* Gives the bands the capacities of the preset in force. If another thread chooses one meanwhile, the last to look sees the last
 * choice. */
static hak_cold void follow_preset(void)
{
    uint64_t preset;
    do {
        preset = hak__option(HAK_OPTION_preset);
        for (int band = 0; band < BANDS; band++) {
            int option = HAK_OPTION_tiny_unified_c0 + band;
            if (preset == HAK_PRESET_adaptive)
                option_put(option, hak__option_rows[option].value, HAK_FROM_DEFAULT, HAK_FROM_PRESET);
            else
                option_put(option, preset_capacities[preset - 1][band], HAK_FROM_PRESET, HAK_FROM_PRESET);
        }
    } while (hak__option(HAK_OPTION_preset) != preset);
}

static bool option_store(int option, uint64_t value, enum hak_option_origin origin)
{
    bool stored = option_put(option, value, origin, origin);
    if (stored && option == HAK_OPTION_preset)
        follow_preset();
    return stored;
}

static void put_within(enum hak_option option, uint64_t value, enum hak_option_origin origin)
{
    const struct hak_option_row *row = &hak__option_rows[option];
    hak_assert(row->least <= row->most, "a row has values");
    option_put((int)option, hak_min(hak_max(value, row->least), row->most), origin, origin);
}

void hak__option_suggest(enum hak_option option, uint64_t value) { put_within(option, value, HAK_FROM_SYSTEM); }
void hak__option_put(enum hak_option option, uint64_t value) { put_within(option, value, HAK_FROM_API); }

/* Keeps the names of the parts of hardened mode that are on, in the order of their list. */
static hak_cold void remember_parts(uint64_t value)
{
    size_t length = 0;
    for (size_t i = 0; i < HAK_HARDEN_PLACES - 1; i++) {
        size_t more = strlen(hardens[i].name);
        if ((value & hardens[i].value) == 0)
            continue;
        if (length != 0)
            harden_list[length++] = '+';
        memcpy(harden_list + length, hardens[i].name, more);
        length += more;
    }
    harden_list[length] = 0;
}

static hak_cold void remember_in(char *to, struct text text)
{
    memcpy(to, text.start, text.length);
    to[text.length] = 0;
}

/* Keeps the text that does not fit the value's word: the name of a file or folder, or the names of several parts. */
static hak_cold void remember_text(int option, struct text text, uint64_t value)
{
    uint64_t format;
    struct text part;
    switch (hak__option_rows[option].kind) {
    case HAK_STATS:
        if (parse_file(text, &format, &part))
            remember_in(hak__stats_file, part);
        break;
    case HAK_HARDEN: remember_parts(value); break;
    case HAK_PROFILE: before_prefix(text, &part), remember_in(hak__profile_prefix, part); break;
    case HAK_MISUSE: before_prefix(text, &part), remember_in(hak__misuse_file, part); break;
    case HAK_FOLDER: remember_in(hak__blackbox_folder, text); break;
    default: break;
    }
}

/* Makes one assignment at start. Complains at most once; on a mistake the value in force stays. */
static hak_cold void option_assign(struct text key, struct text text, enum hak_option_origin origin)
{
    int option = option_find(key);
    uint64_t value;
    if (option < 0)
        warn_unknown(key);
    else if (origin == HAK_FROM_VARIABLE && text.length == 0)
        return; /* as if it were not set */
    else if (!option_parse(&hak__option_rows[option], text, &value))
        warn_value(option, text);
    else if (option_store(option, value, origin))
        remember_text(option, text, value);
}

/* --- sources --------------------------------------------------------------------------------------------------- */

/* The text up to the first of two characters, or the end. Every process runs this and hak_begins() at start: the C library's
 * equivalents would bring more of its pages into every process (tests/programs, footprint). */
static struct text option_until(const char *start, char stop, char other)
{
    const char *end = start;
    while (*end != 0 && *end != stop && *end != other)
        end++;
    return (struct text){ start, (size_t)(end - start) };
}

/* "key:value,key:value": the first colon ends the key, a comma ends the value. */
static hak_cold void read_conf(const char *conf, enum hak_option_origin origin)
{
    while (*conf != 0) {
        struct text key = option_until(conf, ':', ',');
        conf += key.length;
        struct text value = { conf, 0 };
        if (*conf == ':')
            value = option_until(conf + 1, ',', ',');
        if (key.length != 0 || value.length != 0)
            option_assign(key, value, origin);
        conf = value.start + value.length;
        conf += *conf == ',';
    }
}

static void read_variable(const char *entry)
{
    struct text key = option_until(entry, '=', '=');
    if (key.length <= PREFIX_LENGTH || !hak_begins(entry, prefix))
        return;
    const char *value = entry + key.length + entry[key.length] / '=';
    if (option_same(key, "hakmem_conf"))
        read_conf(value, HAK_FROM_CONF);
    else
        option_assign(key, (struct text){ value, strlen(value) }, HAK_FROM_VARIABLE);
}

void hak__options_read_from(const char *symbol, char **environment)
{
    if (symbol != NULL)
        read_conf(symbol, HAK_FROM_SYMBOL);
    for (; environment != NULL && *environment != NULL; environment++)
        read_variable(*environment);
}

/* While there is no environment, the program's data may not be relocated either, and the symbol may not point to its text yet. */
bool hak__options_read(void)
{
    if (environ == NULL)
        return false;
    hak__options_read_from(&hak_conf != NULL ? hak_conf : NULL, getauxval(AT_SECURE) != 0 ? NULL : environ);
    return true;
}

/* --- by name --------------------------------------------------------------------------------------------------- */

int hak__option_find(const char *name) { return option_find((struct text){ name, strlen(name) }); }

int hak__option_set(const char *name, const char *value)
{
    int option = hak__option_find(name);
    uint64_t number;
    if (option < 0)
        return ENOENT;
    if (!option_parse(&hak__option_rows[option], (struct text){ value, strlen(value) }, &number))
        return EINVAL;
    if (hak__option_rows[option].when == HAK_AT_START)
        return EPERM;
    option_store(option, number, HAK_FROM_API);
    return 0;
}

int hak__option_get(const char *name, uint64_t *value)
{
    int option = hak__option_find(name);
    if (option < 0)
        return ENOENT;
    *value = hak__option((enum hak_option)option);
    return 0;
}

/* --- texts for people -------------------------------------------------------------------------------------------- */

const char *hak__option_word(enum hak_option option, uint64_t value)
{
    const struct hak_option_row *row = &hak__option_rows[option];
    size_t rows = 0;
    const struct word *names = names_of(row, &rows);
    for (size_t i = 0; i < rows; i++)
        if (names[i].value == value)
            return names[i].name;
    if (row->kind == HAK_HARDEN)
        return harden_list;
    if (row->kind != HAK_STATS || value < HAK_STATS_EXACT)
        return NULL;
    return value == HAK_STATS_EXACT ? "exact" : value == HAK_STATS_JSON ? "json" : value == HAK_STATS_PROM ? "prom" : "text";
}

/* Switches instead of tables: the loader writes to a table of pointers, so it would cost every process memory. */
#define X(value, name) case HAK_##value: return name;
const char *hak__option_origin_name(enum hak_option_origin origin)
{
    switch (origin) { HAK_OPTION_ORIGINS(X) }
    return "";
}

const char *hak__option_kind_name(enum hak_option_kind kind)
{
    switch (kind) { HAK_OPTION_KINDS(X) }
    return "";
}

const char *hak__option_when_name(enum hak_option_when when)
{
    switch (when) { HAK_OPTION_WHENS(X) }
    return "";
}
#undef X
