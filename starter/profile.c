/* hakmem profile PID -o FILE: has the process profile itself for a while and write a dump. Where its memory may be written, by a
 * request there (profile/profile.h of the library); else by its signal, if it was started with HAKMEM_PROFILE=ready and
 * HAKMEM_STATS_SIGNAL=N: then the process writes under a name of its own, which is found in its folder. */
#include "commands.h"
#include "live.h"

#include <signal.h>
#include <time.h>

enum { ANSWER_MS = 10000, STEP_MS = 10, LOOK_MS = 250, SECONDS = 10, SECONDS_MOST = 86400, TEXT_SIZE = 65536, PATH_ROOM = 256 };

static struct live live;

static uint64_t profile_at(const char *name)
{
    char text[64];
    hak__format(text, sizeof text, "profile_%s", name);
    return live_root(&live, "profile") + live_number(&live, text);
}

/* The table that leads a call of malloc to its bin, which only a debugger may write. Where all of it names the bin that is always empty,
 * the next call looks for a request, even of a thread that would find each block in its cache. The answer writes it anew. */
enum { BINS_MOST = 1024 };

static size_t read_bins(uint16_t *bins)
{
    uint64_t table = live_root(&live, "profile_bins"), count = live_number(&live, "profile_bins_exchanged");
    return table != 0 && count <= BINS_MOST && live_read(&live, table, bins, count * sizeof *bins) ? (size_t)count : 0;
}

static void write_bins(const uint16_t *bins, size_t count)
{
    char path[64];
    hak__format(path, sizeof path, "/proc/%u/mem", live.pid);
    long fd = hak__syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    hak__syscall(SYS_pwrite64, fd, bins, count * sizeof *bins, live_root(&live, "profile_bins"));
    hak__syscall(SYS_close, fd);
}

/* Waits for the answer to a request; an errno code. */
static int request(const char *what)
{
    char text[64];
    uint16_t bins[BINS_MOST], empty[BINS_MOST];
    size_t led = live_half(&live, profile_at("counts")) == 0 ? read_bins(bins) : 0;
    hak__format(text, sizeof text, "profile_%s", what);
    uint32_t number = live_number(&live, text), before = live_half(&live, profile_at("answered"));
    uint32_t signal = live_half(&live, profile_at("signal")), off = 0, on = live_half(&live, profile_at("malloc_counts"));
    uint64_t until = clock_ms() + ANSWER_MS;
    if (on != 0) /* leads the next malloc to where it looks for requests; the answer undoes it */
        live_write(&live, profile_at("malloc_counts"), &off, sizeof off);
    if (!live_write(&live, profile_at("request"), &number, sizeof number))
        return EPERM;
    for (size_t i = 0; i < led; i++)
        empty[i] = (uint16_t)live_number(&live, "profile_empty_bin");
    if (led != 0)
        write_bins(empty, led);
    if (signal != 0)
        hak__syscall(SYS_kill, live.pid, signal);
    while (live_half(&live, profile_at("answered")) == before) {
        if (clock_ms() > until || !is_running(live.pid)) {
            live_write(&live, profile_at("request"), &off, sizeof off);
            if (on != 0)
                live_write(&live, profile_at("malloc_counts"), &on, sizeof on);
            if (led != 0)
                write_bins(bins, led);
            return ETIMEDOUT;
        }
        nap_ms(STEP_MS);
    }
    int code = (int)live_half(&live, profile_at("result"));
    if (code != 0 && led != 0 && live_half(&live, profile_at("counts")) == 0)
        write_bins(bins, led);
    return code;
}

static int has_ended(uint64_t pid) { return complain("process %u has ended, and its profile with it", pid); }

static int refused(int code)
{
    if (!is_running(live.pid))
        return has_ended(live.pid);
    if (code == ETIMEDOUT)
        return complain("process %u has not answered: it does so at its next call of malloc, or at once if started with "
                        "HAKMEM_PROFILE=ready and HAKMEM_STATS_SIGNAL=N",
                        live.pid);
    return complain("process %u: the profile failed (error %u)", live.pid, (uint64_t)code);
}

static uint64_t mask_of(int signal) { return 1ull << (signal - 1); }

/* Until one of these signals comes, or the process has ended: then false. */
static bool wait_while_it_runs(uint64_t pid, uint64_t seconds, uint64_t signals)
{
    static const struct timespec step = { 0, LOOK_MS * 1000000L };
    uint64_t until = clock_ms() + seconds * 1000;
    bool runs;
    while ((runs = is_running(pid)) && clock_ms() < until
           && hak__syscall(SYS_rt_sigtimedwait, &signals, NULL, &step, sizeof signals) == -EAGAIN)
        continue;
    return runs;
}

/* What would end this process ends the wait for the profile instead, so that none is left on. */
static int by_request(const char *file, uint64_t seconds)
{
    uint64_t ending = mask_of(SIGHUP) | mask_of(SIGINT) | mask_of(SIGTERM);
    char path[PATH_ROOM];
    uint64_t interval = 0;
    uint32_t asked = live_number(&live, "profile_asked");
    bool ran = (live_half(&live, profile_at("counts")) & (asked != 0 ? asked : 1)) != 0; /* not only a tracer's */
    if (live_root(&live, "profile") == 0)
        return complain("process %u runs a HAKMEM without a profiler", live.pid);
    live_option(&live, "profile_interval", &interval);
    if (!ran && !live_write(&live, profile_at("interval"), &interval, sizeof interval))
        return refused(EPERM);
    hak__syscall(SYS_rt_sigprocmask, SIG_BLOCK, &ending, NULL, sizeof ending);
    int code = ran ? 0 : request("start");
    if (code != 0)
        return refused(code);
    if (!ran && !wait_while_it_runs(live.pid, seconds, ending))
        return has_ended(live.pid);
    hak__format(path, sizeof path, "%s", file);
    code = live_write(&live, profile_at("path"), path, sizeof path) ? request("dump") : EPERM;
    int stopped = ran ? 0 : request("stop");
    return code != 0 || stopped != 0 ? refused(code != 0 ? code : stopped) : 0;
}

/* --- by signal --------------------------------------------------------------------------------------------------------------------- */

static const char *variable_of(const char *environment, size_t length, const char *name)
{
    for (size_t at = 0; at < length; at += strlen(environment + at) + 1)
        if (hak_begins(environment + at, name))
            return environment + at + strlen(name);
    return NULL;
}

struct newest {
    uint64_t pid, number;
    char name[PATH_SIZE];
};

/* "PREFIX.PID.NUMBER.u.heap" or ".json", with the highest number. */
static void consider(const char *name, void *argument)
{
    struct newest *newest = argument;
    char part[32];
    size_t length = hak__format(part, sizeof part, ".%u.", newest->pid);
    for (const char *at = name; *at != 0; at++) {
        const char *behind;
        if (!hak_begins(at, part))
            continue;
        uint64_t number = number_at(at + length, &behind);
        bool whole = strcmp(behind, ".u.heap") == 0 || strcmp(behind, ".u.json") == 0; /* not one that is being written */
        if (whole && number + 1 > newest->number) {
            newest->number = number + 1;
            hak__format(newest->name, sizeof newest->name, "%s", name);
        }
    }
}

static bool copy_file(const char *from, const char *to)
{
    struct view file;
    long out = hak__syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool done = out >= 0 && map_file(from, &file) && write_all((int)out, file.start, file.size) == 0;
    if (out >= 0)
        hak__syscall(SYS_close, out);
    return done;
}

static int by_signal(uint64_t pid, const char *file, uint64_t seconds)
{
    static char environment[TEXT_SIZE];
    char path[PATH_SIZE], folder[PATH_SIZE];
    struct newest before = { .pid = pid }, after = { .pid = pid };
    hak__format(path, sizeof path, "/proc/%u/environ", pid);
    size_t length = read_file(path, environment, sizeof environment);
    const char *mode = variable_of(environment, length, "HAKMEM_PROFILE="),
               *signal = variable_of(environment, length, "HAKMEM_STATS_SIGNAL=");
    uint64_t number = signal == NULL ? 0 : number_at(signal, NULL);
    if (mode == NULL || !hak_begins(mode, "ready") || number == 0)
        return complain("process %u may not be written to, and was not started with HAKMEM_PROFILE=ready HAKMEM_STATS_SIGNAL=N",
                        pid);
    const char *prefix = mode + sizeof "ready" - 1, *name = prefix += *prefix == ':';
    for (const char *at = prefix; *at != 0; at++)
        name = *at == '/' ? at + 1 : name;
    hak__format(folder, sizeof folder, prefix[0] == '/' ? "/proc/%u/root%s" : "/proc/%u/cwd/%s", pid, prefix);
    folder[strlen(folder) - strlen(name)] = 0;
    each_name(folder, consider, &before);
    hak__syscall(SYS_kill, pid, number); /* the first starts the profile, or dumps one that runs */
    if (!wait_while_it_runs(pid, seconds, 0))
        return has_ended(pid);
    hak__syscall(SYS_kill, pid, number);
    for (uint64_t until = clock_ms() + ANSWER_MS; clock_ms() < until && after.number <= before.number; nap_ms(STEP_MS))
        each_name(folder, consider, &after);
    hak__format(path, sizeof path, "%s/%s", folder, after.name);
    if (after.number <= before.number || !copy_file(path, file))
        return complain("process %u wrote no profile that can be read in %s", pid, folder);
    hak__syscall(SYS_unlinkat, AT_FDCWD, path, 0L);
    return 0;
}

/* The library writes .json and, for every other name, .heap; what needs symbols is the lab's. */
static bool is_written_here(const char *file)
{
    static const char *const others[] = { ".pb.gz", ".collapsed", ".html", ".svg" };
    size_t length = strlen(file);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (length > strlen(others[i]) && strcmp(file + length - strlen(others[i]), others[i]) == 0)
            return false;
    return true;
}

int command_profile(int count, char **words)
{
    const char *file = NULL, *pid_word = NULL, *behind = "";
    uint64_t seconds = SECONDS;
    for (int i = 0; i < count; i++)
        if (strcmp(words[i], "-o") == 0 && i + 1 < count)
            file = words[++i];
        else if (strcmp(words[i], "-s") == 0 && i + 1 < count)
            seconds = number_at(words[++i], &behind);
        else
            pid_word = words[i];
    if (file == NULL || pid_word == NULL || *behind != 0 || seconds > SECONDS_MOST)
        return complain("usage: hakmem profile PID -o FILE [-s SECONDS]"), STATUS_USAGE;
    if (!is_written_here(file))
        return complain("%s: only .heap and .json can be written without the lab (pip install hakmem-lab)", file), STATUS_USAGE;
    uint64_t pid = pid_of(pid_word);
    if (pid == 0)
        return STATUS_FAILED;
    char folder[PATH_SIZE], path[PATH_ROOM];
    long length = hak__syscall(SYS_getcwd, folder, sizeof folder); /* with its 0 */
    if (file[0] != '/' && length > 0 && length + (long)strlen(file) + 1 < PATH_ROOM)
        hak__format(path, sizeof path, "%s/%s", folder, file);
    else
        hak__format(path, sizeof path, "%s", file);
    int status =
        may_be_read(pid) ? live_open(&live, pid) ? by_request(path, seconds) : STATUS_FAILED : by_signal(pid, path, seconds);
    if (status == 0)
        say("%s\n", path);
    return status;
}
