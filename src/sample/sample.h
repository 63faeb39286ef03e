/* Sampled guards (HAKMEM_SAMPLE_GUARDS=N), in the manner of GWP-ASan: about one in N allocations gets pages of its own in an
 * address range where nothing else is mapped. A free unmaps the pages, and the place stays unused while older ones exist. A wrong
 * access then faults; the report names the block and the calls that allocated and freed it. Called by malloc.c, calloc.c and
 * kinds/sampled.c; cache/cache.c decides when a sample is due.
 *
 * A place:   | nothing | slack | block | slack | nothing |      the block at the first or the last byte of its pages that
 *                      [      its pages        ]                its alignment allows; slack is checked when it is freed
 *
 * A place's state is its record's (record.h). Every change is one compare-and-swap or store, and no thread waits for another: a
 * child forked in between loses at most the places that other threads were changing. */
#pragma once

#include "cache/cache.h"
#include "diag/options.h"
#include "sample/record.h"

enum { HAK_SAMPLE_FRAMES = 12, HAK_SAMPLE_SLACK_BYTE = 0xa7, HAK_SAMPLE_SLACK_MOST = 256 };
struct hak_sample_event {
    uint32_t thread, frames; /* the kernel's thread number; entries of `trace` */
    uintptr_t trace[HAK_SAMPLE_FRAMES];
};

struct hak_sample_place {
    struct hak_record sample;
    uintptr_t pages;
    size_t page_bytes; /* mapped at `pages`; 0: none */
    _Atomic uint64_t freed_at; /* the number of the free */
    struct hak_sample_event allocated, freed;
};

/* The places in use; hak__sample_begin makes them. */
struct hak_sample {
    uintptr_t start;
    size_t bytes; /* of addresses; 0: sampling is off */
    struct hak_sample_place *places;
    _Atomic uint64_t allocated, freed, refused; /* refused: due, but over the rate, or no place or memory left */
};
extern struct hak_sample hak__sample;

/* Makes the places and installs the handler; once at start, when the C library is ready. */
hak_noinline void hak__sample_begin(void);

/* Whether the address lies in the range. */
hak_inline bool hak__sample_has(const void *p) { return hak_unlikely((uintptr_t)p - hak__sample.start < hak__sample.bytes); }

/* Whether a request that this heap's fast path could not serve is due for sampling. The heap is locked. */
hak_cold bool hak__sample_due(struct hak_heap *heap, uint32_t class);

/* A zeroed sampled block for a request that is due, of a user heap, or malloc's if NULL. NULL: over the rate, or no place or
 * memory left. */
hak_cold void *hak__sample_take(size_t n, struct hak_samples *samples);

/* Both for a request to the calling thread's heap. */
hak_cold void *hak__sample_malloc(struct hak_heap *heap, size_t n);
hak_inline bool hak__sample_on(void) { return hak__option(HAK_OPTION_sample_guards) != 0; }

/* The record of the place that contains p, an address in the range. The usable bytes are those asked for, at least 1. */
hak_cold struct hak_record *hak__sample_record_of(const void *p);

/* --- reports (sampled.c) ------------------------------------------------------------------------------------------------ */

hak_cold void hak__sample_handle_faults(void);

/* Describes the block on further lines of a report. */
hak_cold void hak__sample_tell(const struct hak_record *record);
