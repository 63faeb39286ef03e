/* Capacities of the bins, and the byte budgets of thread and process (tune.c). Called when a heap is opened, parked and
 * unparked, by cache.c on misses and overflows, and by upkeep/. */
#pragma once

#include "cache/cache.h"

/* The mode that the options ask of a new heap; hak__cache_open gives it its bins, with first capacities from the options. */
uint32_t hak__cache_mode(void);
void hak__cache_open(struct hak_heap *heap, uint32_t mode);

/* Gives a class its bin at the first request or free that needs it; in a process with options that look at all bins, a new heap
 * has them all. Caller holds the heap lock. If the system refuses memory for slots, the class stays closed. */
hak_at_start void hak__cache_open_class(struct hak_heap *heap, uint32_t class);
hak_cold void hak__cache_open_classes(struct hak_heap *heap);

/* Lets a class that is refilled absorb blocks of other heaps, if its size allows. */
void hak__cache_absorb_begin(struct hak_heap *heap, uint32_t class);

/* Doubles a class that has both missed and overflowed since it last grew, within its ceiling and the thread's budget; returns
 * false if it did not. */
bool hak__cache_grow(struct hak_heap *heap, uint32_t class);

/* From now on the heap's large bins call the profiler. Caller holds the heap lock. */
hak_cold void hak__cache_profile(struct hak_heap *heap);

/* Closes all bins, so that every call takes the slow path, or opens them again (upkeep/polling.h). */
hak_cold void hak__cache_set_polling(struct hak_heap *heap, bool polling);

/* Halves the contents and the capacity, down to the first one, of each class that has moved no batch since the last call. */
hak_cold void hak__cache_shrink_idle(struct hak_heap *heap);

/* Takes a heap that is about to be parked out of the process's sum of capacities; adds an unparked one. Caller holds the heap
 * lock. */
hak_noinline void hak__cache_park(struct hak_heap *heap);
hak_noinline void hak__cache_unpark(struct hak_heap *heap);
size_t hak__cache_process_bytes(void);

/* Charges the process for more cached blocks, or releases unused charge; false: its budget is spent. */
bool hak__cache_charge_large(struct hak_heap *heap);
hak_cold void hak__cache_discharge_large(struct hak_heap *heap);
