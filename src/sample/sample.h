/* Sampled guards (HAKMEM_SAMPLE_GUARDS=N), in the manner of GWP-ASan: about one in N allocations gets pages of its own in a
 * range of addresses where nothing else is mapped. Its pages vanish when it is freed, and its place is kept unused for as
 * long as there are older ones. A wrong access then faults, and the report says which block it was and which calls allocated and
 * freed it. Called by malloc_slow.c, calloc.c and kinds/sampled.c; cache/cache.c says when samples are due.
 *
 * A place:   | nothing | slack | block | slack | nothing |      the block at the first or the last byte of its pages that
 *                      [      its pages        ]                its alignment allows; slack is checked when it is freed
 *
 * A place's states are those of its record (record.h). Every change is one compare-and-swap or store, nothing waits for another thread: a
 * child forked in between loses at most the places that other threads were at. */
#pragma once

#include "cache/cache.h"
#include "diag/options.h"
#include "sample/record.h"

enum { HAK_SAMPLE_FRAMES = 12, HAK_SAMPLE_SLACK_BYTE = 0xa7, HAK_SAMPLE_SLACK_MOST = 256 };
struct hak_sample_event {
    uint32_t thread, frames; /* the kernel's number of the thread; entries of `trace` */
    uintptr_t trace[HAK_SAMPLE_FRAMES];
};

struct hak_sample_place {
    struct hak_record sample;
    uintptr_t pages;
    size_t page_bytes; /* mapped at `pages`; 0: nothing */
    _Atomic uint64_t freed_at; /* the number of its free */
    struct hak_sample_event allocated, freed;
};

/* The places in use: hak__sample_begin has made them. */
struct hak_sample {
    uintptr_t start;
    size_t bytes; /* of addresses; 0: there are none */
    struct hak_sample_place *places;
    _Atomic uint64_t allocated, freed, refused; /* refused: due, but too many per second, no place or no memory */
};
extern struct hak_sample hak__sample;

/* Once at start, when the C library is ready: makes the places and has the handler installed. */
hak_noinline void hak__sample_begin(void);

/* Whether the address lies in the range. */
hak_inline bool hak__sample_has(const void *p) { return hak_unlikely((uintptr_t)p - hak__sample.start < hak__sample.bytes); }

/* A request that the fast path could not serve from this heap: whether it is one's turn. The heap is locked. */
hak_cold bool hak__sample_due(struct hak_heap *heap, uint32_t class);

/* A sampled block of zeros for a request whose turn it is, of a user heap, or with NULL malloc's. NULL: too many per second, no place, no
 * memory. */
hak_cold void *hak__sample_take(size_t n, struct hak_samples *samples);

/* Both for a request of the calling thread's own heap. */
hak_cold void *hak__sample_malloc(struct hak_heap *heap, size_t n);
hak_inline bool hak__sample_on(void) { return hak__option(HAK_OPTION_sample_guards) != 0; }

/* The record of the place in which p lies, an address in the range. Its usable bytes are those asked for, at least 1. */
hak_cold struct hak_record *hak__sample_record_of(const void *p);

/* --- reports (sampled.c) ------------------------------------------------------------------------------------------------ */

hak_cold void hak__sample_handle_faults(void);

/* Which block it was, on further lines of a report. */
hak_cold void hak__sample_tell(const struct hak_record *record);
