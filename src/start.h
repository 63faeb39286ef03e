/* The start of the library, by whichever request comes first: an IFUNC resolver's, a constructor's, a thread's. */
#pragma once

#include "base/compiler.h"

/* Starts the arena, the heap layer and the options unless they have started. False if the system refuses; the next request then
 * tries again. */
bool hak__start(void);
bool hak__has_started(void);

/* Reads the options if they could not be read at the start; false: they were. */
bool hak__start_options(void);

/* The constructor (init.c). */
void hak__library_loaded(void);
