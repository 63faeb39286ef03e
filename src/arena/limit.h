/* Limits on the memory mapped for blocks: the hard one, the soft one with its callback, and what the system allows, bytes and
 * mappings. It knows nothing of the arena, which passes its sums.
 *
 * The arena asks and notifies under its lock. The consequences (the callback, and what watches do) wait as a notice until a thread that
 * holds neither the arena's lock nor a heap's delivers it, at a request's end.
 *
 * Crowded: the kernel allows a process only vm.max_map_count mappings. Each huge block whose last SuperSlab is mapped in part begins
 * one, as does each that ends at a guard. Neighbours with the same flags are one mapping, so above a share of that number mapping.c
 * leaves no gaps: it maps tails and free memory below too, and blocks have no guards behind them. Untouched memory costs only
 * addresses; where those count (HAKMEM_LIMIT, HAKMEM_UNMAP, RLIMIT_AS, locked memory) the share is larger, and a request that is
 * refused is tried again without its tail. If the program itself uses up its mappings, existing ones grow, which the kernel still
 * allows. Bare SuperSlabs (runs.h) do not count: they map only memory that is about to be used. */
#pragma once

#include "base/atomic.h"

typedef void hak_pressure_function(size_t mapped, size_t limit, void *argument);

/* May `more` bytes be mapped besides the `mapped` ones? */
hak_noinline bool hak__limit_allows(size_t mapped, size_t more);

/* Whether mapped bytes count, because there is a limit or under HAKMEM_UNMAP, or the system limits addresses or has refused some. Free
 * memory is then unmapped rather than purged, so that the compared figure falls, and anything else in the process can have the
 * addresses. The second: whether there is a limit or half of the allowed bytes are mapped; little is kept then. */
hak_noinline bool hak__limit_unmaps(void);
hak_noinline bool hak__limit_is_near(void);

/* The system has refused a mapping, while `mapped` bytes were mapped. */
hak_cold void hak__limit_refused(size_t mapped);

/* How many mappings the kernel allows this process (vm.max_map_count). */
hak_noinline size_t hak__limit_mappings(void);

/* Whether untouched mapped memory counts: under HAKMEM_UNMAP, or once new memory was found resident at once (mlockall). Nothing is
 * mapped ahead of need then. */
bool hak__ahead_counts(void);

hak_cold void hak__ahead_end(void); /* new memory was found resident at once */

/* Whether to map only memory that is used: there is little room, or the kernel locks mapped memory. */
bool hak__is_thrifty(void);
hak_cold void hak__thrift_begin(void);

/* Whether that many mappings are too many to make more (crowded); the second: whether hak__limit_note has ever seen that. */
bool hak__limit_is_crowded(size_t mappings);
bool hak__limit_was_crowded(void);

/* Notes the present bytes, those of free SuperSlabs without pages, and the mappings. Under the arena's lock. */
hak_noinline void hak__limit_note(size_t mapped, size_t clean, size_t mappings);

/* Memory in slabs is used again whose pages had gone back. */
hak_cold void hak__limit_regrew(size_t bytes);

/* Calls `function` once, outside of all locks, at the end of the slow path in which the watcher's bytes exceed `beyond`: those mapped;
 * for NEARNESS those that may have pages, and all that have been used again so far. Replaces an earlier watch of the same watcher; SIZE_MAX: none. */
enum hak_watcher { HAK_WATCHER_PROFILE, HAK_WATCHER_NEARNESS, HAK_WATCHERS };
hak_cold void hak__limit_watch(enum hak_watcher watcher, size_t beyond, void (*function)(size_t mapped));
size_t hak__limit_watched(enum hak_watcher watcher); /* its bytes now */

/* What the system allows the process, in bytes, as last seen; HAK_OS_UNLIMITED: any number. `room`: how much of it blocks may
 * use; `near`: little is left. */
hak_noinline void hak__limit_follow(uint64_t allowed, size_t room, bool near);

/* How many bytes of blocks, in use or not, may be mapped before the kernel has reason to kill; 0: no limit is known. */
size_t hak__limit_room(void);

/* Memory is short although all that can go back has gone: calls the program's callback at the request's end. */
hak_cold void hak__limit_press(uint64_t used, uint64_t limit);

/* Whether the control group has, or may have, a limit. */
bool hak__limit_is_grouped(void);

/* How much of such a limit blocks may use beside `others`; an eighth stays free for what was not seen. 0: there is no limit. */
size_t hak__limit_part(uint64_t limit, uint64_t others);

extern _Atomic uint32_t hak__limit_notices; /* bits, private to limit.c; 0: nothing waits */
hak_cold void hak__limit_deliver_slow(void);

hak_inline void hak__limit_deliver(void)
{
    if (hak_unlikely(hak_load(&hak__limit_notices, HAK_RELAXED) != 0))
        hak__limit_deliver_slow();
}

/* Sets option defaults from the system's limits. Reads files, so the caller holds no lock, not even the heap's. The first: from the
 * process's addresses and data alone, without a file. */
hak_noinline void hak__limit_ask_room(void);
hak_noinline void hak__limit_ask_system(void);

hak_cold void hak__limit_set_callback(hak_pressure_function *function, void *argument);
void hak__limit_fork_child(void);
