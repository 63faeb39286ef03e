/* Returns idle spans, and idle pages in spans. A walk visits all slabs in address order, a part in each step: if nothing has
 * moved in a span for long enough, a free span ends; otherwise the pages that lie wholly in its free blocks go
 * back to the system. The library stores nothing in free blocks, so their pages may vanish at any time.
 *
 * A span's free bits change only under its heap's lock, which the walk holds for a few system calls at a time; blocks in bins
 * and outboxes have no free bit. A returned page reads as zeros, so `fresh` stays true. A purged span is skipped until a batch
 * moves (span.h, changes). One caller at a time (step.c). */
#pragma once

#include "heap/heap.h"

struct hak_idle_work {
    uint64_t now_ms;
    uint32_t slabs; /* the most slabs to visit */
    uint32_t purges; /* the most system calls to make */
    uint64_t idle_ms; /* what has been unused for so long goes back */
    size_t most; /* and no more bytes than these */
};

/* Returns the resident bytes that were purged. */
hak_cold size_t hak__idle_walk(const struct hak_idle_work *work);

/* Whether the last walk stopped at its limit of system calls. */
hak_cold bool hak__idle_unfinished(void);

/* Upkeep's work so far, in one struct for all readers; each figure has one writer at a time. */
struct hak_upkeep_counts {
    hak_line_aligned hak_counter steps; /* step.c, like the next two */
    hak_counter collected_heaps, outbox_blocks;
    hak_counter spans_ended, span_purges, span_purged; /* idle.c */
    hak_counter armings; /* polling.c */
    hak_counter background_starts, background_wakeups; /* background.c */
};
extern struct hak_upkeep_counts hak__upkeep_counts;
