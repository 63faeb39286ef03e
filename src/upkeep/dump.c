/* Gathering and printing the statistics. One walk over the heaps; the table below it. Nothing here allocates. */
#include "upkeep/dump.h"

#include <sys/resource.h>

#include "cache/cache.h"
#include "diag/options.h"
#include "diag/report.h"
#include "huge/huge.h"
#include "os/os.h"
#include "shared/pool.h"

static void add_outbox(struct hak_totals *out, struct hak_heap *heap)
{
    for (unsigned i = 0; i < HAK_OUTBOX_BUCKETS; i++) {
        uint32_t slab = hak_peek(&heap->outbox[i].slab);
        uint16_t count = hak_peek(&heap->outbox[i].count);
        uint32_t class = slab == 0 ? HAK_CLASSES : hak__owner_code(hak__owner_at(slab - 1)) / HAK_RECORD_SIZE;
        if (class < HAK_CLASSES)
            out->classes[class].outbox += count;
    }
}

static void add_heap(struct hak_totals *out, struct hak_heap *heap)
{
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
        to->cached += hak__cache_count(heap, c);
    }
    add_outbox(out, heap);
    out->remote_frees += hak_counted(&heap->remote_frees);
    out->remote_published += hak_counted(&heap->remote_published);
    out->forwarded += hak_counted(&heap->forwarded);
    out->adopted += hak_counted(&heap->adopted);
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
    out->span_bytes += class->spans * hak__classes[c].slabs * HAK_SLAB_SIZE;
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

/* --- text --------------------------------------------------------------------------------------------------------- */

static void print_classes(int fd, const struct hak_totals *t, bool exact)
{
    hak__print(fd, "hakmem: %8s %6s %12s %10s %12s %12s %12s %10s%s", "size", "spans", "live", "cached", "refilled",
               "drained", "collected", "misses", exact ? "      mallocs        frees   hit %" : "");
    for (uint32_t c = 0; c < HAK_CLASSES; c++) {
        const struct hak_class_totals *k = &t->classes[c];
        char calls[64] = "";
        if (k->refilled == 0)
            continue;
        if (exact) {
            uint64_t hits = k->mallocs > k->misses ? k->mallocs - k->misses : 0;
            hak__format(calls, sizeof calls, " %12u %12u %7f", k->mallocs, k->frees,
                        k->mallocs == 0 ? 0 : hits * 10000 / k->mallocs);
        }
        hak__print(fd, "hakmem: %8u %6u %12u %10u %12u %12u %12u %10u%s", (uint64_t)hak__classes[c].size, k->spans,
                   k->live, k->cached, k->refilled, k->drained, k->collected, k->misses, calls);
    }
}

static void print_memory(int fd, const struct hak_totals *t)
{
    struct hak_arena_figures arena;
    struct hak_huge_figures huge;
    struct hak_pool_figures pool;
    struct rusage usage = { 0 };
    hak__arena_figures(&arena);
    hak__huge_figures(&huge);
    hak__pool_figures(&pool);
    getrusage(RUSAGE_SELF, &usage);
    hak__print(fd, "hakmem: bytes live=%u cached=%u spans=%u huge=%u free_dirty=%u mapped=%u metadata=%u", t->live_bytes,
               t->cached_bytes, t->span_bytes, huge.live_bytes, (uint64_t)arena.dirty, (uint64_t)arena.mapped,
               (uint64_t)arena.meta);
    hak__print(fd, "hakmem: superslabs taken=%u below_top=%u opened=%u closed=%u holes=%u slab_runs_claimed=%u",
               (uint64_t)arena.taken, (uint64_t)arena.top, pool.opened, pool.closed, (uint64_t)arena.holes,
               pool.claimed);
    hak__print(fd, "hakmem: huge live=%u allocated=%u freed=%u grown_in_place=%u moved=%u", huge.live, huge.allocated,
               huge.freed, huge.grown_in_place, huge.moved);
    hak__print(fd, "hakmem: process peak_rss_bytes=%u minor_faults=%u", (uint64_t)usage.ru_maxrss * 1024,
               (uint64_t)usage.ru_minflt);
    hak__print(fd, "total refilled=%u drained=%u misses=%u live=%u peak_bytes=%u", t->all.refilled, t->all.drained,
               t->all.misses, t->all.live, (uint64_t)arena.peak);
}

void hak__dump_text(int fd)
{
    struct hak_totals t;
    bool exact = hak__option(HAK_OPTION_stats) == HAK_STATS_EXACT;
    hak__totals(&t);
    hak__print(fd, "hakmem: statistics");
    print_classes(fd, &t, exact);
    hak__print(fd, "hakmem: remote frees=%u published=%u forwarded=%u adopted_spans=%u heaps=%u parked=%u lock_waits=%u",
               t.remote_frees, t.remote_published, t.forwarded, t.adopted, t.heaps, t.parked,
               hak__lock_waits());
    hak__print(fd, "hakmem: system calls mmap=%u munmap=%u madvise=%u mremap=%u probe=%u failed=%u",
               hak_load(&hak__os_calls[HAK_OS_MAP], HAK_RELAXED), hak_load(&hak__os_calls[HAK_OS_UNMAP], HAK_RELAXED),
               hak_load(&hak__os_calls[HAK_OS_PURGE], HAK_RELAXED), hak_load(&hak__os_calls[HAK_OS_MOVE], HAK_RELAXED),
               hak_load(&hak__os_calls[HAK_OS_PROBE], HAK_RELAXED), hak_load(&hak__os_failures, HAK_RELAXED));
    if (exact)
        hak__print(fd, "calls malloc=%u free=%u", t.all.mallocs, t.all.frees);
    print_memory(fd, &t);
}
