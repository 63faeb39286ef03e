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
 * A report is made once per site: a hash of the function, the kind and the stack of calls, or if there is none of the message without
 * its numbers. A site that the limits of this file keep from being reported may be reported later. */
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

_Static_assert((int)HAK_MISUSE_INVALID == (int)HAK_MISUSE_OF_POINTER && (int)HAK_MISUSE_WRITTEN == (int)HAK_MISUSE_OF_MEMORY,
               "the public kinds are these");

/* Changed under the lock of the report. */
static hak_rare_data _Atomic uint64_t canary_sites[SITES]; /* 0: unused */
static hak_rare_data uint64_t canary_times[REPORTS_A_MINUTE]; /* of the last reports */
static hak_rare_data unsigned canary_oldest; /* of these */
static hak_misuse_function *canary_callback;
static void *canary_argument;
uintptr_t hak__canary_break;

/* Under that lock too, unless the callback itself calls this. */
hak_export void hak_set_misuse_callback(hak_misuse_function *callback, void *argument)
{
    bool locked = hak__report_collect();
    canary_callback = callback;
    canary_argument = argument;
    if (locked)
        hak__report_release();
}

/* --- once per site, and not too often --------------------------------------------------------------------------------------- */

static uint64_t hash_on(uint64_t hash, uint64_t value) { return (hash ^ value) * 1099511628211ull; } /* FNV-1a */

static uint64_t hash_message(uint64_t hash, const char *line)
{
    for (bool number = false; *line != 0; line++) {
        number = (*line >= '0' && *line <= '9') || (number && *line >= 'a' && *line <= 'x'); /* hexadecimal ones too */
        hash = number ? hash : hash_on(hash, (unsigned char)*line);
    }
    return hash;
}

static bool is_repeated(const uintptr_t *frames, uint32_t place)
{
    for (uint32_t i = 0; i < place; i++)
        if (frames[i] == frames[place])
            return true;
    return false;
}

/* However deep a recursion is: its frames count once, and what is outside of it if all of that was found. */
static uint64_t site_of(const struct hak_mistake *mistake, const char *line)
{
    uintptr_t frames[SITE_FRAMES + HAK_FRAMES_OWN];
    uint32_t count = hak__frames_here(frames, SITE_FRAMES);
    bool freed_twice = mistake->kind == HAK_MISUSE_DOUBLE_FREE; /* the moment decides whether a block is still there */
    uint64_t hash = hash_message(14695981039346656037ull, mistake->function);
    hash = hash_on(hash, freed_twice ? HAK_MISUSE_INVALID : mistake->kind);
    for (uint32_t i = 0; i < count; i++) {
        if (!is_repeated(frames, i))
            hash = hash_on(hash, frames[i]);
        else if (count == SITE_FRAMES)
            break;
    }
    hash = count == 0 ? hash_message(hash, line) : hash;
    return hash != 0 ? hash : 1;
}

/* Where to put the site; NULL: it is in the table, or that is full there. */
static _Atomic uint64_t *site_room(uint64_t site)
{
    uint64_t found = 0;
    for (unsigned i = 0; i < SITE_PROBES && found != site; i++) {
        _Atomic uint64_t *at = &canary_sites[(site + i) % SITES];
        if ((found = hak_load(at, HAK_RELAXED)) == 0)
            return at;
    }
    return NULL;
}

static bool minute_allows(void)
{
    uint64_t now = hak__os->now_ms(), *oldest = &canary_times[canary_oldest];
    if (*oldest != 0 && now - *oldest < MINUTE)
        return false;
    *oldest = now;
    canary_oldest = (canary_oldest + 1) % REPORTS_A_MINUTE;
    return true;
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
    int saved = errno, former = hak__os_cancel_state(PTHREAD_CANCEL_DISABLE);
    if (canary_callback != NULL)
        canary_callback(text, (int)mistake->kind, mistake->function, mistake->p, canary_argument);
    else if (hak__misuse_file[0] != 0)
        write_to_file(text, length);
    else
        hak__write_all(hak__report_fd(), text, length);
    hak__os_cancel_state(former);
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

static void canary_report(const struct hak_mistake *mistake, const char *line)
{
    char what[200];
    const char *text;
    hak_fetch_add(&hak__misuse_counts.reported, 1, HAK_RELAXED);
    hak__describe((uintptr_t)mistake->p, what, sizeof what);
    hak__warn("%s", line);
    hak__warn("  it is %s", what);
    hak__trace_tell_mistake(mistake);
    hak__warn("  survived (HAKMEM_MISUSE=report): %s", outcome_of(mistake));
    size_t length = hak__report_collected(&text);
    canary_deliver(mistake, text, length);
}

/* A mistake in the middle of a report, by a signal handler or the callback, waits for its next occurrence. */
static void canary_survive(const struct hak_mistake *mistake, const char *line)
{
    uint64_t site = site_of(mistake, line);
    if (site_room(site) == NULL || !hak__report_collect())
        return;
    _Atomic uint64_t *room = site_room(site); /* of threads that come at once, one reports */
    if (room != NULL && minute_allows()) {
        hak_store(room, site, HAK_RELAXED);
        canary_report(mistake, line);
    }
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
