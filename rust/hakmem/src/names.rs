//! The options by name, written by tools/gen_bindings.py from src/diag/options.def.

use crate::options::{Bytes, Setting, Word};
use core::time::Duration;

/// Print statistics at exit: 1 to stderr; exact also counts every call (slower); json:FILE, prom:FILE (OpenMetrics) or text:FILE write to a file, in whose name %p is the process id.
pub const STATS: Setting<Word> = Setting::new("stats\0");

/// Signal that prints statistics to the target of stats; none that means a crash. While profile is on it starts or dumps the profile instead, and prints statistics only if stats is set too. 0: off.
pub const STATS_SIGNAL: Setting<u64> = Setting::new("stats_signal\0");

/// Add the ledger to the statistics: all resident memory by state. Takes some milliseconds.
pub const STATS_LEDGER: Setting<bool> = Setting::new("stats_ledger\0");

/// On SIGSEGV, SIGBUS and SIGABRT say what the faulting address is to the allocator, then let the signal proceed.
pub const CRASH_REPORT: Setting<bool> = Setting::new("crash_report\0");

/// Give about one in N blocks of up to 56 KiB guard pages on both sides; a misuse of it stops the program with a report and stack traces. 0: off.
pub const SAMPLE_GUARDS: Setting<u64> = Setting::new("sample_guards\0");

/// Folder in which the process keeps a black box, a file that says what held its memory even after SIGKILL; hakmem postmortem reads it. A normal exit removes it.
pub const BLACKBOX: Setting<Word> = Setting::new("blackbox\0");

/// Heap profiler. 1: sample from the start and write PREFIX.PID.SEQ.f.heap at exit; ready: wait to be switched on; auto: begin at 70 % of the process's memory limit; leaks: sample every block and report at exit those that cannot be reached. 1:PREFIX or leaks:PREFIX sets the file name's prefix.
pub const PROFILE: Setting<Word> = Setting::new("profile\0");

/// Check all heap invariants when a thread or the program ends and, from 2 on, at every N-th slow path of all threads together. The first broken one ends the program with a report. 0: never.
pub const CHECK: Setting<u64> = Setting::new("check\0");

/// Hardened mode: find overflows and writes after free in every block, and reuse addresses late and in random order. Costs time and memory. 1: all parts; or a list of canary, zero, random, guards, regions and zero_size, joined by commas (in HAKMEM_CONF by +).
pub const HARDEN: Setting<Word> = Setting::new("harden\0");

/// What a misuse does, such as a second free. abort: end the program; report: report it once per place in the program, do nothing else, and go on; report:FILE appends the reports to a file, in whose name %p is the process id.
pub const MISUSE: Setting<Word> = Setting::new("misuse\0");

/// Most bytes mapped for blocks; a request that would exceed them fails with ENOMEM. 0: no limit.
pub const LIMIT: Setting<Bytes> = Setting::new("limit\0");

/// Thread that returns memory while the program's threads sleep. 1: start it soon; 0: never; auto: run it while the program has two threads and 16 MiB mapped.
pub const BACKGROUND: Setting<Word> = Setting::new("background\0");

/// What returning memory may cost: the calls that return it and the faults that bring it back, as a percentage of time. Within it freed memory goes back after 50 ms to 60 s, as experience shows; at once the excess of a large burst where no background thread runs, and unused slabs as the process's peak rises. More returns memory sooner.
pub const RETURN: Setting<Word> = Setting::new("return\0");

/// Huge pages. auto: prefault new memory of heaps that touch nearly all of theirs, and collapse what has long been full; always: request them everywhere; never: neither.
pub const THP: Setting<Word> = Setting::new("thp\0");

/// Leave RTLD_DEEPBIND to dlopen. By default HAKMEM drops the flag, so that a library opened with it shares the program's malloc and free and either side may free the other's blocks.
pub const KEEP_DEEPBIND: Setting<bool> = Setting::new("keep_deepbind\0");

/// Bytes mapped for blocks above which the callback of hak_set_pressure_callback is called. 0: no limit.
pub const SOFT_LIMIT: Setting<Bytes> = Setting::new("soft_limit\0");

/// Return emptied SuperSlabs by unmapping them, other memory beyond 16 MiB too, and map nothing ahead of need, so that the memory promised to the process stays near what is resident. 1 by itself where vm.overcommit_memory is 2.
pub const UNMAP: Setting<bool> = Setting::new("unmap\0");

/// Bytes of blocks that one thread's cache may hold, plus a few blocks of each class of up to 32 KiB and a third of the thread's spans. Blocks of more than 56 KiB count one by one against the same sum. 0: neither.
pub const THREAD_BUDGET: Setting<Bytes> = Setting::new("thread_budget\0");

/// Bytes of blocks that the caches of all threads together may hold. 0: no such budget.
pub const PROCESS_BUDGET: Setting<Bytes> = Setting::new("process_budget\0");

/// Hardened mode: bytes of freed blocks that each thread withholds from reuse; the last four blocks even if they are larger. 0: off.
pub const HARDEN_QUARANTINE: Setting<Bytes> = Setting::new("harden_quarantine\0");

/// Most blocks of sample_guards at once, including freed ones that stay inaccessible; after the first 64 also the most per second.
pub const SAMPLE_SLOTS: Setting<u64> = Setting::new("sample_slots\0");

/// How often the black box is written while nothing else is a reason; less often in a heap so large that it would cost more than a thousandth of the time.
pub const BLACKBOX_EVERY: Setting<Duration> = Setting::new("blackbox_every\0");

/// Mean bytes between two samples of the heap profiler, for profiles that start from now on. 1 samples every block.
pub const PROFILE_INTERVAL: Setting<Bytes> = Setting::new("profile_interval\0");

/// Write a dump of the profile by itself: after each such time (60s), or whenever that many more bytes are mapped for blocks than at any such dump before (64M). 0: never.
pub const PROFILE_EVERY: Setting<Word> = Setting::new("profile_every\0");

/// How long freed memory stays resident, whatever returning it costs: replaces return if it is set. Free pages of partly used slabs go back after half of it.
pub const PURGE_DELAY: Setting<Duration> = Setting::new("purge_delay\0");

/// Bytes of unused memory that may stay resident, besides shares of the memory in use. A sixteenth of the memory that the system allows the process, if that is less.
pub const DIRTY_LIMIT: Setting<Bytes> = Setting::new("dirty_limit\0");

/// The thread cache of the tiny pool (C0 to C7). 0 sends every tiny request to the slabs.
pub const TINY_UNIFIED_CACHE: Setting<bool> = Setting::new("tiny_unified_cache\0");

/// A set of values for tiny_unified_c0 to _c7. A value given for one of them wins over the preset.
pub const PRESET: Setting<Word> = Setting::new("preset\0");

/// Most blocks that a thread caches per class of the band: C0 to C7 are requests of up to 8, 16, 32, 64, 128, 256, 512 and 1024 bytes. C1's 16-byte class serves C0.
pub const TINY_UNIFIED_C0: Setting<u64> = Setting::new("tiny_unified_c0\0");

/// Most blocks that a thread caches per class of the band: C0 to C7 are requests of up to 8, 16, 32, 64, 128, 256, 512 and 1024 bytes. C1's 16-byte class serves C0.
pub const TINY_UNIFIED_C1: Setting<u64> = Setting::new("tiny_unified_c1\0");

/// Most blocks that a thread caches per class of the band: C0 to C7 are requests of up to 8, 16, 32, 64, 128, 256, 512 and 1024 bytes. C1's 16-byte class serves C0.
pub const TINY_UNIFIED_C2: Setting<u64> = Setting::new("tiny_unified_c2\0");

/// Most blocks that a thread caches per class of the band: C0 to C7 are requests of up to 8, 16, 32, 64, 128, 256, 512 and 1024 bytes. C1's 16-byte class serves C0.
pub const TINY_UNIFIED_C3: Setting<u64> = Setting::new("tiny_unified_c3\0");

/// Most blocks that a thread caches per class of the band: C0 to C7 are requests of up to 8, 16, 32, 64, 128, 256, 512 and 1024 bytes. C1's 16-byte class serves C0.
pub const TINY_UNIFIED_C4: Setting<u64> = Setting::new("tiny_unified_c4\0");

/// Most blocks that a thread caches per class of the band: C0 to C7 are requests of up to 8, 16, 32, 64, 128, 256, 512 and 1024 bytes. C1's 16-byte class serves C0.
pub const TINY_UNIFIED_C5: Setting<u64> = Setting::new("tiny_unified_c5\0");

/// Most blocks that a thread caches per class of the band: C0 to C7 are requests of up to 8, 16, 32, 64, 128, 256, 512 and 1024 bytes. C1's 16-byte class serves C0.
pub const TINY_UNIFIED_C6: Setting<u64> = Setting::new("tiny_unified_c6\0");

/// Most blocks that a thread caches per class of the band: C0 to C7 are requests of up to 8, 16, 32, 64, 128, 256, 512 and 1024 bytes. C1's 16-byte class serves C0.
pub const TINY_UNIFIED_C7: Setting<u64> = Setting::new("tiny_unified_c7\0");

/// Keep the band's cached blocks in 64 slots beside the thread's bins instead of in the slot area.
pub const TINY_C2_LOCAL_CACHE: Setting<bool> = Setting::new("tiny_c2_local_cache\0");

/// Keep the band's cached blocks in 64 slots beside the thread's bins instead of in the slot area.
pub const TINY_C3_LOCAL_CACHE: Setting<bool> = Setting::new("tiny_c3_local_cache\0");

/// Keep the band's cached blocks in 64 slots beside the thread's bins instead of in the slot area.
pub const TINY_C4_LOCAL_CACHE: Setting<bool> = Setting::new("tiny_c4_local_cache\0");

/// Keep the band's cached blocks in 64 slots beside the thread's bins instead of in the slot area.
pub const TINY_C5_LOCAL_CACHE: Setting<bool> = Setting::new("tiny_c5_local_cache\0");

/// Keep the band's cached blocks in 64 slots beside the thread's bins instead of in the slot area.
pub const TINY_C6_LOCAL_CACHE: Setting<bool> = Setting::new("tiny_c6_local_cache\0");

/// Most blocks that a thread caches per class of the mid pool (1 KiB to 56 KiB).
pub const L2_RING_CAP: Setting<u64> = Setting::new("l2_ring_cap\0");

/// Most blocks that a thread caches per class of the large pool (56 KiB to 1 MiB).
pub const L25_RING_CAP: Setting<u64> = Setting::new("l25_ring_cap\0");

/// Let capacities grow by misses and shrink when idle. 0 gives each class its maximum at once, as far as the budgets go.
pub const RING_ADAPT: Setting<bool> = Setting::new("ring_adapt\0");

/// Blocks moved into the thread cache by one miss, for small classes.
pub const REFILL_COUNT: Setting<u64> = Setting::new("refill_count\0");

/// Most spans that a refill adds to a class's empty warm pool. 0: no pool. If unset, the number follows the class's hit rate, from 1 to 16.
pub const WARM_POOL_PREFILL: Setting<u64> = Setting::new("warm_pool_prefill\0");

/// Let little-used SuperSlabs drain: slabs are taken from them only before a new one is opened. 0: none begins to.
pub const TIERS: Setting<bool> = Setting::new("tiers\0");

/// SuperSlabs that upkeep keeps mapped ahead of need, at most a quarter of those in use.
pub const RESERVE: Setting<u64> = Setting::new("reserve\0");

/// Choose by this number where the heap, the first slabs of its SuperSlabs and the first blocks of small classes lie, so that runs differ in placement and can be repeated. Addresses are then predictable. 0: off.
pub const LAYOUT_SEED: Setting<u64> = Setting::new("layout_seed\0");

/// Time the slow paths; the statistics then have two histograms.
pub const LATENCY: Setting<bool> = Setting::new("latency\0");

/// At exit print to stderr how often the warm pool served a refill, per class.
pub const WARM_POOL_STATS: Setting<bool> = Setting::new("warm_pool_stats\0");

/// At exit print to stderr where slabs came from, by stage, and waits for locks.
pub const SHARED_POOL_STATS: Setting<bool> = Setting::new("shared_pool_stats\0");
