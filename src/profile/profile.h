/* The heap profiler: which call stacks hold memory, and which have asked for how much. Bytes are sampled, not calls: a thread's
 * countdown, drawn anew from an exponential distribution whose mean is HAKMEM_PROFILE_INTERVAL, falls by the size of every
 * request, wherever its block comes from; the request at which it ends is sampled. So a block of n bytes is in the sample with
 * probability 1 - exp(-n / mean), and what is written about a site is an unbiased estimate.
 *
 * While no profile counts, nothing of this runs. A start exchanges the table by which malloc finds a bin (size/size.h): all
 * requests up to the mid pool meet a bin that is always empty, and malloc_slow.c counts them down before it takes the real bin.
 * Larger requests are counted where they are slow anyhow (the process's `open`, HAK_MODE_PROFILED of heaps).
 *
 * Where samples are (places.c): a block up to the mid pool lies outside of the window, so that its free comes to the slow path
 * by itself; a larger one stays where it is, and a table by slabs says that it is sampled.
 * Nothing here takes a lock or allocates. A child that was forked goes on with the profile as it was.
 * Called by the public functions and by upkeep/. */
#pragma once

#include "cache/cache.h"
#include "diag/options.h"
#include "sample/record.h"
#include "size/size.h"

enum { HAK_PROFILE_FRAMES = 64, HAK_PROFILE_LIFETIMES = 12, HAK_PROFILE_PATH = 256 };
enum hak_profile_request { HAK_PROFILE_NOTHING, HAK_PROFILE_START, HAK_PROFILE_STOP, HAK_PROFILE_DUMP };

/* The state that other processes look at and, for `request`, `interval` and `path`, write to (docs/profiling.md). */
struct hak_profile {
    _Atomic uint32_t counts; /* requests are counted down now */
    _Atomic uint32_t session; /* starts so far */
    _Atomic uint32_t request; /* enum hak_profile_request; 0 again when it has been answered */
    _Atomic uint32_t answered; /* requests so far that have been answered */
    _Atomic uint32_t result; /* 0 or the errno code of the last one */
    uint32_t signal; /* at which it is looked for at once; 0: only when a slow path polls */
    _Atomic uint64_t interval; /* mean bytes between samples */
    char path[HAK_PROFILE_PATH]; /* where a dump that is requested goes */
    uintptr_t places; /* blocks up to the mid pool that are sampled lie in this range */
    size_t places_bytes;
    _Atomic uint64_t samples, missed; /* missed: no place or no room for a stack */
    _Atomic uint64_t dumps;
    uint32_t malloc_counts; /* malloc counts what it meets; 0: not, or the asker of a request has it look for that */
};
extern struct hak_profile hak__profile;

hak_inline bool hak__profile_counts(void) { return hak_load(&hak__profile.counts, HAK_RELAXED) != 0; }
hak_inline bool hak__profile_malloc_counts(void) { return hak_read_mostly(&hak__profile.malloc_counts) != 0; }

/* --- switching (switch.c) ------------------------------------------------------------------------------------------------- */

/* Once at start, when the C library is ready: does what HAKMEM_PROFILE says. */
hak_noinline void hak__profile_begin(void);

/* interval: 0 is the option's. 0, or an errno code: ENOMEM, or EACCES where the system does not let the table be written. The
 * library has started. */
hak_cold int hak__profile_start(uint64_t interval);
hak_cold void hak__profile_stop(void);

/* Whether the process has ever been profiled: blocks may be sampled. */
hak_inline bool hak__profile_ever(void) { return hak_load(&hak__profile.session, HAK_RELAXED) != 0; }

/* From upkeep and at a sample: answers a request from outside, and writes a dump when one is due by HAKMEM_PROFILE_EVERY. The thread's heap, which
 * is not entered, joins a profile that has begun since; NULL: it has none. */
hak_cold void hak__profile_poll_slow(struct hak_heap *heap, uint64_t now_ms);
hak_inline void hak__profile_poll(struct hak_heap *heap, uint64_t now_ms)
{
    if (hak_unlikely((hak_load(&hak__profile.request, HAK_RELAXED) | hak_load(&hak__profile.counts, HAK_RELAXED)) != 0))
        hak__profile_poll_slow(heap, now_ms);
}

/* From malloc's slow path: who asks from outside can lead all requests there (lab, profiling.py), so that a thread that only hits
 * answers too. */
hak_inline bool hak__profile_asked(void) { return hak_load(&hak__profile.request, HAK_RELAXED) != HAK_PROFILE_NOTHING; }
hak_cold bool hak__profile_answer(void); /* false: nothing was asked */

/* At a signal that came without a request: starts the profile, or dumps it if there has been one. False: option profile is 0. */
hak_cold bool hak__profile_by_signal(void);

hak_at_start void hak__profile_end(void); /* when the program exits */

/* One thread of the process at a time has what the word stands for; of a forked child none has it that is not there. False: it
 * is another's. What this process wrote before is given back by a store of 0. */
hak_cold bool hak__profile_claim(_Atomic uint32_t *word);

/* --- counting (sampler.c) -------------------------------------------------------------------------------------------------- */

/* The heap, the calling thread's, is one that the profile counts for: from now on its large bins say so too. */
hak_cold void hak__profile_join(struct hak_heap *heap);

hak_inline bool hak__profile_has_joined(const struct hak_heap *heap)
{
    return heap->profile_session == hak_load(&hak__profile.session, HAK_RELAXED);
}

/* Counts a request of n bytes down, of a heap that is the calling thread's and no sentinel; whether it is to be sampled. */
hak_cold bool hak__profile_due(struct hak_heap *heap, size_t n);

/* A place for a sampled block of the class, n of its bytes asked for, of a user heap or with NULL malloc's; NULL: there is none. */
hak_cold void *hak__profile_take(uint32_t class, size_t n, struct hak_samples *samples);

/* A block above the mid pool has been allocated: counts it down, and notes it if it is to be sampled. */
hak_cold void hak__profile_note(struct hak_heap *heap, void *block, size_t n, struct hak_samples *samples);

/* ... is freed, sampled or not; it may be one that never was noted. */
hak_cold void hak__profile_forget(const void *block);

/* --- blocks of the range ---------------------------------------------------------------------------------------------------- */

hak_inline bool hak__profile_has(const void *p)
{
    return hak_unlikely((uintptr_t)p - hak__profile.places < hak__profile.places_bytes);
}

/* The record of the place in which p lies, an address in the range; NULL: no block was ever there. Its usable bytes are the place's, of a
 * hardened process those asked for. */
hak_cold struct hak_record *hak__profile_record_of(const void *p);

/* --- dumps (write.c) ---------------------------------------------------------------------------------------------------------- */

/* Writes what is known: as JSON if the path ends in ".json", else as jemalloc's heap_v2 text. NULL: under a numbered name.
 * 0 or an errno code: EPERM in a privileged process, EBUSY while another dump is written. `kind` is the letter in numbered names. */
hak_cold int hak__profile_dump(const char *path, char kind);
