/* The limits that Linux sets this process: its control group's memory limits, its address space, its mappings, its processors. Plain system
 * calls into buffers on the stack. */
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/vfs.h>

#include "base/syscall.h"
#include "os/os.h"

enum { PATH_SIZE = 1024, TEXT_SIZE = 4096 };

static const char group_root[] = "/sys/fs/cgroup";

/* A file's first bytes as a text; empty when it cannot be read. The kernel's small files come by one read. */
static void read_text(const char *path, char *text, size_t size)
{
    long got = 0, file = hak__syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        got = hak__syscall(SYS_read, file, text, size - 1);
        hak__syscall(SYS_close, file);
    }
    text[got < 0 ? 0 : got] = 0;
}

enum hak_os_huge_setting hak__os_linux_huge_setting(void)
{
    char text[64];   /* "always [madvise] never" */
    read_text("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    for (const char *at = text; *at != 0; at++)
        if (*at == '[')
            return at[1] == 'a' ? HAK_OS_HUGE_ALWAYS : at[1] == 'm' ? HAK_OS_HUGE_MADVISE : HAK_OS_HUGE_NEVER;
    return HAK_OS_HUGE_NEVER;
}

/* "max", nothing, or digits. */
static uint64_t limit_in(const char *text)
{
    uint64_t number = 0;
    if (*text < '0' || *text > '9')
        return HAK_OS_UNLIMITED;
    for (; *text >= '0' && *text <= '9'; text++)
        if (__builtin_mul_overflow(number, 10, &number)
            || __builtin_add_overflow(number, (uint64_t)(*text - '0'), &number))
            return HAK_OS_UNLIMITED;
    return number;
}

/* Lowers *least to the limit in a file of the group whose folder is the first `length` bytes of path. */
static void lower_to(char *path, size_t length, const char *file, uint64_t *least)
{
    char text[64];
    memcpy(path + length, file, strlen(file) + 1);
    read_text(path, text, sizeof text);
    uint64_t limit = limit_in(text);
    if (limit < *least)
        *least = limit;
}

/* The line of the unified hierarchy in /proc/self/cgroup, "0::/the/group"; NULL if there is none. */
static char *own_group(char *text)
{
    for (char *line = text; *line != 0;) {
        size_t length = 0;
        while (line[length] != 0 && line[length] != '\n')
            length++;
        bool last = line[length] == 0;
        line[length] = 0;
        if (line[0] == '0' && line[1] == ':' && line[2] == ':' && line[3] == '/')
            return line + 3;
        line += length + !last;
    }
    return NULL;
}

/* Whether groups are all in the unified hierarchy. Elsewhere it has no memory limits, and looking for them in vain would
 * cost every start several times as much as this. */
static bool groups_are_unified(void)
{
    struct statfs about;
    return hak__syscall(SYS_statfs, group_root, &about) == 0 && about.f_type == CGROUP2_SUPER_MAGIC;
}

/* A group is bound by its own limits and by those of all groups above it. */
static void see_groups(struct hak_os_seen *out)
{
    char text[TEXT_SIZE], path[PATH_SIZE + 16];
    if (!groups_are_unified())
        return;
    read_text("/proc/self/cgroup", text, sizeof text);
    const char *group = own_group(text);
    size_t root = sizeof group_root - 1, whole = group == NULL ? 0 : root + strlen(group);
    if (group == NULL || whole >= PATH_SIZE)
        return;
    whole -= group[1] == 0;   /* the root's own path ends in a slash */
    memcpy(path, group_root, root);
    memcpy(path + root, group, whole - root);
    for (size_t length = whole;; length--) {
        if (length != root && path[length] != '/' && length != whole)
            continue;
        lower_to(path, length, "/memory.max", &out->memory_max);
        lower_to(path, length, "/memory.high", &out->memory_high);
        if (length <= root)
            return;
    }
}

static uint32_t count_processors(void)
{
    uint64_t mask[128] = { 0 };   /* 8192 processors */
    long bytes = hak__syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    uint32_t count = 0;
    for (long i = 0; i < bytes / 8; i++)
        count += (uint32_t)__builtin_popcountll(mask[i]);
    return count;
}

void hak__os_linux_seen(struct hak_os_seen *out)
{
    struct rlimit space = { RLIM_INFINITY, RLIM_INFINITY }, data = space;
    char text[32];
    *out = (struct hak_os_seen){ .memory_max = HAK_OS_UNLIMITED, .memory_high = HAK_OS_UNLIMITED,
                                 .address_space = HAK_OS_UNLIMITED, .data = HAK_OS_UNLIMITED, .cpus = count_processors() };
    see_groups(out);
    if (hak__syscall(SYS_prlimit64, 0, RLIMIT_AS, NULL, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
        out->address_space = space.rlim_cur;
    if (hak__syscall(SYS_prlimit64, 0, RLIMIT_DATA, NULL, &data) == 0 && data.rlim_cur != RLIM_INFINITY)
        out->data = data.rlim_cur;
    read_text("/proc/sys/vm/overcommit_memory", text, sizeof text);
    out->strict = text[0] == '2';
    read_text("/proc/sys/vm/max_map_count", text, sizeof text);
    out->mappings = limit_in(text) == HAK_OS_UNLIMITED ? 0 : limit_in(text);
}
