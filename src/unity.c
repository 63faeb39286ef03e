/* The whole library as one translation unit, for release builds: the compiler sees every call, and malloc's names are
 * true aliases. Bottom layer first. interpose/ and cxx_linked.c stand beside it, since the archive is without the one and has the other
 * in another form. */
/* What runs rarely is compiled for size: every page of the library counts in every process. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("Os")
#endif
#include "base/assert.c"
#include "base/forked.c"
#include "base/lock.c"
#include "base/retain.c"
#include "os/linux.c"
#include "os/loaded.c"
#include "os/os.c"
#include "os/resident.c"
#include "os/system.c"
#include "os/thread.c"
#include "size/size.c"
#include "diag/broken.c"
#include "diag/emitter.c"
#include "diag/latency.c"
#include "diag/options.c"
#include "diag/report.c"
#include "arena/meta.c"
#include "arena/thp.c"
#include "arena/window.c"
#include "arena/limit.c"
#include "arena/regions.c"
#include "arena/lru.c"
#include "arena/reserve.c"
#include "arena/pieces.c"
#include "arena/crowd.c"
#include "arena/lend.c"
#include "arena/arena.c"
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
#include "slab/span.c"
#include "slab/hardened.c"
#include "slab/shield.c"
#include "slab/superslab.c"
#include "shared/tiers.c"
#include "shared/pool.c"
#include "heap/adopt.c"
#include "heap/common.c"
#include "heap/heap.c"
#include "heap/assigned.c"
#include "heap/park.c"
#include "heap/remote.c"
#include "heap/sources.c"
#include "heap/warm.c"
#include "large/large.c"
#include "huge/huge.c"
#include "cache/verify.c"
#include "cache/slots.c"
#include "cache/cache.c"
#include "cache/large_cache.c"
#include "cache/outbox.c"
#include "cache/quarantine.c"
#include "cache/tune.c"
#include "guard/exact.c"
#include "harden/harden.c"
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("Os")
#endif
#include "cache/mark.c"
#include "harden/zero_size.c"
#include "trace/unwind.c"
#include "trace/frames.c"
#include "trace/trace.c"
#include "sample/sample.c"
#include "sample/sampled.c"
#include "guard/check.c"
#include "guard/ending.c"
#include "guard/crash.c"
#include "upkeep/polling.c"
#include "upkeep/background.c"
#include "upkeep/collapse.c"
#include "stats/dump.c"
#include "upkeep/idle.c"
#include "stats/ledger.c"
#include "stats/live.c"
#include "stats/output.c"
#include "stats/snapshot.c"
#include "upkeep/step.c"
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
#include "others.c"
#include "request.c"
#include "late.c"
#include "alloc.c"
#include "malloc_slow.c"
#include "free_slow.c"
#include "pointer.c"
#include "hardened.c"
#include "malloc.c"
#include "free.c"
#include "realloc.c"
#include "calloc.c"
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("Os")
#endif
#include "thread.c"
#include "aligned.c"
#include "api.c"
#include "fork.c"
#include "start.c"
#include "init.c"
#include "override.c"
#include "protect.c"
