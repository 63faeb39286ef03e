/* How much unused memory may stay, as a pure function: no state, no lock, no option is read here. The arena fills in what it
 * knows, asks, and carries the answer out.
 *
 * Two rules. For good, each kind may keep a fixed amount and a share of what is in use. For the purge delay, emptied SuperSlabs
 * may besides fill what is in use up to its recent peak, since that raises no peak; but no more than RECENT_TIMES the dirty
 * limit, which is what a program with one thread may keep while it sleeps, and nothing under pressure. Runs that wait in front of the
 * arena come from the same allowance: all of them together are no more than that. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hak_retention {
    size_t used;            /* mapped, and not emptied */
    size_t taken;           /* of that, mapped in SuperSlabs that are in use */
    size_t recent_peak;     /* the most of `taken` within the purge delay */
    size_t dirty_limit;     /* HAKMEM_DIRTY_LIMIT */
    size_t emptied_limit;   /* the fixed amount for emptied SuperSlabs */
    bool pressure;          /* what is mapped counts: a limit exists, or there is little room */
};

struct hak_retained {
    size_t emptied;   /* emptied SuperSlabs */
    size_t unused;    /* unused slabs and emptied SuperSlabs together, when a SuperSlab is opened */
    size_t growth;    /* the same, while memory grows */
    size_t reserve;   /* mapped by upkeep ahead of need */
    size_t waiting;   /* freed runs that their threads may take again without asking */
};

void hak__retain(const struct hak_retention *in, struct hak_retained *out);

/* The most that was in use in this period and in the one before; a period is as long as the purge delay. */
struct hak_recent {
    uint64_t begun_ms;
    size_t most, most_before;
};

/* Notes what is in use and gives the recent peak: nothing counts for longer than two periods. */
size_t hak__recent_peak(struct hak_recent *recent, size_t used, uint64_t now_ms, uint64_t period_ms);
