/* hakmem postmortem: one page of what a black box says (src/stats/blackbox.h). The verdict follows from shares of the resident memory and
 * from the history alone, by the rules of verdict_of; docs/blackbox.md states them. */
#include "commands.h"
#include "elf.h"
#include "stats/blackbox.h"

enum {
    ROWS = 12,
    BAR = 40,
    BIG_SHARE = 30,
    QUARTERS = 4,
    PARTS = 1024,
    CLASS_ROWS = 6,
    STACK_ROWS = 5,
    FRAME_ROWS = 8,
    PLATEAU_PART = 16,
    AT_LIMIT = 950,
    NEAR_LIMIT = 800,
    GROWN_PART = 20
};

/* --- reading ----------------------------------------------------------------------------------------------------------- */

struct record {
    struct hak_box box; /* a copy: the process may run, and anybody may truncate the file */
    const struct hak_box_slot *slot; /* the last whole one */
    struct hak_box_point points[HAK_BOX_POINTS + 1]; /* by time; the slot's own is the last */
    unsigned count;
};

static const struct hak_box_slot *last_slot(const struct hak_box *box)
{
    const struct hak_box_slot *last = NULL;
    for (unsigned i = 0; i < HAK_BOX_SLOTS; i++) {
        const struct hak_box_slot *slot = &box->slots[i];
        if (slot->sequence != 0 && slot->sum == hak_box_sum(slot) && (last == NULL || slot->sequence > last->sequence))
            last = slot;
    }
    return last;
}

static void sort_points(struct record *record)
{
    const struct hak_box_slot *slot = record->slot;
    for (unsigned i = 0; i <= HAK_BOX_POINTS; i++) {
        struct hak_box_point own = { slot->ms, slot->resident, slot->used, slot->mapped, 0 };
        struct hak_box_point point = i < HAK_BOX_POINTS ? record->box.points[i] : own;
        unsigned at = record->count;
        while (at > 0 && record->points[at - 1].ms > point.ms)
            at--;
        if (point.ms == 0 || (at > 0 && record->points[at - 1].ms == point.ms))
            continue;
        memmove(&record->points[at + 1], &record->points[at], (record->count - at) * sizeof point);
        record->points[at] = point;
        record->count++;
    }
}

/* What is wrong with a file of which so many bytes were read; NULL: nothing. */
static const char *why_bad(const struct hak_box *box, size_t size)
{
    if (size == 0)
        return "cannot be read, or is empty";
    if (size < offsetof(struct hak_box, pid) || box->magic != HAK_BOX_MAGIC)
        return "is no black box, or damaged";
    if (box->size != sizeof *box || box->slot_size != sizeof(struct hak_box_slot) || box->stats_size != sizeof(struct hak_stats))
        return "was written by another version of HAKMEM; use the hakmem of that version";
    if (size < sizeof *box)
        return "has been truncated";
    return last_slot(box) == NULL ? "is damaged: no record in it is whole" : NULL;
}

/* One line says what is wrong with a file. */
static bool record_open(struct record *record, const char *path)
{
    record->count = 0;
    const char *wrong = why_bad(&record->box, read_bytes(path, &record->box, sizeof record->box));
    if (wrong != NULL)
        return complain("%s: %s", path, wrong), false;
    record->slot = last_slot(&record->box);
    sort_points(record);
    return true;
}

/* --- words --------------------------------------------------------------------------------------------------------------- */

static void say_time(uint64_t wall_s)
{
    /* The civil date by Howard Hinnant's rule, days from 1970. */
    uint64_t days = wall_s / 86400 + 719468, era = days / 146097, day = days % 146097;
    uint64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365, of_year = day - (365 * year + year / 4 - year / 100);
    uint64_t month = (5 * of_year + 2) / 153, of_month = of_year - (153 * month + 2) / 5 + 1, in_day = wall_s % 86400;
    uint64_t parts[] = { month < 10 ? month + 3 : month - 9, of_month, in_day / 3600, in_day / 60 % 60, in_day % 60 };
    say("%u", year + era * 400 + (month >= 10));
    for (unsigned i = 0; i < 5; i++)
        say(parts[i] < 10 ? "%s0%u" : "%s%u", i < 2 ? "-" : i == 2 ? " " : ":", parts[i]);
    say(" UTC");
}

static void say_seconds(uint64_t ms) { say(ms % 1000 / 10 < 10 ? "%u.0%u s" : "%u.%u s", ms / 1000, ms % 1000 / 10); }

static uint64_t share(uint64_t part, uint64_t whole) { return whole == 0 ? 0 : (part / (whole / 1000 + 1) + 5) / 10; }

static const char *limit_name(uint64_t kind)
{
    switch (kind) {
    case HAK_BOX_GROUP_MAX: return "the control group's limit";
    case HAK_BOX_GROUP_HIGH: return "the control group's memory.high";
    case HAK_BOX_ADDRESSES: return "RLIMIT_AS";
    case HAK_BOX_OPTION: return "HAKMEM_LIMIT";
    default: return "no limit";
    }
}

static const char *reason_name(const struct hak_box_slot *slot)
{
    switch (slot->reason) {
    case HAK_BOX_START: return "its start";
    case HAK_BOX_TIME: return "the clock";
    case HAK_BOX_LEVEL: return "memory near its limit";
    case HAK_BOX_STALL: return "threads that waited for memory (PSI)";
    case HAK_BOX_CRASH: return "a crash";
    default: return "?";
    }
}

/* --- the verdict ----------------------------------------------------------------------------------------------------------- */

enum verdict { UNKNOWN, OUTSIDE, RETENTION, FRAGMENTATION, LEAK, GROWTH, BURST, VERDICTS };

static const struct verdict_text {
    const char *name, *why, *advice;
} verdict_texts[VERDICTS] = {
    [UNKNOWN] = { "not known", "the last record was written before anything could be measured",
                  "Set HAKMEM_BLACKBOX_EVERY lower, so that a short life leaves a record." },
    [OUTSIDE] = { "outside of malloc",
                  "most resident memory is not the allocator's: mappings of files or by mmap, stacks, libraries",
                  "Look at /proc/PID/smaps of a running process; an allocator cannot help here." },
    [RETENTION] = { "retention", "memory that the program had freed was kept for its next requests",
                    "Raise HAKMEM_RETURN, or lower HAKMEM_THREAD_BUDGET if caches hold it (many threads)." },
    [FRAGMENTATION] = { "fragmentation", "free blocks lay between live ones, so that their memory could not go back",
                        "Put blocks of one life into one heap (hak_heap_new), or free the few old ones: see the largest classes "
                        "below." },
    [LEAK] = { "a leak, or a cache without a bound", "memory grew steadily, and what was allocated was not freed",
               "Look at the stacks below, or let hakmem leaks -- PROGRAM find blocks that nothing reaches." },
    [GROWTH] = { "growth", "the program held what it asked for, and asked for more in stages",
                 "It needs this much: raise the limit, or bound its load; HAKMEM_PROFILE=auto names the stacks." },
    [BURST] = { "growth in a burst", "most of the memory came at the end, within a short time",
                "Bound the size of one request or the number of those at once; HAKMEM_PROFILE=auto names the stacks." },
};

/* The number of points until memory had all but reached its last size: at a limit it grows no more, however much is asked for.
 * Elsewhere, if it had for half of the history and longer, all points: it did not grow any more. */
static unsigned points_of_growth(const struct record *record)
{
    uint64_t end = record->points[record->count - 1].resident, life = record->points[record->count - 1].ms;
    unsigned count = 1;
    while (count < record->count && record->points[count - 1].resident < end - end / PLATEAU_PART)
        count++;
    bool at_limit = record->slot->permille >= AT_LIMIT;
    return !at_limit && life - record->points[count - 1].ms > life / 2 ? record->count : count;
}

/* Between two points memory counts as having grown evenly. */
static int64_t resident_at(const struct hak_box_point *points, unsigned count, uint64_t ms)
{
    unsigned to = 1;
    while (to + 1 < count && points[to].ms < ms)
        to++;
    if (count < 2)
        return (int64_t)points[0].resident;
    const struct hak_box_point *before = &points[to - 1], *after = &points[to];
    int64_t part = (int64_t)((ms - before->ms) * PARTS / (after->ms - before->ms));
    return (int64_t)before->resident + ((int64_t)after->resident - (int64_t)before->resident) / PARTS * part;
}

/* The bytes that each quarter of that time added. */
static uint64_t quarters_of(const struct record *record, int64_t growth[QUARTERS])
{
    unsigned count = points_of_growth(record);
    const struct hak_box_point *first = &record->points[0], *last = &record->points[count - 1];
    uint64_t span = last->ms - first->ms;
    int64_t before = (int64_t)first->resident;
    for (unsigned q = 0; q < QUARTERS; q++) {
        int64_t now = resident_at(record->points, count, first->ms + span * (q + 1) / QUARTERS);
        growth[q] = now - before;
        before = now;
    }
    return last->resident > first->resident ? last->resident - first->resident : 0;
}

/* Of the largest stack: whether less than a tenth of what it ever allocated has been freed. */
static bool stack_keeps(const struct hak_box_slot *slot)
{
    return slot->stack_count != 0 && slot->stacks[0].freed_bytes < slot->stacks[0].allocated_bytes / 10;
}

static enum verdict verdict_of(const struct record *record)
{
    const struct hak_stats *stats = &record->slot->stats;
    int64_t growth[QUARTERS];
    if ((stats->flags & HAK_STATS_HAS_LEDGER) == 0)
        return UNKNOWN;
    uint64_t kept = stats->ledger_cached + stats->ledger_empty, apart = stats->ledger_free_in_slabs + stats->ledger_frontier_slack;
    uint64_t live = stats->ledger_live + stats->ledger_huge, all = stats->ledger_sum;
    if (stats->ledger_not_ours > all / 2)
        return OUTSIDE;
    if (share(kept, all) >= BIG_SHARE && kept >= apart)
        return RETENTION;
    if (share(apart, all) >= BIG_SHARE)
        return FRAGMENTATION;
    if (live < all / 4)
        return stats->ledger_not_ours > live ? OUTSIDE : UNKNOWN;
    uint64_t total = quarters_of(record, growth);
    unsigned grown = 0;
    for (unsigned q = 0; q < QUARTERS; q++)
        grown += growth[q] > (int64_t)(total / GROWN_PART);
    bool profiled = record->slot->stack_count != 0, many = points_of_growth(record) > QUARTERS;
    if (many && (profiled ? grown + 1 >= QUARTERS && stack_keeps(record->slot) : grown == QUARTERS))
        return LEAK;
    return record->count > QUARTERS && growth[QUARTERS - 1] > (int64_t)(total / 5 * 3) ? BURST : GROWTH;
}

/* --- the page ------------------------------------------------------------------------------------------------------------------ */

static void say_row(const char *name, uint64_t bytes, uint64_t whole)
{
    char text[AMOUNT_SIZE];
    say("  %-34s %12s %3u %%\n", name, amount(bytes, text), share(bytes, whole));
}

static void say_head(const struct record *record)
{
    const struct hak_box *box = &record->box;
    const struct hak_box_slot *slot = record->slot;
    char a[AMOUNT_SIZE], b[AMOUNT_SIZE];
    bool runs = is_running(box->pid);
    say("%s, process %u, HAKMEM %s\n", box->command, box->pid, box->version);
    say("  started   ");
    say_time(box->started_s);
    say("\n  %s ", runs ? "recorded " : "last seen");
    say_time(slot->wall_s);
    say(", ");
    say_seconds(slot->ms);
    say(" after its start, because of %s\n", reason_name(slot));
    const struct hak_box_point *last = &record->points[record->count - 1];
    if (last->ms > slot->ms) {
        say("            then until ");
        say_seconds(last->ms);
        say(", when %s were resident\n", amount(last->resident, a));
    }
    if (slot->reason == HAK_BOX_CRASH)
        say("  signal    %u, address %p\n", slot->signal, (void *)(uintptr_t)slot->address);
    say("  end       %s\n", runs                            ? "none: a process of this number runs"
                            : slot->reason == HAK_BOX_CRASH ? "by that signal, as far as is known"
                            : box->ended != 0               ? "in order"
                            : slot->permille >= NEAR_LIMIT  ? "not in order: killed, most likely for want of memory"
                                                            : "not in order: by a signal, by _exit(), or as another program");
    say("  memory    %s resident", amount(slot->resident, a));
    if (slot->limit_kind != HAK_BOX_NONE)
        say("; %s%s of %s used (%u %%), %s", slot->reason == HAK_BOX_CRASH ? "a moment before " : "", amount(slot->used, a),
            amount(slot->limit, b), slot->permille / 10, limit_name(slot->limit_kind));
    say("\n  group     %u killed in it so far, %u ms waited for memory\n\n", slot->kills, slot->stalled_us / 1000);
}

static void say_ledger(const struct hak_stats *stats)
{
    say("What held the memory\n");
    if ((stats->flags & HAK_STATS_HAS_LEDGER) == 0) {
        say("  not known: this record has no ledger\n\n");
        return;
    }
    uint64_t all = stats->ledger_sum;
    say_row("blocks in the program's hands", stats->ledger_live + stats->ledger_huge, all);
    say_row("free, ready in threads' caches", stats->ledger_cached, all);
    say_row("free, between live blocks", stats->ledger_free_in_slabs, all);
    say_row("never handed out, in open slabs", stats->ledger_frontier_slack, all);
    say_row("free, kept for the next request", stats->ledger_empty, all);
    say_row("HAKMEM's own tables", stats->ledger_metadata, all);
    say_row("not malloc's", stats->ledger_not_ours, all);
    say("\n");
}

static void say_growth(const struct record *record)
{
    char text[AMOUNT_SIZE];
    const struct hak_box_point *first = &record->points[0], *last = &record->points[record->count - 1];
    uint64_t most = 1, before_ms = 0;
    for (unsigned i = 0; i < record->count; i++)
        most = hak_max(most, record->points[i].resident);
    say("How it grew (resident)\n");
    for (unsigned row = 0; row < ROWS; row++) {
        const struct hak_box_point *point = &record->points[row * (record->count - 1) / (ROWS - 1)];
        if (row != 0 && point->ms == before_ms)
            continue;
        char bar[BAR + 1];
        uint64_t length = point->resident / (most / BAR + 1);
        for (unsigned i = 0; i < BAR; i++)
            bar[i] = i < length ? '#' : 0;
        bar[BAR] = 0;
        uint64_t hundredths = point->ms / 10;
        say("  %9f s %12s %s\n", hundredths, amount(point->resident, text), bar);
        before_ms = point->ms;
    }
    unsigned from = record->count - 1;
    while (from > 0 && last->ms - record->points[from].ms < (last->ms - first->ms) / QUARTERS)
        from--;
    uint64_t ms = last->ms - record->points[from].ms,
             grown = last->resident - hak_min(last->resident, record->points[from].resident);
    if (ms != 0) {
        say("  at the end %s in ", amount(grown, text));
        say_seconds(ms);
        say(": %s per second", amount(grown * 1000 / ms, text));
        uint64_t left = record->slot->limit - hak_min(record->slot->limit, record->slot->used);
        if (record->slot->limit != 0 && grown >= ms) {
            say(", so that the limit was ");
            say_seconds(left / (grown / ms));
            say(" away");
        }
        say("\n");
    }
    say("\n");
}

/* The classes with the most bytes in live and free blocks. */
static void say_classes(const struct hak_stats *stats)
{
    char a[AMOUNT_SIZE], b[AMOUNT_SIZE], c[AMOUNT_SIZE];
    bool said[HAK_STATS_CLASSES] = { false };
    say("Largest classes             live       cached  pinned between\n");
    for (unsigned row = 0; row < CLASS_ROWS; row++) {
        uint64_t most = 0, at = 0;
        for (uint64_t i = 0; i < hak_min(stats->class_count, HAK_STATS_CLASSES); i++) {
            const struct hak_stats_class *class = &stats->classes[i];
            uint64_t bytes = class->live * class->size + class->pinned;
            if (!said[i] && bytes > most)
                most = bytes, at = i;
        }
        if (most == 0)
            break;
        const struct hak_stats_class *class = &stats->classes[at];
        said[at] = true;
        say("  %9u bytes  %12s %12s %12s  %u blocks\n", class->size, amount(class->live * class->size, a),
            amount((class->cached + class->outbox) * class->size, b), amount(class->pinned, c), class->live);
    }
    say("  huge blocks      %12s                            %u blocks\n\n", amount(stats->bytes_huge, a), stats->huge_live);
}

static void say_frame(const struct hak_box_slot *slot, uint64_t frame)
{
    uint64_t module = frame >> HAK_BOX_MODULE_SHIFT, offset = frame & ((1ull << HAK_BOX_MODULE_SHIFT) - 1), in = 0;
    if (module >= slot->module_count) {
        say("      %p\n", (void *)(uintptr_t)offset);
        return;
    }
    const char *path = slot->modules[module], *name = path;
    for (const char *at = path; *at != 0; at++)
        name = *at == '/' ? at + 1 : name;
    struct view file;
    const char *function = map_file(path, &file) && offset != 0 ? elf_function(&file, offset - 1, &in) : NULL;
    if (function != NULL)
        say("      %s + %u (%s)\n", function, in + 1, name);
    else
        say("      %s + %p\n", name, (void *)(uintptr_t)offset);
    unmap_file(&file);
}

static void say_stacks(const struct hak_box_slot *slot)
{
    char a[AMOUNT_SIZE], b[AMOUNT_SIZE], c[AMOUNT_SIZE];
    if (slot->interval == 0) {
        say("Stacks: no profile ran; HAKMEM_PROFILE=auto starts one at 70 %% of the limit\n\n");
        return;
    }
    say("Stacks with the most live bytes (one sample in %s)\n", amount(slot->interval, a));
    for (uint64_t i = 0; i < hak_min(slot->stack_count, STACK_ROWS); i++) {
        const struct hak_box_stack *stack = &slot->stacks[i];
        say("  %s live in %u samples; allocated %s, freed %s\n", amount(stack->live_bytes, a), stack->live_samples,
            amount(stack->allocated_bytes, b), amount(stack->freed_bytes, c));
        for (uint64_t frame = 0; frame < hak_min(stack->frame_count, FRAME_ROWS); frame++)
            say_frame(slot, stack->frames[frame]);
    }
    say("\n");
}

static void say_heaps(const struct hak_box_slot *slot)
{
    char a[AMOUNT_SIZE], b[AMOUNT_SIZE];
    if (slot->heap_count != 0)
        say("User heaps: %u\n", slot->heap_count);
    for (uint64_t i = 0; i < hak_min(slot->heap_count, HAK_BOX_HEAPS); i++)
        say("  %-32s live %12s, holds %12s, %u blocks\n", slot->heaps[i].name[0] != 0 ? slot->heaps[i].name : "(no name)",
            amount(slot->heaps[i].live_bytes, a), amount(slot->heaps[i].used_bytes, b), slot->heaps[i].live_blocks);
    if (slot->heap_count != 0)
        say("\n");
}

static void say_page(const struct record *record)
{
    const struct hak_box_slot *slot = record->slot;
    enum verdict verdict = verdict_of(record);
    say_head(record);
    say("Verdict: %s\n  %s.\n  Try: %s\n\n", verdict_texts[verdict].name, verdict_texts[verdict].why,
        verdict_texts[verdict].advice);
    say_ledger(&slot->stats);
    say_growth(record);
    say_classes(&slot->stats);
    say_stacks(slot);
    say_heaps(slot);
    for (unsigned i = 0, any = 0; i < HAK_BOX_LINES; i++)
        if (slot->lines[i][0] != 0)
            say("%s  %s\n", any++ == 0 ? "Last reports\n" : "", slot->lines[i]);
}

/* --- the folder ------------------------------------------------------------------------------------------------------------------ */

struct search {
    const char *folder;
    uint64_t pid; /* 0: any */
    struct record best, next;
    unsigned found, bad, others;
};

/* The latest record wins, and of those from one second the larger process. */
static void consider(const char *name, void *argument)
{
    struct search *search = argument;
    size_t length = strlen(name), end = sizeof HAK_BOX_END - 1;
    char path[PATH_SIZE];
    if (length <= end || strcmp(name + length - end, HAK_BOX_END) != 0)
        return;
    if (search->pid != 0 && number_at(name, NULL) != search->pid) {
        search->others++;
        return;
    }
    hak__format(path, sizeof path, "%s/%s", search->folder, name);
    if (!record_open(&search->next, path)) {
        search->bad++;
        return;
    }
    const struct hak_box_slot *next = search->next.slot, *best = search->found == 0 ? NULL : search->best.slot;
    if (best == NULL || next->wall_s > best->wall_s || (next->wall_s == best->wall_s && next->resident > best->resident)) {
        search->best = search->next;
        search->best.slot = last_slot(&search->best.box);
    }
    search->found++;
}

int command_postmortem(int count, char **words)
{
    static struct search search;
    if (count < 1 || count > 2)
        return complain("usage: hakmem postmortem DIR|FILE [PID]"), STATUS_USAGE;
    search.folder = words[0];
    search.pid = count == 2 ? number_at(words[1], NULL) : 0;
    int code = each_name(words[0], consider, &search);
    if (code == ENOTDIR) {
        if (!record_open(&search.best, words[0]))
            return STATUS_FAILED;
        search.found = 1;
    } else if (code != 0) {
        return complain("%s: cannot be read (error %u)", words[0], (uint64_t)code);
    }
    if (search.found + search.bad == 0 && search.others != 0)
        return complain("%s: no black box of process %u, but %u of others", words[0], search.pid, (uint64_t)search.others);
    if (search.found == 0)
        return complain("%s: no black box%s", words[0], search.bad != 0 ? " that can be read" : "; HAKMEM_BLACKBOX=DIR makes one");
    say_page(&search.best);
    if (search.found > 1)
        say("%u more in %s; hakmem postmortem DIR PID, or a file's name, shows another\n", (uint64_t)search.found - 1, words[0]);
    return 0;
}
