/* The histograms of slow paths. See latency.h. All threads add to the same words, which is slow only while times are measured. */
#include "diag/latency.h"

#include <time.h>

#include "base/bits.h"
#include "base/syscall.h"

hak_rare_data struct hak_latency hak__latencies[HAK_LATENCY_KINDS];

uint64_t hak__latency_now(void)
{
    struct timespec t = { 0, 0 };
    hak__syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void hak__latency_add(enum hak_latency_kind kind, uint64_t started)
{
    hak_assert(kind < HAK_LATENCY_KINDS && started != 0, "a slow path of a kind, begun while the option was on");
    uint64_t took = hak__latency_now() - started;
    unsigned bucket = took == 0 ? 0 : (unsigned)hak_min(hak_msb64(took) + 1, HAK_LATENCY_BUCKETS - 1);
    hak_fetch_add(&hak__latencies[kind].sum, took, HAK_RELAXED);
    hak_fetch_add(&hak__latencies[kind].buckets[bucket], 1, HAK_RELAXED);
}

uint64_t hak__latency_sum(enum hak_latency_kind kind) { return hak_load(&hak__latencies[kind].sum, HAK_RELAXED); }

uint64_t hak__latency_bucket(enum hak_latency_kind kind, unsigned bucket)
{
    hak_assert(kind < HAK_LATENCY_KINDS && bucket < HAK_LATENCY_BUCKETS, "the histogram has such a bucket");
    return hak_load(&hak__latencies[kind].buckets[bucket], HAK_RELAXED);
}
