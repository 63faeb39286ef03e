// HAKMEM's figures as OpenMetrics text, for a C++ program that serves its own /metrics (docs/fleet.md). Written by
// tools/gen_lab_metrics.py from src/diag/stats.def.
//
//   std::string page = hak::open_metrics();                  // ends in "# EOF"; Content-Type: hak::open_metrics_type
//   std::string part = hak::open_metrics(false);             // without it, to append one's own metrics
#ifndef HAKMEM_PROMETHEUS_H
#define HAKMEM_PROMETHEUS_H

#ifdef __cplusplus
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "../hakmem_stats.h"

namespace hak {

constexpr const char *open_metrics_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";

namespace detail {

struct figure {
    const char *name, *unit;
    bool counts;
    std::uint64_t flag;
    std::size_t offset;
    const char *help;
};

inline constexpr figure figures[] = {
    {"hakmem_remote_frees", "", true, 0, offsetof(struct hak_stats, remote_frees),
     "Frees of other heaps' blocks, counted when published."},
    {"hakmem_remote_published", "", true, 0, offsetof(struct hak_stats, remote_published),
     "Atomic operations that published them."},
    {"hakmem_remote_forwarded", "", true, 0, offsetof(struct hak_stats, remote_forwarded),
     "Spans met on the wrong pending stack and sent on."},
    {"hakmem_remote_adopted_spans", "", true, 0, offsetof(struct hak_stats, remote_adopted_spans),
     "Spans taken over from heaps whose thread has ended."},
    {"hakmem_remote_common_taken", "", true, 0, offsetof(struct hak_stats, remote_common_taken),
     "Blocks that common heaps gave to threads."},
    {"hakmem_remote_heaps", "", false, 0, offsetof(struct hak_stats, remote_heaps),
     "Heaps that exist."},
    {"hakmem_remote_parked", "", false, 0, offsetof(struct hak_stats, remote_parked),
     "Heaps without a thread."},
    {"hakmem_remote_lock_waits", "", true, 0, offsetof(struct hak_stats, remote_lock_waits),
     "Times that a lock was already held."},
    {"hakmem_system_calls_mmap", "", true, 0, offsetof(struct hak_stats, system_mmap),
     "Growth."},
    {"hakmem_system_calls_munmap", "", true, 0, offsetof(struct hak_stats, system_munmap),
     "Return of address space."},
    {"hakmem_system_calls_madvise", "", true, 0, offsetof(struct hak_stats, system_madvise),
     "Return of pages."},
    {"hakmem_system_calls_mremap", "", true, 0, offsetof(struct hak_stats, system_mremap),
     "Huge blocks moved without copying."},
    {"hakmem_system_calls_probe", "", true, 0, offsetof(struct hak_stats, system_probe),
     "Searches for addresses after the random window was refused."},
    {"hakmem_system_calls_mincore", "", true, 0, offsetof(struct hak_stats, system_mincore),
     "Questions which pages are resident."},
    {"hakmem_system_calls_failed", "", true, 0, offsetof(struct hak_stats, system_failed),
     "Calls that the system refused."},
    {"hakmem_calls_malloc", "", true, HAK_STATS_HAS_CALLS, offsetof(struct hak_stats, calls_malloc),
     "Allocations, without huge ones."},
    {"hakmem_calls_free", "", true, HAK_STATS_HAS_CALLS, offsetof(struct hak_stats, calls_free),
     "Frees by the blocks' owner, without huge ones."},
    {"hakmem_memory_live_bytes", "bytes", false, 0, offsetof(struct hak_stats, bytes_live),
     "Live blocks, whole, without huge ones."},
    {"hakmem_memory_cached_bytes", "bytes", false, 0, offsetof(struct hak_stats, bytes_cached),
     "In bins and outboxes."},
    {"hakmem_memory_spans_bytes", "bytes", false, 0, offsetof(struct hak_stats, bytes_spans),
     "All spans, as mapped."},
    {"hakmem_memory_huge_bytes", "bytes", false, 0, offsetof(struct hak_stats, bytes_huge),
     "Huge blocks, as mapped."},
    {"hakmem_memory_free_dirty_bytes", "bytes", false, 0, offsetof(struct hak_stats, bytes_free_dirty),
     "Free SuperSlabs that may still be resident."},
    {"hakmem_memory_mapped_bytes", "bytes", false, 0, offsetof(struct hak_stats, bytes_mapped),
     "Everything mapped for blocks."},
    {"hakmem_memory_metadata_bytes", "bytes", false, 0, offsetof(struct hak_stats, bytes_metadata),
     "Mapped for the library's tables."},
    {"hakmem_superslabs_taken", "", false, 0, offsetof(struct hak_stats, superslabs_taken),
     "In use: divided into slabs, part of a huge block, or a hole."},
    {"hakmem_superslabs_below_top", "", false, 0, offsetof(struct hak_stats, superslabs_below_top),
     "Reached so far, in use or free."},
    {"hakmem_superslabs_opened", "", true, 0, offsetof(struct hak_stats, superslabs_opened),
     "Opened: divided into slabs."},
    {"hakmem_superslabs_closed", "", true, 0, offsetof(struct hak_stats, superslabs_closed),
     "Closed: returned whole."},
    {"hakmem_superslabs_holes", "", false, 0, offsetof(struct hak_stats, superslabs_holes),
     "Skipped because a foreign mapping is there."},
    {"hakmem_superslabs_slab_runs_claimed", "", true, 0, offsetof(struct hak_stats, superslabs_slab_runs_claimed),
     "Runs of slabs found without a lock."},
    {"hakmem_superslabs_collapsed", "", true, 0, offsetof(struct hak_stats, superslabs_collapsed),
     "Made one huge page."},
    {"hakmem_superslabs_collapse_refused", "", true, 0, offsetof(struct hak_stats, superslabs_collapse_refused),
     "Collapses that the system refused."},
    {"hakmem_superslabs_split", "", true, 0, offsetof(struct hak_stats, superslabs_split),
     "Huge pages of which parts were returned while at most half was in use."},
    {"hakmem_superslabs_lock_takes", "", true, 0, offsetof(struct hak_stats, superslabs_lock_takes),
     "Times that the lock over all SuperSlabs was taken."},
    {"hakmem_huge_live", "", false, 0, offsetof(struct hak_stats, huge_live),
     "Live huge blocks."},
    {"hakmem_huge_allocated", "", true, 0, offsetof(struct hak_stats, huge_allocated),
     "Huge blocks handed out."},
    {"hakmem_huge_freed", "", true, 0, offsetof(struct hak_stats, huge_freed),
     "Huge blocks freed."},
    {"hakmem_huge_grown_in_place", "", true, 0, offsetof(struct hak_stats, huge_grown_in_place),
     "Huge blocks that grew in place."},
    {"hakmem_huge_moved", "", true, 0, offsetof(struct hak_stats, huge_moved),
     "Huge blocks whose pages the kernel moved."},
    {"hakmem_upkeep_steps", "", true, 0, offsetof(struct hak_stats, upkeep_steps),
     "Steps taken."},
    {"hakmem_upkeep_collected_heaps", "", true, 0, offsetof(struct hak_stats, upkeep_collected_heaps),
     "Heaps for which a step collected frees."},
    {"hakmem_upkeep_outbox_blocks", "", true, 0, offsetof(struct hak_stats, upkeep_outbox_blocks),
     "Blocks published from the outboxes of other threads."},
    {"hakmem_upkeep_spans_ended", "", true, 0, offsetof(struct hak_stats, upkeep_spans_ended),
     "Idle, wholly free spans that were ended."},
    {"hakmem_upkeep_span_purges", "", true, 0, offsetof(struct hak_stats, upkeep_span_purges),
     "Runs of pages returned from idle spans that are in use."},
    {"hakmem_upkeep_span_purged_bytes", "bytes", true, 0, offsetof(struct hak_stats, upkeep_span_purged),
     "Their bytes."},
    {"hakmem_upkeep_armings", "", true, 0, offsetof(struct hak_stats, upkeep_armings),
     "Times that a heap began to poll."},
    {"hakmem_upkeep_background", "", false, 0, offsetof(struct hak_stats, upkeep_background),
     "1 while there is a background thread."},
    {"hakmem_upkeep_background_starts", "", true, 0, offsetof(struct hak_stats, upkeep_background_starts),
     "Times that it was started."},
    {"hakmem_upkeep_background_wakeups", "", true, 0, offsetof(struct hak_stats, upkeep_background_wakeups),
     "Times that it woke."},
    {"hakmem_process_peak_rss_bytes", "bytes", false, 0, offsetof(struct hak_stats, process_peak_rss_bytes),
     "The process's largest resident size."},
    {"hakmem_process_minor_faults", "", true, 0, offsetof(struct hak_stats, process_minor_faults),
     "Page faults served without reading from disk."},
    {"hakmem_ledger_live_bytes", "bytes", false, HAK_STATS_HAS_LEDGER, offsetof(struct hak_stats, ledger_live),
     "Resident: live blocks."},
    {"hakmem_ledger_cached_bytes", "bytes", false, HAK_STATS_HAS_LEDGER, offsetof(struct hak_stats, ledger_cached),
     "Resident: in bins and outboxes."},
    {"hakmem_ledger_free_in_slabs_bytes", "bytes", false, HAK_STATS_HAS_LEDGER, offsetof(struct hak_stats, ledger_free_in_slabs),
     "Resident: free blocks of spans."},
    {"hakmem_ledger_frontier_slack_bytes", "bytes", false, HAK_STATS_HAS_LEDGER, offsetof(struct hak_stats, ledger_frontier_slack),
     "Resident: beyond a span's frontier, and the ends of slabs."},
    {"hakmem_ledger_empty_bytes", "bytes", false, HAK_STATS_HAS_LEDGER, offsetof(struct hak_stats, ledger_empty),
     "Resident: unused slabs, free SuperSlabs and tails of huge blocks."},
    {"hakmem_ledger_huge_bytes", "bytes", false, HAK_STATS_HAS_LEDGER, offsetof(struct hak_stats, ledger_huge),
     "Resident: huge blocks."},
    {"hakmem_ledger_metadata_bytes", "bytes", false, HAK_STATS_HAS_LEDGER, offsetof(struct hak_stats, ledger_metadata),
     "Resident: the library's tables."},
    {"hakmem_ledger_not_ours_bytes", "bytes", false, HAK_STATS_HAS_LEDGER, offsetof(struct hak_stats, ledger_not_ours),
     "Resident: code, stacks and all other mappings."},
    {"hakmem_ledger_sum_bytes", "bytes", false, HAK_STATS_HAS_LEDGER, offsetof(struct hak_stats, ledger_sum),
     "The sum of the resident bytes by state."},
    {"hakmem_ledger_rss_bytes", "bytes", false, HAK_STATS_HAS_LEDGER, offsetof(struct hak_stats, ledger_rss),
     "Resident bytes of all mappings by the kernel's account."},
    {"hakmem_ledger_unread_spans", "", false, HAK_STATS_HAS_LEDGER, offsetof(struct hak_stats, ledger_unread_spans),
     "Spans skipped because they were in use."},
    {"hakmem_ledger_huge_pages_bytes", "bytes", false, HAK_STATS_HAS_LEDGER, offsetof(struct hak_stats, ledger_huge_pages),
     "Resident in huge pages of the heap; part of the states above."},
    {"hakmem_total_refilled", "", true, 0, offsetof(struct hak_stats, total_refilled),
     "Blocks moved from spans into bins."},
    {"hakmem_total_drained", "", true, 0, offsetof(struct hak_stats, total_drained),
     "Blocks drained and collected."},
    {"hakmem_total_misses", "", true, 0, offsetof(struct hak_stats, total_misses),
     "Allocations that found a bin empty."},
    {"hakmem_total_live", "", false, 0, offsetof(struct hak_stats, total_live),
     "Live blocks, without huge ones."},
    {"hakmem_total_peak_bytes", "bytes", false, 0, offsetof(struct hak_stats, total_peak_bytes),
     "Most bytes mapped for blocks at once."},
    {"hakmem_span_sources_own_hint", "", true, 0, offsetof(struct hak_stats, stages_own_hint),
     "Previously used slabs of the SuperSlab used last."},
    {"hakmem_span_sources_own_empty", "", true, 0, offsetof(struct hak_stats, stages_own_empty),
     "An empty span of another class, of the same heap."},
    {"hakmem_span_sources_adopted", "", true, 0, offsetof(struct hak_stats, stages_adopted),
     "Adoptions from heaps whose thread has ended."},
    {"hakmem_span_sources_claimed", "", true, 0, offsetof(struct hak_stats, stages_claimed),
     "Unused slabs of any SuperSlab, without a lock."},
    {"hakmem_span_sources_locked", "", true, 0, offsetof(struct hak_stats, stages_locked),
     "A new SuperSlab, under a lock."},
    {"hakmem_tiers_hot", "", false, 0, offsetof(struct hak_stats, tiers_hot),
     "SuperSlabs with slabs that serve first."},
    {"hakmem_tiers_draining", "", false, 0, offsetof(struct hak_stats, tiers_draining),
     "SuperSlabs with slabs that are left to empty."},
    {"hakmem_tiers_to_draining", "", true, 0, offsetof(struct hak_stats, tiers_to_draining),
     "SuperSlabs that began to drain."},
    {"hakmem_tiers_to_hot", "", true, 0, offsetof(struct hak_stats, tiers_to_hot),
     "Draining SuperSlabs that filled again."},
    {"hakmem_tiers_emptied", "", true, 0, offsetof(struct hak_stats, tiers_emptied),
     "Draining SuperSlabs that emptied."},
    {"hakmem_tiers_drawn", "", true, 0, offsetof(struct hak_stats, tiers_drawn),
     "Runs of slabs served by draining SuperSlabs after all."},
    {"hakmem_lru_kept", "", false, 0, offsetof(struct hak_stats, lru_kept),
     "Emptied SuperSlabs that are kept for reuse."},
    {"hakmem_lru_returned_by_age_bytes", "bytes", true, 0, offsetof(struct hak_stats, lru_returned_by_age),
     "Bytes of them returned because of age."},
    {"hakmem_lru_returned_by_bytes", "bytes", true, 0, offsetof(struct hak_stats, lru_returned_by_bytes),
     "Bytes of them returned because of the limit."},
    {"hakmem_reserve_mapped", "", true, 0, offsetof(struct hak_stats, reserve_mapped),
     "SuperSlabs mapped ahead of need by upkeep."},
    {"hakmem_reserve_missed", "", true, 0, offsetof(struct hak_stats, reserve_missed),
     "Requests that had to map memory."},
    {"hakmem_reserve_prefaulted", "", true, 0, offsetof(struct hak_stats, reserve_prefaulted),
     "SuperSlabs made one huge page when they were opened."},
    {"hakmem_returns_supers_bytes", "bytes", true, 0, offsetof(struct hak_stats, returns_supers),
     "Emptied SuperSlabs and tails of huge blocks returned to the system."},
    {"hakmem_returns_slabs_bytes", "bytes", true, 0, offsetof(struct hak_stats, returns_slabs),
     "Unused slabs returned."},
    {"hakmem_returns_pages_bytes", "bytes", true, 0, offsetof(struct hak_stats, returns_pages),
     "Pages in free blocks returned."},
    {"hakmem_returns_regretted_supers_bytes", "bytes", true, 0, offsetof(struct hak_stats, returns_regretted_supers),
     "Returned SuperSlabs that were used again soon."},
    {"hakmem_returns_regretted_slabs_bytes", "bytes", true, 0, offsetof(struct hak_stats, returns_regretted_slabs),
     "Returned slabs that were."},
    {"hakmem_returns_regretted_pages_bytes", "bytes", true, 0, offsetof(struct hak_stats, returns_regretted_pages),
     "Returned pages that were, at most."},
    {"hakmem_returns_cost", "", true, 0, offsetof(struct hak_stats, returns_cost),
     "Nanoseconds that returning has taken."},
    {"hakmem_returns_regret", "", true, 0, offsetof(struct hak_stats, returns_regret),
     "Nanoseconds that the faults on regretted memory have taken, as estimated."},
    {"hakmem_misuse_invalid", "", true, 0, offsetof(struct hak_stats, misuse_invalid),
     "Calls with a pointer or heap that is none, survived."},
    {"hakmem_misuse_double_frees", "", true, 0, offsetof(struct hak_stats, misuse_double_frees),
     "Second frees, survived."},
    {"hakmem_misuse_sizes", "", true, 0, offsetof(struct hak_stats, misuse_sizes),
     "Sized frees with a wrong size, survived."},
    {"hakmem_misuse_written", "", true, 0, offsetof(struct hak_stats, misuse_written),
     "Blocks found written past their end or after their free, survived."},
    {"hakmem_misuse_reported", "", true, 0, offsetof(struct hak_stats, misuse_reported),
     "Reports of the above: one per place in the program."},
};

}  // namespace detail

// The figures now; no thread is stopped. Empty if the library refuses.
inline std::string open_metrics(bool end = true) {
    struct hak_stats stats;
    if (hak_stats_snapshot(&stats, sizeof stats) != 0) return {};
    std::string page;
    page.reserve(16384);
    for (const detail::figure &each : detail::figures) {
        if (each.offset + sizeof(std::uint64_t) > stats.size || (each.flag != 0 && (stats.flags & each.flag) == 0)) continue;
        std::uint64_t value;
        std::memcpy(&value, reinterpret_cast<const char *>(&stats) + each.offset, sizeof value);
        page.append("# TYPE ").append(each.name).append(each.counts ? " counter\n" : " gauge\n");
        if (*each.unit != 0) page.append("# UNIT ").append(each.name).append(" ").append(each.unit).append("\n");
        page.append("# HELP ").append(each.name).append(" ").append(each.help).append("\n");
        page.append(each.name).append(each.counts ? "_total " : " ").append(std::to_string(value)).append("\n");
    }
    if (end) page.append("# EOF\n");
    return page;
}

}  // namespace hak

#endif
#endif
