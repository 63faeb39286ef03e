/* See groups.h. In a container the mounted files may begin at its own group while /proc names the path on the host: files that do
 * not exist are passed over, and the search goes on above them. */
#include "os/groups.h"

#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/syscall.h"
#include "os/os.h"

enum { GROUP_PATH = 1024, GROUP_NAME = 40, GROUP_TEXT = 4096, HALF = 2, LOOK_SPINS = 1 << 16 };

#if HAK_TESTING
const char *hak__os_group_root = "/sys/fs/cgroup", *hak__os_group_of = "/proc/self/cgroup";
#else
#define hak__os_group_root "/sys/fs/cgroup"
#define hak__os_group_of "/proc/self/cgroup"
#endif

void hak__os_read_text(const char *path, char *text, size_t size)
{
    hak_assert(size != 0, "there is room for the end of the text");
    long got = 0, file = hak__syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        got = hak__syscall(SYS_read, file, text, size - 1);
        hak__syscall(SYS_close, file);
    }
    text[got < 0 ? 0 : got] = 0;
}

uint64_t hak__os_limit_in(const char *text)
{
    uint64_t number = 0;
    if (*text < '0' || *text > '9')
        return HAK_GROUP_UNLIMITED;
    for (; *text >= '0' && *text <= '9'; text++)
        if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, (uint64_t)(*text - '0'), &number))
            return HAK_GROUP_UNLIMITED;
    return number;
}

/* A group: the first `length` bytes of the path, with room for a file's name behind them. */
struct group_path {
    size_t root, length;
    char path[GROUP_PATH + GROUP_NAME];
};

struct look {
    struct group_path group;
    size_t size;
    char *text;
};

/* One look at a time uses these, since a request of a thread with a small stack may be the one that looks. */
static hak_rare_data struct look later_look;
static hak_rare_data char later_text[GROUP_TEXT];
static hak_rare_data _Atomic bool look_taken;

/* acquire, release: a look finds the memory as the previous one has left it. */
static bool look_begins(void) { return !hak_exchange(&look_taken, true, HAK_ACQUIRE); }
static void look_ends(void) { hak_store(&look_taken, false, HAK_RELEASE); }
void hak__os_group_fork_child(void) { look_ends(); }

static void group_read(struct group_path *group, const char *file, char *text, size_t size)
{
    hak_assert(strlen(file) < GROUP_NAME, "the name has room");
    memcpy(group->path + group->length, file, strlen(file) + 1);
    hak__os_read_text(group->path, text, size);
}

static uint64_t group_number(struct group_path *group, const char *file)
{
    char text[64];
    hak_assert(group->root <= group->length && group->length < GROUP_PATH, "a group lies below the root");
    group_read(group, file, text, sizeof text);
    return hak__os_limit_in(text);
}

/* The number behind the word, at a line's beginning or behind a blank; 0: it is not there. */
static uint64_t number_behind(const char *text, const char *word)
{
    hak_assert(word[0] != 0, "a word to look for");
    for (const char *at = text; *at != 0; at++)
        if ((at == text || at[-1] == '\n' || at[-1] == ' ') && hak_begins(at, word)) {
            uint64_t number = hak__os_limit_in(at + strlen(word));
            return number == HAK_GROUP_UNLIMITED ? 0 : number;
        }
    return 0;
}

/* One call instead of a vain search where groups are of version 1, at every start. */
static bool groups_are_unified(struct look *look)
{
    size_t length = strlen(hak__os_group_root);
    static const char file[] = "/cgroup.controllers";
    memcpy(look->text, hak__os_group_root, length);
    memcpy(look->text + length, file, sizeof file);
    return hak__syscall(SYS_faccessat, AT_FDCWD, look->text, F_OK) == 0;
}

/* Whether a line of /proc/self/cgroup, "4:cpu,memory:/the/group", is of the memory controller; of version 2 it is "0::/the/group". */
static bool is_memory_line(const char *line, bool unified)
{
    if (unified)
        return hak_begins(line, "0::/");
    while (*line != ':' && *line != 0 && *line != '\n')
        line++;
    while (*line == ':' || *line == ',') {
        if (hak_begins(++line, "memory") && (line[6] == ':' || line[6] == ','))
            return true;
        while (*line != ',' && *line != ':' && *line != 0 && *line != '\n')
            line++;
        if (*line == ':')
            return false;
    }
    return false;
}

/* Appends the group's path to the root's; false: there is no such group, or its name is too long. */
static bool group_find(struct look *look, bool unified)
{
    struct group_path *group = &look->group;
    hak__os_read_text(hak__os_group_of, look->text, look->size);
    const char *line = look->text;
    while (*line != 0 && !is_memory_line(line, unified)) {
        while (*line != 0 && *line != '\n')
            line++;
        line += *line == '\n';
    }
    while (*line != 0 && *line != '/')
        line++;
    size_t more = 0, root = strlen(hak__os_group_root);
    while (line[more] != 0 && line[more] != '\n')
        more++;
    static const char memory[] = "/memory";
    memcpy(group->path, hak__os_group_root, root);
    if (!unified) {
        memcpy(group->path + root, memory, sizeof memory);
        root += sizeof memory - 1;
    }
    if (more == 0 || root + more >= GROUP_PATH)
        return false;
    more -= more == 1; /* the root's own path is a slash */
    memcpy(group->path + root, line, more);
    group->root = root;
    group->length = root + more;
    return true;
}

/* The group above; false: there is none. */
static bool group_up(struct group_path *group)
{
    if (group->length <= group->root)
        return false;
    do
        group->length--;
    while (group->length > group->root && group->path[group->length] != '/');
    return true;
}

/* What counts against the limit and cannot simply be dropped. */
static uint64_t used_of(struct look *look, bool unified, uint64_t limit)
{
    struct group_path *group = &look->group;
    const char *text = look->text;
    uint64_t used = group_number(group, unified ? "/memory.current" : "/memory.usage_in_bytes");
    if (used == HAK_GROUP_UNLIMITED)
        return 0;
    if (used < limit / HALF) /* the kernel computes the next file at some cost */
        return used;
    group_read(group, "/memory.stat", look->text, look->size);
    uint64_t files = number_behind(text, unified ? "inactive_file " : "total_inactive_file ")
                   + number_behind(text, unified ? "active_file " : "total_active_file ");
    return used - hak_min(files, used);
}

/* A group is bound by its own limits and by those of all groups above it. */
static void see_unified(struct look *look, struct hak_os_group *out, bool all)
{
    struct group_path *group = &look->group;
    uint64_t nearest = HAK_GROUP_UNLIMITED;
    do {
        uint64_t max = group_number(group, "/memory.max"), high = group_number(group, "/memory.high"), least = hak_min(max, high);
        out->max = hak_min(out->max, max);
        out->high = hak_min(out->high, high);
        if (all && least < nearest)
            out->used = used_of(look, true, nearest = least);
    } while (group_up(group));
}

/* The kernel says by itself what the groups above allow. */
static void see_version_1(struct look *look, struct hak_os_group *out)
{
    struct group_path *group = &look->group;
    enum { UNLIMITED_SHIFT = 62 };
    do
        group_read(group, "/memory.stat", look->text, look->size);
    while (look->text[0] == 0 && group_up(group));
    uint64_t limit = number_behind(look->text, "hierarchical_memory_limit ");
    if (limit != 0 && limit >> UNLIMITED_SHIFT == 0)
        out->max = limit;
    out->used = used_of(look, false, out->max);
}

void hak__os_group_limits(struct hak_os_group *out)
{
    *out = (struct hak_os_group){ .max = HAK_GROUP_UNLIMITED, .high = HAK_GROUP_UNLIMITED, .unseen = true };
    bool mine = look_begins();
    for (unsigned tries = 0; !mine && tries < LOOK_SPINS; tries++) { /* a handler may have interrupted the other look */
        hak_pause();
        mine = look_begins();
    }
    if (!mine)
        return;
    struct look *look = &later_look;
    look->text = later_text, look->size = sizeof later_text;
    out->unseen = !groups_are_unified(look);
    if (!out->unseen && group_find(look, true))
        see_unified(look, out, false);
    look_ends();
}

/* The stalls are the machine's where the group does not count its own. */
static void see_events(struct look *look, bool unified, struct hak_os_group *out)
{
    struct group_path *group = &look->group;
    char *text = look->text;
    size_t size = look->size;
    group_read(group, unified ? "/memory.events" : "/memory.oom_control", text, size);
    out->kills = number_behind(text, "oom_kill ");
    text[0] = 0;
    if (unified)
        group_read(group, "/memory.pressure", text, size);
    if (text[0] == 0)
        hak__os_read_text("/proc/pressure/memory", text, size);
    out->stalled_us = number_behind(text, "total=");
}

void hak__os_group_look(struct hak_os_group *out, bool whole)
{
    *out = (struct hak_os_group){ .max = HAK_GROUP_UNLIMITED, .high = HAK_GROUP_UNLIMITED };
    if (!look_begins())
        return;
    struct look *look = &later_look;
    look->text = later_text, look->size = sizeof later_text;
    bool unified = groups_are_unified(look), found = group_find(look, unified);
    if (found && !unified)
        see_version_1(look, out);
    if (found && whole)
        see_events(look, unified, out);
    if (found && unified)
        see_unified(look, out, true);
    look_ends();
}

void hak__os_process_look(struct hak_os_process *out)
{
    struct rlimit space = { RLIM_INFINITY, RLIM_INFINITY };
    char text[128];
    hak__os_read_text("/proc/self/statm", text, sizeof text);
    hak_assert(HAK_GROUP_UNLIMITED == HAK_OS_UNLIMITED, "one number says that there is no limit");
    const char *second = text;
    while (*second != 0 && *second != ' ')
        second++;
    *out = (struct hak_os_process){ hak__os_limit_in(text), hak__os_limit_in(second + (*second == ' ')), HAK_GROUP_UNLIMITED };
    bool known = out->addresses != HAK_GROUP_UNLIMITED && out->resident != HAK_GROUP_UNLIMITED;
    size_t page = known ? hak__os_linux.page_size() : 0;
    out->addresses *= page;
    out->resident *= page;
    if (hak__syscall(SYS_prlimit64, 0, RLIMIT_AS, NULL, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
        out->address_limit = space.rlim_cur;
}
