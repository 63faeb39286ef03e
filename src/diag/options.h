/* Options: typed values with bounds, read once at start from the symbol hak_conf and the environment, settable by name. Precedence:
 * API, variable, HAKMEM_CONF, symbol, then what no user has set: preset, system, default. Under AT_SECURE the environment is
 * ignored. A bad value or an unknown key costs one warning and changes nothing. A value and its origin are one atomic word, so that
 * they change together; slow paths read it relaxed. */
#pragma once

#include "base/assert.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "base/limits.h"

/* The ring capacities can be fixed at build time under the names of their options. */
#if !defined(HAK_L2_RING_CAP)
#define HAK_L2_RING_CAP 48
#endif
#if !defined(HAK_L25_RING_CAP)
#define HAK_L25_RING_CAP 16
#endif

/* The members of three enums and their names for people, in order. */
#define HAK_OPTION_KINDS(X) \
    X(COUNT, "count") X(BYTES, "bytes") X(TIME, "time") X(PERCENT, "percent") X(FLAG, "flag") X(STATS, "stats") X(PRESET, "preset") \
    X(BACKGROUND, "background") X(THP, "thp") X(HARDEN, "harden") X(PROFILE, "profile") X(EVERY, "every") X(MISUSE, "misuse") \
    X(FOLDER, "folder")
#define HAK_OPTION_WHENS(X) X(AT_START, "at start") X(NEW_THREADS, "new threads") X(AT_ONCE, "at once")
#define HAK_OPTION_ORIGINS(X)   /* later ones win; SYSTEM: what the system allows the process (arena/limit.c) */ \
    X(FROM_DEFAULT, "default") X(FROM_SYSTEM, "system") X(FROM_PRESET, "preset") X(FROM_SYMBOL, "symbol") X(FROM_CONF, "conf") \
    X(FROM_VARIABLE, "variable") X(FROM_API, "api")

#define X(member, name) HAK_##member,
enum hak_option_kind { HAK_OPTION_KINDS(X) };
enum hak_option_when { HAK_OPTION_WHENS(X) };
enum hak_option_origin { HAK_OPTION_ORIGINS(X) };
#undef X

enum { HAK_STATS_OFF, HAK_STATS_ON, HAK_STATS_EXACT, HAK_STATS_JSON, HAK_STATS_PROM, HAK_STATS_TEXT };
enum { HAK_STATS_FILE_SIZE = 256, HAK_PROFILE_PREFIX_SIZE = 192, HAK_BLACKBOX_FOLDER_SIZE = 192 };
enum hak_misuse_mode { HAK_MISUSE_ABORTS, HAK_MISUSE_REPORTS };
enum hak_profiling { HAK_PROFILING_OFF, HAK_PROFILING_ON, HAK_PROFILING_READY, HAK_PROFILING_AUTO, HAK_PROFILING_LEAKS };
enum { HAK_OPTION_AUTO = 2 }; /* of BACKGROUND: beside 0 and 1 */

/* A value of an EVERY option: a time in ms, at most a day, or HAK_EVERY_BYTES plus bytes of growth; 0 means never. */
#define HAK_EVERY_BYTES (1ull << 55)
#define HAK_EVERY_MS_MOST 86400000

hak_inline uint64_t hak__every_bytes(uint64_t value) { return (value & HAK_EVERY_BYTES) != 0 ? value - HAK_EVERY_BYTES : 0; }
hak_inline uint64_t hak__every_ms(uint64_t value) { return (value & HAK_EVERY_BYTES) != 0 ? 0 : value; }

/* The parts of hardened mode. The option's value is 0, HAK_HARDEN_ALL, or the bits of some of the parts. */
#define HAK_HARDEN_PARTS(X) X(canary) X(zero) X(random) X(guards) X(regions) X(zero_size)
enum {
    HAK_HARDEN_PLACE_OF_ALL,
#define X(name) HAK_HARDEN_PLACE_##name,
    HAK_HARDEN_PARTS(X)
#undef X
        HAK_HARDEN_PLACES,
#define X(name) HAK_HARDEN_##name = 1 << HAK_HARDEN_PLACE_##name,
    HAK_HARDEN_PARTS(X)
#undef X
        HAK_HARDEN_ALL = 1 << HAK_HARDEN_PLACE_OF_ALL,
    HAK_HARDEN_EVERY_PART = (1 << HAK_HARDEN_PLACES) - 1 - HAK_HARDEN_ALL
};

enum hak_thp { HAK_THP_AUTO, HAK_THP_ALWAYS, HAK_THP_NEVER };

enum hak_preset {
    HAK_PRESET_adaptive,
#define X(name, ...) HAK_PRESET_##name,
#include "diag/presets.def"
#undef X
    HAK_PRESETS
};

/* HAK_FAMILY in options.def expands to a row X for each member. */
#define HAK_FAMILY(front, members, back, values, ...) HAK_FAMILY_OF(members, front, back, HAK_UNWRAP values, __VA_ARGS__)
#define HAK_FAMILY_OF(members, ...) members(__VA_ARGS__)
#define HAK_UNWRAP(...) __VA_ARGS__
#define HAK_0_TO_7(front, back, v0, v1, v2, v3, v4, v5, v6, v7, kind, ...) \
    X(front##0##back, kind, v0, __VA_ARGS__) X(front##1##back, kind, v1, __VA_ARGS__) \
    X(front##2##back, kind, v2, __VA_ARGS__) X(front##3##back, kind, v3, __VA_ARGS__) \
    X(front##4##back, kind, v4, __VA_ARGS__) X(front##5##back, kind, v5, __VA_ARGS__) \
    X(front##6##back, kind, v6, __VA_ARGS__) X(front##7##back, kind, v7, __VA_ARGS__)
#define HAK_2_TO_6(front, back, v2, v3, v4, v5, v6, kind, ...) \
    X(front##2##back, kind, v2, __VA_ARGS__) X(front##3##back, kind, v3, __VA_ARGS__) \
    X(front##4##back, kind, v4, __VA_ARGS__) X(front##5##back, kind, v5, __VA_ARGS__) \
    X(front##6##back, kind, v6, __VA_ARGS__)

enum hak_option {
#define X(name, kind, value, least, most, when, group, help) HAK_OPTION_##name,
#include "diag/options.def"
#undef X
    HAK_OPTIONS
};

struct hak_option_row {
    uint64_t value, least, most; /* the default and its bounds */
    uint16_t name, help; /* their offsets in hak__option_text */
    uint8_t kind, when; /* enum hak_option_kind, enum hak_option_when */
};

/* All names and helps in one text. The loader would have to write pointers to them, so these would cost every process memory. */
struct hak_option_text {
#define X(name, kind, value, least, most, when, group, help) char name##_name[sizeof #name], name##_help[sizeof(help)];
#include "diag/options.def"
#undef X
};
extern const struct hak_option_text hak__option_text;

extern const struct hak_option_row hak__option_rows[HAK_OPTIONS];
extern _Atomic uint64_t hak__option_words[HAK_OPTIONS]; /* origin << HAK_ORIGIN_SHIFT | value */

#define HAK_ORIGIN_SHIFT 56
#define HAK_VALUE_MASK ((1ull << HAK_ORIGIN_SHIFT) - 1)

hak_inline const char *hak__option_name(int option)
{
    hak_assert(option >= 0 && option < HAK_OPTIONS, "the list has such an option");
    return (const char *)&hak__option_text + hak__option_rows[option].name;
}
hak_inline const char *hak__option_help(int option)
{
    hak_assert(option >= 0 && option < HAK_OPTIONS, "the list has such an option");
    return (const char *)&hak__option_text + hak__option_rows[option].help;
}

/* The bits of the parts of hardened mode that are on. */
hak_inline unsigned hak__option_harden_parts(uint64_t value)
{
    return value == HAK_HARDEN_ALL ? HAK_HARDEN_EVERY_PART : (unsigned)value;
}

/* The file of HAKMEM_STATS=json:FILE, prom:FILE and text:FILE. */
extern char hak__stats_file[HAK_STATS_FILE_SIZE];

/* The prefix of the names of profiles, and the file of reports of misuse, if HAKMEM_PROFILE and HAKMEM_MISUSE give one. */
extern char hak__profile_prefix[HAK_PROFILE_PREFIX_SIZE], hak__misuse_file[HAK_PROFILE_PREFIX_SIZE];

/* The folder of HAKMEM_BLACKBOX. */
extern char hak__blackbox_folder[HAK_BLACKBOX_FOLDER_SIZE];

hak_inline uint64_t hak__option(enum hak_option option)
{
    hak_assert(option < HAK_OPTIONS, "the list has such an option");
    return hak_load(&hak__option_words[option], HAK_RELAXED) & HAK_VALUE_MASK;
}

/* With HAKMEM_LAYOUT_SEED a number below `bound` that depends on the seed and on `what` is placed; else 0. */
hak_inline uint64_t hak__layout_choice(uint64_t what, uint64_t bound)
{
    hak_assert(bound != 0, "there is a choice");
    uint64_t seed = hak__option(HAK_OPTION_layout_seed);
    return hak_likely(seed == 0) ? 0 : hak_mix64(seed * 0x9e3779b97f4a7c15ull ^ what) % bound;
}
hak_inline enum hak_option_origin hak__option_origin(enum hak_option option)
{
    return (enum hak_option_origin)(hak_load(&hak__option_words[option], HAK_RELAXED) >> HAK_ORIGIN_SHIFT);
}

/* Reads the symbol hak_conf and, unless the program is privileged, HAKMEM_* from the environment. False if there is no environment
 * yet (before the C library has started); the caller then repeats the call later. */
hak_noinline bool hak__options_read(void);

/* The same from a given text and environment; either may be NULL. */
hak_noinline void hak__options_read_from(const char *symbol, char **environment);

/* Sets a default that fits the system, within the option's bounds, unless the option has been set. */
hak_cold void hak__option_suggest(enum hak_option option, uint64_t value);

/* Sets an option by its name, as in the environment or in HAKMEM_CONF. 0, ENOENT (unknown name), EINVAL (not a value of the
 * option's kind, or out of bounds), EPERM (it takes effect only at start). */
hak_cold int hak__option_set(const char *name, const char *value);
hak_cold void hak__option_put(enum hak_option option, uint64_t value); /* within its bounds, as by the API */
hak_cold int hak__option_get(const char *name, uint64_t *value);
int hak__option_find(const char *name); /* -1: unknown */

/* Texts for people: the name of a value in force if it has one ("exact", "hot_512", "canary+zero"; else NULL), of an origin, of a
 * row's kind, and of when it takes effect. */
hak_cold const char *hak__option_word(enum hak_option option, uint64_t value);
hak_cold const char *hak__option_origin_name(enum hak_option_origin origin);
hak_cold const char *hak__option_kind_name(enum hak_option_kind kind);
hak_cold const char *hak__option_when_name(enum hak_option_when when);
