/* The walk over the heaps, and the figures of the other layers beside it. Nothing here allocates, locks or waits. */
#include "upkeep/snapshot.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arena/thp.h"
#include "cache/cache.h"
#include "cache/quarantine.h"
#include "diag/latency.h"
#include "diag/options.h"
#include "huge/huge.h"
#include "os/os.h"
#include "shared/pool.h"
#include "shared/tiers.h"
#include "upkeep/counts.h"

_Static_assert(HAK_CLASSES <= HAK_STATS_CLASSES, "every class has its place in the public structure");

static void add_outbox(struct hak_totals *out, struct hak_heap *heap)
{
    for (unsigned i = 0; i < HAK_OUTBOX_BUCKETS; i++) {
        uint32_t slab = hak_peek(&heap->outbox[i].slab);
        uint16_t taken = hak_load(&heap->outbox[i].taken, HAK_RELAXED);
        uint16_t count = hak_load(&heap->outbox[i].count, HAK_ACQUIRE);
        uint32_t class = slab == 0 ? HAK_CLASSES : hak__owner_class_offset(hak__owner_at(slab - 1)) / HAK_BIN_SIZE;
        if (class < HAK_CLASSES)
            out->classes[class].outbox += count > taken ? count - taken : 0;
    }
}

static void add_heap(struct hak_totals *out, struct hak_heap *heap)
{
    uint32_t waiting[HAK_CLASSES] = { 0 };
    hak__quarantine_count(heap, waiting);
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        const struct hak_heap_class *from = &heap->classes[c];
        struct hak_class_totals *to = &out->classes[c];
        to->refilled += hak_counted(&from->refilled);
        to->drained += hak_counted(&from->drained);
        to->collected += hak_counted(&from->collected);
        to->misses += hak_counted(&from->misses);
        to->spans += hak_counted(&from->span_count);
        to->mallocs += hak_counted(&from->mallocs);
        to->frees += hak_counted(&from->frees);
        to->warm_hits += hak_counted(&from->warm_hits);
        to->warm_prefilled += hak_counted(&from->warm_prefilled);
        to->cached += hak__cache_count(heap, c) + waiting[c];
    }
    add_outbox(out, heap);
    out->remote_frees += hak_counted(&heap->remote_frees);
    out->remote_published += hak_counted(&heap->remote_published);
    out->forwarded += hak_counted(&heap->forwarded);
    out->adopted += hak_counted(&heap->adopted);
    out->common_taken += hak_counted(&heap->common_taken);
    out->runs_claimed += hak_counted(&heap->runs_claimed);
    for (unsigned stage = 0; stage < HAK_STAGES; stage++)
        out->stages[stage] += hak_counted(&heap->stages[stage]);
    out->span_bytes += hak_counted(&heap->slab_count) * HAK_SLAB_SIZE;
    out->parked += hak_load(&heap->state, HAK_RELAXED) == HAK_HEAP_PARKED;
    out->heaps++;
}

static void sum_class(struct hak_totals *out, uint32_t c)
{
    struct hak_class_totals *class = &out->classes[c], *all = &out->all;
    uint64_t gone = class->drained + class->collected + class->cached + class->outbox;
    class->live = class->refilled > gone ? class->refilled - gone : 0;
    out->live_bytes += class->live * hak__classes[c].size;
    out->cached_bytes += (class->cached + class->outbox) * hak__classes[c].size;
    all->refilled += class->refilled;
    all->drained += class->drained + class->collected;
    all->misses += class->misses;
    all->mallocs += class->mallocs;
    all->frees += class->frees;
    all->cached += class->cached;
    all->spans += class->spans;
    all->live += class->live;
}

void hak__totals(struct hak_totals *out)
{
    *out = (struct hak_totals){ 0 };
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++)
        if (hak_load(&hak__heap_by_id(id)->state, HAK_ACQUIRE) != HAK_HEAP_NEW)
            add_heap(out, hak__heap_by_id(id));
    for (uint32_t c = 0; c < HAK_CLASSES; c++)
        sum_class(out, c);
}

/* --- the public structure ------------------------------------------------------------------------------------------- */

static void fill_class(struct hak_stats_class *to, uint32_t c, const struct hak_class_totals *from)
{
    to->size = hak__classes[c].size;
    to->spans = from->spans;
    to->live = from->live;
    to->cached = from->cached;
    to->refilled = from->refilled;
    to->drained = from->drained;
    to->collected = from->collected;
    to->misses = from->misses;
    to->outbox = from->outbox;
    to->mallocs = from->mallocs;
    to->frees = from->frees;
    to->warm_hits = from->warm_hits;
    to->warm_prefilled = from->warm_prefilled;
    to->hits = from->mallocs > from->misses ? from->mallocs - from->misses : 0;
}

static void fill_from_heaps(struct hak_stats *out)
{
    struct hak_totals t;
    hak__totals(&t);
    out->class_count = HAK_CLASSES;
    for (uint32_t c = 0; c < HAK_CLASSES; c++)
        fill_class(&out->classes[c], c, &t.classes[c]);
    out->remote_frees = t.remote_frees;
    out->remote_published = t.remote_published;
    out->remote_forwarded = t.forwarded;
    out->remote_adopted_spans = t.adopted;
    out->remote_common_taken = t.common_taken;
    out->superslabs_slab_runs_claimed = t.runs_claimed;
    out->remote_heaps = t.heaps;
    out->remote_parked = t.parked;
    out->calls_malloc = t.all.mallocs;
    out->calls_free = t.all.frees;
    out->bytes_live = t.live_bytes;
    out->bytes_cached = t.cached_bytes;
    out->bytes_spans = t.span_bytes;
    out->total_refilled = t.all.refilled;
    out->total_drained = t.all.drained;
    out->total_misses = t.all.misses;
    out->total_live = t.all.live;
    out->stages_own_hint = t.stages[HAK_STAGE_OWN_HINT];
    out->stages_own_empty = t.stages[HAK_STAGE_OWN_EMPTY];
    out->stages_adopted = t.stages[HAK_STAGE_ADOPTED];
    out->stages_claimed = t.stages[HAK_STAGE_CLAIMED];
    out->stages_locked = t.stages[HAK_STAGE_LOCKED];
}

static void fill_from_arena(struct hak_stats *out)
{
    struct hak_arena_figures arena;
    struct hak_pool_figures pool;
    hak__arena_figures(&arena);
    hak__pool_figures(&pool);
    out->bytes_free_dirty = arena.dirty;
    out->bytes_mapped = arena.mapped;
    out->bytes_metadata = arena.meta;
    out->superslabs_taken = arena.taken;
    out->superslabs_below_top = arena.top;
    out->superslabs_holes = arena.holes;
    out->superslabs_opened = pool.opened;
    out->superslabs_closed = pool.closed;
    out->total_peak_bytes = arena.peak;
    out->superslabs_lock_takes = arena.lock_takes;
    out->lru_kept = arena.kept;
    out->lru_returned_by_age = arena.returned_by_age;
    out->lru_returned_by_bytes = arena.returned_by_bytes;
    out->reserve_mapped = arena.reserved;
    out->reserve_missed = arena.waited;
}

static void fill_from_tiers(struct hak_stats *out)
{
    out->tiers_hot = hak_load(&hak__tier_counts.hot, HAK_RELAXED);
    out->tiers_draining = hak_load(&hak__tier_counts.draining, HAK_RELAXED);
    out->tiers_to_draining = hak_load(&hak__tier_counts.to_draining, HAK_RELAXED);
    out->tiers_to_hot = hak_load(&hak__tier_counts.to_hot, HAK_RELAXED);
    out->tiers_emptied = hak_load(&hak__tier_counts.emptied, HAK_RELAXED);
    out->tiers_drawn = hak_load(&hak__tier_counts.drawn, HAK_RELAXED);
}

static void fill_from_upkeep(struct hak_stats *out)
{
    const struct hak_upkeep_counts *counts = &hak__upkeep_counts;
    out->upkeep_steps = hak_counted(&counts->steps);
    out->upkeep_collected_heaps = hak_counted(&counts->collected_heaps);
    out->upkeep_outbox_blocks = hak_counted(&counts->outbox_blocks);
    out->upkeep_spans_ended = hak_counted(&counts->spans_ended);
    out->upkeep_span_purges = hak_counted(&counts->span_purges);
    out->upkeep_span_purged = hak_counted(&counts->span_purged);
    out->upkeep_armings = hak_counted(&counts->armings);
    out->upkeep_background = hak_counted(&counts->background);
    out->upkeep_background_starts = hak_counted(&counts->background_starts);
    out->upkeep_background_wakeups = hak_counted(&counts->background_wakeups);
    out->superslabs_collapsed = hak_load(&hak__thp_counts.collapsed, HAK_RELAXED);
    out->superslabs_collapse_refused = hak_load(&hak__thp_counts.refused, HAK_RELAXED);
    out->superslabs_split = hak_load(&hak__thp_counts.split, HAK_RELAXED);
}

static void fill_from_huge(struct hak_stats *out)
{
    struct hak_huge_figures huge;
    hak__huge_figures(&huge);
    out->bytes_huge = huge.live_bytes;
    out->huge_live = huge.live;
    out->huge_allocated = huge.allocated;
    out->huge_freed = huge.freed;
    out->huge_grown_in_place = huge.grown_in_place;
    out->huge_moved = huge.moved;
}

static void fill_from_system(struct hak_stats *out)
{
    struct rusage usage = { 0 };
    syscall(SYS_getrusage, RUSAGE_SELF, &usage);
    out->process_peak_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
    out->process_minor_faults = (uint64_t)usage.ru_minflt;
    out->system_mmap = hak_load(&hak__os_calls[HAK_OS_MAP], HAK_RELAXED);
    out->system_munmap = hak_load(&hak__os_calls[HAK_OS_UNMAP], HAK_RELAXED);
    out->system_madvise = hak_load(&hak__os_calls[HAK_OS_PURGE], HAK_RELAXED);
    out->system_mremap = hak_load(&hak__os_calls[HAK_OS_MOVE], HAK_RELAXED);
    out->system_probe = hak_load(&hak__os_calls[HAK_OS_PROBE], HAK_RELAXED);
    out->system_mincore = hak_load(&hak__os_calls[HAK_OS_LOOK], HAK_RELAXED);
    out->system_failed = hak_load(&hak__os_failures, HAK_RELAXED);
    out->remote_lock_waits = hak__lock_waits();
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
    fill_from_heaps(out);
    fill_from_arena(out);
    fill_from_tiers(out);
    fill_from_huge(out);
    fill_from_upkeep(out);
    fill_from_system(out);
    fill_latency(&out->latency_malloc, HAK_LATENCY_MALLOC);
    fill_latency(&out->latency_free, HAK_LATENCY_FREE);
}
