/* The return of idle spans and of pages in them. A walk over all slabs in the order of their addresses, a part of it in each step:
 * spans in which nothing has moved for half of HAKMEM_PURGE_DELAY are ended when they are wholly free, else the pages that lie wholly
 * in their free blocks go back to the system. Free blocks hold nothing of ours, so their pages may vanish at any time.
 *
 * The free bits of a span change only under its heap's lock, which the walk holds for a few calls of the system at
 * a time; blocks in bins and outboxes have no free bit. A page that goes back reads as zeros, so `fresh` stays true.
 * What has been purged is not looked at again until a batch moves (span.h, changes). One caller at a time (step.c). */
#pragma once

#include "heap/heap.h"

struct hak_idle_work {
    uint64_t now_ms;
    bool at_once; /* all that is free, however lately it was used */
    uint32_t slabs; /* how many may be looked at */
    uint32_t purges; /* how many calls of the system may be made */
};

/* Gives the resident bytes that went back. */
hak_cold size_t hak__idle_walk(const struct hak_idle_work *work);

/* Whether the last walk stopped because it had made its calls of the system. */
hak_cold bool hak__idle_unfinished(void);

/* Upkeep's work so far, in one place for all readers; each figure has one writer at a time. */
struct hak_upkeep_counts {
    hak_line_aligned hak_counter steps; /* step.c, as the next two */
    hak_counter collected_heaps, outbox_blocks;
    hak_counter spans_ended, span_purges, span_purged; /* idle.c */
    hak_counter armings; /* polling.c */
    hak_counter background, background_starts, background_wakeups; /* background.c; the first is 1 while it runs */
};
extern struct hak_upkeep_counts hak__upkeep_counts;
