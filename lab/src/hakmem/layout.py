"""Structures of include/hakmem_stats.h and, for heaps, hakmem.h, written by tools/gen_bindings.py."""

import ctypes

HAK_STATS_MAGIC = 0x534B4148
HAK_STATS_VERSION = 1
HAK_STATS_CLASSES = 64
HAK_STATS_BUCKETS = 32
HAK_STATS_HAS_CALLS = 1
HAK_STATS_HAS_LEDGER = 2
HAK_STATS_HAS_LATENCY = 4


class StatsClass(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint64),
        ("spans", ctypes.c_uint64),
        ("live", ctypes.c_uint64),
        ("cached", ctypes.c_uint64),
        ("refilled", ctypes.c_uint64),
        ("drained", ctypes.c_uint64),
        ("collected", ctypes.c_uint64),
        ("misses", ctypes.c_uint64),
        ("outbox", ctypes.c_uint64),
        ("mallocs", ctypes.c_uint64),
        ("frees", ctypes.c_uint64),
        ("hits", ctypes.c_uint64),
        ("pinned", ctypes.c_uint64),
        ("warm_hits", ctypes.c_uint64),
        ("warm_prefilled", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 1),
    )


class StatsLatency(ctypes.Structure):
    _fields_ = (
        ("sum", ctypes.c_uint64),
        ("buckets", ctypes.c_uint64 * HAK_STATS_BUCKETS),
        ("reserved", ctypes.c_uint64 * 3),
    )


class Stats(ctypes.Structure):
    _fields_ = (
        ("magic", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("size", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("class_count", ctypes.c_uint64),
        ("remote_frees", ctypes.c_uint64),
        ("remote_published", ctypes.c_uint64),
        ("remote_forwarded", ctypes.c_uint64),
        ("remote_adopted_spans", ctypes.c_uint64),
        ("remote_common_taken", ctypes.c_uint64),
        ("remote_heaps", ctypes.c_uint64),
        ("remote_parked", ctypes.c_uint64),
        ("remote_lock_waits", ctypes.c_uint64),
        ("system_mmap", ctypes.c_uint64),
        ("system_munmap", ctypes.c_uint64),
        ("system_madvise", ctypes.c_uint64),
        ("system_mremap", ctypes.c_uint64),
        ("system_probe", ctypes.c_uint64),
        ("system_mincore", ctypes.c_uint64),
        ("system_failed", ctypes.c_uint64),
        ("calls_malloc", ctypes.c_uint64),
        ("calls_free", ctypes.c_uint64),
        ("bytes_live", ctypes.c_uint64),
        ("bytes_cached", ctypes.c_uint64),
        ("bytes_spans", ctypes.c_uint64),
        ("bytes_huge", ctypes.c_uint64),
        ("bytes_free_dirty", ctypes.c_uint64),
        ("bytes_mapped", ctypes.c_uint64),
        ("bytes_metadata", ctypes.c_uint64),
        ("superslabs_taken", ctypes.c_uint64),
        ("superslabs_below_top", ctypes.c_uint64),
        ("superslabs_opened", ctypes.c_uint64),
        ("superslabs_closed", ctypes.c_uint64),
        ("superslabs_holes", ctypes.c_uint64),
        ("superslabs_slab_runs_claimed", ctypes.c_uint64),
        ("superslabs_collapsed", ctypes.c_uint64),
        ("superslabs_collapse_refused", ctypes.c_uint64),
        ("superslabs_split", ctypes.c_uint64),
        ("superslabs_lock_takes", ctypes.c_uint64),
        ("huge_live", ctypes.c_uint64),
        ("huge_allocated", ctypes.c_uint64),
        ("huge_freed", ctypes.c_uint64),
        ("huge_grown_in_place", ctypes.c_uint64),
        ("huge_moved", ctypes.c_uint64),
        ("upkeep_steps", ctypes.c_uint64),
        ("upkeep_collected_heaps", ctypes.c_uint64),
        ("upkeep_outbox_blocks", ctypes.c_uint64),
        ("upkeep_spans_ended", ctypes.c_uint64),
        ("upkeep_span_purges", ctypes.c_uint64),
        ("upkeep_span_purged", ctypes.c_uint64),
        ("upkeep_armings", ctypes.c_uint64),
        ("upkeep_background", ctypes.c_uint64),
        ("upkeep_background_starts", ctypes.c_uint64),
        ("upkeep_background_wakeups", ctypes.c_uint64),
        ("process_peak_rss_bytes", ctypes.c_uint64),
        ("process_minor_faults", ctypes.c_uint64),
        ("ledger_live", ctypes.c_uint64),
        ("ledger_cached", ctypes.c_uint64),
        ("ledger_free_in_slabs", ctypes.c_uint64),
        ("ledger_frontier_slack", ctypes.c_uint64),
        ("ledger_empty", ctypes.c_uint64),
        ("ledger_huge", ctypes.c_uint64),
        ("ledger_metadata", ctypes.c_uint64),
        ("ledger_not_ours", ctypes.c_uint64),
        ("ledger_sum", ctypes.c_uint64),
        ("ledger_rss", ctypes.c_uint64),
        ("ledger_unread_spans", ctypes.c_uint64),
        ("ledger_huge_pages", ctypes.c_uint64),
        ("total_refilled", ctypes.c_uint64),
        ("total_drained", ctypes.c_uint64),
        ("total_misses", ctypes.c_uint64),
        ("total_live", ctypes.c_uint64),
        ("total_peak_bytes", ctypes.c_uint64),
        ("stages_own_hint", ctypes.c_uint64),
        ("stages_own_empty", ctypes.c_uint64),
        ("stages_adopted", ctypes.c_uint64),
        ("stages_claimed", ctypes.c_uint64),
        ("stages_locked", ctypes.c_uint64),
        ("tiers_hot", ctypes.c_uint64),
        ("tiers_draining", ctypes.c_uint64),
        ("tiers_to_draining", ctypes.c_uint64),
        ("tiers_to_hot", ctypes.c_uint64),
        ("tiers_emptied", ctypes.c_uint64),
        ("tiers_drawn", ctypes.c_uint64),
        ("lru_kept", ctypes.c_uint64),
        ("lru_returned_by_age", ctypes.c_uint64),
        ("lru_returned_by_bytes", ctypes.c_uint64),
        ("reserve_mapped", ctypes.c_uint64),
        ("reserve_missed", ctypes.c_uint64),
        ("reserve_prefaulted", ctypes.c_uint64),
        ("returns_supers", ctypes.c_uint64),
        ("returns_slabs", ctypes.c_uint64),
        ("returns_pages", ctypes.c_uint64),
        ("returns_regretted_supers", ctypes.c_uint64),
        ("returns_regretted_slabs", ctypes.c_uint64),
        ("returns_regretted_pages", ctypes.c_uint64),
        ("returns_cost", ctypes.c_uint64),
        ("returns_regret", ctypes.c_uint64),
        ("misuse_invalid", ctypes.c_uint64),
        ("misuse_double_frees", ctypes.c_uint64),
        ("misuse_sizes", ctypes.c_uint64),
        ("misuse_written", ctypes.c_uint64),
        ("misuse_reported", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 19),
        ("classes", StatsClass * HAK_STATS_CLASSES),
        ("latency_malloc", StatsLatency),
        ("latency_free", StatsLatency),
    )


class HeapOptions(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("limit", ctypes.c_size_t),
        ("pressure", ctypes.c_void_p),
        ("argument", ctypes.c_void_p),
        ("purge", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("region", ctypes.c_void_p),
        ("region_size", ctypes.c_size_t),
        ("parent", ctypes.c_void_p),
    )


class HeapFigures(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("serial", ctypes.c_uint64),
        ("used_bytes", ctypes.c_uint64),
        ("peak_bytes", ctypes.c_uint64),
        ("live_blocks", ctypes.c_uint64),
        ("live_bytes", ctypes.c_uint64),
        ("limit", ctypes.c_uint64),
        ("refused", ctypes.c_uint64),
        ("cached_bytes", ctypes.c_uint64),
        ("slab_bytes", ctypes.c_uint64),
        ("huge_blocks", ctypes.c_uint64),
        ("huge_bytes", ctypes.c_uint64),
        ("threads", ctypes.c_uint64),
        ("shares", ctypes.c_uint64),
    )


class HeapSpan(ctypes.Structure):
    _fields_ = (
        ("begin", ctypes.c_void_p),
        ("end", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("blocks", ctypes.c_size_t),
        ("bytes", ctypes.c_size_t),
        ("reached", ctypes.c_size_t),
    )
