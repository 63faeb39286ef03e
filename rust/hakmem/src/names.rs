//! The options by name, written by tools/gen_bindings.py from src/diag/options.def.

use crate::options::{Bytes, Setting, Word};
use core::time::Duration;

/// Print statistics when the program exits: 1 on stderr, or exact to count every call too (slower), or into a file as JSON (json:FILE), OpenMetrics (prom:FILE) or text (text:FILE); %p in its name is the process id.
pub const STATS: Setting<Word> = Setting::new("stats\0");

/// A signal's number: whenever it arrives, print the statistics, where the option stats says; while the option profile is not 0, start the profile or dump it, and print statistics only if stats asks for them too. 0 for none.
pub const STATS_SIGNAL: Setting<u64> = Setting::new("stats_signal\0");

/// Add the ledger to the statistics: all resident memory by state; takes some milliseconds.
pub const STATS_LEDGER: Setting<bool> = Setting::new("stats_ledger\0");

/// On SIGSEGV, SIGBUS and SIGABRT say what the faulting address is to the allocator, then let the signal proceed.
pub const CRASH_REPORT: Setting<bool> = Setting::new("crash_report\0");

/// About one in so many allocations of up to 56 KiB gets pages of its own among inaccessible ones, so that misuse of it ends in a report with stack traces; 0 is none.
pub const SAMPLE_GUARDS: Setting<u64> = Setting::new("sample_guards\0");

/// The heap profiler: 1 samples from the start and writes PREFIX.PID.SEQ.f.heap at exit, ready waits to be switched on, leaks samples every block and says at exit which cannot be reached; with 1:PREFIX, leaks:PREFIX the file's name begins so.
pub const PROFILE: Setting<Word> = Setting::new("profile\0");

/// Check all invariants of the heap at thread ends, at the program's exit and, from 2 on, at every so many slow paths of all threads together; the first broken one ends the program with a report. 0 is never.
pub const CHECK: Setting<u64> = Setting::new("check\0");

/// Hardened mode finds overflows and writes after free of every block, and uses addresses again late and in an order that nobody can foretell; it costs time and memory. 1 is all of it; canary, zero, random, guards, regions and zero_size, joined by commas (in HAKMEM_CONF by +), are parts of it.
pub const HARDEN: Setting<Word> = Setting::new("harden\0");

/// Most bytes mapped for blocks; a request that would exceed them fails with ENOMEM. 0 is no limit.
pub const LIMIT: Setting<Bytes> = Setting::new("limit\0");

/// A thread that returns memory while the program's threads sleep: 1 starts it soon, 0 never, auto while the program has two threads and 16 MiB mapped.
pub const BACKGROUND: Setting<Word> = Setting::new("background\0");

/// How long freed memory stays resident: unused slabs and emptied SuperSlabs. In a partly used slab in which nothing has moved for half of it, the pages that lie wholly in free blocks go back.
pub const PURGE_DELAY: Setting<Duration> = Setting::new("purge_delay\0");

/// Huge pages: auto prefaults what a heap opens whose memory is touched nearly everywhere, and has the background thread collapse what has long been full; always asks for them everywhere, never does none of these.
pub const THP: Setting<Word> = Setting::new("thp\0");

/// Leave RTLD_DEEPBIND to dlopen. Without this, a library that is opened with that flag has malloc and free from the program, as all others have, and not from the C library: either may free the other's blocks.
pub const KEEP_DEEPBIND: Setting<bool> = Setting::new("keep_deepbind\0");

/// Bytes mapped for blocks beyond which the callback of hak_set_pressure_callback is called. 0 is no limit.
pub const SOFT_LIMIT: Setting<Bytes> = Setting::new("soft_limit\0");

/// Bytes of unused slabs and of emptied SuperSlabs, together, that may stay resident when the heap takes a new SuperSlab, besides an eighth of the memory in use, and beyond what was in use lately while memory grows; the oldest emptied SuperSlabs go back first. At other times emptied SuperSlabs are kept up to 5/4 of it and a third of the memory in use, and for the purge delay up to four times it where that raises no recent peak.
pub const DIRTY_LIMIT: Setting<Bytes> = Setting::new("dirty_limit\0");

/// Return emptied SuperSlabs by unmapping them, of others no more than 16 MiB, and map nothing ahead of need, so that what the system has promised to the process stays near what is resident; 1 by itself where the system promises no more than it has (vm.overcommit_memory is 2).
pub const UNMAP: Setting<bool> = Setting::new("unmap\0");

/// Bytes of blocks that one thread's cache may grow to hold, besides a few blocks of each class of up to 32 KiB and a third of what the thread's spans hold; 0 is neither. Blocks of more than 56 KiB are counted one by one against the same sum.
pub const THREAD_BUDGET: Setting<Bytes> = Setting::new("thread_budget\0");

/// Bytes of blocks that the caches of all threads together may grow to hold; 0 is no such budget.
pub const PROCESS_BUDGET: Setting<Bytes> = Setting::new("process_budget\0");

/// Hardened mode: bytes of freed blocks that each thread keeps from being used again, or the last four blocks if they are larger; 0 is none.
pub const HARDEN_QUARANTINE: Setting<Bytes> = Setting::new("harden_quarantine\0");

/// How many blocks of sample_guards there may be at once, freed ones that are kept inaccessible included; and how many are handed out per second at most, after the first 64.
pub const SAMPLE_SLOTS: Setting<u64> = Setting::new("sample_slots\0");

/// Mean bytes between two samples of the heap profiler, for profiles that start from now on; 1 samples every block.
pub const PROFILE_INTERVAL: Setting<Bytes> = Setting::new("profile_interval\0");

/// When a process that is profiled writes a dump by itself: after each such time (60s), or whenever so many bytes more are mapped for blocks than at any such dump before (64M); 0 is never.
pub const PROFILE_EVERY: Setting<Word> = Setting::new("profile_every\0");

/// The thread cache of the tiny pool (C0..C7); 0 sends every tiny request to the slabs.
pub const TINY_UNIFIED_CACHE: Setting<bool> = Setting::new("tiny_unified_cache\0");

/// A set of values for tiny_unified_c0 to _c7; one that is given by itself wins over the preset.
pub const PRESET: Setting<Word> = Setting::new("preset\0");

/// Most blocks a thread caches per class of the band: C0 to C7 are requests of up to 8, 16, 32, 64, 128, 256, 512 and 1024 bytes. Requests of C0 are served by C1's 16-byte class.
pub const TINY_UNIFIED_C0: Setting<u64> = Setting::new("tiny_unified_c0\0");

/// Most blocks a thread caches per class of the band: C0 to C7 are requests of up to 8, 16, 32, 64, 128, 256, 512 and 1024 bytes. Requests of C0 are served by C1's 16-byte class.
pub const TINY_UNIFIED_C1: Setting<u64> = Setting::new("tiny_unified_c1\0");

/// Most blocks a thread caches per class of the band: C0 to C7 are requests of up to 8, 16, 32, 64, 128, 256, 512 and 1024 bytes. Requests of C0 are served by C1's 16-byte class.
pub const TINY_UNIFIED_C2: Setting<u64> = Setting::new("tiny_unified_c2\0");

/// Most blocks a thread caches per class of the band: C0 to C7 are requests of up to 8, 16, 32, 64, 128, 256, 512 and 1024 bytes. Requests of C0 are served by C1's 16-byte class.
pub const TINY_UNIFIED_C3: Setting<u64> = Setting::new("tiny_unified_c3\0");

/// Most blocks a thread caches per class of the band: C0 to C7 are requests of up to 8, 16, 32, 64, 128, 256, 512 and 1024 bytes. Requests of C0 are served by C1's 16-byte class.
pub const TINY_UNIFIED_C4: Setting<u64> = Setting::new("tiny_unified_c4\0");

/// Most blocks a thread caches per class of the band: C0 to C7 are requests of up to 8, 16, 32, 64, 128, 256, 512 and 1024 bytes. Requests of C0 are served by C1's 16-byte class.
pub const TINY_UNIFIED_C5: Setting<u64> = Setting::new("tiny_unified_c5\0");

/// Most blocks a thread caches per class of the band: C0 to C7 are requests of up to 8, 16, 32, 64, 128, 256, 512 and 1024 bytes. Requests of C0 are served by C1's 16-byte class.
pub const TINY_UNIFIED_C6: Setting<u64> = Setting::new("tiny_unified_c6\0");

/// Most blocks a thread caches per class of the band: C0 to C7 are requests of up to 8, 16, 32, 64, 128, 256, 512 and 1024 bytes. Requests of C0 are served by C1's 16-byte class.
pub const TINY_UNIFIED_C7: Setting<u64> = Setting::new("tiny_unified_c7\0");

/// The cached blocks of each class of the band lie beside the thread's bins, 64 slots and no more; not in the slot area.
pub const TINY_C2_LOCAL_CACHE: Setting<bool> = Setting::new("tiny_c2_local_cache\0");

/// The cached blocks of each class of the band lie beside the thread's bins, 64 slots and no more; not in the slot area.
pub const TINY_C3_LOCAL_CACHE: Setting<bool> = Setting::new("tiny_c3_local_cache\0");

/// The cached blocks of each class of the band lie beside the thread's bins, 64 slots and no more; not in the slot area.
pub const TINY_C4_LOCAL_CACHE: Setting<bool> = Setting::new("tiny_c4_local_cache\0");

/// The cached blocks of each class of the band lie beside the thread's bins, 64 slots and no more; not in the slot area.
pub const TINY_C5_LOCAL_CACHE: Setting<bool> = Setting::new("tiny_c5_local_cache\0");

/// The cached blocks of each class of the band lie beside the thread's bins, 64 slots and no more; not in the slot area.
pub const TINY_C6_LOCAL_CACHE: Setting<bool> = Setting::new("tiny_c6_local_cache\0");

/// Most blocks a thread caches per class of the mid pool (1 KiB to 56 KiB).
pub const L2_RING_CAP: Setting<u64> = Setting::new("l2_ring_cap\0");

/// Most blocks a thread caches per class of the large pool (56 KiB to 1 MiB).
pub const L25_RING_CAP: Setting<u64> = Setting::new("l25_ring_cap\0");

/// Capacities grow by misses and shrink when idle; 0 gives each class its most blocks at once, as far as the budgets go.
pub const RING_ADAPT: Setting<bool> = Setting::new("ring_adapt\0");

/// Blocks moved into the thread cache by one miss, for small classes.
pub const REFILL_COUNT: Setting<u64> = Setting::new("refill_count\0");

/// Spans that a refill which finds a class's warm pool empty puts there at most; 0 is no pool. Unless it is set, the number follows the class's hit rate, from 1 to 16.
pub const WARM_POOL_PREFILL: Setting<u64> = Setting::new("warm_pool_prefill\0");

/// Take slabs from well-used SuperSlabs first, and from those that drain only before a further one is opened; 0 goes by the lengths of free runs alone.
pub const TIERS: Setting<bool> = Setting::new("tiers\0");

/// SuperSlabs that upkeep keeps mapped ahead of need, at most a quarter of those in use.
pub const RESERVE: Setting<u64> = Setting::new("reserve\0");

/// Time the slow paths; the statistics then have two histograms.
pub const LATENCY: Setting<bool> = Setting::new("latency\0");

/// Print on stderr, when the program exits, how often the warm pool served a refill, per class.
pub const WARM_POOL_STATS: Setting<bool> = Setting::new("warm_pool_stats\0");

/// Print on stderr, when the program exits, from where slabs were obtained, by stage, and waits for locks.
pub const SHARED_POOL_STATS: Setting<bool> = Setting::new("shared_pool_stats\0");
