/* diag/options.h: every row's default and bounds, every kind's spelling, overflow, precedence of the sources, what a
 * bad value or an unknown key says, and the codes of set and get. Each case runs in a process of its own, because the
 * values are the process's. */
#include "diag/options.h"

#include "support/check.h"

static uint64_t value_of(const char *name)
{
    uint64_t value = 0;
    expect_eq(hak__option_get(name, &value), 0);
    return value;
}

/* --- by name ----------------------------------------------------------------------------------------------------- */

FRESH_TEST(defaults_lie_in_their_bounds)
{
    (void)argument;
    for (int i = 0; i < HAK_OPTIONS; i++) {
        const struct hak_option_row *row = &hak__option_rows[i];
        expect_op(row->value, >=, row->least);
        expect_op(row->value, <=, row->most);
        expect_eq(value_of(hak__option_name(i)), row->value);
        expect_eq(hak__option((enum hak_option)i), row->value);
        expect_eq(hak__option_origin((enum hak_option)i), HAK_FROM_DEFAULT);
        expect(hak__option_help(i)[0] != 0);
    }
}

static bool takes_numbers(int option) { return hak__option_rows[option].kind < HAK_PRESET; }

static int set_number(const char *name, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return hak__option_set(name, text);
}

FRESH_TEST(bounds)
{
    (void)argument;
    for (int i = 0; i < HAK_OPTIONS; i++) {
        const struct hak_option_row *row = &hak__option_rows[i];
        if (!takes_numbers(i))   /* times_or_bytes has those of EVERY */
            continue;
        int ok = row->when == HAK_AT_START ? EPERM : 0;
        expect_eq(set_number(hak__option_name(i), row->least), ok);
        expect_eq(value_of(hak__option_name(i)), ok == 0 ? row->least : row->value);
        expect_eq(set_number(hak__option_name(i), row->most), ok);
        expect_eq(value_of(hak__option_name(i)), ok == 0 ? row->most : row->value);
        expect_eq(set_number(hak__option_name(i), row->most + 1), EINVAL);
        expect(row->least == 0 || set_number(hak__option_name(i), row->least - 1) == EINVAL);
        expect_eq(value_of(hak__option_name(i)), ok == 0 ? row->most : row->value);
        expect_eq(hak__option_origin((enum hak_option)i), ok == 0 ? HAK_FROM_API : HAK_FROM_DEFAULT);
    }
}

static void expect_taken(const char *name, const char *text, uint64_t value)
{
    expect_eq(hak__option_set(name, text), 0);
    expect_eq(value_of(name), value);
}

FRESH_TEST(units)
{
    (void)argument;
    expect_taken("dirty_limit", "5", 5);
    expect_taken("dirty_limit", "5k", 5 << 10);
    expect_taken("dirty_limit", "5K", 5 << 10);
    expect_taken("dirty_limit", "5m", 5 << 20);
    expect_taken("dirty_limit", "5MiB", 5 << 20);
    expect_taken("dirty_limit", "5G", 5ull << 30);
    expect_taken("dirty_limit", "7kib", 7 << 10);
    expect_taken("purge_delay", "250", 250);
    expect_taken("purge_delay", "250ms", 250);
    expect_taken("purge_delay", "3s", 3000);
    expect_taken("refill_count", "007", 7);
    expect_taken("HAKMEM_REFILL_COUNT", "9", 9);
    expect_eq(value_of("refill_count"), 9);
    expect_eq(value_of("HAKMEM_REFILL_COUNT"), 9);
    expect_eq(value_of("Refill_Count"), 9);
}

/* A time, or bytes of growth, each within bounds of its own. */
FRESH_TEST(times_or_bytes)
{
    (void)argument;
    expect_taken("profile_every", "5", 5);
    expect_taken("profile_every", "500ms", 500);
    expect_taken("profile_every", "60S", 60000);
    expect_eq(hak__every_ms(value_of("profile_every")), 60000);
    expect_eq(hak__every_bytes(value_of("profile_every")), 0);
    expect_taken("profile_every", "64M", HAK_EVERY_BYTES + (64 << 20));
    expect_eq(hak__every_bytes(value_of("profile_every")), 64 << 20);
    expect_eq(hak__every_ms(value_of("profile_every")), 0);
    expect_eq(hak__option_origin(HAK_OPTION_profile_every), HAK_FROM_API);
    expect_taken("profile_every", "4KiB", HAK_EVERY_BYTES + (4 << 10));
    expect_taken("profile_every", "1g", HAK_EVERY_BYTES + (1 << 30));
    expect_taken("profile_every", "0K", 0);
    expect_taken("profile_every", "86400s", 86400000);
    expect_taken("profile_every", "65536G", HAK_EVERY_BYTES + (1ull << 46));
    expect_eq(value_of("profile_every"), hak__option_rows[HAK_OPTION_profile_every].most);
    expect_taken("profile_every", "0", 0);
}

/* Nothing that is not wholly a value of the kind is taken for one. */
FRESH_TEST(bad_values)
{
    static const struct {
        const char *name, *text;
    } bad[] = {
        { "refill_count", "" },         { "refill_count", " 5" },      { "refill_count", "5 " },
        { "refill_count", "-1" },       { "refill_count", "+5" },      { "refill_count", "5k" },
        { "refill_count", "on" },       { "refill_count", "0x10" },    { "refill_count", "257" },
        { "dirty_limit", "k" },         { "dirty_limit", "5kk" },      { "dirty_limit", "5s" },
        { "dirty_limit", "5.5k" },      { "purge_delay", "5k" },       { "purge_delay", "s" },
        { "purge_delay", "3601s" },     { "tiny_unified_cache", "2" }, { "tiny_unified_cache", "exact" },
        { "stats", "always" },          { "stats", "3" },
        { "stats", "json:" },           { "stats", "xml:file" },       { "stats", "json" },
        { "dirty_limit", "18446744073709551616" },                     /* 2^64 */
        { "dirty_limit", "99999999999999999999999999" },
        { "dirty_limit", "18014398509481984k" },                       /* 2^54 * 2^10 */
        { "purge_delay", "18446744073709552s" },                       /* times 1000 wraps to a small number */
        { "profile_every", "" },        { "profile_every", "M" },      { "profile_every", "ms" },
        { "profile_every", "1h" },      { "profile_every", "1Kms" },   { "profile_every", "-1M" },
        { "profile_every", "86401s" },  { "profile_every", "86400001" },
        { "profile_every", "65537G" },  { "profile_every", "68719476737K" },
        { "profile_every", "36028797018963969" },                      /* 2^55 + 1: the bit alone does not make it bytes */
        { "profile_every", "35184372088833K" },                        /* 2^55 + 2^10 bytes */
        { "profile_every", "17592186044416M" },                        /* 2^64 */
    };
    (void)argument;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint64_t before = value_of(bad[i].name);
        expect_eq(hak__option_set(bad[i].name, bad[i].text), EINVAL);
        expect_eq(value_of(bad[i].name), before);
    }
}

FRESH_TEST(words)
{
    (void)argument;
    setenv("HAKMEM_TINY_UNIFIED_CACHE", "Off", 1);
    setenv("HAKMEM_STATS", "EXACT", 1);
    expect(hak__options_read());
    expect_eq(hak__option(HAK_OPTION_tiny_unified_cache), 0);
    expect_eq(hak__option(HAK_OPTION_stats), HAK_STATS_EXACT);
}

static void expect_stats(uint64_t mode, const char *file)
{
    expect(hak__options_read());
    expect_eq(hak__option(HAK_OPTION_stats), mode);
    expect_eq(strcmp(hak__stats_file, file), 0);
}

FRESH_TEST(stats_file)
{
    char value[HAK_STATS_FILE_SIZE + 8];
    (void)argument;
    setenv("HAKMEM_CONF", "stats:prom:conf:%p,refill_count:9", 1);   /* the value's own colons stay */
    expect_stats(HAK_STATS_PROM, "conf:%p");
    expect_eq(hak__option(HAK_OPTION_refill_count), 9);
    setenv("HAKMEM_STATS", "JSON:variable", 1);
    expect_stats(HAK_STATS_JSON, "variable");
    setenv("HAKMEM_STATS", "text:log", 1);
    expect_stats(HAK_STATS_TEXT, "log");
    memset(value, 'x', sizeof value);
    memcpy(value, "json:", 5);
    value[5 + HAK_STATS_FILE_SIZE - 1] = 0;
    setenv("HAKMEM_STATS", value, 1);
    expect_stats(HAK_STATS_JSON, value + 5);
}

static void read_long_name(void *argument)
{
    static char value[HAK_STATS_FILE_SIZE + 8];
    (void)argument;
    memset(value, 'x', sizeof value - 1);
    memcpy(value, "json:", 5);
    value[5 + HAK_STATS_FILE_SIZE] = 0;
    setenv("HAKMEM_STATS", value, 1);
    hak__options_read();
    expect_eq(hak__option(HAK_OPTION_stats), HAK_STATS_OFF);
    expect_eq(hak__stats_file[0], 0);
}

static void a_file_name_without_room(void **state)
{
    char said[SAID_SIZE];
    (void)state;
    expect_eq(run_child(read_long_name, NULL, said), 0);
    expect(strstr(said, "hakmem: option stats: 'json:xxx") == said);
}

FRESH_TEST(codes)
{
    uint64_t value = 42;
    (void)argument;
    expect_eq(hak__option_set("no_such_option", "1"), ENOENT);
    expect_eq(hak__option_set("", "1"), ENOENT);
    expect_eq(hak__option_set("HAKMEM_", "1"), ENOENT);
    expect_eq(hak__option_set("refill_coun", "1"), ENOENT);
    expect_eq(hak__option_set("refill_countt", "1"), ENOENT);
    expect_eq(hak__option_set("stats", "1"), EPERM);
    expect_eq(hak__option_set("stats", "nonsense"), EINVAL);
    expect_eq(hak__option_get("no_such_option", &value), ENOENT);
    expect_eq(value, 42);
}

/* --- the environment ----------------------------------------------------------------------------------------------- */

FRESH_TEST(precedence)
{
    (void)argument;
    setenv("HAKMEM_REFILL_COUNT", "11", 1);
    setenv("HAKMEM_CONF", "refill_count:12,purge_delay:2s,tiny_unified_c3:100", 1);
    expect_eq(hak__option_set("tiny_unified_c3", "200"), 0);
    expect(hak__options_read());
    expect_eq(hak__option(HAK_OPTION_refill_count), 11);
    expect_eq(hak__option_origin(HAK_OPTION_refill_count), HAK_FROM_VARIABLE);
    expect_eq(hak__option(HAK_OPTION_purge_delay), 2000);
    expect_eq(hak__option_origin(HAK_OPTION_purge_delay), HAK_FROM_CONF);
    expect_eq(hak__option(HAK_OPTION_tiny_unified_c3), 200);
    expect_eq(hak__option_origin(HAK_OPTION_tiny_unified_c3), HAK_FROM_API);
}

/* The same with the variables in the other order: the source decides, not the place in the environment. */
FRESH_TEST(precedence_in_any_order)
{
    (void)argument;
    setenv("HAKMEM_CONF", "refill_count:12", 1);
    setenv("HAKMEM_REFILL_COUNT", "11", 1);
    expect(hak__options_read());
    expect_eq(hak__option(HAK_OPTION_refill_count), 11);
}

/* The symbol's text is the weakest of what a person says, and all that a privileged program has. */
FRESH_TEST(symbol)
{
    static char conf[] = "HAKMEM_CONF=purge_delay:3s", *environment[] = { conf, NULL };
    (void)argument;
    hak__options_read_from("refill_count:7,purge_delay:4s", NULL);
    expect_eq(hak__option(HAK_OPTION_refill_count), 7);
    expect_eq(hak__option_origin(HAK_OPTION_refill_count), HAK_FROM_SYMBOL);
    hak__options_read_from(NULL, environment);
    expect_eq(hak__option(HAK_OPTION_purge_delay), 3000);
    hak__options_read_from("purge_delay:4s", NULL);
    expect_eq(hak__option(HAK_OPTION_purge_delay), 3000);
    expect_eq(hak__option_origin(HAK_OPTION_purge_delay), HAK_FROM_CONF);
}

/* As a shell or a unit file leaves it, to take an option back. */
FRESH_TEST(an_empty_variable_is_not_set)
{
    static char count[] = "HAKMEM_REFILL_COUNT=", folder[] = "HAKMEM_BLACKBOX=", *environment[] = { count, folder, NULL };
    (void)argument;
    hak__options_read_from("refill_count:7,blackbox:/x", environment);
    expect_eq(hak__option(HAK_OPTION_refill_count), 7);
    expect_eq(hak__option_origin(HAK_OPTION_refill_count), HAK_FROM_SYMBOL);
    expect_eq(hak__option(HAK_OPTION_blackbox), 1);
}

FRESH_TEST(suggestions_yield)
{
    (void)argument;
    hak__option_suggest(HAK_OPTION_dirty_limit, 1000);
    expect_eq(hak__option(HAK_OPTION_dirty_limit), 1000);
    expect_eq(hak__option_origin(HAK_OPTION_dirty_limit), HAK_FROM_SYSTEM);
    expect_eq(hak__option_set("dirty_limit", "5"), 0);
    hak__option_suggest(HAK_OPTION_dirty_limit, 1000);
    expect_eq(hak__option(HAK_OPTION_dirty_limit), 5);
    hak__option_suggest(HAK_OPTION_process_budget, UINT64_MAX);
    expect_eq(hak__option(HAK_OPTION_process_budget), hak__option_rows[HAK_OPTION_process_budget].most);
}

/* --- hardened mode's parts ---------------------------------------------------------------------------------------- */

static void expect_parts(const char *text, unsigned parts, const char *word)
{
    char variable[160], *environment[] = { variable, NULL };
    snprintf(variable, sizeof variable, "HAKMEM_HARDEN=%s", text);
    hak__options_read_from(NULL, environment);
    uint64_t value = hak__option(HAK_OPTION_harden);
    expect_eq(hak__option_harden_parts(value), parts);
    expect_eq(strcmp(hak__option_word(HAK_OPTION_harden, value), word), 0);
}

FRESH_TEST(lists_of_parts)
{
    (void)argument;
    expect_eq(hak__option_rows[HAK_OPTION_harden].most, HAK_HARDEN_EVERY_PART);
    expect_parts("1", HAK_HARDEN_EVERY_PART, "1");
    expect_parts("canary", HAK_HARDEN_canary, "canary");
    expect_parts("No", 0, "0");
    expect_parts("zero_size,canary", HAK_HARDEN_zero_size | HAK_HARDEN_canary, "canary+zero_size");
    expect_parts("zero+ZERO,zero", HAK_HARDEN_zero, "zero");
    expect_parts("guards+random,regions", HAK_HARDEN_guards | HAK_HARDEN_random | HAK_HARDEN_regions, "random+guards+regions");
    expect_parts("on", HAK_HARDEN_EVERY_PART, "1");
    expect_parts("canary,zero,random,guards,regions", HAK_HARDEN_EVERY_PART - HAK_HARDEN_zero_size,
                 "canary+zero+random+guards+regions");
    expect_parts("canary+zero+random+guards+regions+zero_size", HAK_HARDEN_EVERY_PART, "1");
    expect_eq(hak__option(HAK_OPTION_harden), HAK_HARDEN_ALL);
    expect_eq(hak__option_set("harden", "canary"), EPERM);
    expect_eq(hak__option_set("harden", "canary,"), EINVAL);
    expect_eq(hak__option_set("harden", "2"), EINVAL);
}

/* In HAKMEM_CONF a comma ends the value, a plus sign does not. */
FRESH_TEST(parts_in_conf)
{
    (void)argument;
    hak__options_read_from("harden:canary+zero,refill_count:7", NULL);
    expect_eq(hak__option(HAK_OPTION_harden), HAK_HARDEN_canary | HAK_HARDEN_zero);
    expect_eq(hak__option(HAK_OPTION_refill_count), 7);
}

/* --- presets ------------------------------------------------------------------------------------------------------ */

enum { BAND_COUNT = 8 };

static void expect_bands(const uint64_t *wanted, enum hak_option_origin origin)
{
    for (int band = 0; band < BAND_COUNT; band++) {
        enum hak_option option = (enum hak_option)(HAK_OPTION_tiny_unified_c0 + band);
        expect_eq(hak__option(option), wanted[band]);
        expect_eq(hak__option_origin(option), origin);
    }
}

/* Written down here once more on purpose; those of adaptive are the ones that record 0035 measured. */
FRESH_TEST(presets)
{
    static const struct {
        const char *name;
        uint64_t bands[BAND_COUNT];
        enum hak_option_origin origin;
    } all[] = {
        { "hot_2048", { 64, 64, 2048, 2048, 64, 64, 64, 64 }, HAK_FROM_PRESET },
        { "hot_512", { 128, 128, 512, 512, 128, 128, 128, 128 }, HAK_FROM_PRESET },
        { "graduated", { 64, 64, 512, 512, 256, 256, 128, 128 }, HAK_FROM_PRESET },
        { "all_128", { 128, 128, 128, 128, 128, 128, 128, 128 }, HAK_FROM_PRESET },
        { "adaptive", { 4096, 4096, 4096, 4096, 2048, 2048, 512, 256 }, HAK_FROM_DEFAULT },
    };
    (void)argument;
    expect_bands(all[4].bands, HAK_FROM_DEFAULT);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        expect_eq(hak__option_set("preset", all[i].name), 0);
        expect_eq(strcmp(hak__option_word(HAK_OPTION_preset, value_of("preset")), all[i].name), 0);
        expect_bands(all[i].bands, all[i].origin);
    }
    expect_eq(hak__option_set("preset", "2"), EINVAL);
    expect_eq(hak__option_set("preset", ""), EINVAL);
}

/* From whatever source, before the preset or after it. */
FRESH_TEST(bands_win_over_presets)
{
    (void)argument;
    setenv("HAKMEM_TINY_UNIFIED_C3", "99", 1);
    setenv("HAKMEM_PRESET", "Hot_512", 1);
    setenv("HAKMEM_TINY_UNIFIED_C5", "77", 1);
    expect(hak__options_read());
    hak__options_read_from("tiny_unified_c2:55", NULL);
    expect_eq(hak__option(HAK_OPTION_tiny_unified_c2), 55);
    expect_eq(hak__option(HAK_OPTION_tiny_unified_c3), 99);
    expect_eq(hak__option(HAK_OPTION_tiny_unified_c4), 128);
    expect_eq(hak__option(HAK_OPTION_tiny_unified_c5), 77);
    expect_eq(hak__option_set("preset", "adaptive"), 0);
    expect_eq(hak__option(HAK_OPTION_tiny_unified_c3), 99);
    expect_eq(hak__option(HAK_OPTION_tiny_unified_c4), 2048);
}

/* --- what the environment can hold ---------------------------------------------------------------------------------- */

static void read_huge(void *argument)
{
    enum { LENGTH = 1 << 20 };
    char *text = malloc(LENGTH + 1);
    (void)argument;
    for (size_t i = 0; i < LENGTH; i++)
        text[i] = (char)(i % 255 + 1);
    text[LENGTH] = 0;
    hak__options_read_from(text, NULL);
    memset(text, '9', LENGTH);
    memcpy(text, "limit:", 6);
    hak__options_read_from(text, NULL);
    memset(text, ',', LENGTH);
    hak__options_read_from(text, NULL);
    expect_eq(hak__option(HAK_OPTION_limit), 0);
}

static void huge_and_binary(void **state)
{
    char said[SAID_SIZE];
    unsigned lines = 0;
    (void)state;
    expect_eq(run_child(read_huge, NULL, said), 0);
    for (const char *at = said; *at != 0; at++) {
        lines += *at == '\n';
        expect(*at == '\n' || (*at >= ' ' && *at <= '~'));
    }
    expect_op(lines, <=, 16);
}

static void *set_presets(void *argument)
{
    for (int i = 0; i < 2000; i++)
        hak__option_set("preset", i % 2 == 0 ? *(const char **)argument : "adaptive");
    return NULL;
}

/* Value and origin change together. */
FRESH_TEST(many_threads)
{
    const char *names[] = { "hot_512", "all_128", "hot_2048", "graduated" };
    (void)argument;
    run_threads(4, set_presets, names, sizeof *names);
    expect_eq(hak__option_set("preset", "all_128"), 0);
    expect_eq(hak__option(HAK_OPTION_tiny_unified_c3), 128);
}

FRESH_TEST(others_variables_are_left_alone)
{
    (void)argument;
    setenv("HAKMEMX", "1", 1);
    setenv("hakmem_refill_count", "5", 1);
    setenv("REFILL_COUNT", "5", 1);
    expect(hak__options_read());
    expect_eq(hak__option(HAK_OPTION_refill_count), 32);
}

FRESH_TEST(no_environment_yet)
{
    (void)argument;
    environ = NULL;
    expect(!hak__options_read());
}

static void read_with(void *argument)
{
    const char *const *pair = argument;
    setenv(pair[0], pair[1], 1);
    hak__options_read();
    expect_eq(hak__option(HAK_OPTION_refill_count), 32);
}

static void expect_warning(const char *name, const char *value, const char *text)
{
    const char *pair[] = { name, value };
    expect_said(read_with, pair, text);
}

/* The line about a bad value of an option, whose default it names. */
static void expect_kept(const char *variable, const char *value, enum hak_option option, const char *what)
{
    char line[300];
    snprintf(line, sizeof line, "hakmem: option %s: '%s' is not %s; %llu is kept\n", hak__option_name((int)option), value,
             what, (unsigned long long)hak__option_rows[option].value);
    expect_warning(variable, value, line);
}

/* What is in force is said in the form in which it was given. */
static void expect_every_kept(const char *given, const char *kept)
{
    char conf[64], line[300];
    snprintf(conf, sizeof conf, "profile_every:%s,profile_every:100h", given);
    snprintf(line, sizeof line, "hakmem: option profile_every: '100h' is not a time in ms (or with s) up to 86400s, nor bytes of growth"
             " (with K, M, G) up to 65536G; %s is kept\n", kept);
    expect_warning("HAKMEM_CONF", conf, line);
}

static void warnings(void **state)
{
    (void)state;
    expect_warning("HAKMEM_REFILL_COUNT", "0",
                   "hakmem: option refill_count: '0' is not a number from 1 to 256; 32 is kept\n");
    expect_warning("HAKMEM_REFILL_COUNT", "many",
                   "hakmem: option refill_count: 'many' is not a number from 1 to 256; 32 is kept\n");
    expect_kept("HAKMEM_THREAD_BUDGET", "2T", HAK_OPTION_thread_budget,
                "a size in bytes (or with K, M, G) from 0 to 1073741824");
    expect_kept("HAKMEM_PURGE_DELAY", "1h", HAK_OPTION_purge_delay, "a time in ms (or with s) from 0 to 3600000");
    expect_kept("HAKMEM_TINY_UNIFIED_CACHE", "2", HAK_OPTION_tiny_unified_cache, "0 or 1, from 0 to 1");
    expect_kept("HAKMEM_STATS", "full", HAK_OPTION_stats, "exact, json/prom/text:FILE or a number from 0 to 2");
    expect_warning("HAKMEM_PROFILE_EVERY", "1h",
                   "hakmem: option profile_every: '1h' is not a time in ms (or with s) up to 86400s, nor bytes of growth (with K, M, G)"
                   " up to 65536G; 0ms is kept\n");
    expect_every_kept("64M", "64M");
    expect_every_kept("1048577K", "1048577K");
    expect_every_kept("2g", "2048M");
    expect_every_kept("1500", "1500ms");
    expect_every_kept("60s", "60000ms");
    expect_warning("HAKMEM_REFIL_COUNT", "5",
                   "hakmem: option HAKMEM_REFIL_COUNT is not known; the nearest one is refill_count\n");
}

static void warnings_about_parts(void **state)
{
    (void)state;
    expect_warning("HAKMEM_HARDEN", "canry", "hakmem: option harden: 'canry' is not known; the nearest one is canary; 0 is kept\n");
    expect_warning("HAKMEM_HARDEN", "canary,zero_sise,x",
                   "hakmem: option harden: 'zero_sise' is not known; the nearest one is zero_size; 0 is kept\n");
    expect_warning("HAKMEM_HARDEN", "tru", "hakmem: option harden: 'tru' is not known; the nearest one is true; 0 is kept\n");
    /* Beside others only the name of a part would do. */
    expect_warning("HAKMEM_HARDEN", "guards+1", "hakmem: option harden: '1' is not known; the nearest one is zero; 0 is kept\n");
    expect_warning("HAKMEM_HARDEN", "canary,", "hakmem: option harden: '' is not known; the nearest one is zero; 0 is kept\n");
    expect_warning("HAKMEM_CONF", "harden:guards+random,harden:region",
                   "hakmem: option harden: 'region' is not known; the nearest one is regions; random+guards is kept\n");
    expect_warning("HAKMEM_CONF", "harden:canary,zero",   /* the comma ends the value */
                   "hakmem: option zero is not known; the nearest one is tiers\n");
}

static void conf_warnings(void **state)
{
    (void)state;
    expect_warning("HAKMEM_CONF", "a:1,a:1,a:1,refill_count:0,refill_count:0",   /* each of them once */
                   "hakmem: option a is not known; the nearest one is thp\n"
                   "hakmem: option refill_count: '0' is not a number from 1 to 256; 32 is kept\n");
    expect_warning("HAKMEM_PRESET", "hot2048",
                   "hakmem: option preset: 'hot2048' is not known; the nearest one is hot_2048; adaptive is kept\n");
    expect_warning("HAKMEM_CONF", "refill_count:x,purge_dely:5,stats",
                   "hakmem: option refill_count: 'x' is not a number from 1 to 256; 32 is kept\n"
                   "hakmem: option purge_dely is not known; the nearest one is purge_delay\n"
                   "hakmem: option stats: '' is not exact, json/prom/text:FILE or a number from 0 to 2; 0 is kept\n");
    expect_warning("HAKMEM_CONF", "refill_count:1:2",   /* the first colon ends the key */
                   "hakmem: option refill_count: '1:2' is not a number from 1 to 256; 32 is kept\n");
    expect_warning("HAKMEM_CONF", ",,", "");
    expect_warning("HAKMEM_CONF", "", "");
    expect_warning("HAKMEM_REFILL_COUNT", "\x1b[2J\n",   /* the terminal of whoever reads this is not ours to steer */
                   "hakmem: option refill_count: '?[2J?' is not a number from 1 to 256; 32 is kept\n");
}

/* A misspelt name is one all the same. */
static void empty_variables(void **state)
{
    (void)state;
    for (int i = 0; i < HAK_OPTIONS; i++) {
        char variable[64];
        snprintf(variable, sizeof variable, "HAKMEM_%s", hak__option_name(i));
        expect_warning(variable, "", "");
    }
    expect_warning("HAKMEM_REFIL_COUNT", "", "hakmem: option HAKMEM_REFIL_COUNT is not known; the nearest one is refill_count\n");
}

/* Every option with one letter lost or changed, in both spellings, is recognised as the nearest; bands differ in one
 * letter among themselves, so any of them will do. */
static void expect_nearest(const char *key, const char *name)
{
    char said[SAID_SIZE], wanted[64];
    const char *pair[] = { key, "1" };
    snprintf(wanted, sizeof wanted, "the nearest one is %.*s", (int)strcspn(name, "01234567"), name);
    expect_eq(run_child(read_with, pair, said), 0);
    if (strstr(said, wanted) == NULL)
        fprintf(stderr, "%s\n%s", wanted, said);
    expect(strstr(said, wanted) != NULL);
}

static void nearest_name(void **state)
{
    (void)state;
    for (int i = 0; i < HAK_OPTIONS; i++) {
        const char *name = hak__option_name(i);
        char key[64] = "HAKMEM_";
        size_t length = strlen(key);
        for (; *name != 0; name++)
            key[length++] = *name >= 'a' ? (char)(*name - 'a' + 'A') : *name;
        name = hak__option_name(i);
        key[length - 1] = '_';
        expect_nearest(key, name);
        key[length - 1] = 0;
        expect_nearest(key, name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_lie_in_their_bounds), cmocka_unit_test(bounds),
        cmocka_unit_test(units),                        cmocka_unit_test(bad_values),
        cmocka_unit_test(times_or_bytes),
        cmocka_unit_test(words),                        cmocka_unit_test(codes),
        cmocka_unit_test(stats_file),                   cmocka_unit_test(a_file_name_without_room),
        cmocka_unit_test(precedence),                   cmocka_unit_test(precedence_in_any_order),
        cmocka_unit_test(others_variables_are_left_alone),
        cmocka_unit_test(symbol),                       cmocka_unit_test(an_empty_variable_is_not_set),
        cmocka_unit_test(suggestions_yield),            cmocka_unit_test(empty_variables),
        cmocka_unit_test(presets),                      cmocka_unit_test(bands_win_over_presets),
        cmocka_unit_test(huge_and_binary),              cmocka_unit_test(many_threads),
        cmocka_unit_test(no_environment_yet),           cmocka_unit_test(warnings),
        cmocka_unit_test(conf_warnings),                cmocka_unit_test(nearest_name),
        cmocka_unit_test(lists_of_parts),               cmocka_unit_test(parts_in_conf),
        cmocka_unit_test(warnings_about_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
