/* The heap profiler: which call stacks hold memory, for which labels, and which have asked for how much. It samples bytes, not
 * calls: a thread's countdown, drawn from an exponential distribution with mean HAKMEM_PROFILE_INTERVAL, falls by the size of
 * every request, wherever its block comes from; the request that ends it is sampled. So a block of n bytes is in the sample with
 * probability 1 - exp(-n / mean), and a site's reported figures are unbiased estimates.
 *
 * While no profile counts, none of this runs. A start exchanges the table by which malloc finds a bin (size/size.h): every request
 * up to the mid classes then meets an empty bin, and malloc.c counts it down before it uses the real bin. Larger requests are
 * counted on their slow paths (the process's `open`, HAK_MODE_PROFILED of heaps).
 *
 * A sample (sample/sample.h) up to the mid classes lies outside the window, so its free reaches the slow path by itself; a larger
 * one stays where it is. Nothing here locks or allocates. A forked child continues with the profile as it was. Called by the
 * public functions and by upkeep/. */
#pragma once

#include "sample/sample.h"
#include "size/size.h"

enum { HAK_PROFILE_FRAMES = 64, HAK_PROFILE_LIFETIMES = 12, HAK_PROFILE_PATH = 256 };
enum hak_profile_request { HAK_PROFILE_NOTHING, HAK_PROFILE_START, HAK_PROFILE_STOP, HAK_PROFILE_DUMP };

/* State that other processes read; they write `request`, `interval` and `path` (docs/profiling.md). */
struct hak_profile {
    _Atomic uint32_t counts; /* requests are counted down now: HAK_PROFILE_ASKED, HAK_PROFILE_TRACED */
    _Atomic uint32_t session; /* times that counting has begun, or begun anew */
    _Atomic uint32_t request; /* enum hak_profile_request; 0 again once answered */
    _Atomic uint32_t answered; /* answered requests so far */
    _Atomic uint32_t result; /* 0, or the last request's errno code */
    uint32_t signal; /* the signal that makes the process answer at once; 0: only slow paths poll */
    _Atomic uint64_t interval; /* mean bytes between samples */
    char path[HAK_PROFILE_PATH]; /* where a requested dump goes */
    _Atomic uint64_t samples, missed; /* missed: no slot, or no room for a stack */
    _Atomic uint64_t dumps;
    uint32_t malloc_counts; /* malloc counts its requests down; 0: no, or an outside requester makes it poll instead */
    _Atomic uint32_t started; /* profiles started so far, other than for tracers */
};
extern struct hak_profile hak__profile;

/* Why requests are counted down: for the library's own profile, with stacks; for tracers (sampler.c), which take stacks by
 * themselves. */
enum { HAK_PROFILE_ASKED = 1, HAK_PROFILE_TRACED = 2 };

/* Tracers that are attached to the probes: the kernel or the tracer counts them here, in a writable page of the file. */
#if (defined(__x86_64__) || defined(__aarch64__) || (defined(__riscv) && __riscv_xlen == 64)) && !HAK_ASAN && !HAK_TSAN
#define HAK_HAS_PROBES 1
extern volatile uint16_t hak__profile_tracers;
#else
#define HAK_HAS_PROBES 0
enum { hak__profile_tracers = 0 };
#endif

hak_inline bool hak__profile_counts(void) { return hak_load(&hak__profile.counts, HAK_RELAXED) != 0; }
hak_inline bool hak__profile_is_asked(void) { return (hak_load(&hak__profile.counts, HAK_RELAXED) & HAK_PROFILE_ASKED) != 0; }
hak_inline bool hak__profile_malloc_counts(void) { return hak_read_mostly(&hak__profile.malloc_counts) != 0; }

/* --- switching (switch.c) ------------------------------------------------------------------------------------------------- */

/* Applies HAKMEM_PROFILE; once at start, when the C library is ready. */
hak_noinline void hak__profile_begin(void);

/* interval 0: the option's. Returns 0 or an errno code: ENOMEM, or EACCES where the system keeps the table read-only. The
 * library has started. */
hak_cold int hak__profile_start(uint64_t interval);
hak_cold void hak__profile_stop(void);

/* Whether the library's own profile has ever been started. */
hak_inline bool hak__profile_was_asked(void) { return hak_load(&hak__profile.started, HAK_RELAXED) != 0; }

/* Whether requests have ever been counted, so that blocks may be sampled. */
hak_inline bool hak__profile_ever(void) { return hak_load(&hak__profile.session, HAK_RELAXED) != 0; }

/* From upkeep and at a sample: answers an outside request, follows tracers that come and go, and writes a dump when
 * HAKMEM_PROFILE_EVERY is due. The thread's heap, not locked, joins a profile that has begun since; NULL: it has none. */
hak_cold void hak__profile_poll_slow(struct hak_heap *heap, uint64_t now_ms);
hak_inline void hak__profile_poll(struct hak_heap *heap, uint64_t now_ms)
{
    uint32_t counts = hak_load(&hak__profile.counts, HAK_RELAXED), request = hak_load(&hak__profile.request, HAK_RELAXED);
    if (hak_unlikely((counts | request | hak__profile_tracers) != 0))
        hak__profile_poll_slow(heap, now_ms);
}

/* From malloc's slow path: an external profiler can force every request onto this path (lab, remote_control.py), so a thread that
 * only hits answers too. */
hak_inline bool hak__profile_asked(void) { return hak_load(&hak__profile.request, HAK_RELAXED) != HAK_PROFILE_NOTHING; }
hak_cold bool hak__profile_answer(void); /* false: nothing was requested */

/* For a signal without a request: starts the profile, or dumps it if one has run. False: option profile is 0. */
hak_cold bool hak__profile_by_signal(void);

hak_at_start void hak__profile_end(void); /* at program exit */

/* Lets one thread of the process at a time have what the word stands for; in a forked child no missing thread counts. False:
 * another thread has it. Release it with a store of 0. */
hak_cold bool hak__profile_claim(_Atomic uint32_t *word);

/* --- counting (sampler.c) -------------------------------------------------------------------------------------------------- */

/* From now on the large bins of the calling thread's heap report to the profile. */
hak_cold void hak__profile_join(struct hak_heap *heap);

hak_inline bool hak__profile_has_joined(const struct hak_heap *heap)
{
    return heap->profile_session == hak_load(&hak__profile.session, HAK_RELAXED);
}

/* Counts down n bytes; returns whether to sample the request. `heap` is the calling thread's, no sentinel. */
hak_cold bool hak__profile_due(struct hak_heap *heap, size_t n);

/* A sampled block of up to the mid classes, aligned as asked, of a user heap, or malloc's if NULL. `guarded`: with guard pages, if
 * it can have them; `counts`: it counts for the profile. NULL: there is no slot. */
hak_cold void *hak__sample_take(size_t align, size_t n, bool guarded, bool counts, struct hak_samples *samples);

/* Shortens a live sample's block to n bytes; to the profile it is freed and allocated again. False: it is being freed. */
hak_cold bool hak__sample_shrink(struct hak_record *record, size_t n);

/* Counts down a new block above the mid classes, and notes it if it is to be sampled. */
hak_cold void hak__profile_note(struct hak_heap *heap, void *block, size_t n, struct hak_samples *samples);

/* ... forgets a freed block, which may never have been noted. */
hak_cold void hak__profile_forget(const void *block);

/* --- dumps (write.c) ---------------------------------------------------------------------------------------------------------- */

/* Writes a dump: JSON if the path ends in ".json", else jemalloc's heap_v2 text. NULL: under a numbered name. Returns 0 or an
 * errno code: EPERM in a privileged process, EBUSY during another dump. `kind` is the letter in numbered names; f (final) and u (by
 * signal) have no caller that learns of a failure, so a warning says it. */
hak_cold int hak__profile_dump(const char *path, char kind);
