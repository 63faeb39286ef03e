/* Writes the black box; blackbox.h has its form. Looks at the process's limits (upkeep/nearness.h) lead here: each leaves a point of
 * the history, and some a slot. One thread at a time writes; a second one leaves it at that. A forked child finds the parent's
 * number in `box_pid`, and begins a file of its own. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bits.h"
#include "base/lock.h"
#include "base/syscall.h"
#include "diag/options.h"
#include "diag/report.h"
#include "os/loaded.h"
#include "os/os.h"
#include "profile/sites.h"
#include "stats/blackbox.h"
#include "stats/stats.h"
#include "upkeep/nearness.h"
#include "userheap/userheap.h"

enum {
    LEVELS = 3,
    LEVEL_SLACK = 30, /* so far below a level memory falls before it can cross that again; of HAK_NEAR_WHOLE */
    STALL_PART = 10, /* a tenth of the time waited for memory is a stall */
    STALL_PAUSE_MS = 10000,
    POINT_MS = 100, /* between two points at first; doubles whenever the history is full */
    COST_TIMES = 1000, /* slots by the clock cost no more than this part of the time */
    BOX_PATH = HAK_BLACKBOX_FOLDER_SIZE + 64
};

_Static_assert((int)HAK_NEAR_OPTION == (int)HAK_BOX_OPTION && HAK_NEAR_NONE == 0, "limits have the same numbers in both lists");
_Static_assert(sizeof(struct hak_box_slot) % sizeof(uint64_t) == 0, "a slot is whole words");

static hak_rare_data struct hak_box *box;
static uint64_t box_file_s; /* of the name; 0: no file. Each exit asks. */
static hak_rare_data uint64_t box_pid, box_start_ms, box_sequence, box_due_ms;
static hak_rare_data uint32_t box_level, box_points;
static hak_rare_data uint64_t box_point_ms, box_point_pause, box_stall_ms, box_stalled_us, box_look_ms;
static hak_rare_data struct hak_nearness box_near; /* of the last look, for a crash */
static _Atomic bool box_writing;

static uint64_t wall_s(void)
{
    struct timespec now = { 0, 0 };
    hak__syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec;
}

static uint64_t box_self(void) { return (uint64_t)hak__syscall(SYS_getpid); }

/* --- the file ---------------------------------------------------------------------------------------------------------- */

static void box_path(char *path, size_t size, uint64_t pid, uint64_t started_s)
{
    hak__format(path, size, "%s/%u.%u" HAK_BOX_END, hak__blackbox_folder, pid, started_s);
}

/* The whole file has room on the disk before it is mapped, so that no later write to it can fail. */
static int box_allocate(int fd)
{
    static const char zeros[4096];
    struct hak_held_signals held = hak__write_begin();
    int code = hak__syscall_code(hak__syscall(SYS_fallocate, fd, 0, 0L, (long)sizeof(struct hak_box)));
    hak__write_end(held, code);
    if (code != EOPNOTSUPP && code != ENOSYS && code != EINVAL)
        return code;
    code = 0;
    for (size_t at = 0; at < sizeof(struct hak_box) && code == 0; at += sizeof zeros)
        code = hak__write_all(fd, zeros, hak_min(sizeof zeros, sizeof(struct hak_box) - at));
    return code;
}

static int box_map(const char *path, struct hak_box **out)
{
    long fd = hak__syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return (int)-fd;
    int code = box_allocate((int)fd);
    long at = code != 0 ? -code : hak__syscall(SYS_mmap, 0, sizeof **out, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    code = hak__syscall_code(at);
    hak__syscall(SYS_close, fd);
    if (code != 0)
        hak__syscall(SYS_unlinkat, AT_FDCWD, path, 0L);
    else
        *out = (struct hak_box *)at;
    return code;
}

static void box_head(uint64_t now_s)
{
    box->size = sizeof *box;
    box->slot_size = sizeof(struct hak_box_slot);
    box->stats_size = sizeof(struct hak_stats);
    box->pid = box_pid;
    box->parent = (uint64_t)hak__syscall(SYS_getppid);
    box->started_s = now_s;
    hak__format(box->command, sizeof box->command, "%s", program_invocation_short_name);
    hak__format(box->version, sizeof box->version, "%s", HAK_VERSION_STRING);
    hak_owner_store(&box->magic, HAK_BOX_MAGIC); /* a reader that finds it finds the rest */
}

static bool box_open(void)
{
    char path[BOX_PATH];
    struct hak_box *made = NULL;
    uint64_t now_s = wall_s();
    box_pid = box_self();
    box_file_s = 0;
    box_path(path, sizeof path, box_pid, now_s);
    int code = box_map(path, &made);
    if (code == EEXIST) { /* of this process before it became another program, within a second */
        hak__syscall(SYS_unlinkat, AT_FDCWD, path, 0L);
        code = box_map(path, &made);
    }
    if (code != 0) {
        hak__warn("option blackbox: %s cannot be written (error %u); there is none", path, (uint64_t)code);
        return false;
    }
    box = made;
    box_file_s = now_s;
    box_start_ms = hak__os->now_ms();
    box_sequence = box_stall_ms = box_stalled_us = 0;
    box_level = box_points = 0;
    box_point_ms = 0, box_point_pause = POINT_MS;
    box_look_ms = box_start_ms;
    box_due_ms = box_start_ms + hak__option(HAK_OPTION_blackbox_every);
    box_head(now_s);
    return true;
}

static void box_drop(void)
{
    if (box != NULL)
        hak__syscall(SYS_munmap, box, sizeof *box);
    box = NULL;
}

/* A write behind the end of a truncated file would end the process with SIGBUS. The last page is the first to lie there. */
static bool box_is_whole(void)
{
    char path[BOX_PATH];
    if (box == NULL || hak__os_readable((uintptr_t)(box + 1) - sizeof(uint64_t)) != EFAULT)
        return box != NULL;
    box_drop();
    box_path(path, sizeof path, box_pid, box_file_s);
    hak__warn("option blackbox: %s has been truncated; nothing more is written", path);
    return false;
}

/* Whether the mapped file is this process's; a forked child unmaps its parent's and begins its own. */
static bool box_is_mine(void)
{
    if (box_pid == box_self())
        return box_is_whole();
    if (!hak__fork_is_home())
        return false;
    box_drop();
    return box_open();
}

/* --- what a slot holds -------------------------------------------------------------------------------------------------- */

static void fill_near(struct hak_box_slot *slot, const struct hak_nearness *near)
{
    slot->limit_kind = near->kind;
    slot->limit = near->kind == HAK_NEAR_NONE ? 0 : near->limit;
    slot->used = near->used;
    slot->permille = near->permille;
    slot->group_max = near->group.max;
    slot->group_high = near->group.high;
    slot->group_used = near->group.used;
    slot->kills = near->group.kills;
    slot->stalled_us = near->group.stalled_us;
    slot->addresses = near->process.addresses;
    slot->resident = near->process.resident;
    slot->address_limit = near->process.address_limit;
    slot->option_limit = near->option_limit;
    slot->mapped = near->mapped;
}

/* Inserts a place at `at` of a table of `most` rows, `count` of which are filled; returns the new count. */
static uint64_t make_place(void *rows, size_t row, uint64_t count, uint64_t most, uint64_t at)
{
    uint64_t moved = hak_min(count, most - 1) - at;
    memmove((char *)rows + (at + 1) * row, (char *)rows + at * row, moved * row);
    return hak_min(count + 1, most);
}

static void fill_heaps(struct hak_box_slot *slot)
{
    struct hak_heap_figures figures;
    uint64_t kept = 0;
    slot->heap_count = 0;
    for (struct hak_uheap *own = hak__uheap_next(NULL); own != NULL; own = hak__uheap_next(own)) {
        hak__uheap_figures(own, &figures, false);
        uint64_t at = kept;
        slot->heap_count++;
        while (at > 0 && slot->heaps[at - 1].used_bytes < figures.used_bytes)
            at--;
        if (at == HAK_BOX_HEAPS)
            continue;
        kept = make_place(slot->heaps, sizeof *slot->heaps, kept, HAK_BOX_HEAPS, at);
        slot->heaps[at] =
            (struct hak_box_heap){ "", figures.serial, figures.live_bytes, figures.live_blocks, figures.used_bytes, figures.limit };
        hak__format(slot->heaps[at].name, hak_text_within(figures.name, HAK_BOX_NAME - 1) + 1, "%s", figures.name);
    }
}

/* A site's bytes as an estimate: each sample stands for as many as its size makes likely. */
static uint64_t estimate(const struct hak_profile_site *site, uint64_t samples, uint64_t bytes)
{
    return samples == 0 ? 0 : samples * hak__profile_weight(site, bytes / samples);
}

/* The module's number in the slot; HAK_BOX_MODULES: there is no room. */
static uint64_t module_in(struct hak_box_slot *slot, const char *path)
{
    size_t length = strlen(path);
    path += length < HAK_BOX_PATH ? 0 : length - HAK_BOX_PATH + 1; /* a long name's end says more */
    uint64_t i = 0;
    while (i < slot->module_count && strcmp(slot->modules[i], path) != 0)
        i++;
    if (i == slot->module_count && i < HAK_BOX_MODULES) {
        memcpy(slot->modules[i], path, strlen(path) + 1);
        slot->module_count++;
    }
    return i;
}

static uint64_t frame_in(struct hak_box_slot *slot, const struct hak_profile_site *site, uintptr_t frame)
{
    char program[HAK_PROFILE_PATH];
    struct hak_module own;
    uint64_t module = HAK_BOX_MODULES;
    uintptr_t base = 0;
    for (uint32_t i = 0; i < site->module_count && module == HAK_BOX_MODULES; i++)
        if (frame - site->modules[i]->start < site->modules[i]->end - site->modules[i]->start)
            module = module_in(slot, site->modules[i]->path), base = site->modules[i]->all.base;
    if (module == HAK_BOX_MODULES && hak__loaded_at(frame, &own) && own.name[0] == 0) {
        long length = hak__syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", program, sizeof program - 1);
        program[length < 0 ? 0 : length] = 0;
        module = module_in(slot, program), base = own.base;
    }
    uint64_t offset = module == HAK_BOX_MODULES ? frame : frame - base;
    return module << HAK_BOX_MODULE_SHIFT | (offset & ((1ull << HAK_BOX_MODULE_SHIFT) - 1));
}

static void fill_stacks(struct hak_box_slot *slot)
{
    struct hak_profile_site *site = NULL, *found[HAK_BOX_STACKS];
    uint32_t bucket = 0;
    slot->stack_count = slot->module_count = 0;
    slot->interval = hak__profile_was_asked() ? hak_load(&hak__profile.interval, HAK_RELAXED) : 0;
    while (slot->interval != 0 && hak__profile_site_next(&bucket, &site)) {
        uint64_t freed = hak_load(&site->freed, HAK_ACQUIRE), freed_bytes = hak_load(&site->freed_bytes, HAK_RELAXED);
        uint64_t all = hak_load(&site->allocated, HAK_RELAXED), all_bytes = hak_load(&site->allocated_bytes, HAK_RELAXED);
        uint64_t live = estimate(site, all - freed, all_bytes - hak_min(freed_bytes, all_bytes)), at = slot->stack_count;
        while (at > 0 && slot->stacks[at - 1].live_bytes < live)
            at--;
        if (live == 0 || at == HAK_BOX_STACKS)
            continue;
        make_place(found, sizeof *found, slot->stack_count, HAK_BOX_STACKS, at);
        slot->stack_count = make_place(slot->stacks, sizeof *slot->stacks, slot->stack_count, HAK_BOX_STACKS, at);
        found[at] = site;
        slot->stacks[at] = (struct hak_box_stack){ .live_bytes = live,
                                                   .live_samples = all - freed,
                                                   .allocated_bytes = estimate(site, all, all_bytes),
                                                   .freed_bytes = estimate(site, freed, freed_bytes) };
    }
    for (uint64_t i = 0; i < slot->stack_count; i++) {
        struct hak_box_stack *stack = &slot->stacks[i];
        stack->frame_count = hak_min(found[i]->frame_count, HAK_BOX_FRAMES);
        for (uint32_t frame = 0; frame < stack->frame_count; frame++)
            stack->frames[frame] = frame_in(slot, found[i], found[i]->frames[frame]);
    }
}

/* --- writing ---------------------------------------------------------------------------------------------------------- */

/* The compiler keeps the order: the kernel's copy of the pages is the one that this process writes. */
static void box_write(enum hak_box_reason reason, const struct hak_nearness *near, uint64_t signal, uint64_t address)
{
    uint64_t began = hak__os->now_ns(), now_ms = hak__os->now_ms();
    struct hak_box_slot *slot = &box->slots[++box_sequence % HAK_BOX_SLOTS];
    hak_owner_store(&slot->sequence, 0);
    hak_signal_fence();
    slot->ms = now_ms - box_start_ms + 1;
    slot->wall_s = wall_s();
    slot->reason = reason;
    slot->signal = signal;
    slot->address = address;
    fill_near(slot, near);
    hak__snapshot(&slot->stats);
    if (reason != HAK_BOX_START)
        hak__ledger(&slot->stats);
    if ((slot->stats.flags & HAK_STATS_HAS_LEDGER) != 0)
        slot->resident = slot->stats.ledger_rss; /* at a crash `near` was seen before */
    fill_heaps(slot);
    fill_stacks(slot);
    for (unsigned i = 0; i < HAK_BOX_LINES; i++)
        hak__report_line(i, slot->lines[i], HAK_BOX_LINE);
    slot->sum = hak_box_sum(slot);
    hak_signal_fence();
    hak_owner_store(&slot->sequence, box_sequence);
    uint64_t took_ms = (hak__os->now_ns() - began) / 1000000;
    box_due_ms = now_ms + hak_max(hak__option(HAK_OPTION_blackbox_every), took_ms * COST_TIMES);
}

/* Removes every second point, and has the next ones come half as often. */
static void thin_points(void)
{
    for (uint32_t i = 1; i < HAK_BOX_POINTS / 2; i++) {
        struct hak_box_point *to = &box->points[i];
        hak_owner_store(&to->ms, 0);
        hak_signal_fence();
        to->resident = to[i].resident, to->used = to[i].used, to->mapped = to[i].mapped, to->unused = to[i].unused;
        hak_signal_fence();
        hak_owner_store(&to->ms, to[i].ms);
    }
    for (uint32_t i = HAK_BOX_POINTS / 2; i < HAK_BOX_POINTS; i++)
        hak_owner_store(&box->points[i].ms, 0);
    box_points = HAK_BOX_POINTS / 2;
    box_point_pause *= 2;
}

static void add_point(const struct hak_nearness *near, uint64_t now_ms)
{
    if (box_point_ms != 0 && now_ms - box_point_ms < box_point_pause)
        return;
    if (box_points == HAK_BOX_POINTS)
        thin_points();
    struct hak_box_point *point = &box->points[box_points++];
    point->resident = near->process.resident;
    point->used = near->used;
    point->mapped = near->mapped;
    point->unused = hak_counted(&hak__arena_published.dirty);
    hak_signal_fence();
    hak_owner_store(&point->ms, now_ms - box_start_ms + 1);
    box_point_ms = now_ms;
}

/* What is mapped may be touched before anybody looks again, so it counts as used. */
static bool crosses_level(const struct hak_nearness *near)
{
    static const uint32_t levels[LEVELS] = { 800, 900, 950 };
    uint64_t part = near->limit / HAK_NEAR_WHOLE,
             at = near->kind == HAK_NEAR_NONE || part == 0 ? 0 : (near->used + near->coming) / part;
    uint32_t reached = 0, left = 0;
    while (reached < LEVELS && at >= levels[reached])
        reached++;
    while (left < LEVELS && at + LEVEL_SLACK >= levels[left])
        left++;
    bool crossed = reached > box_level;
    box_level = crossed ? reached : hak_min(box_level, left);
    return crossed;
}

static bool stalls(const struct hak_nearness *near, uint64_t now_ms)
{
    uint64_t waited_ms = (near->group.stalled_us - hak_min(box_stalled_us, near->group.stalled_us)) / 1000;
    uint64_t since = now_ms - box_look_ms, pause = now_ms - box_stall_ms;
    bool first = box_stalled_us == 0;
    box_stalled_us = near->group.stalled_us;
    box_look_ms = now_ms;
    if (first || waited_ms == 0 || waited_ms < since / STALL_PART || pause < STALL_PAUSE_MS)
        return false;
    box_stall_ms = now_ms;
    return true;
}

/* Whether the caller may write now; what a forked child finds there is its parent's. acquire: pairs with the release at the end; a
 * writer sees the previous one's state. */
static bool box_enter(void) { return !hak_exchange(&box_writing, true, HAK_ACQUIRE) || box_pid != box_self(); }

void hak__blackbox_seen(const struct hak_nearness *near, uint64_t now_ms)
{
    if (!box_enter())
        return;
    int saved = errno;
    if (box_is_mine()) {
        box_near = *near;
        add_point(near, now_ms);
        bool crossed = crosses_level(near), stalled = stalls(near, now_ms);
        if (crossed || stalled || now_ms >= box_due_ms || box_sequence == 0)
            box_write(crossed             ? HAK_BOX_LEVEL
                      : stalled           ? HAK_BOX_STALL
                      : box_sequence == 0 ? HAK_BOX_START
                                          : HAK_BOX_TIME,
                      near, 0, 0);
    }
    errno = saved;
    hak_store(&box_writing, false, HAK_RELEASE);
}

/* In a signal handler, on a stack that may be small: what is nearest was seen before, in a young child by its parent. */
void hak__blackbox_crash(int signal, uintptr_t address)
{
    hak__fork_check();
    if (box == NULL || !box_enter())
        return;
    if (box_is_mine())
        box_write(HAK_BOX_CRASH, &box_near, (uint64_t)signal, address);
    hak_store(&box_writing, false, HAK_RELEASE);
}

bool hak__blackbox_begin(void)
{
    if (hak__option(HAK_OPTION_blackbox) == 0 || getauxval(AT_SECURE) != 0 || !box_open())
        return false;
    hak__near_look(&box_near);
    hak__blackbox_seen(&box_near, hak__os->now_ms());
    return true;
}

void hak__blackbox_end(void)
{
    char path[BOX_PATH];
    if (box_file_s == 0 || box_pid != box_self())
        return;
    if (box_is_whole())
        hak_owner_store(&box->ended, 1);
    box_path(path, sizeof path, box_pid, box_file_s);
    hak__syscall(SYS_unlinkat, AT_FDCWD, path, 0L);
}
