/* The walk over the heaps, and the figures of other layers; how long slow paths take. Nothing here allocates, locks or waits. */
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "arena/mapping.h"
#include "arena/returned.h"
#include "arena/runs.h"
#include "arena/window.h"
#include "base/assert.h"
#include "base/bits.h"
#include "base/syscall.h"
#include "cache/cache.h"
#include "diag/options.h"
#include "harden/quarantine.h"
#include "huge/huge.h"
#include "os/os.h"
#include "span/pool.h"
#include "stats/stats.h"
#include "upkeep/upkeep.h"
#include "userheap/userheap.h"

_Static_assert(HAK_CLASSES <= HAK_STATS_CLASSES, "every class has its place in the public structure");

static void add_outbox(struct hak_stats *out, struct hak_heap *heap)
{
    for (unsigned i = 0; i < HAK_OUTBOX_BUCKETS; i++) {
        struct hak_outbox_bucket *bucket = &heap->outbox_buckets[i];
        uint32_t slab = hak_peek(&bucket->slab);
        uint16_t taken = hak_load(&bucket->taken, HAK_RELAXED);
        uint16_t count = hak_load(&bucket->count, HAK_ACQUIRE);
        uint32_t class = slab == 0 ? HAK_CLASSES : hak__owner_class(hak__owner_at(slab - 1));
        if (class < HAK_CLASSES)
            out->classes[class].outbox += count > taken ? count - taken : 0;
    }
}

/* The figures that stats.h marks HEAPS and CLASS; all others are 0 here. */
#define WORD(root, offset) 0
#define RULE 0
#define KERNEL 0
#define PAGES 0
#define TABLE(field) 0
#define HEAPS(field) hak_counted(&heap->field)
#define ALL(root, field) HEAPS(field)
#define CLASS(field) hak_counted(&from->field)
static void add_class(struct hak_stats_class *to, const struct hak_heap_class *from)
{
#define HAK_STATS_COLUMN(name, ...) to->name += HAK_COLUMN_##name;
#include "diag/stats.def"
}

static void add_heap(struct hak_stats *out, struct hak_heap *heap)
{
    uint32_t waiting[HAK_CLASSES] = { 0 };
    hak__quarantine_count(heap, waiting);
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        add_class(&out->classes[c], &heap->classes[c]);
        out->classes[c].cached += hak__cache_count(heap, c) + waiting[c];
    }
    add_outbox(out, heap);
#define HAK_STATS_FIGURE(group, name, ...) out->group##_##name += HAK_FIGURE_##group##_##name;
#include "diag/stats.def"
    out->bytes_spans += hak_counted(&heap->counts.slabs) * HAK_SLAB_SIZE;
    out->remote_parked += hak_load(&heap->state, HAK_RELAXED) == HAK_HEAP_PARKED;
    out->remote_heaps++;
}
#undef WORD
#undef HEAPS
#undef ALL

/* The figures derived from a class's counts, and the sums over all classes, which leave samples out. */
static void sum_class(struct hak_stats *out, uint32_t c)
{
    hak_assert(c < HAK_CLASSES, "a class");
    struct hak_stats_class *class = &out->classes[c];
    uint64_t gone = class->drained + class->collected + class->cached + class->outbox;
    class->size = hak__classes[c].size;
    class->live = class->refilled > gone ? class->refilled - gone : 0;
    class->hits = class->mallocs > class->misses ? class->mallocs - class->misses : 0;
    out->bytes_live += class->live * class->size;
    out->bytes_cached += (class->cached + class->outbox) * class->size;
    out->total_refilled += class->refilled;
    out->total_drained += class->drained + class->collected;
    out->total_misses += class->misses;
    out->total_live += class->live;
    out->calls_malloc += class->mallocs;
    out->calls_free += class->frees;
}

static void add_heaps(struct hak_stats *out)
{
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++)
        if (hak_load(&hak__heap_by_id(id)->state, HAK_ACQUIRE) != HAK_HEAP_NEW)
            add_heap(out, hak__heap_by_id(id));
    uint64_t missing = hak_counted(&hak__pieces_missing);
    out->bytes_spans -= missing <= out->bytes_spans ? missing : 0;
    out->class_count = HAK_CLASSES;
    for (uint32_t c = 0; c < HAK_CLASSES; c++)
        sum_class(out, c);
    out->total_live += hak_load(&hak__sampled.count, HAK_RELAXED);
    out->bytes_live += hak_load(&hak__sampled.bytes, HAK_RELAXED);
}

/* The figures that stats.h marks WORD; the others stay unchanged. */
#define ROOT_arena &hak__arena_published
#define ROOT_frontier &hak__arena_frontier
#define ROOT_huge &hak__huge_counts
#define ROOT_huge_allocated &hak__huge_counts.allocated
#define ROOT_huge_bytes &hak__huge_counts.live_bytes
#define ROOT_huge_freed &hak__huge_counts.freed
#define ROOT_lock_waits &hak__lock_wait_count
#define ROOT_misuse &hak__misuse_counts
#define ROOT_os_calls &hak__os_calls
#define ROOT_os_failures &hak__os_failures
#define ROOT_pool &hak__pool_counts
#define ROOT_thp &hak__thp_counts
#define ROOT_tiers &hak__tier_counts
#define ROOT_returns &hak__return_counts
#define ROOT_upkeep &hak__upkeep_counts
#define WORD(root, offset) word_at(ROOT_##root, offset)
#define HEAPS(field) 0
#define ALL(root, field) WORD(root, 0)
static uint64_t word_at(const void *root, size_t offset)
{
    return hak_load((const _Atomic uint64_t *)((const char *)root + offset), HAK_RELAXED);
}

static void add_words(struct hak_stats *out)
{
#define HAK_STATS_FIGURE(group, name, ...) out->group##_##name += HAK_FIGURE_##group##_##name;
#include "diag/stats.def"
    out->huge_live = out->huge_allocated > out->huge_freed ? out->huge_allocated - out->huge_freed : 0;
}

#undef WORD
#undef HEAPS
#undef ALL
#undef CLASS
#undef TABLE
#undef RULE
#undef KERNEL
#undef PAGES

static void add_system(struct hak_stats *out)
{
    struct rusage usage = { 0 };
    hak__syscall(SYS_getrusage, RUSAGE_SELF, &usage);
    out->process_peak_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
    out->process_minor_faults = (uint64_t)usage.ru_minflt;
    out->bytes_metadata = hak__meta_bytes();
}

static void fill_latency(struct hak_stats_latency *out, enum hak_latency_kind kind)
{
    out->sum = hak__latency_sum(kind);
    for (unsigned i = 0; i < HAK_LATENCY_BUCKETS; i++)
        out->buckets[i] = hak__latency_bucket(kind, i);
}

_Static_assert(HAK_LATENCY_BUCKETS == HAK_STATS_BUCKETS, "the public histogram is the gathered one");

void hak__snapshot(struct hak_stats *out)
{
    bool exact = hak__option(HAK_OPTION_stats) == HAK_STATS_EXACT, timed = hak__option(HAK_OPTION_latency) != 0;
    *out = (struct hak_stats){ .magic = HAK_STATS_MAGIC, .version = HAK_STATS_VERSION, .size = sizeof *out };
    out->flags = (exact ? HAK_STATS_HAS_CALLS : 0) | (timed ? HAK_STATS_HAS_LATENCY : 0);
    add_heaps(out);
    add_words(out);
    add_system(out);
    fill_latency(&out->latency_malloc, HAK_LATENCY_MALLOC);
    fill_latency(&out->latency_free, HAK_LATENCY_FREE);
}

/* The first caller gets a static one; concurrent callers map pages. In a forked child the parent may hold the static one for
 * ever. */
static hak_rare_data struct hak_stats snapshot_shared;
static _Atomic bool snapshot_taken;

struct hak_stats *hak__snapshot_take(void)
{
    struct hak_stats *stats = &snapshot_shared;
    /* acquire: pairs with the release of the thread that gave it back. */
    if (hak_exchange(&snapshot_taken, true, HAK_ACQUIRE) && (stats = (struct hak_stats *)hak__os_borrow(sizeof *stats)) == NULL)
        return NULL;
    hak__snapshot(stats);
    return stats;
}

void hak__snapshot_give(struct hak_stats *stats)
{
    hak_assert(stats != NULL, "a snapshot that was taken");
    if (stats == &snapshot_shared)
        hak_store(&snapshot_taken, false, HAK_RELEASE);
    else
        hak__os_return((uintptr_t)stats, sizeof *stats);
}

/* --- malloc's own figures ---------------------------------------------------------------------------------------- */

/* Threads' heaps; the others are shares or unusable. */
static void process_threads(struct hak_heap_figures *out)
{
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++) {
        uint32_t state = hak_load(&hak__heap_by_id(id)->state, HAK_RELAXED);
        out->threads += state == HAK_HEAP_ACTIVE;
        out->shares += state == HAK_HEAP_ACTIVE || state == HAK_HEAP_PARKED;
    }
}

static void less(uint64_t *figure, uint64_t part) { *figure -= hak_min(part, *figure); }

/* Gathered at different moments, the parts may exceed the whole. */
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
    for (struct hak_uheap *one = hak__uheap_next(NULL); one != NULL; one = hak__uheap_next(one)) {
        if (hak__uheap_parent(one) != NULL)
            continue;
        hak__uheap_figures(one, &own, true);
        process_without(out, &own);
    }
    out->used_bytes = out->peak_bytes = out->slab_bytes + out->huge_bytes;
}

/* --- times of slow paths ---------------------------------------------------------------------------------------------- */

/* All threads add to the same words, which is slow only while times are measured. */
hak_rare_data struct hak_latency hak__latencies[HAK_LATENCY_KINDS];

uint64_t hak__latency_now(void)
{
    struct timespec t = { 0, 0 };
    hak__syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void hak__latency_add(enum hak_latency_kind kind, uint64_t started)
{
    hak_assert(kind < HAK_LATENCY_KINDS && started != 0, "a slow path of a kind, begun while the option was on");
    uint64_t took = hak__latency_now() - started;
    unsigned bucket = took == 0 ? 0 : (unsigned)hak_min(hak_msb64(took) + 1, HAK_LATENCY_BUCKETS - 1);
    hak_fetch_add(&hak__latencies[kind].sum, took, HAK_RELAXED);
    hak_fetch_add(&hak__latencies[kind].buckets[bucket], 1, HAK_RELAXED);
}

uint64_t hak__latency_sum(enum hak_latency_kind kind) { return hak_load(&hak__latencies[kind].sum, HAK_RELAXED); }

uint64_t hak__latency_bucket(enum hak_latency_kind kind, unsigned bucket)
{
    hak_assert(kind < HAK_LATENCY_KINDS && bucket < HAK_LATENCY_BUCKETS, "the histogram has such a bucket");
    return hak_load(&hak__latencies[kind].buckets[bucket], HAK_RELAXED);
}
