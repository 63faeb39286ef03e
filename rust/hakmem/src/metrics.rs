//! The figures as a collector of `prometheus-client`. Written by tools/gen_lab_metrics.py from src/diag/stats.def.
//!
//! ```
//! # #[global_allocator] static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;
//! let mut registry = prometheus_client::registry::Registry::default();
//! registry.register_collector(Box::new(hakmem::metrics::Collector));
//! let mut page = String::new();
//! prometheus_client::encoding::text::encode(&mut page, &registry)?;
//! assert!(page.contains("hakmem_memory_live_bytes "));
//! # Ok::<(), core::fmt::Error>(())
//! ```
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::{counter::ConstCounter, gauge::ConstGauge, MetricType};
use prometheus_client::registry::Unit;

use crate::{sys, Stats};

/// Gives the allocator's figures at each scrape; it has no state of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Collector;

struct Figure {
    name: &'static str,
    unit: &'static str,
    counts: bool,
    flag: u64,
    help: &'static str,
    of: fn(&Stats) -> u64,
}

impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), core::fmt::Error> {
        let stats = crate::stats().map_err(|_| core::fmt::Error)?;
        for each in FIGURES.iter().filter(|each| each.flag == 0 || stats.flags & each.flag != 0) {
            let unit = (each.unit == "bytes").then_some(Unit::Bytes);
            let name = if unit.is_some() { each.name.trim_end_matches("_bytes") } else { each.name };
            let kind = if each.counts { MetricType::Counter } else { MetricType::Gauge };
            let help = each.help.trim_end_matches('.');
            let value = (each.of)(&stats);
            let metric = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
            if each.counts {
                ConstCounter::new(value).encode(metric)?;
            } else {
                ConstGauge::new(value).encode(metric)?;
            }
        }
        Ok(())
    }
}

#[rustfmt::skip]
const FIGURES: &[Figure] = &[
    Figure { name: "hakmem_remote_frees", unit: "", counts: true, flag: 0,
             help: "Frees of other heaps' blocks, counted when published.", of: |stats| stats.remote_frees },
    Figure { name: "hakmem_remote_published", unit: "", counts: true, flag: 0,
             help: "Atomic operations that published them.", of: |stats| stats.remote_published },
    Figure { name: "hakmem_remote_forwarded", unit: "", counts: true, flag: 0,
             help: "Spans met on the wrong pending stack and sent on.", of: |stats| stats.remote_forwarded },
    Figure { name: "hakmem_remote_adopted_spans", unit: "", counts: true, flag: 0,
             help: "Spans taken over from heaps whose thread has ended.", of: |stats| stats.remote_adopted_spans },
    Figure { name: "hakmem_remote_common_taken", unit: "", counts: true, flag: 0,
             help: "Blocks that common heaps gave to threads.", of: |stats| stats.remote_common_taken },
    Figure { name: "hakmem_remote_heaps", unit: "", counts: false, flag: 0,
             help: "Heaps that exist.", of: |stats| stats.remote_heaps },
    Figure { name: "hakmem_remote_parked", unit: "", counts: false, flag: 0,
             help: "Heaps without a thread.", of: |stats| stats.remote_parked },
    Figure { name: "hakmem_remote_lock_waits", unit: "", counts: true, flag: 0,
             help: "Times that a lock was already held.", of: |stats| stats.remote_lock_waits },
    Figure { name: "hakmem_system_calls_mmap", unit: "", counts: true, flag: 0,
             help: "Growth.", of: |stats| stats.system_mmap },
    Figure { name: "hakmem_system_calls_munmap", unit: "", counts: true, flag: 0,
             help: "Return of address space.", of: |stats| stats.system_munmap },
    Figure { name: "hakmem_system_calls_madvise", unit: "", counts: true, flag: 0,
             help: "Return of pages.", of: |stats| stats.system_madvise },
    Figure { name: "hakmem_system_calls_mremap", unit: "", counts: true, flag: 0,
             help: "Huge blocks moved without copying.", of: |stats| stats.system_mremap },
    Figure { name: "hakmem_system_calls_probe", unit: "", counts: true, flag: 0,
             help: "Searches for addresses after the random window was refused.", of: |stats| stats.system_probe },
    Figure { name: "hakmem_system_calls_mincore", unit: "", counts: true, flag: 0,
             help: "Questions which pages are resident.", of: |stats| stats.system_mincore },
    Figure { name: "hakmem_system_calls_failed", unit: "", counts: true, flag: 0,
             help: "Calls that the system refused.", of: |stats| stats.system_failed },
    Figure { name: "hakmem_calls_malloc", unit: "", counts: true, flag: sys::HAK_STATS_HAS_CALLS,
             help: "Allocations, without huge ones.", of: |stats| stats.calls_malloc },
    Figure { name: "hakmem_calls_free", unit: "", counts: true, flag: sys::HAK_STATS_HAS_CALLS,
             help: "Frees by the blocks' owner, without huge ones.", of: |stats| stats.calls_free },
    Figure { name: "hakmem_memory_live_bytes", unit: "bytes", counts: false, flag: 0,
             help: "Live blocks, whole, without huge ones.", of: |stats| stats.bytes_live },
    Figure { name: "hakmem_memory_cached_bytes", unit: "bytes", counts: false, flag: 0,
             help: "In bins and outboxes.", of: |stats| stats.bytes_cached },
    Figure { name: "hakmem_memory_spans_bytes", unit: "bytes", counts: false, flag: 0,
             help: "All spans, whole.", of: |stats| stats.bytes_spans },
    Figure { name: "hakmem_memory_huge_bytes", unit: "bytes", counts: false, flag: 0,
             help: "Huge blocks, as mapped.", of: |stats| stats.bytes_huge },
    Figure { name: "hakmem_memory_free_dirty_bytes", unit: "bytes", counts: false, flag: 0,
             help: "Free SuperSlabs that may still be resident.", of: |stats| stats.bytes_free_dirty },
    Figure { name: "hakmem_memory_mapped_bytes", unit: "bytes", counts: false, flag: 0,
             help: "Everything mapped for blocks.", of: |stats| stats.bytes_mapped },
    Figure { name: "hakmem_memory_metadata_bytes", unit: "bytes", counts: false, flag: 0,
             help: "Mapped for the library's tables.", of: |stats| stats.bytes_metadata },
    Figure { name: "hakmem_superslabs_taken", unit: "", counts: false, flag: 0,
             help: "In use: divided into slabs, part of a huge block, or a hole.", of: |stats| stats.superslabs_taken },
    Figure { name: "hakmem_superslabs_below_top", unit: "", counts: false, flag: 0,
             help: "Reached so far, in use or free.", of: |stats| stats.superslabs_below_top },
    Figure { name: "hakmem_superslabs_opened", unit: "", counts: true, flag: 0,
             help: "Opened: divided into slabs.", of: |stats| stats.superslabs_opened },
    Figure { name: "hakmem_superslabs_closed", unit: "", counts: true, flag: 0,
             help: "Closed: returned whole.", of: |stats| stats.superslabs_closed },
    Figure { name: "hakmem_superslabs_holes", unit: "", counts: false, flag: 0,
             help: "Skipped because a foreign mapping is there.", of: |stats| stats.superslabs_holes },
    Figure { name: "hakmem_superslabs_slab_runs_claimed", unit: "", counts: true, flag: 0,
             help: "Runs of slabs found without a lock.", of: |stats| stats.superslabs_slab_runs_claimed },
    Figure { name: "hakmem_superslabs_collapsed", unit: "", counts: true, flag: 0,
             help: "Made one huge page.", of: |stats| stats.superslabs_collapsed },
    Figure { name: "hakmem_superslabs_collapse_refused", unit: "", counts: true, flag: 0,
             help: "Collapses that the system refused.", of: |stats| stats.superslabs_collapse_refused },
    Figure { name: "hakmem_superslabs_split", unit: "", counts: true, flag: 0,
             help: "Huge pages of which parts were returned while at most half was in use.", of: |stats| stats.superslabs_split },
    Figure { name: "hakmem_superslabs_lock_takes", unit: "", counts: true, flag: 0,
             help: "Times that the lock over all SuperSlabs was taken.", of: |stats| stats.superslabs_lock_takes },
    Figure { name: "hakmem_huge_live", unit: "", counts: false, flag: 0,
             help: "Live huge blocks.", of: |stats| stats.huge_live },
    Figure { name: "hakmem_huge_allocated", unit: "", counts: true, flag: 0,
             help: "Huge blocks handed out.", of: |stats| stats.huge_allocated },
    Figure { name: "hakmem_huge_freed", unit: "", counts: true, flag: 0,
             help: "Huge blocks freed.", of: |stats| stats.huge_freed },
    Figure { name: "hakmem_huge_grown_in_place", unit: "", counts: true, flag: 0,
             help: "Huge blocks that grew in place.", of: |stats| stats.huge_grown_in_place },
    Figure { name: "hakmem_huge_moved", unit: "", counts: true, flag: 0,
             help: "Huge blocks whose pages the kernel moved.", of: |stats| stats.huge_moved },
    Figure { name: "hakmem_upkeep_steps", unit: "", counts: true, flag: 0,
             help: "Steps taken.", of: |stats| stats.upkeep_steps },
    Figure { name: "hakmem_upkeep_collected_heaps", unit: "", counts: true, flag: 0,
             help: "Heaps for which a step collected frees.", of: |stats| stats.upkeep_collected_heaps },
    Figure { name: "hakmem_upkeep_outbox_blocks", unit: "", counts: true, flag: 0,
             help: "Blocks published from the outboxes of other threads.", of: |stats| stats.upkeep_outbox_blocks },
    Figure { name: "hakmem_upkeep_spans_ended", unit: "", counts: true, flag: 0,
             help: "Idle, wholly free spans that were ended.", of: |stats| stats.upkeep_spans_ended },
    Figure { name: "hakmem_upkeep_span_purges", unit: "", counts: true, flag: 0,
             help: "Runs of pages returned from idle spans that are in use.", of: |stats| stats.upkeep_span_purges },
    Figure { name: "hakmem_upkeep_span_purged_bytes", unit: "bytes", counts: true, flag: 0,
             help: "Their bytes.", of: |stats| stats.upkeep_span_purged },
    Figure { name: "hakmem_upkeep_armings", unit: "", counts: true, flag: 0,
             help: "Times that a heap began to poll.", of: |stats| stats.upkeep_armings },
    Figure { name: "hakmem_upkeep_background", unit: "", counts: false, flag: 0,
             help: "1 while there is a background thread.", of: |stats| stats.upkeep_background },
    Figure { name: "hakmem_upkeep_background_starts", unit: "", counts: true, flag: 0,
             help: "Times that it was started.", of: |stats| stats.upkeep_background_starts },
    Figure { name: "hakmem_upkeep_background_wakeups", unit: "", counts: true, flag: 0,
             help: "Times that it woke.", of: |stats| stats.upkeep_background_wakeups },
    Figure { name: "hakmem_process_peak_rss_bytes", unit: "bytes", counts: false, flag: 0,
             help: "The process's largest resident size.", of: |stats| stats.process_peak_rss_bytes },
    Figure { name: "hakmem_process_minor_faults", unit: "", counts: true, flag: 0,
             help: "Page faults served without reading from disk.", of: |stats| stats.process_minor_faults },
    Figure { name: "hakmem_ledger_live_bytes", unit: "bytes", counts: false, flag: sys::HAK_STATS_HAS_LEDGER,
             help: "Resident: live blocks.", of: |stats| stats.ledger_live },
    Figure { name: "hakmem_ledger_cached_bytes", unit: "bytes", counts: false, flag: sys::HAK_STATS_HAS_LEDGER,
             help: "Resident: in bins and outboxes.", of: |stats| stats.ledger_cached },
    Figure { name: "hakmem_ledger_free_in_slabs_bytes", unit: "bytes", counts: false, flag: sys::HAK_STATS_HAS_LEDGER,
             help: "Resident: free blocks of spans.", of: |stats| stats.ledger_free_in_slabs },
    Figure { name: "hakmem_ledger_frontier_slack_bytes", unit: "bytes", counts: false, flag: sys::HAK_STATS_HAS_LEDGER,
             help: "Resident: beyond a span's frontier, and the ends of slabs.", of: |stats| stats.ledger_frontier_slack },
    Figure { name: "hakmem_ledger_empty_bytes", unit: "bytes", counts: false, flag: sys::HAK_STATS_HAS_LEDGER,
             help: "Resident: unused slabs, free SuperSlabs and tails of huge blocks.", of: |stats| stats.ledger_empty },
    Figure { name: "hakmem_ledger_huge_bytes", unit: "bytes", counts: false, flag: sys::HAK_STATS_HAS_LEDGER,
             help: "Resident: huge blocks.", of: |stats| stats.ledger_huge },
    Figure { name: "hakmem_ledger_metadata_bytes", unit: "bytes", counts: false, flag: sys::HAK_STATS_HAS_LEDGER,
             help: "Resident: the library's tables.", of: |stats| stats.ledger_metadata },
    Figure { name: "hakmem_ledger_not_ours_bytes", unit: "bytes", counts: false, flag: sys::HAK_STATS_HAS_LEDGER,
             help: "Resident: code, stacks and all other mappings.", of: |stats| stats.ledger_not_ours },
    Figure { name: "hakmem_ledger_sum_bytes", unit: "bytes", counts: false, flag: sys::HAK_STATS_HAS_LEDGER,
             help: "The sum of the resident bytes by state.", of: |stats| stats.ledger_sum },
    Figure { name: "hakmem_ledger_rss_bytes", unit: "bytes", counts: false, flag: sys::HAK_STATS_HAS_LEDGER,
             help: "Resident bytes of all mappings by the kernel's account.", of: |stats| stats.ledger_rss },
    Figure { name: "hakmem_ledger_unread_spans", unit: "", counts: false, flag: sys::HAK_STATS_HAS_LEDGER,
             help: "Spans skipped because they were in use.", of: |stats| stats.ledger_unread_spans },
    Figure { name: "hakmem_ledger_huge_pages_bytes", unit: "bytes", counts: false, flag: sys::HAK_STATS_HAS_LEDGER,
             help: "Resident in huge pages of the heap; part of the states above.", of: |stats| stats.ledger_huge_pages },
    Figure { name: "hakmem_total_refilled", unit: "", counts: true, flag: 0,
             help: "Blocks moved from spans into bins.", of: |stats| stats.total_refilled },
    Figure { name: "hakmem_total_drained", unit: "", counts: true, flag: 0,
             help: "Blocks drained and collected.", of: |stats| stats.total_drained },
    Figure { name: "hakmem_total_misses", unit: "", counts: true, flag: 0,
             help: "Allocations that found a bin empty.", of: |stats| stats.total_misses },
    Figure { name: "hakmem_total_live", unit: "", counts: false, flag: 0,
             help: "Live blocks, without huge ones.", of: |stats| stats.total_live },
    Figure { name: "hakmem_total_peak_bytes", unit: "bytes", counts: false, flag: 0,
             help: "Most bytes mapped for blocks at once.", of: |stats| stats.total_peak_bytes },
    Figure { name: "hakmem_span_sources_own_hint", unit: "", counts: true, flag: 0,
             help: "Previously used slabs of the SuperSlab used last.", of: |stats| stats.stages_own_hint },
    Figure { name: "hakmem_span_sources_own_empty", unit: "", counts: true, flag: 0,
             help: "An empty span of another class, of the same heap.", of: |stats| stats.stages_own_empty },
    Figure { name: "hakmem_span_sources_adopted", unit: "", counts: true, flag: 0,
             help: "Adoptions from heaps whose thread has ended.", of: |stats| stats.stages_adopted },
    Figure { name: "hakmem_span_sources_claimed", unit: "", counts: true, flag: 0,
             help: "Unused slabs of any SuperSlab, without a lock.", of: |stats| stats.stages_claimed },
    Figure { name: "hakmem_span_sources_locked", unit: "", counts: true, flag: 0,
             help: "A new SuperSlab, under a lock.", of: |stats| stats.stages_locked },
    Figure { name: "hakmem_tiers_hot", unit: "", counts: false, flag: 0,
             help: "SuperSlabs with slabs that serve first.", of: |stats| stats.tiers_hot },
    Figure { name: "hakmem_tiers_draining", unit: "", counts: false, flag: 0,
             help: "SuperSlabs with slabs that are left to empty.", of: |stats| stats.tiers_draining },
    Figure { name: "hakmem_tiers_to_draining", unit: "", counts: true, flag: 0,
             help: "SuperSlabs that began to drain.", of: |stats| stats.tiers_to_draining },
    Figure { name: "hakmem_tiers_to_hot", unit: "", counts: true, flag: 0,
             help: "Draining SuperSlabs that filled again.", of: |stats| stats.tiers_to_hot },
    Figure { name: "hakmem_tiers_emptied", unit: "", counts: true, flag: 0,
             help: "Draining SuperSlabs that emptied.", of: |stats| stats.tiers_emptied },
    Figure { name: "hakmem_tiers_drawn", unit: "", counts: true, flag: 0,
             help: "Runs of slabs served by draining SuperSlabs after all.", of: |stats| stats.tiers_drawn },
    Figure { name: "hakmem_lru_kept", unit: "", counts: false, flag: 0,
             help: "Emptied SuperSlabs that are kept for reuse.", of: |stats| stats.lru_kept },
    Figure { name: "hakmem_lru_returned_by_age_bytes", unit: "bytes", counts: true, flag: 0,
             help: "Bytes of them returned because of age.", of: |stats| stats.lru_returned_by_age },
    Figure { name: "hakmem_lru_returned_by_bytes", unit: "bytes", counts: true, flag: 0,
             help: "Bytes of them returned because of the limit.", of: |stats| stats.lru_returned_by_bytes },
    Figure { name: "hakmem_reserve_mapped", unit: "", counts: true, flag: 0,
             help: "SuperSlabs mapped ahead of need by upkeep.", of: |stats| stats.reserve_mapped },
    Figure { name: "hakmem_reserve_missed", unit: "", counts: true, flag: 0,
             help: "Requests that had to map memory.", of: |stats| stats.reserve_missed },
    Figure { name: "hakmem_reserve_prefaulted", unit: "", counts: true, flag: 0,
             help: "SuperSlabs made one huge page when they were opened.", of: |stats| stats.reserve_prefaulted },
    Figure { name: "hakmem_returns_supers_bytes", unit: "bytes", counts: true, flag: 0,
             help: "Emptied SuperSlabs and tails of huge blocks returned to the system.", of: |stats| stats.returns_supers },
    Figure { name: "hakmem_returns_slabs_bytes", unit: "bytes", counts: true, flag: 0,
             help: "Unused slabs returned.", of: |stats| stats.returns_slabs },
    Figure { name: "hakmem_returns_pages_bytes", unit: "bytes", counts: true, flag: 0,
             help: "Pages in free blocks returned.", of: |stats| stats.returns_pages },
    Figure { name: "hakmem_returns_regretted_supers_bytes", unit: "bytes", counts: true, flag: 0,
             help: "Returned SuperSlabs that were used again soon.", of: |stats| stats.returns_regretted_supers },
    Figure { name: "hakmem_returns_regretted_slabs_bytes", unit: "bytes", counts: true, flag: 0,
             help: "Returned slabs that were.", of: |stats| stats.returns_regretted_slabs },
    Figure { name: "hakmem_returns_regretted_pages_bytes", unit: "bytes", counts: true, flag: 0,
             help: "Returned pages that were, at most.", of: |stats| stats.returns_regretted_pages },
    Figure { name: "hakmem_returns_cost", unit: "", counts: true, flag: 0,
             help: "Nanoseconds that returning has taken.", of: |stats| stats.returns_cost },
    Figure { name: "hakmem_returns_regret", unit: "", counts: true, flag: 0,
             help: "Nanoseconds that the faults on regretted memory have taken, as estimated.", of: |stats| stats.returns_regret },
];
