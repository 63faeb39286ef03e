/* The memory control group of the process, of either version: its limits, its use, and how often the kernel has killed in it or made
 * it wait. Reads files, so it is called rarely and without locks, and not after hak__os_filter_comes(true). */
#pragma once

#include "base/compiler.h"

#define HAK_GROUP_UNLIMITED UINT64_MAX

struct hak_os_group {
    bool unseen; /* its limits were not asked for: it is of version 1 */
    uint64_t max, high; /* the least of its own limits and of those of the groups above it; HAK_GROUP_UNLIMITED: none */
    uint64_t used; /* of the group with the least limit, without what the kernel keeps of files */
    uint64_t kills; /* processes of the group that the kernel has killed for want of memory */
    uint64_t stalled_us; /* time in which some thread waited for memory (PSI), of the group or else of the machine */
};

/* Only the limits, and only of version 2: those of version 1 would make every start cost several times as much. */
hak_at_start void hak__os_group_limits(struct hak_os_group *out);

/* Of either version; `whole`: with kills and stalls, else without. Nothing is known while another look is under way. */
hak_cold void hak__os_group_look(struct hak_os_group *out, bool whole);
hak_cold void hak__os_group_fork_child(void);

/* The bytes of addresses and of resident memory of the process (0: the system does not tell), and RLIMIT_AS. */
struct hak_os_process {
    uint64_t addresses, resident, address_limit;
};
hak_cold void hak__os_process_look(struct hak_os_process *out);

/* Reads a file's first bytes as a text; empty if it cannot be read. One read suffices for the kernel's small files. */
hak_at_start void hak__os_read_text(const char *path, char *text, size_t size);

/* "max", nothing, or digits: HAK_GROUP_UNLIMITED, or the number. */
hak_at_start uint64_t hak__os_limit_in(const char *text);

#if HAK_TESTING
extern const char *hak__os_group_root, *hak__os_group_of; /* in place of /sys/fs/cgroup and /proc/self/cgroup */
#endif
