//! The statistics' structures, written by tools/gen_bindings.py from include/hakmem_stats.h.

pub const HAK_STATS_MAGIC: u32 = 0x534b4148;
pub const HAK_STATS_VERSION: u32 = 1;
pub const HAK_STATS_CLASSES: usize = 64;
pub const HAK_STATS_BUCKETS: usize = 32;
pub const HAK_STATS_HAS_CALLS: u64 = 1;
pub const HAK_STATS_HAS_LEDGER: u64 = 2;
pub const HAK_STATS_HAS_LATENCY: u64 = 4;

/// `struct hak_stats_class` of `hakmem_stats.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hak_stats_class {
    /// bytes of a block
    pub size: u64,
    /// runs of slabs that hold such blocks now
    pub spans: u64,
    /// in the program's hands
    pub live: u64,
    /// ready in the bins of all threads
    pub cached: u64,
    /// moved from spans into bins so far
    pub refilled: u64,
    /// moved back from bins into spans so far
    pub drained: u64,
    /// freed by other threads and collected by their owner so far
    pub collected: u64,
    /// calls that found the bin empty so far
    pub misses: u64,
    /// freed by other threads, not yet published
    pub outbox: u64,
    /// calls so far, HAK_STATS_HAS_CALLS only
    pub mallocs: u64,
    /// by the blocks' owner, HAK_STATS_HAS_CALLS only
    pub frees: u64,
    /// mallocs that needed no refill, HAK_STATS_HAS_CALLS only
    pub hits: u64,
    /// resident bytes of free blocks in partly used spans, HAK_STATS_HAS_LEDGER only
    pub pinned: u64,
    /// refills served from the warm pool without a search; the other misses searched
    pub warm_hits: u64,
    /// spans put into the warm pool by refills that found it empty
    pub warm_prefilled: u64,
    pub reserved: [u64; 1],
}

/// `struct hak_stats_latency` of `hakmem_stats.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hak_stats_latency {
    /// ns, the sum of all durations
    pub sum: u64,
    pub buckets: [u64; HAK_STATS_BUCKETS],
    pub reserved: [u64; 3],
}

/// `struct hak_stats` of `hakmem_stats.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hak_stats {
    /// HAK_STATS_MAGIC
    pub magic: u32,
    /// HAK_STATS_VERSION of the library
    pub version: u32,
    /// bytes of this structure that the library has filled
    pub size: u64,
    /// HAK_STATS_HAS_...
    pub flags: u64,
    pub class_count: u64,
    /// such frees, counted when published
    pub remote_frees: u64,
    /// atomic operations that published them
    pub remote_published: u64,
    /// spans met on the wrong pending stack and sent on
    pub remote_forwarded: u64,
    /// spans taken over from heaps whose thread has ended
    pub remote_adopted_spans: u64,
    /// first blocks of threads that came from the common heaps
    pub remote_common_taken: u64,
    /// heaps that exist
    pub remote_heaps: u64,
    /// heaps without a thread
    pub remote_parked: u64,
    /// how often a lock was found held
    pub remote_lock_waits: u64,
    pub system_mmap: u64,
    pub system_munmap: u64,
    pub system_madvise: u64,
    pub system_mremap: u64,
    /// searches for room after the random window was refused
    pub system_probe: u64,
    /// queries of residency, including those of hak_stats_ledger()
    pub system_mincore: u64,
    /// calls that the system refused
    pub system_failed: u64,
    pub calls_malloc: u64,
    pub calls_free: u64,
    /// in the program's hands, in whole blocks, sampled ones included, without huge ones
    pub bytes_live: u64,
    /// in bins and outboxes
    pub bytes_cached: u64,
    /// all spans, as mapped
    pub bytes_spans: u64,
    /// huge blocks, as mapped
    pub bytes_huge: u64,
    /// free SuperSlabs that may still be resident
    pub bytes_free_dirty: u64,
    /// everything mapped for blocks
    pub bytes_mapped: u64,
    /// mapped for the library's tables
    pub bytes_metadata: u64,
    /// in use: in slabs, part of a huge block, or a hole
    pub superslabs_taken: u64,
    /// reached so far, in use or free
    pub superslabs_below_top: u64,
    /// put in slabs so far
    pub superslabs_opened: u64,
    /// returned whole so far
    pub superslabs_closed: u64,
    /// skipped because of a foreign mapping
    pub superslabs_holes: u64,
    /// runs found without a lock in one that was in slabs already
    pub superslabs_slab_runs_claimed: u64,
    /// made one huge page so far
    pub superslabs_collapsed: u64,
    pub superslabs_collapse_refused: u64,
    /// huge pages split to return parts, at most half of each in use
    pub superslabs_split: u64,
    /// acquisitions of the lock over all SuperSlabs so far
    pub superslabs_lock_takes: u64,
    pub huge_live: u64,
    pub huge_allocated: u64,
    pub huge_freed: u64,
    pub huge_grown_in_place: u64,
    /// resized by letting the kernel move their pages
    pub huge_moved: u64,
    pub upkeep_steps: u64,
    /// heaps collected for, counted each time
    pub upkeep_collected_heaps: u64,
    /// published from other threads' outboxes
    pub upkeep_outbox_blocks: u64,
    /// spans that were idle and wholly free
    pub upkeep_spans_ended: u64,
    /// runs of pages returned from idle spans that are in use
    pub upkeep_span_purges: u64,
    /// their resident bytes
    pub upkeep_span_purged: u64,
    /// times that a heap began to poll
    pub upkeep_armings: u64,
    /// 1 while there is a background thread
    pub upkeep_background: u64,
    pub upkeep_background_starts: u64,
    pub upkeep_background_wakeups: u64,
    pub process_peak_rss_bytes: u64,
    pub process_minor_faults: u64,
    /// in the program's hands
    pub ledger_live: u64,
    /// in bins and outboxes
    pub ledger_cached: u64,
    /// free blocks of spans
    pub ledger_free_in_slabs: u64,
    /// resident beyond a span's frontier, and the ends of slabs
    pub ledger_frontier_slack: u64,
    /// unused slabs, free SuperSlabs, tails of huge blocks: waiting for reuse or purge
    pub ledger_empty: u64,
    /// huge blocks
    pub ledger_huge: u64,
    /// the library's tables
    pub ledger_metadata: u64,
    /// code, stacks and all other mappings, from /proc/self/smaps
    pub ledger_not_ours: u64,
    /// the eight above
    pub ledger_sum: u64,
    /// the kernel's figure: Rss of all mappings
    pub ledger_rss: u64,
    /// spans in use during the walk; counted as wholly live and cached
    pub ledger_unread_spans: u64,
    /// resident in huge pages, of the heap; not a state of its own
    pub ledger_huge_pages: u64,
    pub total_refilled: u64,
    /// including collected
    pub total_drained: u64,
    pub total_misses: u64,
    pub total_live: u64,
    /// the largest value of bytes_mapped
    pub total_peak_bytes: u64,
    /// previously used slabs of the SuperSlab taken from last
    pub stages_own_hint: u64,
    /// an empty span of the heap's own, of another class
    pub stages_own_empty: u64,
    /// adoptions from heaps whose thread has ended; each may bring several spans
    pub stages_adopted: u64,
    /// unused slabs of any SuperSlab, claimed without a lock
    pub stages_claimed: u64,
    /// a new SuperSlab, under the arena's lock
    pub stages_locked: u64,
    /// serve first
    pub tiers_hot: u64,
    /// are left to empty
    pub tiers_draining: u64,
    /// began to drain so far
    pub tiers_to_draining: u64,
    /// draining ones that refilled so far
    pub tiers_to_hot: u64,
    /// draining ones that emptied so far
    pub tiers_emptied: u64,
    /// runs of slabs that draining ones still served
    pub tiers_drawn: u64,
    pub lru_kept: u64,
    /// bytes returned to the system so far because of their age
    pub lru_returned_by_age: u64,
    /// because too many bytes were kept
    pub lru_returned_by_bytes: u64,
    /// SuperSlabs so far
    pub reserve_mapped: u64,
    /// requests that still had to map memory
    pub reserve_missed: u64,
    /// SuperSlabs made one huge page when they were opened
    pub reserve_prefaulted: u64,
    /// emptied SuperSlabs and tails of huge blocks
    pub returns_supers: u64,
    /// unused slabs
    pub returns_slabs: u64,
    /// pages in free blocks
    pub returns_pages: u64,
    /// of these, used again soon
    pub returns_regretted_supers: u64,
    pub returns_regretted_slabs: u64,
    /// at most
    pub returns_regretted_pages: u64,
    /// nanoseconds that returning has taken
    pub returns_cost: u64,
    /// nanoseconds that the faults on regretted memory have taken, as estimated
    pub returns_regret: u64,
    /// a pointer or heap that is none
    pub misuse_invalid: u64,
    pub misuse_double_frees: u64,
    /// sized frees with a wrong size
    pub misuse_sizes: u64,
    /// blocks written past their end or after their free
    pub misuse_written: u64,
    /// reports, one per place in the program
    pub misuse_reported: u64,
    pub reserved: [u64; 19],
    pub classes: [hak_stats_class; HAK_STATS_CLASSES],
    pub latency_malloc: hak_stats_latency,
    pub latency_free: hak_stats_latency,
}
