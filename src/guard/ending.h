/* Hardened mode's check of the heap when the program exits: the bytes behind blocks never freed, freed blocks never reused, and
 * every invariant (check.h). Called by init.c.
 *
 * It reports no false findings. A thread announces the block that it is sealing or clearing (cache/quarantine.h), and a suspect
 * must stay wrong for a while. The check skips locked heaps, and data that a forked child has from threads missing there. Huge
 * blocks may be unmapped meanwhile, so it checks them only in single-threaded processes. It ends after ENDING_MS in any case,
 * and waits for no lock. */
#pragma once

#include "base/compiler.h"

/* Reports up to ENDING_SAID bad blocks, then ends the program. `alone`: no other thread has ever had a heap. */
hak_cold void hak__ending_check(bool alone);
