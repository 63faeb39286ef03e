/* Upkeep: what has to be done as time goes by. One step is a function of the state and the time, so that tests call it
 * with a clock of their own; in a program the slow paths call hak__upkeep_tick, which looks at the clock now and then. */
#ifndef HAK_UPKEEP_STEP_H
#define HAK_UPKEEP_STEP_H

#include "heap/heap.h"

/* Does what is due at `now_ms` (HAKMEM_PURGE_DELAY after memory was freed): collects for the heaps of threads that do
 * not do it themselves, gives the pages of unused slabs and of free SuperSlabs back. With `all`, everything is due.
 * `mine` is the caller's heap, not entered, or NULL. Gives the bytes returned to the system. */
size_t hak__upkeep_step(const struct hak_heap *mine, uint64_t now_ms, bool all);

/* From a slow path of `heap`, which is not entered: cheap unless a step is due. */
void hak__upkeep_tick(struct hak_heap *heap);

void hak__upkeep_fork_child(void);

#endif
