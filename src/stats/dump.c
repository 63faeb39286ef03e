/* The three printers, driven by tables made from diag/stats.def: a figure added there appears in all of them. */
#include "stats/stats.h"

#include <errno.h> /* program_invocation_short_name */
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bits.h"
#include "base/syscall.h"
#include "diag/options.h"
#include "diag/report.h"
#include "userheap/userheap.h"

enum figure_type { FIGURE_COUNTER, FIGURE_GAUGE };
enum figure_unit { FIGURE_NONE, FIGURE_BYTES };

/* All texts in one struct, with offsets instead of pointers: tables of pointers cost every process at start. */
static const struct texts {
#define HAK_STATS_GROUP(group, label, metric, flag) \
    char group##_[sizeof #group], group##__label[sizeof(label)], group##__metric[sizeof(metric)];
#define HAK_STATS_FIGURE(group, name, type, unit, help) \
    char group##_##name[sizeof #name], group##_##name##_help[sizeof(help)];
#define HAK_STATS_COLUMN(name, title, width, type, unit, flag, help) \
    char class_##name[sizeof #name], class_##name##_title[sizeof(title)], class_##name##_help[sizeof(help)];
#include "diag/stats.def"
} texts hak_rare_table = {
#define HAK_STATS_GROUP(group, label, metric, flag) #group, label, metric,
#define HAK_STATS_FIGURE(group, name, type, unit, help) #name, help,
#define HAK_STATS_COLUMN(name, title, width, type, unit, flag, help) #name, title, help,
#include "diag/stats.def"
};
#define TEXT(field) offsetof(struct texts, field)

static const char *text_at(uint16_t offset) { return (const char *)&texts + offset; }

struct figure {
    uint16_t name, help;
    uint8_t group, type, unit;
    uint16_t at; /* offset in struct hak_stats */
};
struct figure_group {
    uint16_t name, label, metric;
    uint64_t flag;
};
struct column {
    uint16_t name, title, help;
    uint64_t flag;
    uint8_t type, unit, width;
    uint16_t at; /* offset in struct hak_stats_class */
};

enum {
#define HAK_STATS_GROUP(group, label, metric, flag) GROUP_##group,
#include "diag/stats.def"
    GROUPS
};
static const hak_rare_table struct figure_group groups[GROUPS] = {
#define HAK_STATS_GROUP(group, label, metric, flag) { TEXT(group##_), TEXT(group##__label), TEXT(group##__metric), flag },
#include "diag/stats.def"
};
static const hak_rare_table struct figure figures[] = {
#define HAK_STATS_FIGURE(group, name, type, unit, help) \
    { TEXT(group##_##name), TEXT(group##_##name##_help), GROUP_##group, FIGURE_##type, FIGURE_##unit, \
      offsetof(struct hak_stats, group##_##name) },
#include "diag/stats.def"
};
static const hak_rare_table struct column columns[] = {
#define HAK_STATS_COLUMN(name, title, width, type, unit, flag, help) \
    { TEXT(class_##name), TEXT(class_##name##_title), TEXT(class_##name##_help), flag, FIGURE_##type, FIGURE_##unit, \
      width, offsetof(struct hak_stats_class, name) },
#include "diag/stats.def"
};

enum { FIGURES = sizeof figures / sizeof *figures, COLUMNS = sizeof columns / sizeof *columns };
_Static_assert(sizeof(struct texts) <= UINT16_MAX, "offsets of texts have 16 bits");
_Static_assert(offsetof(struct hak_stats, reserved) - offsetof(struct hak_stats, remote_frees)
               == FIGURES * sizeof(uint64_t), "every field of the header stands in stats.def");
_Static_assert(offsetof(struct hak_stats_class, reserved) == COLUMNS * sizeof(uint64_t),
               "every field of a class stands in stats.def");

static uint64_t figure_of(const struct hak_stats *stats, const struct figure *figure)
{
    return *(const uint64_t *)((const char *)stats + figure->at);
}

static uint64_t column_of(const struct hak_stats_class *class, const struct column *column)
{
    return *(const uint64_t *)((const char *)class + column->at);
}

static bool dump_has(const struct hak_stats *stats, uint64_t flag) { return (stats->flags & flag) == flag; }

/* --- rows of user heaps --------------------------------------------------------------------------------------------
 *
 * A heap whose lock is held (a signal handler may print the statistics) shows only its account. Names come from the program, and
 * are escaped as the format requires. */

enum { ROWS_MOST = 1000, ESCAPED = 2 * HAK_OWN_NAME + 1 };

static const struct own_column {
    char name[16], kind[8];
    size_t at;
    char help[56];
} own_columns[] = {
#define GAUGE "gauge"
#define COUNTER "counter"
#define HAK_STATS_HEAP(name, type, help) { #name, type, offsetof(struct hak_heap_figures, name), help },
#include "diag/stats.def"
#undef GAUGE
#undef COUNTER
};
enum { OWN_COLUMN_COUNT = sizeof own_columns / sizeof *own_columns };

static uint64_t own_figure(const struct hak_heap_figures *stats, const struct own_column *column)
{
    return *(const uint64_t *)((const char *)stats + column->at);
}

/* Whether these bytes, as hak__utf8_length has them, are a character that does not steer a terminal. */
static bool is_printable(const char *text, unsigned length)
{
    unsigned char first = (unsigned char)text[0];
    bool control = first < 0x20 || first == 0x7f || (first == 0xc2 && (unsigned char)text[1] < 0xa0);
    return length != 0 && !control;
}

/* Keeps UTF-8, with a backslash before a quote or a backslash; anything else becomes a question mark, which no format has to escape. */
static const char *own_name(const struct hak_heap_figures *stats, char escaped[ESCAPED])
{
    char name[HAK_OWN_NAME], *to = escaped; /* a copy, as the program may change it meanwhile */
    hak__format(name, sizeof name, "%s", stats->name);
    for (const char *from = name; *from != 0;) {
        unsigned length = hak__utf8_length(from);
        if (*from == '"' || *from == '\\')
            *to++ = '\\';
        if (is_printable(from, length))
            memcpy(to, from, length), to += length;
        else
            *to++ = '?';
        from += length == 0 ? 1 : length;
    }
    *to = 0;
    return escaped;
}

typedef void own_row(struct hak_emitter *out, const struct hak_heap_figures *stats, const char *name,
                     const struct own_column *column, bool first);

/* Calls for the first ROWS_MOST heaps; those in regions come last. */
static void own_rows(struct hak_emitter *out, own_row *row, const struct own_column *column)
{
    struct hak_heap_figures stats;
    char escaped[ESCAPED];
    unsigned left = ROWS_MOST;
    for (struct hak_uheap *own = hak__uheap_next(NULL); own != NULL && left > 0; own = hak__uheap_next(own), left--) {
        hak__uheap_figures(own, &stats, false);
        row(out, &stats, own_name(&stats, escaped), column, left == ROWS_MOST);
    }
    const struct hak_regions *regions = hak_load(&hak__regions, HAK_ACQUIRE);
    struct hak_region *region = regions == NULL ? NULL : regions->next(NULL);
    for (; region != NULL && left > 0; region = regions->next(region), left--) {
        regions->figures(region, &stats, NULL);
        row(out, &stats, own_name(&stats, escaped), column, left == ROWS_MOST);
    }
}

static bool own_are_any(void)
{
    const struct hak_regions *regions = hak_load(&hak__regions, HAK_ACQUIRE);
    return hak__uheap_next(NULL) != NULL || (regions != NULL && regions->next(NULL) != NULL);
}

static void own_row_text(struct hak_emitter *out, const struct hak_heap_figures *stats, const char *name,
                         const struct own_column *column, bool first)
{
    (void)column, (void)first;
    hak__emit(out, "hakmem: heap %u \"%s\":", stats->serial, name);
    for (const struct own_column *c = own_columns; c < own_columns + OWN_COLUMN_COUNT; c++)
        hak__emit(out, " %s=%u", c->name, own_figure(stats, c));
    hak__emit(out, "\n");
}

static void own_rows_text(struct hak_emitter *out)
{
    if (own_are_any())
        own_rows(out, own_row_text, NULL);
}

static void own_row_json(struct hak_emitter *out, const struct hak_heap_figures *stats, const char *name,
                         const struct own_column *column, bool first)
{
    (void)column;
    hak__emit(out, "%s\n  {\"serial\": %u, \"name\": \"%s\"", first ? "" : ",", stats->serial, name);
    for (const struct own_column *c = own_columns; c < own_columns + OWN_COLUMN_COUNT; c++)
        hak__emit(out, ", \"%s\": %u", c->name, own_figure(stats, c));
    hak__emit(out, "}");
}

static void own_rows_json(struct hak_emitter *out)
{
    if (!own_are_any())
        return;
    hak__emit(out, ",\n \"heaps\": [");
    own_rows(out, own_row_json, NULL);
    hak__emit(out, "]");
}

static void own_row_metric(struct hak_emitter *out, const struct hak_heap_figures *stats, const char *name,
                           const struct own_column *column, bool first)
{
    (void)first;
    hak__emit(out, "hakmem_heap_%s%s{serial=\"%u\",name=\"%s\"} %u\n", column->name, column->kind[0] == 'c' ? "_total" : "",
              stats->serial, name, own_figure(stats, column));
}

static void own_rows_openmetrics(struct hak_emitter *out)
{
    if (!own_are_any())
        return;
    for (const struct own_column *c = own_columns; c < own_columns + OWN_COLUMN_COUNT; c++) {
        hak__emit(out, "# TYPE hakmem_heap_%s %s\n# HELP hakmem_heap_%s %s\n", c->name, c->kind, c->name, c->help);
        own_rows(out, own_row_metric, c);
    }
}

/* --- text --------------------------------------------------------------------------------------------------------- */

static bool in_text(const struct hak_stats *stats, const struct column *column)
{
    return column->width != 0 && dump_has(stats, column->flag);
}

static void text_titles(struct hak_emitter *out, const struct hak_stats *stats)
{
    hak__emit(out, "hakmem:");
    for (const struct column *c = columns; c < columns + COLUMNS; c++) {
        if (!in_text(stats, c))
            continue;
        for (size_t length = strlen(text_at(c->title)); length <= c->width; length++)
            hak__emit(out, " ");
        hak__emit(out, "%s", text_at(c->title));
    }
    hak__emit(out, dump_has(stats, HAK_STATS_HAS_CALLS) ? "   hit %%\n" : "\n");
}

static void text_class(struct hak_emitter *out, const struct hak_stats *stats, const struct hak_stats_class *class)
{
    hak_assert(class < stats->classes + stats->class_count, "a class that was gathered");
    hak__emit(out, "hakmem:");
    for (const struct column *c = columns; c < columns + COLUMNS; c++)
        if (in_text(stats, c))
            hak__emit_padded(out, column_of(class, c), c->width + 1u);
    if (dump_has(stats, HAK_STATS_HAS_CALLS))
        hak__emit(out, " %7f", class->mallocs == 0 ? (uint64_t)0 : class->hits * 10000 / class->mallocs);
    hak__emit(out, "\n");
}

static void text_group(struct hak_emitter *out, const struct hak_stats *stats, unsigned group)
{
    hak__emit(out, "%s", text_at(groups[group].label));
    for (const struct figure *f = figures; f < figures + FIGURES; f++)
        if (f->group == group)
            hak__emit(out, " %s=%u", text_at(f->name), figure_of(stats, f));
    hak__emit(out, "\n");
}

/* Prints the nonempty buckets. */
static void text_latency(struct hak_emitter *out, const char *name, const struct hak_stats_latency *latency)
{
    hak__emit(out, "hakmem: slow %s of less than ns:", name);
    for (unsigned i = 0; i < HAK_STATS_BUCKETS; i++)
        if (latency->buckets[i] != 0)
            hak__emit(out, " %u=%u", (uint64_t)1 << i, latency->buckets[i]);
    hak__emit(out, " sum=%u\n", latency->sum);
}

/* The class whose free blocks hold the most resident memory that cannot be returned. */
static const struct hak_stats_class *pinning_class(const struct hak_stats *stats)
{
    const struct hak_stats_class *most = NULL;
    for (const struct hak_stats_class *class = stats->classes; class < stats->classes + stats->class_count; class++)
        if (class->pinned != 0 && (most == NULL || class->pinned > most->pinned))
            most = class;
    return most;
}

static void emit_pins(struct hak_emitter *out, const struct hak_stats *stats)
{
    const struct hak_stats_class *class = pinning_class(stats);
    if (class == NULL)
        hak__emit(out, "no resident memory is pinned by partly used slabs");
    else
        hak__emit(out, "%f MiB are free blocks in partly used slabs, %f MiB of them of class %u B",
                  (stats->ledger_free_in_slabs * 100) >> 20, (class->pinned * 100) >> 20, class->size);
}

int hak__print_text(int fd, const struct hak_stats *stats)
{
    struct hak_emitter out;
    hak__emit_open(&out, fd);
    hak__emit(&out, "hakmem: statistics of process %u (%s)\n", (uint64_t)hak__syscall(SYS_getpid), program_invocation_short_name);
    text_titles(&out, stats);
    for (unsigned c = 0; c < stats->class_count; c++)
        if (stats->classes[c].refilled != 0)
            text_class(&out, stats, &stats->classes[c]);
    if (dump_has(stats, HAK_STATS_HAS_LATENCY)) {
        text_latency(&out, "malloc", &stats->latency_malloc);
        text_latency(&out, "free", &stats->latency_free);
    }
    for (unsigned group = 0; group < GROUPS; group++) {
        if (dump_has(stats, groups[group].flag))
            text_group(&out, stats, group);
        if (group == GROUP_ledger && dump_has(stats, HAK_STATS_HAS_LEDGER)) {
            hak__emit(&out, "hakmem: ");
            emit_pins(&out, stats);
            hak__emit(&out, "\n");
        }
    }
    own_rows_text(&out);
    return hak__emit_close(&out);
}

int hak__print_warm_pool(int fd, const struct hak_stats *stats)
{
    struct hak_emitter out;
    hak__emit_open(&out, fd);
    hak__emit(&out, "hakmem: warm pool\nhakmem:     size         hits       misses    prefilled   hit %%\n");
    for (const struct hak_stats_class *c = stats->classes; c < stats->classes + stats->class_count; c++) {
        if (c->misses == 0)
            continue;
        hak__emit(&out, "hakmem:");
        hak__emit_padded(&out, c->size, 9);
        hak__emit_padded(&out, c->warm_hits, 13);
        hak__emit_padded(&out, c->misses - hak_min(c->warm_hits, c->misses), 13);
        hak__emit_padded(&out, c->warm_prefilled, 13);
        hak__emit(&out, " %7f\n", c->warm_hits * 10000 / c->misses);
    }
    return hak__emit_close(&out);
}

int hak__print_shared_pool(int fd, const struct hak_stats *stats)
{
    struct hak_emitter out;
    hak__emit_open(&out, fd);
    text_group(&out, stats, GROUP_stages);
    hak__emit(&out, "hakmem: waits for locks=%u\n", stats->remote_lock_waits);
    return hak__emit_close(&out);
}

void hak__dump_text(int fd)
{
    struct hak_stats *stats = hak__snapshot_take();
    if (stats == NULL)
        return;
    hak__print_text(fd, stats);
    hak__snapshot_give(stats);
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void json_classes(struct hak_emitter *out, const struct hak_stats *stats)
{
    const char *before = "\n  ";
    hak__emit(out, ",\n \"classes\": [");
    for (unsigned i = 0; i < stats->class_count; i++) {
        const char *comma = "";
        if (stats->classes[i].refilled == 0)
            continue;
        hak__emit(out, "%s{", before);
        for (const struct column *c = columns; c < columns + COLUMNS; c++) {
            if (!dump_has(stats, c->flag))
                continue;
            hak__emit(out, "%s\"%s\": %u", comma, text_at(c->name), column_of(&stats->classes[i], c));
            comma = ", ";
        }
        hak__emit(out, "}");
        before = ",\n  ";
    }
    hak__emit(out, "]");
}

static void json_group(struct hak_emitter *out, const struct hak_stats *stats, unsigned group)
{
    const char *comma = "";
    hak__emit(out, ",\n \"%s\": {", text_at(groups[group].name));
    for (const struct figure *f = figures; f < figures + FIGURES; f++) {
        if (f->group != group)
            continue;
        hak__emit(out, "%s\"%s\": %u", comma, text_at(f->name), figure_of(stats, f));
        comma = ", ";
    }
    hak__emit(out, "}");
}

static void json_latency(struct hak_emitter *out, const char *name, const struct hak_stats_latency *latency)
{
    hak__emit(out, ",\n \"latency_%s\": {\"sum\": %u, \"buckets\": [", name, latency->sum);
    for (unsigned i = 0; i < HAK_STATS_BUCKETS; i++)
        hak__emit(out, "%s%u", i == 0 ? "" : ", ", latency->buckets[i]);
    hak__emit(out, "]}");
}

int hak__print_json(int fd, const struct hak_stats *stats)
{
    struct hak_emitter out;
    hak__emit_open(&out, fd);
    hak__emit(&out, "{\"version\": %u,\n \"pid\": %u", (uint64_t)stats->version, (uint64_t)hak__syscall(SYS_getpid));
    for (unsigned group = 0; group < GROUPS; group++)
        if (dump_has(stats, groups[group].flag))
            json_group(&out, stats, group);
    if (dump_has(stats, HAK_STATS_HAS_LEDGER)) {
        hak__emit(&out, ",\n \"pins\": \"");
        emit_pins(&out, stats);
        hak__emit(&out, "\"");
    }
    if (dump_has(stats, HAK_STATS_HAS_LATENCY)) {
        json_latency(&out, "malloc", &stats->latency_malloc);
        json_latency(&out, "free", &stats->latency_free);
    }
    json_classes(&out, stats);
    own_rows_json(&out);
    hak__emit(&out, "}\n");
    return hak__emit_close(&out);
}

/* --- OpenMetrics -------------------------------------------------------------------------------------------------- */

/* A metric's name; one in bytes ends with its unit, as the format requires. */
struct metric {
    char name[64];
};

static struct metric metric_of(const char *group, const char *name, unsigned unit)
{
    static const char suffix[] = "_bytes";
    struct metric metric;
    size_t length = strlen(name), end = sizeof suffix - 1;
    bool named = length >= end && hak_begins(name + length - end, suffix);
    hak__format(metric.name, sizeof metric.name, "hakmem_%s_%s%s", group, name, unit == FIGURE_BYTES && !named ? suffix : "");
    return metric;
}

static void metric_family(struct hak_emitter *out, const struct metric *metric, unsigned type, unsigned unit, const char *help)
{
    hak__emit(out, "# TYPE %s %s\n", metric->name, type == FIGURE_COUNTER ? "counter" : "gauge");
    if (unit == FIGURE_BYTES)
        hak__emit(out, "# UNIT %s bytes\n", metric->name);
    hak__emit(out, "# HELP %s %s\n", metric->name, help);
}

static void metric_figure(struct hak_emitter *out, const struct hak_stats *stats, const struct figure *f)
{
    struct metric metric = metric_of(text_at(groups[f->group].metric), text_at(f->name), f->unit);
    metric_family(out, &metric, f->type, f->unit, text_at(f->help));
    hak__emit(out, "%s%s %u\n", metric.name, f->type == FIGURE_COUNTER ? "_total" : "", figure_of(stats, f));
}

static void metric_column(struct hak_emitter *out, const struct hak_stats *stats, const struct column *c)
{
    struct metric metric = metric_of("class", text_at(c->name), c->unit);
    metric_family(out, &metric, c->type, c->unit, text_at(c->help));
    for (unsigned i = 0; i < stats->class_count; i++)
        if (stats->classes[i].refilled != 0)
            hak__emit(out, "%s%s{size=\"%u\"} %u\n", metric.name, c->type == FIGURE_COUNTER ? "_total" : "", stats->classes[i].size,
                      column_of(&stats->classes[i], c));
}

static void metric_latency(struct hak_emitter *out, const char *name, const struct hak_stats_latency *latency)
{
    uint64_t count = 0;
    hak__emit(out, "# TYPE hakmem_slow_%s_nanoseconds histogram\n", name);
    hak__emit(out, "# UNIT hakmem_slow_%s_nanoseconds nanoseconds\n", name);
    hak__emit(out, "# HELP hakmem_slow_%s_nanoseconds How long slow paths of %s took.\n", name, name);
    for (unsigned i = 0; i + 1 < HAK_STATS_BUCKETS; i++) {
        count += latency->buckets[i];
        hak__emit(out, "hakmem_slow_%s_nanoseconds_bucket{le=\"%u.0\"} %u\n", name, ((uint64_t)1 << i), count);
    }
    count += latency->buckets[HAK_STATS_BUCKETS - 1];
    hak__emit(out, "hakmem_slow_%s_nanoseconds_bucket{le=\"+Inf\"} %u\n", name, count);
    hak__emit(out, "hakmem_slow_%s_nanoseconds_count %u\n", name, count);
    hak__emit(out, "hakmem_slow_%s_nanoseconds_sum %u\n", name, latency->sum);
}

int hak__print_openmetrics(int fd, const struct hak_stats *stats)
{
    struct hak_emitter out;
    hak__emit_open(&out, fd);
    for (const struct figure *f = figures; f < figures + FIGURES; f++)
        if (dump_has(stats, groups[f->group].flag))
            metric_figure(&out, stats, f);
    for (const struct column *c = columns + 1; c < columns + COLUMNS; c++) /* the first is the label */
        if (dump_has(stats, c->flag))
            metric_column(&out, stats, c);
    if (dump_has(stats, HAK_STATS_HAS_LATENCY)) {
        metric_latency(&out, "malloc", &stats->latency_malloc);
        metric_latency(&out, "free", &stats->latency_free);
    }
    own_rows_openmetrics(&out);
    hak__emit(&out, "# EOF\n");
    return hak__emit_close(&out);
}
