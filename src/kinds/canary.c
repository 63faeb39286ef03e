/* HAKMEM_MISUSE=report: misuse is reported and survived. All of it comes through one door, hak__misuse (diag/report.h); what the
 * callers do when it returns is to leave the block alone:
 *
 *   free and the like         nothing is freed; a block of the C library's malloc goes there (foreign.c)
 *   a sized free              the block is freed: its address is right, and no other allocator looks at the size
 *   realloc                   NULL with EINVAL
 *   malloc_usable_size        0
 *   an overflow               the block is sealed anew; at its free it is left for ever
 *   a write after free        the block is left for ever, and another is taken
 *
 * A report is made once per site: a hash of the stack of calls and of the message without its numbers. A site that the limits of
 * this file keep from being reported may be reported later. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/syscall.h"
#include "diag/options.h"
#include "diag/report.h"
#include "hakmem.h"
#include "kinds/kind.h"
#include "os/os.h"
#include "stats/stats.h"
#include "trace/trace.h"
#include "trace/unwind.h"

/* Enough to see every place of a program in a few minutes, few enough not to fill a log when many processes start at once. */
enum { REPORTS_A_MINUTE = 30, MINUTE = 60000 };
enum { SITES = 1024, SITE_PROBES = 16, SITE_FRAMES = 24 };

static hak_rare_data _Atomic uint64_t canary_sites[SITES]; /* 0: unused */
static hak_rare_data _Atomic uint64_t canary_minute; /* minute << 8 | reports in it */
static _Atomic(hak_misuse_function *) canary_callback;
static void *_Atomic canary_argument;
uintptr_t hak__canary_break;

hak_export void hak_set_misuse_callback(hak_misuse_function *callback, void *argument)
{
    hak_store(&canary_callback, NULL, HAK_RELAXED);
    hak_store(&canary_argument, argument, HAK_RELEASE);
    hak_store(&canary_callback, callback, HAK_RELEASE); /* pairs with the acquire in canary_deliver */
}

/* --- once per site, and not too often --------------------------------------------------------------------------------------- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static uint64_t site_of(const char *line)
{
    uintptr_t frames[SITE_FRAMES];
    uint32_t count = hak__unwind(frames, SITE_FRAMES);
    uint64_t hash = 14695981039346656037ull; /* FNV-1a */
    for (uint32_t i = 0; i < count; i++)
        hash = (hash ^ frames[i]) * 1099511628211ull;
    for (bool number = false; *line != 0; line++) {
        number = is_digit(*line) || (number && *line >= 'a' && *line <= 'x'); /* hexadecimal ones too */
        hash = (hash ^ (number ? 0 : (unsigned char)*line)) * (number ? 1 : 1099511628211ull);
    }
    return hash != 0 ? hash : 1;
}

/* Where the site is, or may be put; NULL: the table is full there. */
static _Atomic uint64_t *site_find(uint64_t site)
{
    for (unsigned i = 0; i < SITE_PROBES; i++) {
        _Atomic uint64_t *at = &canary_sites[(site + i) % SITES];
        uint64_t found = hak_load(at, HAK_RELAXED);
        if (found == site || found == 0)
            return at;
    }
    return NULL;
}

static bool minute_allows(void)
{
    uint64_t minute = hak__os->now_ms() / MINUTE, before = hak_load(&canary_minute, HAK_RELAXED), after;
    do {
        after = before >> 8 == minute ? before + 1 : minute << 8 | 1;
        if ((after & 0xff) > REPORTS_A_MINUTE)
            return false;
    } while (!hak_cas_weak(&canary_minute, &before, after, HAK_RELAXED, HAK_RELAXED));
    return true;
}

/* Whether the calling thread is to report the site. */
static bool site_take(uint64_t site)
{
    uint64_t unused = 0;
    _Atomic uint64_t *at = site_find(site);
    return at != NULL && hak_load(at, HAK_RELAXED) == 0 && minute_allows()
        && hak_cas_strong(at, &unused, site, HAK_RELAXED, HAK_RELAXED);
}

/* --- where reports go -------------------------------------------------------------------------------------------------------- */

/* Opened for each report: a program may close descriptors that it does not know, and logs are rotated. */
static void write_to_file(const char *text, size_t length)
{
    static hak_rare_data _Atomic bool complained;
    char name[2 * HAK_PROFILE_PREFIX_SIZE];
    hak__expand_name(name, sizeof name, hak__misuse_file);
    int fd = hak__report_open(name, O_CREAT | O_APPEND), error = fd < 0 ? -fd : hak__write_all(fd, text, length);
    if (fd >= 0)
        hak__syscall(SYS_close, fd);
    if (error != 0 && !hak_exchange(&complained, true, HAK_RELAXED))
        hak__warn("reports of misuse cannot be written to %s (error %u)", name, (uint64_t)error);
}

static void canary_deliver(const struct hak_mistake *mistake, const char *text, size_t length)
{
    hak_misuse_function *callback = hak_load(&canary_callback, HAK_ACQUIRE);
    int saved = errno;
    if (callback != NULL)
        callback(text, (int)mistake->kind, mistake->function, mistake->p, hak_load(&canary_argument, HAK_RELAXED));
    else if (hak__misuse_file[0] != 0)
        write_to_file(text, length);
    else
        hak__write_all(hak__report_fd(), text, length);
    errno = saved;
}

/* --- a report ------------------------------------------------------------------------------------------------------------------- */

static const char *outcome_of(const struct hak_mistake *mistake)
{
    if (mistake->outcome != NULL)
        return mistake->outcome;
    switch (mistake->kind) {
    case HAK_MISUSE_DOUBLE_FREE: return "nothing was freed";
    case HAK_MISUSE_SIZE: return "the block was freed";
    case HAK_MISUSE_WRITTEN: return "the block is kept, and its memory not used again once it is freed";
    default:
        return strstr(mistake->function, "usable") != NULL ? "0 was returned"
             : strstr(mistake->function, "alloc") != NULL  ? "NULL was returned, with EINVAL"
                                                           : "nothing was done";
    }
}

static void canary_survive(const struct hak_mistake *mistake, const char *line)
{
    char what[200];
    const char *text;
    if (!site_take(site_of(line)) || !hak__report_collect())
        return;
    hak_fetch_add(&hak__misuse_counts.reported, 1, HAK_RELAXED);
    hak__describe((uintptr_t)mistake->p, what, sizeof what);
    hak__warn("%s", line);
    hak__warn("  it is %s", what);
    hak__frames_say_here("called");
    hak__trace_tell_mistake(mistake);
    hak__warn("  survived (HAKMEM_MISUSE=report): %s", outcome_of(mistake));
    size_t length = hak__report_collected(&text);
    canary_deliver(mistake, text, length);
    hak__report_release();
}

void hak__canary_begin(void)
{
    if (hak__option(HAK_OPTION_misuse) != HAK_MISUSE_REPORTS)
        return;
    hak__trace_begin(hak__hardened.on);
    hak__canary_break = (uintptr_t)hak__syscall(SYS_brk, 0);
    hak__misuse_survive = canary_survive;
}
