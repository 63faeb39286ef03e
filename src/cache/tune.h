/* Capacities of the bins, and the byte budgets of the thread and of the process (tune.c). Called when a heap is opened, parked
 * and taken up, by the misses and overflows of cache.c, and by upkeep/. */
#pragma once

#include "cache/cache.h"

/* Gives a new heap its bins, with first capacities from the options and its mode. */
void hak__cache_open(struct hak_heap *heap, uint32_t mode);

/* A class that is refilled begins to absorb, if its size allows. */
void hak__cache_absorb_begin(struct hak_heap *heap, uint32_t class);

/* Capacities (tune.c). A class that has run both empty and over since it last grew doubles, within its ceiling and the
 * thread's budget; false when it did not. */
bool hak__cache_grow(struct hak_heap *heap, uint32_t class);

/* Closes all bins, so that every call takes the slow path, or opens them again (upkeep/polling.h). */
hak_cold void hak__cache_set_polling(struct hak_heap *heap, bool polling);

/* A class that has moved no batch since the last such call gives back half of what it holds, and of its capacity down to
 * that which it began with. */
hak_cold void hak__cache_shrink_idle(struct hak_heap *heap);

/* A heap that is about to be parked, or has been taken up and is entered, leaves or joins the process's sum of capacities. */
hak_noinline void hak__cache_park(struct hak_heap *heap);
hak_noinline void hak__cache_unpark(struct hak_heap *heap);
size_t hak__cache_process_bytes(void);

/* Charges the process with some more bytes that may be kept, or takes back what is not used; false: its budget is spent. */
bool hak__cache_charge_kept(struct hak_heap *heap);
hak_cold void hak__cache_discharge_kept(struct hak_heap *heap);
