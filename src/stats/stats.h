/* The statistics: gathered (snapshot.c), with resident memory by its use (ledger.c), printed (dump.c) when and where options ask
 * (output.c), and readable from another process (live.c). One list of figures, diag/stats.def, serves all. */
#pragma once

#include "diag/options.h"
#include "diag/report.h"
#include "hakmem.h"
#include "hakmem_stats.h"
#include "heap/heap.h"

/* --- gathering (snapshot.c) --------------------------------------------------------------------------------------------- */

/* All figures of the public structure except the ledger: exact if no other thread allocates meanwhile; otherwise figures are of
 * different moments. Takes no lock and does not wait, so a signal handler may call it. */
hak_cold void hak__snapshot(struct hak_stats *out);

/* The same outside the caller's stack, which may be a coroutine's; give it back. NULL: none is available. */
hak_cold struct hak_stats *hak__snapshot_take(void);
hak_cold void hak__snapshot_give(struct hak_stats *stats);

/* malloc's figures: the process's minus those of its user heaps. */
hak_cold void hak__process_figures(struct hak_heap_figures *out);

/* --- resident memory (ledger.c) ----------------------------------------------------------------------------------------- */

/* Adds the ledger to a snapshot, whose counts of live and cached blocks it uses. Allocates nothing and takes no blocking lock:
 * it tries for each heap's lock, and skips a heap that stays locked (it may be the caller's own, in a signal handler). False if
 * the kernel does not report residency; the snapshot then has no ledger. */
hak_cold bool hak__ledger(struct hak_stats *stats);

/* --- printing (dump.c) -------------------------------------------------------------------------------------------------- */

/* The table that HAKMEM_STATS=1 prints. */
hak_cold void hak__dump_text(int fd);

/* Prints a snapshot to a descriptor; returns 0, or the errno code of the failed write. */
hak_cold int hak__print_text(int fd, const struct hak_stats *stats);
hak_cold int hak__print_json(int fd, const struct hak_stats *stats);
hak_cold int hak__print_openmetrics(int fd, const struct hak_stats *stats);

/* The tables of HAKMEM_WARM_POOL_STATS=1 and HAKMEM_SHARED_POOL_STATS=1. */
hak_cold int hak__print_warm_pool(int fd, const struct hak_stats *stats);
hak_cold int hak__print_shared_pool(int fd, const struct hak_stats *stats);

/* --- when and where (output.c) ------------------------------------------------------------------------------------------ */

/* Prints what HAKMEM_STATS asks for, where it asks, then what HAKMEM_WARM_POOL_STATS and HAKMEM_SHARED_POOL_STATS ask for, on
 * stderr. An unwritable file costs one warning. */
void hak__output_at_exit(void);

/* A file's name with %p replaced by the process id. */
hak_cold void hak__expand_name(char *to, size_t size, const char *name);

/* Installs the handler of HAKMEM_STATS_SIGNAL, unless the program already has one for that signal. */
void hak__output_signal_init(void);

/* --- the black box (blackbox.c) --------------------------------------------------------------------------------------------- */

/* Opens it if HAKMEM_BLACKBOX asks for it; whether there is one. A normal exit removes its file. */
struct hak_nearness;
hak_at_start bool hak__blackbox_begin(void);
hak_cold void hak__blackbox_end(void);

/* After each look at the limits, and in the handler of a signal that ends the process. */
hak_cold void hak__blackbox_seen(const struct hak_nearness *near, uint64_t now_ms);
hak_cold void hak__blackbox_crash(int signal, uintptr_t address);

/* --- another process (live.c) ------------------------------------------------------------------------------------------- */

/* Publishes where everything lies; once the library runs. */
void hak__live_open(const char *version);

/* --- where each figure comes from -------------------------------------------------------------------------------------------
 *
 * One line per figure of diag/stats.def. snapshot.c gathers the figures by it, and live.c tells another process where they lie;
 * each defines these words:
 *
 *   WORD(root, offset)     a counter at an offset from a root of live.c; OS_CALLS(call) is one of them
 *   HEAPS(field)           the sum of a counter over all heaps; CLASS(field): of one class
 *   ALL(root, field)       the same plus the word at a root
 *   TABLE(field)           a field of the class in hak__classes
 *   RULE, KERNEL, PAGES    follows from others; the kernel's; the ledger's (ledger.c) */

#define AT(type, field) offsetof(struct type, field)
#define OS_CALLS(call) WORD(os_calls, (call) * sizeof(uint64_t))

#define HAK_FIGURE_remote_frees HEAPS(counts.remote_frees)
#define HAK_FIGURE_remote_published HEAPS(counts.remote_published)
#define HAK_FIGURE_remote_forwarded HEAPS(counts.forwarded)
#define HAK_FIGURE_remote_adopted_spans HEAPS(counts.adopted)
#define HAK_FIGURE_remote_common_taken HEAPS(counts.common_taken)
#define HAK_FIGURE_remote_heaps RULE
#define HAK_FIGURE_remote_parked RULE
#define HAK_FIGURE_remote_lock_waits WORD(lock_waits, 0)
#define HAK_FIGURE_system_mmap OS_CALLS(HAK_OS_MAP)
#define HAK_FIGURE_system_munmap OS_CALLS(HAK_OS_UNMAP)
#define HAK_FIGURE_system_madvise OS_CALLS(HAK_OS_PURGE)
#define HAK_FIGURE_system_mremap OS_CALLS(HAK_OS_MOVE)
#define HAK_FIGURE_system_probe OS_CALLS(HAK_OS_PROBE)
#define HAK_FIGURE_system_mincore OS_CALLS(HAK_OS_LOOK)
#define HAK_FIGURE_system_failed WORD(os_failures, 0)
#define HAK_FIGURE_calls_malloc RULE
#define HAK_FIGURE_calls_free RULE
#define HAK_FIGURE_bytes_live RULE
#define HAK_FIGURE_bytes_cached RULE
#define HAK_FIGURE_bytes_spans RULE
#define HAK_FIGURE_bytes_huge ALL(huge_bytes, counts.huge_bytes)
#define HAK_FIGURE_bytes_free_dirty WORD(arena, AT(hak_arena_published, dirty))
#define HAK_FIGURE_bytes_mapped WORD(arena, AT(hak_arena_published, mapped))
#define HAK_FIGURE_bytes_metadata KERNEL
#define HAK_FIGURE_superslabs_taken WORD(arena, AT(hak_arena_published, taken))
#define HAK_FIGURE_superslabs_below_top WORD(frontier, 0)
#define HAK_FIGURE_superslabs_opened WORD(pool, AT(hak_pool_counts, opened))
#define HAK_FIGURE_superslabs_closed WORD(pool, AT(hak_pool_counts, closed))
#define HAK_FIGURE_superslabs_holes WORD(arena, AT(hak_arena_published, holes))
#define HAK_FIGURE_superslabs_slab_runs_claimed HEAPS(counts.runs_claimed)
#define HAK_FIGURE_tiers_hot WORD(tiers, AT(hak_tier_figures, hot))
#define HAK_FIGURE_tiers_draining WORD(tiers, AT(hak_tier_figures, draining))
#define HAK_FIGURE_tiers_to_draining WORD(tiers, AT(hak_tier_figures, to_draining))
#define HAK_FIGURE_tiers_to_hot WORD(tiers, AT(hak_tier_figures, to_hot))
#define HAK_FIGURE_tiers_emptied WORD(tiers, AT(hak_tier_figures, emptied))
#define HAK_FIGURE_tiers_drawn WORD(tiers, AT(hak_tier_figures, drawn))
#define HAK_FIGURE_lru_kept WORD(arena, AT(hak_arena_published, kept))
#define HAK_FIGURE_lru_returned_by_age WORD(arena, AT(hak_arena_published, returned_by_age))
#define HAK_FIGURE_lru_returned_by_bytes WORD(arena, AT(hak_arena_published, returned_by_bytes))
#define HAK_FIGURE_reserve_mapped WORD(arena, AT(hak_arena_published, reserved))
#define HAK_FIGURE_reserve_missed WORD(arena, AT(hak_arena_published, waited))
#define HAK_FIGURE_reserve_prefaulted WORD(thp, AT(hak_thp_counts, prefaulted))
#define HAK_FIGURE_returns_supers WORD(returns, AT(hak_return_counts, returned[HAK_UNUSED_SUPERS]))
#define HAK_FIGURE_returns_slabs WORD(returns, AT(hak_return_counts, returned[HAK_UNUSED_SLABS]))
#define HAK_FIGURE_returns_pages WORD(returns, AT(hak_return_counts, returned[HAK_UNUSED_PAGES]))
#define HAK_FIGURE_returns_regretted_supers WORD(returns, AT(hak_return_counts, regretted[HAK_UNUSED_SUPERS]))
#define HAK_FIGURE_returns_regretted_slabs WORD(returns, AT(hak_return_counts, regretted[HAK_UNUSED_SLABS]))
#define HAK_FIGURE_returns_regretted_pages WORD(returns, AT(hak_return_counts, regretted[HAK_UNUSED_PAGES]))
#define HAK_FIGURE_returns_cost WORD(returns, AT(hak_return_counts, cost_ns))
#define HAK_FIGURE_returns_regret WORD(returns, AT(hak_return_counts, regret_ns))
#define HAK_FIGURE_misuse_invalid WORD(misuse, AT(hak_misuse_counts, kinds[HAK_MISUSE_INVALID]))
#define HAK_FIGURE_misuse_double_frees WORD(misuse, AT(hak_misuse_counts, kinds[HAK_MISUSE_DOUBLE_FREE]))
#define HAK_FIGURE_misuse_sizes WORD(misuse, AT(hak_misuse_counts, kinds[HAK_MISUSE_SIZE]))
#define HAK_FIGURE_misuse_written WORD(misuse, AT(hak_misuse_counts, kinds[HAK_MISUSE_WRITTEN]))
#define HAK_FIGURE_misuse_reported WORD(misuse, AT(hak_misuse_counts, reported))
#define HAK_FIGURE_superslabs_collapsed WORD(thp, AT(hak_thp_counts, collapsed))
#define HAK_FIGURE_superslabs_collapse_refused WORD(thp, AT(hak_thp_counts, refused))
#define HAK_FIGURE_superslabs_split WORD(thp, AT(hak_thp_counts, split))
#define HAK_FIGURE_superslabs_lock_takes WORD(arena, AT(hak_arena_published, lock_takes))
#define HAK_FIGURE_huge_live RULE
#define HAK_FIGURE_huge_allocated ALL(huge_allocated, counts.huge_allocated)
#define HAK_FIGURE_huge_freed ALL(huge_freed, counts.huge_freed)
#define HAK_FIGURE_huge_grown_in_place WORD(huge, AT(hak_huge_counts, grown_in_place))
#define HAK_FIGURE_huge_moved WORD(huge, AT(hak_huge_counts, moved))
#define HAK_FIGURE_upkeep_steps WORD(upkeep, AT(hak_upkeep_counts, steps))
#define HAK_FIGURE_upkeep_collected_heaps WORD(upkeep, AT(hak_upkeep_counts, collected_heaps))
#define HAK_FIGURE_upkeep_outbox_blocks WORD(upkeep, AT(hak_upkeep_counts, outbox_blocks))
#define HAK_FIGURE_upkeep_spans_ended WORD(upkeep, AT(hak_upkeep_counts, spans_ended))
#define HAK_FIGURE_upkeep_span_purges WORD(upkeep, AT(hak_upkeep_counts, span_purges))
#define HAK_FIGURE_upkeep_span_purged WORD(upkeep, AT(hak_upkeep_counts, span_purged))
#define HAK_FIGURE_upkeep_armings WORD(upkeep, AT(hak_upkeep_counts, armings))
#define HAK_FIGURE_upkeep_background WORD(returns, AT(hak_return_counts, watched))
#define HAK_FIGURE_upkeep_background_starts WORD(upkeep, AT(hak_upkeep_counts, background_starts))
#define HAK_FIGURE_upkeep_background_wakeups WORD(upkeep, AT(hak_upkeep_counts, background_wakeups))
#define HAK_FIGURE_process_peak_rss_bytes KERNEL
#define HAK_FIGURE_process_minor_faults KERNEL
#define HAK_FIGURE_ledger_live PAGES
#define HAK_FIGURE_ledger_cached PAGES
#define HAK_FIGURE_ledger_free_in_slabs PAGES
#define HAK_FIGURE_ledger_frontier_slack PAGES
#define HAK_FIGURE_ledger_empty PAGES
#define HAK_FIGURE_ledger_huge PAGES
#define HAK_FIGURE_ledger_metadata PAGES
#define HAK_FIGURE_ledger_not_ours PAGES
#define HAK_FIGURE_ledger_sum PAGES
#define HAK_FIGURE_ledger_rss PAGES
#define HAK_FIGURE_ledger_unread_spans PAGES
#define HAK_FIGURE_ledger_huge_pages PAGES
#define HAK_FIGURE_total_refilled RULE
#define HAK_FIGURE_total_drained RULE
#define HAK_FIGURE_total_misses RULE
#define HAK_FIGURE_total_live RULE
#define HAK_FIGURE_total_peak_bytes WORD(arena, AT(hak_arena_published, peak))

#define HAK_FIGURE_stages_own_hint HEAPS(counts.stages[HAK_STAGE_OWN_HINT])
#define HAK_FIGURE_stages_own_empty HEAPS(counts.stages[HAK_STAGE_OWN_EMPTY])
#define HAK_FIGURE_stages_adopted HEAPS(counts.stages[HAK_STAGE_ADOPTED])
#define HAK_FIGURE_stages_claimed HEAPS(counts.stages[HAK_STAGE_CLAIMED])
#define HAK_FIGURE_stages_locked HEAPS(counts.stages[HAK_STAGE_LOCKED])

#define HAK_COLUMN_size TABLE(size)
#define HAK_COLUMN_spans CLASS(span_count)
#define HAK_COLUMN_live RULE
#define HAK_COLUMN_cached RULE
#define HAK_COLUMN_refilled CLASS(refilled)
#define HAK_COLUMN_drained CLASS(drained)
#define HAK_COLUMN_collected CLASS(collected)
#define HAK_COLUMN_misses CLASS(misses)
#define HAK_COLUMN_outbox RULE
#define HAK_COLUMN_mallocs CLASS(mallocs)
#define HAK_COLUMN_frees CLASS(frees)
#define HAK_COLUMN_hits RULE
#define HAK_COLUMN_pinned PAGES
#define HAK_COLUMN_warm_hits CLASS(warm_hits)
#define HAK_COLUMN_warm_prefilled CLASS(warm_prefilled)

/* --- times of slow paths ---------------------------------------------------------------------------------------------- */

/* How long slow paths take (HAKMEM_LATENCY=1): two histograms of the process, in powers of two of a nanosecond. While the option is
 * off, a slow path loads one word and takes an always equal branch. Called by request.c and kinds/. */

enum hak_latency_kind { HAK_LATENCY_MALLOC, HAK_LATENCY_FREE, HAK_LATENCY_KINDS };
enum { HAK_LATENCY_BUCKETS = 32 }; /* bucket i: less than 2^i ns; the last one: all longer times too */

struct hak_latency {
    _Atomic uint64_t sum, buckets[HAK_LATENCY_BUCKETS]; /* sum: ns */
};
extern struct hak_latency hak__latencies[HAK_LATENCY_KINDS];

uint64_t hak__latency_now(void);
void hak__latency_add(enum hak_latency_kind kind, uint64_t started);

/* Around a slow path: hak__latency_begin returns the start time, or 0 while the option is off. */
hak_inline uint64_t hak__latency_begin(void) { return hak_unlikely(hak__option(HAK_OPTION_latency) != 0) ? hak__latency_now() : 0; }
hak_inline void hak__latency_end(enum hak_latency_kind kind, uint64_t started)
{
    if (hak_unlikely(started != 0))
        hak__latency_add(kind, started);
}

uint64_t hak__latency_sum(enum hak_latency_kind kind); /* ns */
uint64_t hak__latency_bucket(enum hak_latency_kind kind, unsigned bucket);
