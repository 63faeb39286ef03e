/* Hardened mode's look at the heap when the program exits: what was written behind blocks that were never freed, and to freed
 * blocks that were never used again, and every invariant (check.h). Called by init.c.
 *
 * Nothing that is right is reported: a block that a thread is sealing or clearing says so (cache/quarantine.h), and what looks
 * wrong has to stay so while it is looked at for a while; a heap whose thread is inside of it is passed over, and so is what
 * a forked child has from threads that do not exist there. Blocks that may be unmapped meanwhile, huge ones, are looked at
 * in processes of one thread. It ends after ENDING_MS, whatever it has seen by then; nothing waits for a lock. */
#pragma once

#include "base/compiler.h"

/* Reports what it finds, up to ENDING_SAID blocks, and ends the program then. `alone`: no other thread has ever had a heap. */
hak_cold void hak__ending_check(bool alone);
