/* Upkeep's work so far, in one place for all readers; each figure has one writer at a time. */
#pragma once

#include "base/atomic.h"

struct hak_upkeep_counts {
    hak_line_aligned hak_counter steps;                      /* step.c, as the next two */
    hak_counter collected_heaps, outbox_blocks;
    hak_counter spans_ended, span_purges, span_purged;       /* idle.c */
    hak_counter armings;                                     /* polling.c */
    hak_counter background, background_starts, background_wakeups;   /* background.c; the first is 1 while it runs */
};
extern struct hak_upkeep_counts hak__upkeep_counts;
