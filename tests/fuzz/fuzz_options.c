/* Fuzz: the parser of options. A text for the symbol, an environment, and settings by name, against a parser that was
 * written for this test: numbers by the C library in 128 bits, words by a list.
 *
 * Input: pieces that end with a 0 byte. The first is the symbol's text, the next four are environment entries, the rest
 * are pairs of a name and a value for hak_option_set. A first byte below 16 of a piece stands for a word that a fuzzer
 * would take long to find.
 * What is said about mistakes are whole lines of printable characters, at most 16 of them. */
#include "fuzz.h"

#include <strings.h>

#include "diag/options.h"

enum { PIECES = 64, ENTRIES = 4, PIECE_SIZE = 600, LINES_MOST = 16 };

static char pieces[PIECES][PIECE_SIZE];
static unsigned piece_count;

/* A byte below 16 is the name of an option, a separator, or the like; so inputs stay short and full of sense. */
static size_t expand(struct fuzz_input *in, uint8_t byte, char *to, size_t room)
{
    static const char *const words[] = { "HAKMEM_CONF=", "HAKMEM_", "=", ":", ",", "exact", "adaptive", "json:",
                                         "always", "999999999999999999999", "GiB", "18446744073709551615", "ms", "0",
                                         "zero_size", "+" };
    const char *text = words[byte];
    if (byte == 1)
        text = hak__option_name(fuzz_byte(in) % HAK_OPTIONS);
    size_t length = hak_min(strlen(text), room);
    memcpy(to, text, length);
    return length;
}

static void read_pieces(struct fuzz_input *in)
{
    while (fuzz_more(in) && piece_count < PIECES) {
        char *piece = pieces[piece_count++];
        size_t length = 0;
        for (uint8_t byte; fuzz_more(in) && (byte = fuzz_byte(in)) != 0;) {
            size_t room = PIECE_SIZE - 1 - length;
            if (byte < 16)
                length += expand(in, byte, piece + length, room);
            else if (room != 0)
                piece[length++] = (char)byte;
        }
    }
}

/* --- the model ----------------------------------------------------------------------------------------------------- */

static bool is_word(const char *text, const char *words, uint64_t *value)
{
    char copy[256], *state = NULL;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok_r(copy, " ", &state); word != NULL; word = strtok_r(NULL, " ", &state)) {
        char *is = strchr(word, '=');
        *is = 0;
        if (strcasecmp(word, text) == 0) {
            *value = strtoull(is + 1, NULL, 10);
            return true;
        }
    }
    return false;
}

static bool scaled(uint64_t least, uint64_t most, const char *text, const char *units, uint64_t *value)
{
    uint64_t unit = 1;
    size_t digits = strspn(text, "0123456789");
    unsigned __int128 number = 0;
    if (digits == 0 || (text[digits] != 0 && !is_word(text + digits, units, &unit)))
        return false;
    for (size_t i = 0; i < digits; i++) {
        number = number * 10 + (unsigned)(text[i] - '0');
        if (number > UINT64_MAX)
            return false;
    }
    number *= unit;
    *value = (uint64_t)number;
    return number >= least && number <= most;
}

static const char size_units[] = "k=1024 kib=1024 m=1048576 mib=1048576 g=1073741824 gib=1073741824";

static bool is_preset(const char *text, uint64_t *value)
{
    static const char *const names[] = {
        "adaptive",
#define X(name, ...) #name,
#include "diag/presets.def"
#undef X
    };
    for (*value = 0; *value < sizeof names / sizeof *names; ++*value)
        if (strcasecmp(text, names[*value]) == 0)
            return true;
    return false;
}

/* One word for all or nothing, or names of parts between commas and plus signs, of which none is empty. */
static bool is_harden(const char *text, uint64_t *value)
{
    static const char *const names[] = { "canary", "zero", "random", "guards", "regions", "zero_size" };
    char copy[PIECE_SIZE], *rest = copy;
    uint64_t found = 0;
    if (is_word(text, "true=1 on=1 yes=1 1=1 false=0 off=0 no=0 0=0", value))
        return true;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word; (word = strsep(&rest, ",+")) != NULL;) {
        unsigned i = 0;
        while (i < 6 && strcasecmp(word, names[i]) != 0)
            i++;
        if (i == 6)
            return false;
        found |= 2ull << i;
    }
    *value = found == 126 ? 1 : found;
    return true;
}

/* A word, and what the names of files begin with, or are, behind a colon. */
static bool is_prefixed(const char *text, const char *words, uint64_t *value)
{
    char word[16];
    size_t length = strcspn(text, ":");
    if (length >= sizeof word || (text[length] == ':' && strlen(text + length + 1) >= HAK_PROFILE_PREFIX_SIZE))
        return false;
    memcpy(word, text, length);
    word[length] = 0;
    return is_word(word, words, value);
}

/* A time of up to a day, or bytes of up to 2^46; bytes have the bit 55, unless they are 0. */
static bool is_every(const char *text, uint64_t *value)
{
    if (scaled(0, 24 * 60 * 60 * 1000, text, "ms=1 s=1000", value))
        return true;
    if (strspn(text, "0123456789") == strlen(text) || !scaled(0, 1ull << 46, text, size_units, value))
        return false;
    *value |= *value == 0 ? 0 : 1ull << 55;
    return true;
}

/* Whether the text is a value of the option, by docs/options.md. */
static bool model_parse(const struct hak_option_row *row, const char *text, uint64_t *value)
{
    uint64_t least = row->least, most = row->most;
    const char *on_off = "true=1 on=1 yes=1 false=0 off=0 no=0";
    switch ((enum hak_option_kind)row->kind) {
    case HAK_COUNT: return scaled(least, most, text, "", value);
    case HAK_BYTES: return scaled(least, most, text, size_units, value);
    case HAK_PERCENT: return scaled(least, most, text, "%=1", value);
    case HAK_TIME: return scaled(least, most, text, "ms=1 s=1000", value);
    case HAK_FLAG: return is_word(text, on_off, value) || scaled(least, most, text, "", value);
    case HAK_STATS:
        if ((strncasecmp(text, "json:", 5) == 0 || strncasecmp(text, "prom:", 5) == 0) && text[5] != 0
            && strlen(text + 5) < HAK_STATS_FILE_SIZE) {
            *value = strncasecmp(text, "json:", 5) == 0 ? HAK_STATS_JSON : HAK_STATS_PROM;
            return true;
        }
        return is_word(text, on_off, value) || is_word(text, "exact=2", value) || scaled(least, most, text, "", value);
    case HAK_BACKGROUND: return is_word(text, on_off, value) || is_word(text, "0=0 1=1 auto=2", value);
    case HAK_THP: return is_word(text, "auto=0 always=1 never=2", value);
    case HAK_PRESET: return is_preset(text, value);
    case HAK_HARDEN: return is_harden(text, value);
    case HAK_PROFILE: return is_prefixed(text, "0=0 1=1 ready=2 auto=3 leaks=4", value);
    case HAK_MISUSE: return is_prefixed(text, "abort=0 report=1", value);
    case HAK_FOLDER:
        *value = *text != 0 && strcmp(text, "0") != 0;
        return strlen(text) < HAK_BLACKBOX_FOLDER_SIZE;
    case HAK_EVERY: return is_every(text, value);
    }
    return false;
}

/* --- the checks ---------------------------------------------------------------------------------------------------- */

static uint64_t words_before[HAK_OPTIONS];

static uint64_t word_of(int option) { return hak_load(&hak__option_words[option], HAK_RELAXED); }

static void remember(void)
{
    for (int i = 0; i < HAK_OPTIONS; i++)
        words_before[i] = word_of(i);
}

static void expect_unchanged(void)
{
    for (int i = 0; i < HAK_OPTIONS; i++)
        expect_eq(word_of(i), words_before[i]);
}

static void expect_word(int option, uint64_t value, enum hak_option_origin origin)
{
    expect_eq(hak__option((enum hak_option)option), value);
    expect_eq(hak__option_origin((enum hak_option)option), origin);
}

/* What is in force is always a value that could be given, and the process's own words say so. */
static void expect_in_bounds(void)
{
    size_t cursor = 0, count = 0;
    struct hak_option_info info;
    for (; hak_option_next(&cursor, &info); count++) {
        bool file = info.word != NULL && (strcmp(info.word, "json") == 0 || strcmp(info.word, "prom") == 0);
        expect(file || (info.value >= info.least && info.value <= info.most));
        expect(info.origin[0] != 0 && info.kind[0] != 0 && info.name[0] != 0 && info.takes_effect[0] != 0);
    }
    expect_eq(count, HAK_OPTIONS);
    expect(memchr(hak__stats_file, 0, sizeof hak__stats_file) != NULL);
}

/* One entry of the environment, which is not HAKMEM_CONF. */
static void check_variable(char *entry)
{
    char name[PIECE_SIZE], *entries[] = { entry, NULL };
    uint64_t value;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(entry, "="), entry);
    remember();
    hak__options_read_from(NULL, entries);
    int option = strncmp(name, "HAKMEM_", 7) == 0 && name[7] != 0 ? hak__option_find(name) : -1;
    const char *text = entry + strlen(name) + (entry[strlen(name)] == '=');
    if (option >= 0 && model_parse(&hak__option_rows[option], text, &value))
        expect_word(option, value, HAK_FROM_VARIABLE);
    else
        expect_unchanged();
}

static void check_entry(char *entry)
{
    char *entries[] = { entry, NULL };
    bool conf = strncasecmp(entry, "HAKMEM_CONF", 11) == 0 && (entry[11] == '=' || entry[11] == 0);
    conf ? hak__options_read_from(NULL, entries) : check_variable(entry);
    expect_in_bounds();
}

static void check_set(const char *name, const char *text)
{
    uint64_t value = 0, now = 0;
    int option = hak__option_find(name), code;
    remember();
    code = hak_option_set(name, text);
    expect_eq(hak_option_get(name, &now), option < 0 ? ENOENT : 0);
    expect_eq(hak_option_origin(name) == NULL, option < 0);
    if (option < 0)
        expect_eq(code, ENOENT);
    else if (!model_parse(&hak__option_rows[option], text, &value))
        expect_eq(code, EINVAL);
    else
        expect_eq(code, hak__option_rows[option].when == HAK_AT_START ? EPERM : 0);
    if (code != 0)
        expect_unchanged();
    else
        expect_word(option, value, HAK_FROM_API);
    expect_in_bounds();
}

/* Whole lines in ASCII, few of them. */
static void expect_lines(int file)
{
    static char said[1 << 16];
    unsigned lines = 0;
    ssize_t length = pread(file, said, sizeof said - 1, 0);
    expect(length >= 0 && (size_t)length < sizeof said - 1);
    for (char *line = said; line < said + length; lines++) {
        char *end = memchr(line, '\n', (size_t)(said + length - line));
        expect(end != NULL && strncmp(line, "hakmem: ", 8) == 0);
        for (; line < end; line++)
            expect(*line >= ' ' && *line <= '~');
        line = end + 1;
    }
    expect_op(lines, <=, LINES_MOST);
}

void fuzz_one(struct fuzz_input *in)
{
    int file = memfd_create("said", MFD_CLOEXEC), stderr_kept = dup(STDERR_FILENO);
    read_pieces(in);
    fcntl(file, F_SETFL, O_APPEND);   /* as a log (diag/report.h) */
    expect(file >= 0 && stderr_kept >= 0 && dup2(file, STDERR_FILENO) >= 0);
    hak__options_read_from(pieces[0], NULL);
    expect_in_bounds();
    for (unsigned i = 1; i <= ENTRIES; i++)
        check_entry(pieces[i]);
    for (unsigned i = 1 + ENTRIES; i + 1 < PIECES && i < piece_count; i += 2)
        check_set(pieces[i], pieces[i + 1]);
    dup2(stderr_kept, STDERR_FILENO);
    expect_lines(file);
}
