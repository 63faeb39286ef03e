/* Starts the library at the first request: an IFUNC resolver's, a constructor's, a thread's. */
#pragma once

#include "harden/mode.h"

/* Starts the arena, the heap layer and the options unless they have started. False if the system refuses; the next request tries
 * again. */
bool hak__start(void);
bool hak__has_started(void);

/* Whether the process is hardened. Starts the library to find out. */
hak_inline bool hak__is_hardened(void)
{
    return hak_unlikely(hak_load(&hak__hardened.open, HAK_RELAXED)) && hak__start() && hak__hardened.on;
}

/* Called by libhakmem-region when it is loaded, and before it makes or attaches a heap. From then on a child of this process detects
 * the fork, however many threads there are. Returns the table of the copy of that library that came first, which serves all of them;
 * NULL: the system refuses. */
struct hak_regions;
hak_for_region hak_cold const struct hak_regions *hak__regions_join(const struct hak_regions *regions);

/* Reads the options if they were unreadable at the start; false: they were read before. */
bool hak__start_options(void);

/* The constructor (init.c). */
void hak__library_loaded(void);
