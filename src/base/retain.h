/* How much unused memory may stay. Only this policy decides, by pure functions that read no state, lock or option. A layer with
 * unused memory fills in its figures, asks, and carries out the answer:
 *
 *   arena/, span/     emptied SuperSlabs, tails, unused slabs, the reserve, waiting runs       hak__retain
 *   cache/            large blocks that a thread has freed                                     hak__retain_large
 *   heap/, upkeep/    assigned SuperSlabs, empty spans, idle spans                             the predicates at the end
 *
 * Two rules hold for the arena. Permanently, each kind may keep a fixed amount and a share of what is in use. For the purge delay,
 * emptied SuperSlabs may also fill the gap between current use and its recent peak, since that raises no peak; but no more than
 * RECENT_TIMES the dirty limit, which is what a single-threaded program may keep while it sleeps, and nothing under pressure.
 * Waiting runs draw on the same allowance, which bounds all of them together. */
#pragma once

#include "base/atomic.h"
#include "base/bits.h"
#include "base/limits.h"

/* In bytes. */
struct hak_retention {
    size_t used; /* mapped in used SuperSlabs, without tails */
    size_t taken; /* with tails */
    size_t recent_peak; /* the highest `taken` within the purge delay */
    size_t dirty_limit; /* HAKMEM_DIRTY_LIMIT */
    size_t emptied_limit; /* the fixed amount for emptied SuperSlabs */
    bool pressure; /* mapped bytes count: a limit exists, or there is little room */
};

struct hak_retained {
    size_t emptied; /* emptied SuperSlabs, and tails of huge blocks */
    size_t unused; /* unused slabs and emptied SuperSlabs together, when a SuperSlab is opened */
    size_t growth; /* the same, while memory grows */
    size_t reserve; /* mapped by upkeep ahead of need */
    size_t waiting; /* freed runs that their threads may take again without asking the arena */
};

struct hak_retained hak__retain(struct hak_retention in);

/* The highest use in this period and in the one before; a period is as long as the purge delay. Threads that note use at the same
 * time without a lock may overwrite each other's figures; the next call corrects them. */
struct hak_recent {
    _Atomic uint64_t begun_ms;
    _Atomic size_t most, most_before;
};

/* Notes the current use and returns the recent peak; no figure counts for longer than two periods. */
size_t hak__recent_peak(struct hak_recent *recent, size_t used, uint64_t now_ms, uint64_t period_ms);

/* --- one thread's large blocks ---------------------------------------------------------------------------------------- */

enum { HAK_RETAIN_WHOLE = 256 }; /* the unit of `absent` */

struct hak_large_retention {
    size_t used, cached; /* bytes in the program's hands; in the large cache */
    size_t peak; /* the most of `used` lately */
    size_t budget, spent; /* HAKMEM_THREAD_BUDGET; the part of it that other bins use */
    unsigned absent; /* the part of the cached blocks that is not resident; at most three quarters count */
};

/* The bytes that a thread's cache may hold in addition to the budget, given the bytes in its spans. */
hak_inline size_t hak__retain_share(size_t bytes) { return bytes / 100 * HAK_BUDGET_SHARE; }

/* How many bytes the large cache may hold: the budget and the share of the bytes in the thread's spans, like its other bins
 * (docs/decisions/0026); but bytes in use and cached together may not exceed the recent peak, its share, and half of the budget.
 * Only resident bytes count (docs/decisions/0050). */
hak_inline size_t hak__retain_large(struct hak_large_retention in)
{
    if (in.budget == 0)
        return 0;
    size_t by_budget = in.budget + hak__retain_share(in.used + in.cached) - hak_min(in.budget, in.spent);
    size_t together = in.peak + hak__retain_share(in.peak) + in.budget / 2;
    size_t resident = hak_min(by_budget, together - in.used);
    return resident / (HAK_RETAIN_WHOLE - hak_min(in.absent, HAK_RETAIN_WHOLE / 4 * 3)) * HAK_RETAIN_WHOLE;
}

/* --- smaller questions ------------------------------------------------------------------------------------------------- */

/* Whether a heap with this many bytes in large blocks is assigned a SuperSlab. With a block or two, most of its slabs would be
 * unused; but SuperSlabs that many threads share are emptied and opened all the time (docs/decisions/0059). Other threads may have
 * freed more than has been counted as allocated so far. */
hak_inline bool hak__retain_assigned(size_t allocated, size_t freed) { return allocated >= freed + ((size_t)512 << 10); }

/* Whether a heap keeps an empty span for the next request: the last one of its class, if its blocks are small. An empty span of
 * large blocks ends, since its slabs can serve any class and thread. */
hak_inline bool hak__retain_empty_span(bool last, size_t block_size) { return last && block_size <= 16 << 10; }

/* Whether a span that has been idle this long may keep its free pages; upkeep looks at it again by then. */
hak_inline bool hak__retain_idle_span(uint64_t idle_ms, uint64_t purge_delay_ms) { return idle_ms < purge_delay_ms / 2; }
