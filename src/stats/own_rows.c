/* A row per heap of one's own, in three formats. A heap whose lock is held just now (the statistics
 * may be printed by a signal's handler) has its account alone. Names are the program's, and escaped as the format wants it. */
#include "stats/own_rows.h"

#include <stddef.h>

#include "base/assert.h"
#include "base/bits.h"
#include "diag/options.h"
#include "own/own.h"
#include "own/region.h"
#include "stats/snapshot.h"

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

/* Printable ASCII stays; a quote and a backslash get a backslash, anything else becomes a question mark, which no format has to
 * escape. */
static const char *own_name(const struct hak_heap_figures *stats, char escaped[ESCAPED])
{
    char *to = escaped;
    for (const char *from = stats->name; *from != 0; from++) {
        if (*from == '"' || *from == '\\')
            *to++ = '\\';
        *to++ = *from < 0x20 || *from > 0x7e ? '?' : *from;
    }
    *to = 0;
    return escaped;
}

typedef void own_row(struct hak_emitter *out, const struct hak_heap_figures *stats, const char *name, const struct own_column *column,
                     bool first);

/* Calls for every heap, but for those beyond the first so many; those in regions come last. */
static void own_rows(struct hak_emitter *out, own_row *row, const struct own_column *column)
{
    struct hak_heap_figures stats;
    char escaped[ESCAPED];
    unsigned left = ROWS_MOST;
    for (struct hak_own *own = hak__own_next(NULL); own != NULL && left > 0; own = hak__own_next(own), left--) {
        hak__own_figures(own, &stats, false);
        row(out, &stats, own_name(&stats, escaped), column, left == ROWS_MOST);
    }
    for (uint32_t i = 0; hak__region_next_figures(&i, &stats) && left > 0; left--)
        row(out, &stats, own_name(&stats, escaped), column, left == ROWS_MOST);
}

static bool own_are_any(void)
{
    struct hak_heap_figures stats;
    return hak__own_next(NULL) != NULL || hak__region_next_figures(&(uint32_t){ 0 }, &stats);
}

static void own_row_text(struct hak_emitter *out, const struct hak_heap_figures *stats, const char *name, const struct own_column *column,
                         bool first)
{
    (void)column, (void)first;
    hak__emit(out, "hakmem: heap %u \"%s\":", stats->serial, name);
    for (const struct own_column *c = own_columns; c < own_columns + OWN_COLUMN_COUNT; c++)
        hak__emit(out, " %s=%u", c->name, own_figure(stats, c));
    hak__emit(out, "\n");
}

void hak__own_rows_text(struct hak_emitter *out)
{
    if (own_are_any())
        own_rows(out, own_row_text, NULL);
}

static void own_row_json(struct hak_emitter *out, const struct hak_heap_figures *stats, const char *name, const struct own_column *column,
                         bool first)
{
    (void)column;
    hak__emit(out, "%s\n  {\"serial\": %u, \"name\": \"%s\"", first ? "" : ",", stats->serial, name);
    for (const struct own_column *c = own_columns; c < own_columns + OWN_COLUMN_COUNT; c++)
        hak__emit(out, ", \"%s\": %u", c->name, own_figure(stats, c));
    hak__emit(out, "}");
}

void hak__own_rows_json(struct hak_emitter *out)
{
    if (!own_are_any())
        return;
    hak__emit(out, ",\n \"heaps\": [");
    own_rows(out, own_row_json, NULL);
    hak__emit(out, "]");
}

static void own_row_metric(struct hak_emitter *out, const struct hak_heap_figures *stats, const char *name, const struct own_column *column,
                         bool first)
{
    (void)first;
    hak__emit(out, "hakmem_heap_%s%s{serial=\"%u\",name=\"%s\"} %u\n", column->name, column->kind[0] == 'c' ? "_total" : "",
              stats->serial, name, own_figure(stats, column));
}

void hak__own_rows_openmetrics(struct hak_emitter *out)
{
    if (!own_are_any())
        return;
    for (const struct own_column *c = own_columns; c < own_columns + OWN_COLUMN_COUNT; c++) {
        hak__emit(out, "# TYPE hakmem_heap_%s %s\n# HELP hakmem_heap_%s %s\n", c->name, c->kind, c->name, c->help);
        own_rows(out, own_row_metric, c);
    }
}

/* Threads' heaps; the others are shares, or serve no more. */
static void process_threads(struct hak_heap_figures *out)
{
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++) {
        uint32_t state = hak_load(&hak__heap_by_id(id)->state, HAK_RELAXED);
        out->threads += state == HAK_HEAP_ACTIVE;
        out->shares += state == HAK_HEAP_ACTIVE || state == HAK_HEAP_PARKED;
    }
}

static void less(uint64_t *figure, uint64_t part) { *figure -= hak_min(part, *figure); }

/* Gathered at different moments, the parts may be more than the whole. */
static void process_without(struct hak_heap_figures *out, const struct hak_heap_figures *own)
{
    less(&out->live_blocks, own->live_blocks);
    less(&out->live_bytes, own->live_bytes);
    less(&out->cached_bytes, own->cached_bytes);
    less(&out->slab_bytes, own->slab_bytes);
    less(&out->huge_blocks, own->huge_blocks);
    less(&out->huge_bytes, own->huge_bytes);
}

void hak__process_figures(struct hak_heap_figures *out)
{
    struct hak_stats whole;
    struct hak_heap_figures own;
    hak__snapshot(&whole);
    *out = (struct hak_heap_figures){
        .live_blocks = whole.total_live + whole.huge_live,
        .live_bytes = whole.bytes_live + whole.bytes_huge,
        .limit = hak__option(HAK_OPTION_limit),
        .cached_bytes = whole.bytes_cached,
        .slab_bytes = whole.bytes_spans,
        .huge_blocks = whole.huge_live,
        .huge_bytes = whole.bytes_huge,
    };
    process_threads(out);
    for (struct hak_own *one = hak__own_next(NULL); one != NULL; one = hak__own_next(one)) {
        hak__own_figures(one, &own, true);
        process_without(out, &own);
    }
    out->used_bytes = out->peak_bytes = out->slab_bytes + out->huge_bytes;
}
