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

/* Reads the options if they were unreadable at the start; false: they were read before. */
bool hak__start_options(void);

/* The constructor (init.c). */
void hak__library_loaded(void);
