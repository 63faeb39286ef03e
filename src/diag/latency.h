/* How long slow paths take (HAKMEM_LATENCY=1): two histograms of the process, in powers of two of a nanosecond. While the option is
 * off, a slow path loads one word and takes an always equal branch. Called by request.c and kinds/. */
#pragma once

#include "diag/options.h"

enum hak_latency_kind { HAK_LATENCY_MALLOC, HAK_LATENCY_FREE, HAK_LATENCY_KINDS };
enum { HAK_LATENCY_BUCKETS = 32 }; /* bucket i: less than 2^i ns; the last one: all longer times too */

struct hak_latency {
    _Atomic uint64_t sum, buckets[HAK_LATENCY_BUCKETS]; /* sum: ns */
};
extern struct hak_latency hak__latencies[HAK_LATENCY_KINDS];

uint64_t hak__latency_now(void);
void hak__latency_add(enum hak_latency_kind kind, uint64_t started);

/* Around a slow path: hak__latency_begin returns the start time, or 0 while the option is off. */
hak_inline uint64_t hak__latency_begin(void) { return hak_unlikely(hak__option(HAK_OPTION_latency) != 0) ? hak__latency_now() : 0; }
hak_inline void hak__latency_end(enum hak_latency_kind kind, uint64_t started)
{
    if (hak_unlikely(started != 0))
        hak__latency_add(kind, started);
}

uint64_t hak__latency_sum(enum hak_latency_kind kind); /* ns */
uint64_t hak__latency_bucket(enum hak_latency_kind kind, unsigned bucket);
