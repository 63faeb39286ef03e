/* Sites: call stacks with their samples, separate for each size class, so that a site's blocks are about as long and its mean size
 * stands for each, for each combination of labels, and for each interval, without which the figures mean nothing. Never removed;
 * any thread finds them without a lock. Internal to profile/.
 *
 *   allocated, allocated_bytes    samples since the start, and their requested bytes, not weighted
 *   freed, freed_bytes            the part that has been freed
 *   peak, peak_bytes              live samples at the highest use, as of `peak_epoch`; if that is not the current
 *                                 epoch, nothing has changed since that moment */
#pragma once

#include "os/loaded.h"
#include "profile/profile.h"
#include "sample/sample.h"

/* All samples that only tracers look at have one site, of no stack; no dump has it. */
enum { HAK_PROFILE_BUCKETS = 1 << 14, HAK_PROFILE_TRACED_SITE = UINT16_MAX };

struct hak_profile_site {
    struct hak_profile_site *next; /* with the same hash */
    uint64_t interval;
    const struct hak_labels *labels;
    uint32_t group; /* of the size, from group_of */
    uint16_t frame_count, module_count;
    struct hak_profile_module **modules; /* those of its frames, behind these */
    _Atomic uint64_t allocated, allocated_bytes, freed, freed_bytes;
    _Atomic uint64_t peak, peak_bytes, peak_epoch;
    _Atomic uint64_t unreachable, unreachable_bytes; /* found by the leak search (leaks.c) */
    _Atomic uint32_t lifetimes[HAK_PROFILE_LIFETIMES]; /* of freed samples: below 1 ms, 4 ms, 16 ms, ... */
    uintptr_t frames[];
};

extern _Atomic(struct hak_profile_site *) *hak__profile_buckets; /* NULL: no profile has begun; readers of cores look here */

/* Lays out the tables in the areas that sample/store.c has reserved; once. */
hak_cold void hak__profile_sites_begin(struct hak_area area, struct hak_area ghosts);

/* The site of the calling thread's stack and labels for requests of n bytes, of a user heap, or malloc's if NULL; NULL if there is
 * no room. */
hak_cold struct hak_profile_site *hak__profile_site_here(size_t n, const struct hak_samples *samples);

/* Counts a sample of n bytes as new, or as freed after `ms` milliseconds. */
hak_cold void hak__profile_site_add(struct hak_profile_site *site, size_t n);
hak_cold void hak__profile_site_remove(struct hak_profile_site *site, size_t n, uint64_t lived_ms);

/* The address that a dump gives for one of the site's frames. */
hak_cold uintptr_t hak__profile_site_frame(const struct hak_profile_site *site, uint32_t i);

/* Before a dump: finds closed modules, and gives them addresses of the second area. */
hak_cold void hak__profile_sites_settle(void);

/* Iterates over the current interval's sites: *bucket is 0 at first, *site NULL. False at the end. */
hak_cold bool hak__profile_site_next(uint32_t *bucket, struct hak_profile_site **site);

/* The site's live samples at the peak. */
hak_cold void hak__profile_site_peak(const struct hak_profile_site *site, uint64_t *count, uint64_t *bytes);
hak_cold uint64_t hak__profile_peak_ms(void);

/* The bytes for which one sample of n stands. */
hak_cold uint64_t hak__profile_weight(const struct hak_profile_site *site, uint64_t n);

/* --- modules ----------------------------------------------------------------------------------------------------------------
 *
 * The modules that stacks lead through, as they were when a stack was first seen. Another module may be loaded where one was
 * closed. To keep the names of both right, a dump shifts a closed module's frames and mapping to addresses that the profile has
 * reserved, where no module can be. Never removed. */

struct hak_profile_module {
    struct hak_profile_module *next;
    uintptr_t start, end, offset; /* of its code, and where that is in the file */
    struct hak_module all; /* as the loader had it; its name is part of `path` */
    _Atomic uintptr_t moved; /* closed: how far dumps shift it up, modulo 2^64; 0: open, as far as known */
    char path[]; /* absolute */
};

/* Iterates over closed modules: *module is NULL at first; returns false at the end. */
hak_cold bool hak__profile_module_next_closed(struct hak_profile_module **module);

/* --- leaks (leaks.c) ------------------------------------------------------------------------------------------------------ */

/* Counts, at its site, each live sample that no readable word points to: in the program's data, its stacks, its own mappings,
 * and blocks that are reached or were never sampled. False: the system does not let the process read its memory. */
hak_cold bool hak__leaks_search(void);
hak_cold bool hak__leaks_were_searched(void);
