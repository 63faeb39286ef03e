/* Writes a profile's dump. It allocates and locks nothing: text goes through a stack buffer to write(2), so a signal handler may
 * dump. Other threads continue; each figure is the one at the moment of its read. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/syscall.h"
#include "diag/report.h"
#include "os/os.h"
#include "profile/sites.h"

enum { OUT_SIZE = 4096, OUT_PIECE = 320, DUMPS_KEPT = 16, NAME_ROOM = 64 };

struct dump_out {
    int fd, error;
    size_t used;
    char text[OUT_SIZE];
};

static _Atomic uint32_t dump_writing; /* the process that is dumping; 0: none */
static _Atomic uint64_t dump_sequence;

static void out_flush(struct dump_out *dump_out)
{
    if (dump_out->error == 0)
        dump_out->error = hak__write_all(dump_out->fd, dump_out->text, dump_out->used);
    dump_out->used = 0;
}

static void out_say(struct dump_out *dump_out, const char *format, ...)
{
    va_list arguments;
    if (dump_out->used + OUT_PIECE > OUT_SIZE)
        out_flush(dump_out);
    va_start(arguments, format);
    dump_out->used += hak__format_list(dump_out->text + dump_out->used, OUT_PIECE, format, arguments);
    va_end(arguments);
}

/* --- the list of mappings ------------------------------------------------------------------------------------------------------- */

static void out_byte(struct dump_out *dump_out, char c, bool quoted)
{
    if (dump_out->used + 2 > OUT_SIZE)
        out_flush(dump_out);
    bool escape = quoted && (c == '"' || c == '\\' || c == '\n');
    if (escape)
        dump_out->text[dump_out->used++] = '\\';
    dump_out->text[dump_out->used++] = escape && c == '\n' ? 'n' : quoted && (unsigned char)c < ' ' && !escape ? '?' : c;
}

/* A quoted text is JSON's, so what is no UTF-8 becomes '?'. */
static void out_text(struct dump_out *dump_out, const char *text, bool quoted)
{
    while (*text != 0) {
        unsigned length = quoted ? hak__utf8_length(text) : 1;
        for (unsigned i = 0; i < (length == 0 ? 1 : length); i++)
            out_byte(dump_out, length == 0 ? '?' : text[i], quoted);
        text += length == 0 ? 1 : length;
    }
}

static void out_hex(struct dump_out *dump_out, uintptr_t value, const char *behind, bool quoted)
{
    char number[24];
    hak__format(number, sizeof number, "%p", (void *)value);
    out_text(dump_out, number + 2, quoted); /* without 0x */
    out_text(dump_out, behind, quoted);
}

/* Lists closed modules in the kernel's form, at the addresses that their frames have in the dump. */
static void out_closed_modules(struct dump_out *dump_out, bool quoted)
{
    const uintptr_t in_page = 4095;
    for (struct hak_profile_module *module = NULL; hak__profile_module_next_closed(&module);) {
        uintptr_t moved = hak_load(&module->moved, HAK_RELAXED);
        out_hex(dump_out, (module->start + moved) & ~in_page, "-", quoted);
        out_hex(dump_out, (module->end + moved + in_page) & ~in_page, " r-xp ", quoted);
        out_hex(dump_out, module->offset & ~in_page, " 00:00 0 ", quoted);
        out_text(dump_out, module->path, quoted);
        out_text(dump_out, "\n", quoted);
    }
}

static void out_maps(struct dump_out *dump_out, bool quoted)
{
    char piece[512];
    long got;
    int fd = (int)hak__syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && (got = hak__syscall(SYS_read, fd, piece, sizeof piece)) > 0)
        for (long i = 0; i < got; i++)
            out_byte(dump_out, piece[i], quoted);
    if (fd >= 0)
        hak__syscall(SYS_close, fd);
    out_closed_modules(dump_out, quoted);
}

/* As an object of JSON. */
static void out_labels(struct dump_out *dump_out, const struct hak_labels *labels)
{
    for (const char *before = "{\""; labels != NULL; labels = labels->under, before = ",\"") {
        out_text(dump_out, before, false);
        out_text(dump_out, hak__label_key(labels), true);
        out_text(dump_out, "\":\"", false);
        out_text(dump_out, hak__label_value(labels), true);
        out_text(dump_out, labels->under == NULL ? "\"}" : "\"", false);
    }
}

/* --- jemalloc's text -------------------------------------------------------------------------------------------------------------- */

struct dump_sums {
    uint64_t allocated, allocated_bytes, freed, freed_bytes;
};

/* Reads the freed figures first, so that concurrent changes leave no site with more freed than allocated. */
static struct dump_sums sums_of(const struct hak_profile_site *site)
{
    struct dump_sums sums;
    sums.freed = hak_load(&site->freed, HAK_ACQUIRE);
    sums.freed_bytes = hak_load(&site->freed_bytes, HAK_RELAXED);
    sums.allocated = hak_load(&site->allocated, HAK_RELAXED);
    sums.allocated_bytes = hak_load(&site->allocated_bytes, HAK_RELAXED);
    sums.freed_bytes = sums.freed_bytes < sums.allocated_bytes ? sums.freed_bytes : sums.allocated_bytes;
    return sums;
}

static void say_sums(struct dump_out *dump_out, const struct dump_sums *s)
{
    out_say(dump_out, "  t*: %u: %u [%u: %u]\n", s->allocated - s->freed, s->allocated_bytes - s->freed_bytes, s->allocated,
            s->allocated_bytes);
}

/* This form has no more columns: after a leak search, leaked blocks stand in the columns for blocks in use. */
static struct dump_sums text_sums_of(const struct hak_profile_site *site)
{
    struct dump_sums sums = sums_of(site);
    if (hak__leaks_were_searched()) {
        sums.freed = sums.allocated - hak_load(&site->unreachable, HAK_RELAXED);
        sums.freed_bytes = sums.allocated_bytes - hak_load(&site->unreachable_bytes, HAK_RELAXED);
    }
    return sums;
}

static void write_heap_v2(struct dump_out *dump_out)
{
    struct hak_profile_site *site = NULL;
    struct dump_sums all = { 0, 0, 0, 0 };
    uint32_t bucket = 0;
    while (hak__profile_site_next(&bucket, &site)) {
        struct dump_sums sums = text_sums_of(site);
        all.allocated += sums.allocated, all.allocated_bytes += sums.allocated_bytes;
        all.freed += sums.freed, all.freed_bytes += sums.freed_bytes;
    }
    out_say(dump_out, "heap_v2/%u\n", hak_load(&hak__profile.interval, HAK_RELAXED));
    say_sums(dump_out, &all);
    for (bucket = 0, site = NULL; hak__profile_site_next(&bucket, &site);) {
        struct dump_sums sums = text_sums_of(site);
        out_say(dump_out, "@");
        for (uint32_t i = 0; i < site->frame_count; i++)
            out_say(dump_out, " %p", (void *)hak__profile_site_frame(site, i));
        out_say(dump_out, "\n");
        if (site->labels != NULL) { /* a line that jemalloc's tools skip */
            out_say(dump_out, "# labels ");
            out_labels(dump_out, site->labels);
            out_say(dump_out, "\n");
        }
        say_sums(dump_out, &sums);
    }
    out_say(dump_out, "\nMAPPED_LIBRARIES:\n");
    out_maps(dump_out, false);
}

/* --- JSON --------------------------------------------------------------------------------------------------------------------------- */

static void write_json_site(struct dump_out *dump_out, const struct hak_profile_site *site, const char *before)
{
    struct dump_sums s = sums_of(site);
    uint64_t peak, peak_bytes;
    hak__profile_site_peak(site, &peak, &peak_bytes);
    out_say(dump_out, "%s\n{\"allocated\":[%u,%u],\"freed\":[%u,%u],\"peak\":[%u,%u],\"unreachable\":[%u,%u],", before, s.allocated,
            s.allocated_bytes, s.freed, s.freed_bytes, peak, peak_bytes, hak_load(&site->unreachable, HAK_RELAXED),
            hak_load(&site->unreachable_bytes, HAK_RELAXED));
    out_say(dump_out, "\"lifetimes\":[");
    for (unsigned i = 0; i < HAK_PROFILE_LIFETIMES; i++)
        out_say(dump_out, i == 0 ? "%u" : ",%u", (uint64_t)hak_load(&site->lifetimes[i], HAK_RELAXED));
    out_say(dump_out, "],\"frames\":[");
    for (uint32_t i = 0; i < site->frame_count; i++)
        out_say(dump_out, i == 0 ? "%u" : ",%u", (uint64_t)hak__profile_site_frame(site, i));
    out_say(dump_out, "]");
    if (site->labels != NULL) {
        out_say(dump_out, ",\"labels\":");
        out_labels(dump_out, site->labels);
    }
    out_say(dump_out, "}");
}

static void write_json(struct dump_out *dump_out)
{
    struct hak_profile_site *site = NULL;
    uint32_t bucket = 0;
    out_say(dump_out, "{\"hakmem_profile\":1,\"pid\":%u,\"interval\":%u,\"time_ms\":%u,\"peak_ms\":%u,",
            (uint64_t)hak__syscall(SYS_getpid), hak_load(&hak__profile.interval, HAK_RELAXED), hak__os->now_ms(),
            hak__profile_peak_ms());
    out_say(dump_out, "\"samples\":%u,\"missed\":%u,\"leaks_searched\":%s,\"sites\":[",
            hak_load(&hak__profile.samples, HAK_RELAXED), hak_load(&hak__profile.missed, HAK_RELAXED),
            hak__leaks_were_searched() ? "true" : "false");
    for (const char *before = ""; hak__profile_site_next(&bucket, &site); before = ",")
        write_json_site(dump_out, site, before);
    out_say(dump_out, "],\"maps\":\"");
    out_maps(dump_out, true);
    out_say(dump_out, "\"}\n");
}

/* --- files --------------------------------------------------------------------------------------------------------------------------- */

static bool ends_in(const char *text, const char *end)
{
    size_t length = 0, more = 0;
    while (text[length] != 0)
        length++;
    while (end[more] != 0)
        more++;
    return length >= more && hak_begins(text + length - more, end);
}

static int dump_to(int fd, const void *json)
{
    struct dump_out dump_out = { .fd = fd, .error = 0, .used = 0 };
    hak__profile_sites_settle();
    if (*(const bool *)json)
        write_json(&dump_out);
    else
        write_heap_v2(&dump_out);
    out_flush(&dump_out);
    return dump_out.error;
}

static int dump_to_file(const char *path)
{
    bool json = ends_in(path, ".json");
    return hak__file_write(path, dump_to, &json);
}

/* PREFIX.PID.SEQUENCE.KIND.heap, as jemalloc names them; if the prefix ends in ".json", that ending comes last. Of automatic
 * dumps (i: time or growth, l: the soft limit) only the latest stay. */
static void dump_name(char *name, size_t size, uint64_t number, char kind)
{
    char letter[2] = { kind, 0 };
    const char *front = hak__profile_prefix[0] != 0 ? hak__profile_prefix : "hakmem";
    char begin[HAK_PROFILE_PREFIX_SIZE];
    size_t length = hak__format(begin, sizeof begin, "%s", front);
    bool json = ends_in(begin, ".json");
    if (json)
        begin[length - 5] = 0;
    hak__format(name, size, "%s.%u.%u.%s.%s", begin, (uint64_t)hak__syscall(SYS_getpid), number, letter, json ? "json" : "heap");
}

static int dump_numbered(char *name, size_t size, char kind)
{
    uint64_t number = hak_fetch_add(&dump_sequence, 1, HAK_RELAXED);
    dump_name(name, size, number, kind);
    int code = dump_to_file(name);
    bool by_itself = kind == 'i' || kind == 'l';
    for (const char *other = "il"; code == 0 && by_itself && number >= DUMPS_KEPT && *other != 0; other++) {
        dump_name(name, size, number - DUMPS_KEPT, *other);
        hak__syscall(SYS_unlinkat, AT_FDCWD, name, 0L);
    }
    return code;
}

static int dump_claim(void)
{
    if (getauxval(AT_SECURE) != 0)
        return EPERM;
    if (!hak__profile_was_asked())
        return EINVAL;
    return hak__profile_claim(&dump_writing) ? 0 : EBUSY;
}

int hak__profile_dump(const char *path, char kind)
{
    char name[HAK_PROFILE_PATH + NAME_ROOM] = "a file";
    int saved = errno, code = dump_claim();
    if (code == 0) {
        code = path != NULL ? dump_to_file(path) : dump_numbered(name, sizeof name, kind);
        hak_fetch_add(&hak__profile.dumps, code == 0, HAK_RELAXED);
        hak_store(&dump_writing, 0, HAK_RELEASE);
    }
    if (code != 0 && (kind == 'f' || kind == 'u'))
        hak__warn("the profile could not be written to %s (error %u); HAKMEM_PROFILE can name another prefix", name,
                  (uint64_t)code);
    errno = saved;
    return code;
}
