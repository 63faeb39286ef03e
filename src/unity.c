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
#include "arena/guarded.c"
#include "arena/window.c"
#include "arena/wiped.c"
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
#include "heap/held.c"
#include "heap/park.c"
#include "heap/remote.c"
#include "heap/sources.c"
#include "heap/warm.c"
#include "large/large.c"
#include "huge/huge.c"
#include "cache/doubt.c"
#include "cache/drain.c"
#include "cache/kept.c"
#include "cache/outbox.c"
#include "cache/quarantine.c"
#include "cache/refill.c"
#include "cache/tune.c"
#include "guard/exact.c"
#include "guard/harden.c"
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("Os")
#endif
#include "cache/mark.c"
#include "guard/nothing.c"
#include "guard/unwind.c"
#include "guard/frames.c"
#include "guard/trace.c"
#include "guard/sample.c"
#include "guard/sampled.c"
#include "guard/check.c"
#include "guard/ending.c"
#include "guard/crash.c"
#include "upkeep/armed.c"
#include "upkeep/background.c"
#include "upkeep/collapse.c"
#include "upkeep/dump.c"
#include "upkeep/idle.c"
#include "upkeep/ledger.c"
#include "upkeep/live.c"
#include "upkeep/output.c"
#include "upkeep/snapshot.c"
#include "upkeep/step.c"
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
#include "others.c"
#include "route.c"
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
#include "init.c"
#include "override.c"
#include "protect.c"
