/* hakmem stats, ledger and doctor. */
#include "commands.h"
#include "live.h"

enum { TEXT_SIZE = 4096 };

static struct live live;

static bool open_only(int count, char **words, const char *command)
{
    if (count != 1)
        return complain("usage: hakmem %s PID", command), false;
    uint64_t pid = pid_of(words[0]);
    return pid != 0 && live_open(&live, pid);
}

/* The number behind a word at a line's beginning; 0: there is none. */
static uint64_t number_behind(const char *text, const char *word)
{
    for (const char *at = text; *at != 0; at++)
        if ((at == text || at[-1] == '\n') && hak_begins(at, word)) {
            for (at += strlen(word); *at == ' ' || *at == '\t'; at++)
                continue;
            return number_at(at, NULL);
        }
    return 0;
}

int command_stats(int count, char **words)
{
    static struct live_figures figures;
    const char *name;
    uint64_t value;
    bool known;
    if (!open_only(count, words, "stats"))
        return STATUS_FAILED;
    live_count(&live, &figures);
    say("    size    spans         live       cached      refilled        misses\n");
    for (uint64_t c = 0; c < figures.class_count; c++)
        if (figures.classes[c].refilled != 0)
            say("%8u %8u %12u %12u %13u %13u\n", figures.classes[c].size, figures.classes[c].spans, figures.classes[c].live,
                figures.classes[c].cached, figures.classes[c].refilled, figures.classes[c].misses);
    say("remote_heaps %u\nbytes_live %u\nbytes_cached %u\nbytes_spans %u\n", figures.heaps, figures.live, figures.cached,
        figures.spans);
    for (unsigned i = 0; (name = live_figure(&live, i, &value, &known)) != NULL; i++)
        if (known)
            say("%s %u\n", name, value);
    return 0;
}

/* --- ledger ------------------------------------------------------------------------------------------------------------------ */

struct part {
    uint64_t start, end;
};

/* The resident bytes of the process: where blocks lie, also the sampled ones; in the library's tables; in all. */
struct resident {
    struct part window, guarded, slots, metadata, store;
    uint64_t blocks, tables, all;
};

static bool is_in(const struct part *part, uint64_t address) { return address >= part->start && address < part->end; }

static uint64_t sample_word(const char *name) { return live_word(&live, live_root(&live, "sample") + live_number(&live, name)); }

static void find_parts(struct resident *out)
{
    uint64_t window = live_root(&live, "window");
    out->window =
        (struct part){ window, window + (live_word(&live, live_root(&live, "frontier")) << live_number(&live, "super_shift")) };
    out->metadata = (struct part){ live_root(&live, "metadata"), window };
    if (live_number(&live, "store_end") == 0) /* an older library */
        return;
    uint64_t guarded = sample_word("sample_start"), slots = sample_word("slots_start"), end = slots + sample_word("slots_bytes");
    out->guarded = (struct part){ guarded, guarded + sample_word("sample_bytes") };
    out->slots = (struct part){ slots, end };
    out->store = (struct part){ end, sample_word("store_end") };
}

static uint64_t hex_at(const char *text)
{
    uint64_t n = 0;
    for (; (*text >= '0' && *text <= '9') || (*text >= 'a' && *text <= 'f'); text++)
        n = n * 16 + (uint64_t)(*text <= '9' ? *text - '0' : *text - 'a' + 10);
    return n;
}

static void count_line(struct resident *out, const char *line, uint64_t *start)
{
    const char *at = line;
    while ((*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'f'))
        at++;
    if (at != line && *at == '-') {
        *start = hex_at(line);
    } else if (hak_begins(line, "Rss:")) {
        uint64_t bytes = number_behind(line, "Rss:") << 10;
        out->all += bytes;
        out->blocks += is_in(&out->window, *start) || is_in(&out->guarded, *start) || is_in(&out->slots, *start) ? bytes : 0;
        out->tables += is_in(&out->metadata, *start) || is_in(&out->store, *start) ? bytes : 0;
    }
}

static bool read_resident(struct resident *out)
{
    char path[PATH_SIZE], piece[TEXT_SIZE], line[128];
    size_t used = 0;
    uint64_t start = 0;
    hak__format(path, sizeof path, "/proc/%u/smaps", live.pid);
    long fd = hak__syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC), got;
    while (fd >= 0 && (got = hak__syscall(SYS_read, fd, piece, sizeof piece)) > 0)
        for (long i = 0; i < got; i++) {
            if (piece[i] != '\n') {
                if (used < sizeof line - 1)
                    line[used++] = piece[i];
                continue;
            }
            line[used] = 0;
            used = 0;
            count_line(out, line, &start);
        }
    if (fd >= 0)
        hak__syscall(SYS_close, fd);
    return out->all != 0;
}

static void say_row(const char *name, uint64_t bytes, uint64_t whole)
{
    char text[AMOUNT_SIZE];
    say("%-38s %12s %3u %%\n", name, amount(bytes, text), whole == 0 ? 0 : (bytes / (whole / 1000 + 1) + 5) / 10);
}

int command_ledger(int count, char **words)
{
    static struct live_figures figures;
    struct resident resident = { 0 };
    if (!open_only(count, words, "ledger"))
        return STATUS_FAILED;
    live_count(&live, &figures);
    find_parts(&resident);
    if (!read_resident(&resident))
        return complain("process %u: the kernel does not say what is resident", live.pid);
    uint64_t used = hak_min(figures.live + figures.huge, resident.blocks), cached = hak_min(figures.cached, resident.blocks - used);
    say_row("blocks in the program's hands, at most", used, resident.all);
    say_row("free, ready in threads' caches", cached, resident.all);
    say_row("free otherwise, at least", resident.blocks - used - cached, resident.all);
    say_row("HAKMEM's own tables", resident.tables, resident.all);
    say_row("not malloc's", resident.all - hak_min(resident.all, resident.blocks + resident.tables), resident.all);
    say_row("resident", resident.all, resident.all);
    say("A block counts as resident here as far as the process's memory goes; the lab's 'hakmem stats PID' looks at every page.\n");
    return 0;
}

/* --- doctor ------------------------------------------------------------------------------------------------------------------- */

static unsigned found;

static void finding(const char *what, const char *why)
{
    say("- %s: %s\n", what, why);
    found++;
}

static void look_at_machine(void)
{
    char text[TEXT_SIZE], path[PATH_SIZE];
    read_file("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    for (const char *at = text; *at != 0; at++)
        if (hak_begins(at, "[always]"))
            finding("huge pages are 'always'", "small processes may hold more memory than they use; madvise suits HAKMEM");
    read_file("/proc/sys/vm/overcommit_memory", text, sizeof text);
    if (text[0] == '2')
        finding("vm.overcommit_memory is 2", "mapped memory counts, so HAKMEM keeps less mapped and is slower");
    read_file("/proc/sys/vm/max_map_count", text, sizeof text);
    if (text[0] != 0 && number_at(text, NULL) < 65530)
        finding("vm.max_map_count is low", "programs with many huge blocks may run out of mappings");
    if (read_file("/proc/pressure/memory", text, sizeof text) == 0)
        finding("no pressure figures (PSI)", "the black box cannot say whether threads waited for memory");
    read_file("/proc/sys/kernel/yama/ptrace_scope", text, sizeof text);
    if (text[0] > '0' && text[0] <= '9' && hak__syscall(SYS_geteuid) != 0)
        finding("ptrace is restricted", "stats, ledger and profile of running processes need root, or HAKMEM_STATS_SIGNAL");
    const char *library = library_path(path, sizeof path);
    say("library   %s\n", library);
    if (library[0] == '/' && hak__syscall(SYS_faccessat, AT_FDCWD, library, 4) != 0)
        finding("the library cannot be read", "hakmem run will not work; set HAKMEM_LIBRARY");
}

static void look_at_process(void)
{
    char text[TEXT_SIZE], path[PATH_SIZE];
    uint64_t value;
    say("process   %u runs on HAKMEM: %s\n", live.pid, live.path);
    char version[32] = "";
    live_read(&live, live_root(&live, "version"), version, sizeof version - 1);
    say("version   %s\n", version);
    hak__format(path, sizeof path, "/proc/%u/status", live.pid);
    read_file(path, text, sizeof text);
    say("resident  %s\n", amount(number_behind(text, "VmRSS:") << 10, path));
    if (live_option(&live, "harden", &value) && value != 0)
        say("hardened  yes\n");
    if (live_option(&live, "blackbox", &value) && value == 0)
        finding("no black box", "HAKMEM_BLACKBOX=DIR keeps what held the memory if the kernel kills it");
    if (live_option(&live, "profile", &value) && value == 0)
        finding("no profile is ready", "HAKMEM_PROFILE=auto starts one near the limit, ready on request");
    if (number_behind(text, "Seccomp:") == 2)
        finding("system calls are filtered", "a filter without mincore or openat keeps limits from being followed");
}

int command_doctor(int count, char **words)
{
    if (count > 1)
        return complain("usage: hakmem doctor [PID]"), STATUS_USAGE;
    if (count == 1) {
        uint64_t pid = pid_of(words[0]);
        if (pid == 0 || !live_open(&live, pid))
            return STATUS_FAILED;
        look_at_process();
    } else {
        look_at_machine();
    }
    say(found == 0 ? "nothing to complain of\n" : "");
    return 0;
}
