/* The start of the library, by whichever request comes first: an IFUNC resolver's, a constructor's, a thread's. */
#pragma once

#include "base/compiler.h"

/* Starts what is not started: the arena, the heap layer, the options. False when the system refuses; called again by
 * the next request then. */
bool hak__start(void);
bool hak__has_started(void);

/* Reads the options if they could not be read at the start; false: they were. */
bool hak__start_options(void);

/* The constructor (init.c). */
void hak__library_loaded(void);
