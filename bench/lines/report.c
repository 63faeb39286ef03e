/*
 * The report.  A line belongs to one of three groups: `blocks` (the program's own code has touched it, and the
 * allocator placed it), `metadata` (only libraries have), `program` (work areas and variables of the program).
 * A structure is the name of a line's memory together with the function that caused the message: with an
 * unmodified library, code says more about memory without a symbol than any address.
 */
#include "report.h"

#include "events.h"
#include "turns.h"

#include "pub_tool_aspacemgr.h"
#include "pub_tool_clientstate.h"
#include "pub_tool_debuginfo.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_mallocfree.h"

enum { REPORT_LINES = 10, REPORT_STRUCTURES = 16, STRUCTURES_MOST = 4096, NAME_MOST = 160 };
enum group { GROUP_METADATA, GROUP_BLOCKS, GROUP_PROGRAM, GROUPS };

static const HChar *const group_name[GROUPS] = {"metadata", "blocks", "program"};
static const HChar *const cause_name[CACHE_CAUSES] = {"true", "false", "migration", "upgrade"};
static const HChar *const call_name[CALLS] = {"mmap", "munmap", "madvise", "mprotect", "mremap",
                                              "brk",  "mincore", "futex",  "sched_yield", "other"};

struct structure {
    enum group group;
    HChar where[NAME_MOST];
    HChar code[NAME_MOST];
    ULong count[CACHE_CAUSES];
};

static struct structure *structure; /* STRUCTURES_MOST of them; the last takes what has no room */
static UInt structures;

static const HChar *file_part(const HChar *path)
{
    const HChar *slash = VG_(strrchr)(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* Quotes and backslashes have no place in names. */
static void copy_name(HChar *to, const HChar *from)
{
    UInt i = 0;
    for (; from[i] != 0 && i < NAME_MOST - 1; i++)
        to[i] = from[i] == '"' || from[i] == '\\' || from[i] < ' ' ? '_' : from[i];
    to[i] = 0;
}

static void name_code(Addr code, HChar *name)
{
    const HChar *found;
    HChar text[NAME_MOST];
    if (VG_(get_fnname)(VG_(current_DiEpoch)(), code, &found)) {
        copy_name(name, found);
    } else if (VG_(get_objname)(VG_(current_DiEpoch)(), code, &found)) {
        const NSegment *segment = VG_(am_find_nsegment)(code);
        copy_name(text, file_part(found));
        VG_(snprintf)(name, NAME_MOST, "%s+0x%llx", text,
                      segment != NULL ? (ULong)(code - segment->start) + (ULong)segment->offset : (ULong)code);
    } else {
        copy_name(name, "?");
    }
}

/* Whether an address lies in a file that is the program. */
static Bool in_program(const HChar *file)
{
    return VG_(args_the_exename) != NULL && VG_(strcmp)(file_part(file), file_part(VG_(args_the_exename))) == 0;
}

/* The memory behind an address: a variable, a file's data, or what kind of mapping.  Offsets are a symbol's own. */
static Bool name_memory(Addr address, HChar *name)
{
    const HChar *found = NULL;
    PtrdiffT offset = 0;
    const NSegment *segment = VG_(am_find_nsegment)(address);
    const HChar *file = segment != NULL ? VG_(am_get_filename)(segment) : NULL;
    const Bool variable = VG_(DebugInfo_sect_kind)(&found, address) != Vg_SectUnknown;
    const Bool program = (file != NULL && in_program(file)) || (variable && in_program(found));
    for (Addr word = address; word < address + CACHE_LINE; word += CACHE_WORD) {
        if (VG_(get_datasym_and_offset)(VG_(current_DiEpoch)(), word, &found, &offset)) {
            copy_name(name, found);
            return program;
        }
    }
    if (file != NULL)
        copy_name(name, file_part(file));
    else
        copy_name(name, segment != NULL && segment->isCH ? "brk" : "mapped");
    return program;
}

static enum group group_of(const struct cache_line *line, Bool program)
{
    if (program || (line->flags & LINE_OWN))
        return GROUP_PROGRAM;
    return line->flags & LINE_BY_PROGRAM ? GROUP_BLOCKS : GROUP_METADATA;
}

static struct structure *structure_of(enum group group, const HChar *where, const HChar *code)
{
    for (UInt i = 0; i < structures; i++) {
        struct structure *each = &structure[i];
        if (each->group == group && VG_(strcmp)(each->code, code) == 0 && VG_(strcmp)(each->where, where) == 0)
            return each;
    }
    if (structures == STRUCTURES_MOST)
        return &structure[STRUCTURES_MOST - 1];
    struct structure *new = &structure[structures++];
    new->group = group;
    copy_name(new->where, where);
    copy_name(new->code, code);
    return new;
}

static ULong sum(const ULong *count)
{
    return count[CACHE_TRUE] + count[CACHE_FALSE] + count[CACHE_MIGRATION] + count[CACHE_UPGRADE];
}

static ULong messages(const struct cache_line *line)
{
    return (ULong)line->count[CACHE_TRUE] + line->count[CACHE_FALSE] + line->count[CACHE_MIGRATION]
         + line->count[CACHE_UPGRADE];
}

static void gather(void)
{
    HChar where[NAME_MOST], code[NAME_MOST];
    for (UInt i = 0; i < SITE_BUCKETS; i++) {
        for (const struct site *site = events_site[i]; site != NULL; site = site->next) {
            Bool program = name_memory(site->address, where);
            name_code(site->code, code);
            struct structure *found = structure_of(group_of(site->line, program), where, code);
            for (UInt cause = 0; cause < CACHE_CAUSES; cause++)
                found->count[cause] += site->count[cause];
        }
    }
}

static Int by_messages(const void *a, const void *b)
{
    const ULong left = sum(((const struct structure *)a)->count), right = sum(((const struct structure *)b)->count);
    return left < right ? 1 : left > right ? -1 : VG_(strcmp)(((const struct structure *)a)->code, ((const struct structure *)b)->code);
}

static void write_counts(VgFile *out, const ULong *count)
{
    for (UInt cause = 0; cause < CACHE_CAUSES; cause++)
        VG_(fprintf)(out, "%s\"%s\": %llu", cause > 0 ? ", " : "", cause_name[cause], count[cause]);
}

static void write_groups(VgFile *out)
{
    ULong total[GROUPS][CACHE_CAUSES] = {{0}};
    for (UInt i = 0; i < structures; i++)
        for (UInt cause = 0; cause < CACHE_CAUSES; cause++)
            total[structure[i].group][cause] += structure[i].count[cause];
    VG_(fprintf)(out, "\"groups\": {");
    for (UInt group = 0; group < GROUPS; group++) {
        VG_(fprintf)(out, "%s\"%s\": {", group > 0 ? ", " : "", group_name[group]);
        write_counts(out, total[group]);
        VG_(fprintf)(out, "}");
    }
    VG_(fprintf)(out, "},\n");
}

static void write_structures(VgFile *out)
{
    VG_(ssort)(structure, structures, sizeof *structure, by_messages);
    VG_(fprintf)(out, "\"structures\": [");
    for (UInt i = 0, written = 0; i < structures && written < REPORT_STRUCTURES; i++, written++) {
        VG_(fprintf)(out, "%s\n  {\"group\": \"%s\", \"memory\": \"%s\", \"code\": \"%s\", ", written > 0 ? "," : "",
                     group_name[structure[i].group], structure[i].where, structure[i].code);
        write_counts(out, structure[i].count);
        VG_(fprintf)(out, "}");
    }
    VG_(fprintf)(out, "],\n");
}

struct hot {
    struct cache_line *line;
    Addr address;
};

static Bool is_hotter(const struct hot *a, const struct hot *b)
{
    const ULong left = messages(a->line), right = b->line != NULL ? messages(b->line) : 0;
    return left > right || (left == right && left > 0 && b->line != NULL && a->address < b->address);
}

static void insert_hot(struct hot *hot, struct hot new)
{
    for (UInt i = 0; i < REPORT_LINES; i++) {
        if (is_hotter(&new, &hot[i])) {
            struct hot pushed = hot[i];
            hot[i] = new;
            new = pushed;
            if (new.line == NULL)
                return;
        }
    }
}

/* The code from which most messages about a line came. */
static void name_busiest_code(const struct cache_line *line, HChar *name)
{
    ULong most = 0;
    copy_name(name, "?");
    for (UInt i = 0; i < SITE_BUCKETS; i++) {
        for (const struct site *site = events_site[i]; site != NULL; site = site->next) {
            ULong count = (ULong)site->count[0] + site->count[1] + site->count[2] + site->count[3];
            if (site->line == line && count > most) {
                most = count;
                name_code(site->code, name);
            }
        }
    }
}

static void write_hot(VgFile *out, const struct hot *hot, Bool first)
{
    HChar where[NAME_MOST], code[NAME_MOST];
    ULong count[CACHE_CAUSES];
    const NSegment *segment = VG_(am_find_nsegment)(hot->address);
    Bool program = name_memory(hot->address, where);
    name_busiest_code(hot->line, code);
    for (UInt cause = 0; cause < CACHE_CAUSES; cause++)
        count[cause] = hot->line->count[cause];
    VG_(fprintf)(out, "%s\n  {\"group\": \"%s\", \"memory\": \"%s\", \"offset\": %lu, \"cores\": %d, \"code\": \"%s\", ",
                 first ? "" : ",", group_name[group_of(hot->line, program)], where,
                 segment != NULL ? hot->address - segment->start : 0, __builtin_popcountll(hot->line->users), code);
    write_counts(out, count);
    VG_(fprintf)(out, "}");
}

/* One line's part in the ten hottest, and in the count of the hottest that an allocator has placed. */
static void consider(struct hot *hot, struct hot new, ULong *busiest)
{
    HChar where[NAME_MOST];
    const ULong count = messages(new.line);
    if (count == 0)
        return;
    insert_hot(hot, new);
    if (count > *busiest && group_of(new.line, name_memory(new.address, where)) != GROUP_PROGRAM)
        *busiest = count;
}

static void write_lines(VgFile *out)
{
    struct hot hot[REPORT_LINES] = {{NULL, 0}};
    ULong busiest = 0;
    for (size_t i = 0; i < events_cache.buckets; i++)
        for (struct cache_page *page = events_cache.bucket[i]; page != NULL; page = page->next)
            for (UInt at = 0; at < CACHE_PAGE_LINES; at++)
                consider(hot, (struct hot){&page->line[at], page->number * CACHE_PAGE + at * CACHE_LINE}, &busiest);
    VG_(fprintf)(out, "\"lines\": [");
    for (UInt i = 0; i < REPORT_LINES && hot[i].line != NULL; i++)
        write_hot(out, &hot[i], i == 0);
    VG_(fprintf)(out, "],\n\"busiest\": %llu,\n", busiest);
}

static void write_calls(VgFile *out)
{
    VG_(fprintf)(out, "\"calls\": {");
    for (UInt i = 0; i < CALLS; i++)
        VG_(fprintf)(out, "%s\"%s\": %llu", i > 0 ? ", " : "", call_name[i], events_counted.call[i]);
    VG_(fprintf)(out, "},\n");
}

void report_write(const HChar *path)
{
    VgFile *out = VG_(fopen)(path, VKI_O_CREAT | VKI_O_TRUNC | VKI_O_WRONLY, 0644);
    if (out == NULL) {
        VG_(umsg)("lines: cannot write %s\n", path);
        return;
    }
    structure = VG_(calloc)("lines.report", STRUCTURES_MOST, sizeof *structure);
    gather();
    VG_(fprintf)(out, "{\"operations\": %llu, \"instructions\": %llu, \"accesses\": %llu, \"faults\": %llu, \"waits\": %llu,\n",
                 events_counted.operations, events_counted.instructions, events_counted.accesses, events_counted.faults,
                 turns_waits());
    write_calls(out);
    write_groups(out);
    write_structures(out);
    write_lines(out);
    VG_(fprintf)(out, "\"unit\": \"messages\"}\n");
    VG_(fclose)(out);
}
