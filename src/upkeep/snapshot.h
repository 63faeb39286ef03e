/* The statistics of the whole process, gathered from the heaps without stopping anybody. */
#ifndef HAK_UPKEEP_SNAPSHOT_H
#define HAK_UPKEEP_SNAPSHOT_H

#include "hakmem_stats.h"
#include "heap/heap.h"

struct hak_class_totals {
    uint64_t refilled, drained, collected, misses, spans, mallocs, frees;
    uint64_t warm_hits, warm_prefilled;
    uint64_t cached;      /* in bins */
    uint64_t outbox;      /* freed, not yet published */
    uint64_t live;        /* refilled - drained - collected - cached - outbox */
};

struct hak_totals {
    struct hak_class_totals classes[HAK_CLASSES], all;
    uint64_t live_bytes;              /* of size classes; huge blocks are counted apart */
    uint64_t cached_bytes, span_bytes;
    uint64_t remote_frees, remote_published, forwarded, adopted, common_taken, runs_claimed;
    uint64_t stages[HAK_STAGES];
    uint64_t heaps, parked;
};

/* Exact when no other thread allocates meanwhile, else each figure is of its own moment. */
hak_cold void hak__totals(struct hak_totals *out);

/* The same with all other figures, as the public structure has them, but for the ledger (ledger.h). Takes no lock and
 * does not wait, so it may be called in a signal handler. */
hak_cold void hak__snapshot(struct hak_stats *out);

#endif
