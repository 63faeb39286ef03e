/* Hardened mode's check of the heap when the program exits: what was written behind blocks that were never freed, and to freed
 * blocks that were never used again, and every invariant (check.h). Called by init.c.
 *
 * It reports nothing that is right. A thread says which block it is sealing or clearing (cache/quarantine.h), and what looks wrong has
 * to stay so for a while. The check passes over locked heaps, and over what a forked child has from threads that do not exist there.
 * Huge blocks may be unmapped meanwhile, so it checks them only in processes of one thread. It ends after ENDING_MS in any case, and
 * waits for no lock. */
#pragma once

#include "base/compiler.h"

/* Reports what it finds, up to ENDING_SAID blocks, and then ends the program. `alone`: no other thread has ever had a heap. */
hak_cold void hak__ending_check(bool alone);
