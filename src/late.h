/* The frees of threads without a heap: those that have none yet, and those that have ended theirs. */
#pragma once

#include "thread.h"

/* A block of another heap, whose slab's word is `word`. */
void hak__free_unattached(void *p, uint32_t word, const char *function);

/* Frees any block of a span by the exit heap, which such threads share; the caller has checked hardened ones. */
hak_cold void hak__free_late(void *p, uint32_t word, const char *function);
