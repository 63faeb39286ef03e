/* How near the process is to the limits of its memory, followed while it runs: of its control group (os/groups.h), its addresses
 * (RLIMIT_AS), and HAKMEM_LIMIT. A step of upkeep looks every second, and sooner once much more is in use. Near a limit, memory goes
 * back first, that of the calling thread's bins and all that is retained; where that was not enough, the program's callback is called
 * (hak_set_pressure_callback).
 *
 * What the system allows is asked once: files cost a process's start more than all else of it. So that waits until the process holds a
 * few MiB, as most never do, or a filter of system calls comes, behind which files may be forbidden. A process whose control group has no
 * limit then is followed only if the black box, HAKMEM_PROFILE=auto or a callback asks for it, and none is behind a filter. */
#pragma once

#include "heap/heap.h"
#include "os/groups.h"

enum hak_near_limit { HAK_NEAR_NONE, HAK_NEAR_GROUP_MAX, HAK_NEAR_GROUP_HIGH, HAK_NEAR_ADDRESSES, HAK_NEAR_OPTION };
enum { HAK_NEAR_WHOLE = 1000, HAK_NEAR_GIVE = 850, HAK_NEAR_CALL = 900, HAK_NEAR_PROFILE = 700 };

struct hak_nearness {
    struct hak_os_group group;
    struct hak_os_process process;
    uint64_t option_limit, mapped;
    uint64_t limit, used; /* the nearest; HAK_GROUP_UNLIMITED: none */
    uint32_t kind, permille; /* enum hak_near_limit; used / limit */
    uint64_t coming; /* bytes mapped since the last look: they may be touched at any moment */
};

/* Called from slow paths and the background thread; NULL: the latter, which may call no function of the program. */
hak_cold void hak__near_poll_slow(struct hak_heap *heap, uint64_t now_ms);
extern _Atomic uint64_t hak__near_next_ms; /* when to look again; UINT64_MAX: never */
hak_inline void hak__near_poll(struct hak_heap *heap, uint64_t now_ms)
{
    if (hak_unlikely(now_ms >= hak_load(&hak__near_next_ms, HAK_RELAXED)))
        hak__near_poll_slow(heap, now_ms);
}

/* Computes the present state. */
hak_cold void hak__near_look(struct hak_nearness *out);

/* The program has set its callback, or taken it away. */
hak_cold void hak__near_call(bool calls);

hak_cold void hak__near_fork_child(void);

/* Asks the system for its limits and its setting for huge pages, unless that has been done or a filter has come. `last`: a filter is
 * about to come, so waits for another thread that is at it, and does not try again. The second: asks once the process holds some MiB. */
hak_cold void hak__near_meet(bool last);
hak_at_start void hak__near_await(void);

/* Once at start, when the options are known; asks at once where no call tells that a filter comes. `seen`, or NULL, is called after
 * each look, with no lock held, in the background thread too. */
hak_at_start void hak__near_begin(void (*seen)(const struct hak_nearness *now, uint64_t now_ms));
