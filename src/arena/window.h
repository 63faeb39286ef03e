/* The choice of the window of addresses, once at start, and the two ranges beside it: for sampled blocks (sample/sample.h) and for
 * blocks of no bytes. These are only numbers; nothing is reserved. Of the first, only the pages of blocks in use are mapped, so a freed
 * block faults and costs neither memory nor a mapping. Any thread maps there, without a lock. */
#pragma once

#include "base/atomic.h"
#include "base/limits.h"

/* Chooses a base and maps the first piece of each metadata window; sets hak__window. 0 or an errno code. */
int hak__window_choose(void);

/* The SuperSlabs that the window can hold. */
size_t hak__window_supers(void);

/* Where the range begins, 0 before the window has been chosen; its bytes, a multiple of HAK_GUARDED_STRIDE. */
uintptr_t hak__guarded_start(void);
size_t hak__guarded_size(void);

/* Where the range of blocks of no bytes begins, behind the other one: nothing is ever mapped there. */
uintptr_t hak__zero_size_start(void);

/* Maps fresh zeroed pages exactly there; 0 or an errno code: EEXIST when a foreign mapping is in the way. Not part of what
 * HAKMEM_LIMIT counts. */
hak_cold int hak__guarded_map(uintptr_t address, size_t bytes);
hak_cold bool hak__guarded_unmap(uintptr_t address, size_t bytes);

extern _Atomic size_t hak__guarded_bytes;   /* mapped now */
