/* The statistics of the whole process, gathered from the heaps without stopping anybody. */
#ifndef HAK_UPKEEP_DUMP_H
#define HAK_UPKEEP_DUMP_H

#include "heap/heap.h"

struct hak_class_totals {
    uint64_t refilled, drained, collected, misses, spans, mallocs, frees;
    uint64_t cached;      /* in records */
    uint64_t outbox;      /* freed, not yet published */
    uint64_t live;        /* refilled - drained - collected - cached - outbox */
};

struct hak_totals {
    struct hak_class_totals classes[HAK_CLASSES], all;
    uint64_t live_bytes;              /* of size classes; huge blocks are counted apart */
    uint64_t cached_bytes, span_bytes;
    uint64_t remote_frees, remote_published, forwarded, adopted;
    uint64_t heaps, parked;
};

/* Exact when no other thread allocates meanwhile, else each figure is of its own moment. */
void hak__totals(struct hak_totals *out);

/* The table that HAKMEM_STATS=1 prints. */
void hak__dump_text(int fd);

#endif
