/* The range of addresses for sampled blocks (sample/sample.h), between the metadata and the window: numbers, nothing is
 * reserved. What is mapped there is the pages of blocks in use; all else is inaccessible by not being there, so that a
 * freed block costs no memory and no mapping. Any thread, without a lock. */
#ifndef HAK_ARENA_GUARDED_H
#define HAK_ARENA_GUARDED_H

#include "base/atomic.h"
#include "base/limits.h"

/* Where the range begins; 0 before the window has been chosen. */
uintptr_t hak__guarded_start(void);

/* Where the range of blocks of no bytes begins, behind the other one: nothing is ever mapped there. */
uintptr_t hak__zero_size_start(void);

/* Fresh zeroed pages exactly there, or an errno code: EEXIST when a foreign mapping is in the way. Not part of what
 * HAKMEM_LIMIT counts. */
hak_cold int hak__guarded_map(uintptr_t address, size_t bytes);
hak_cold bool hak__guarded_unmap(uintptr_t address, size_t bytes);

extern _Atomic size_t hak__guarded_bytes;   /* mapped now */

#endif
