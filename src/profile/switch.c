/* Switches the profile on and off: by option, call, signal, and from outside. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "arena/arena.h"
#include "arena/limit.h"
#include "base/bits.h"
#include "base/lock.h"
#include "base/syscall.h"
#include "diag/report.h"
#include "harden/mode.h"
#include "os/os.h"
#include "profile/sites.h"
#include "size/size.h"

struct hak_profile hak__profile;
#if HAK_HAS_PROBES
__attribute__((section(".probes"), used)) volatile uint16_t hak__profile_tracers; /* in the file, as .bss is not */
#endif
static _Atomic uint32_t profile_starting; /* one thread at a time lays the tables out */
static bool profile_laid_out;
static _Atomic uint64_t last_dump_ms;
static _Atomic size_t last_growth_bytes; /* at the last dump for growth, or at the start */
static _Atomic bool beyond_soft_limit; /* a dump was made for it */

/* --- the table of bins ------------------------------------------------------------------------------------------------------ */

static void exchange_bins(bool counting)
{
    for (size_t i = 0; i < HAK_TINY_BINS; i++)
        hak_slot_store(&hak__bins.tiny[i], counting ? (uint16_t)HAK_EMPTY_BIN : hak__tiny_class_offset[i]);
    for (size_t i = 0; i < HAK_MID_BINS; i++)
        hak_slot_store(&hak__bins.mid[i], counting ? (uint16_t)HAK_EMPTY_BIN : hak__mid_class_offset[i]);
    hak_slot_store(&hak__profile.malloc_counts, counting);
}

/* Repeats because other threads may start and stop meanwhile. */
static void settle_bins(void)
{
    bool counting;
    do {
        counting = hak__profile_counts();
        exchange_bins(counting);
    } while (counting != hak__profile_counts());
}

/* --- dumps by mapped memory ----------------------------------------------------------------------------------------------------- */

static void profile_on_mapped(size_t mapped);

static void profile_watch_mapped(size_t mapped)
{
    size_t growth = hak__every_bytes(hak__option(HAK_OPTION_profile_every)), soft = hak__option(HAK_OPTION_soft_limit),
           beyond = SIZE_MAX;
    if (soft == 0 || mapped < soft - soft / 8)
        hak_store(&beyond_soft_limit, false, HAK_RELAXED);
    if (growth != 0)
        beyond = hak_load(&last_growth_bytes, HAK_RELAXED) + growth;
    if (soft != 0 && !hak_load(&beyond_soft_limit, HAK_RELAXED))
        beyond = hak_min(beyond, soft);
    hak__limit_watch(HAK_WATCHER_PROFILE, beyond, profile_on_mapped);
}

static void profile_on_mapped(size_t mapped)
{
    size_t growth = hak__every_bytes(hak__option(HAK_OPTION_profile_every)), soft = hak__option(HAK_OPTION_soft_limit);
    if (!hak__profile_is_asked())
        return;
    bool crossed = soft != 0 && mapped > soft && !hak_exchange(&beyond_soft_limit, true, HAK_RELAXED);
    bool grown = growth != 0 && mapped > hak_load(&last_growth_bytes, HAK_RELAXED) + growth;
    if (grown)
        hak_store(&last_growth_bytes, mapped, HAK_RELAXED);
    profile_watch_mapped(mapped);
    if (crossed || grown)
        hak__profile_dump(NULL, crossed ? 'l' : 'i');
}

/* --- start and stop ------------------------------------------------------------------------------------------------------------ */

static int profile_lay_out(void)
{
    struct hak_area sites = { .start = 0 }, ghosts = { .start = 0 };
    int code = profile_laid_out ? 0 : hak__store_begin(&sites, &ghosts);
    if (code == 0 && !profile_laid_out)
        hak__profile_sites_begin(sites, ghosts);
    profile_laid_out = code == 0;
    return code != 0 ? code : hak__os_unprotect(&hak__bins, sizeof hak__bins);
}

/* Adds a reason to count. The interval of a profile stays while it counts, until its owner changes it. */
static int begin_counting(uint32_t why, uint64_t interval)
{
    if (!hak__profile_claim(&profile_starting))
        return EBUSY;
    int code = profile_lay_out();
    bool anew = why == HAK_PROFILE_ASKED || !hak__profile_counts();
    if (code == 0 && anew) {
        hak_store(&hak__profile.interval, interval != 0 ? interval : hak__option(HAK_OPTION_profile_interval), HAK_RELAXED);
        hak_fetch_add(&hak__profile.session, 1, HAK_RELAXED);
        hak_store(&hak__hardened.open, true, HAK_RELAXED); /* large requests check it from now on */
    }
    if (code == 0)
        hak_fetch_or(&hak__profile.counts, why, HAK_RELEASE);
    if (code == 0 && anew)
        settle_bins();
    hak_store(&profile_starting, 0, HAK_RELEASE);
    return code;
}

/* Returns whether that was a reason. */
static bool end_counting(uint32_t why)
{
    uint32_t before = hak_fetch_and(&hak__profile.counts, ~why, HAK_RELAXED);
    if (before == why)
        settle_bins();
    return (before & why) != 0;
}

int hak__profile_start(uint64_t interval)
{
    hak_store(&last_dump_ms, hak__os->now_ms(), HAK_RELAXED); /* before another thread finds that it counts */
    int code = begin_counting(HAK_PROFILE_ASKED, interval);
    if (code != 0)
        return code;
    hak_fetch_add(&hak__profile.started, 1, HAK_RELAXED);
    hak_store(&last_growth_bytes, hak_counted(&hak__arena_published.mapped), HAK_RELAXED);
    profile_watch_mapped(hak_counted(&hak__arena_published.mapped));
    return 0;
}

void hak__profile_stop(void)
{
    if (end_counting(HAK_PROFILE_ASKED))
        hak__limit_watch(HAK_WATCHER_PROFILE, SIZE_MAX, profile_on_mapped);
}

/* Counts while tracers are attached. What the system refuses is tried again when the next tracer comes. */
static void follow_tracers(void)
{
    static _Atomic bool followed_last;
    bool attached = hak__profile_tracers != 0;
    if (attached == hak_load(&followed_last, HAK_RELAXED))
        return;
    if (!attached)
        end_counting(HAK_PROFILE_TRACED);
    else if (begin_counting(HAK_PROFILE_TRACED, 0) == EBUSY)
        return;
    hak_store(&followed_last, attached, HAK_RELAXED);
}

bool hak__profile_claim(_Atomic uint32_t *word)
{
    uint32_t self = (uint32_t)hak__syscall(SYS_getpid), who = hak_load(word, HAK_RELAXED);
    /* acquire: pairs with the release of the previous holder. */
    return who != self && hak_cas_strong(word, &who, self, HAK_ACQUIRE, HAK_RELAXED);
}

/* --- requests from outside --------------------------------------------------------------------------------------------------------- */

static uint32_t profile_answer(uint32_t request)
{
    char path[HAK_PROFILE_PATH];
    switch (request) {
    case HAK_PROFILE_START: return (uint32_t)hak__profile_start(hak_load(&hak__profile.interval, HAK_RELAXED));
    case HAK_PROFILE_STOP: hak__profile_stop(); return 0;
    case HAK_PROFILE_DUMP:
        memcpy(path, hak__profile.path, sizeof path);
        path[sizeof path - 1] = 0;
        return (uint32_t)hak__profile_dump(path[0] != 0 ? path : NULL, 'm');
    default: return EINVAL;
    }
}

bool hak__profile_answer(void)
{
    /* acquire: the requester wrote the details before it. */
    uint32_t request = hak_exchange(&hak__profile.request, HAK_PROFILE_NOTHING, HAK_ACQUIRE);
    if (request == HAK_PROFILE_NOTHING)
        return false;
    if (profile_laid_out) /* undoes the requester's change to the table; before the layout the requester does so itself */
        settle_bins();
    hak_store(&hak__profile.result, profile_answer(request), HAK_RELAXED);
    hak_fetch_add(&hak__profile.answered, 1, HAK_RELEASE);
    return true;
}

void hak__profile_poll_slow(struct hak_heap *heap, uint64_t now_ms)
{
    hak__profile_answer();
    follow_tracers();
    if (heap != NULL && hak__profile_counts())
        hak__profile_join(heap);
    if (!hak__profile_is_asked())
        return;
    profile_watch_mapped(hak_counted(&hak__arena_published.mapped));
    uint64_t every = hak__every_ms(hak__option(HAK_OPTION_profile_every)), last = hak_load(&last_dump_ms, HAK_RELAXED);
    if (every == 0 || now_ms - last < every)
        return;
    if (hak_cas_strong(&last_dump_ms, &last, now_ms, HAK_RELAXED, HAK_RELAXED))
        hak__profile_dump(NULL, 'i');
}

bool hak__profile_by_signal(void)
{
    if (hak__option(HAK_OPTION_profile) == HAK_PROFILING_OFF)
        return false;
    if (hak__profile_was_asked())
        hak__profile_dump(NULL, 'u');
    else
        hak__profile_start(0);
    return true;
}

/* --- begin and end -------------------------------------------------------------------------------------------------------- */

void hak__profile_begin(void)
{
    uint64_t mode = hak__option(HAK_OPTION_profile);
    if (mode == HAK_PROFILING_OFF)
        return;
    if (mode == HAK_PROFILING_LEAKS)
        hak__option_suggest(HAK_OPTION_profile_interval, 1); /* every block, unless the user asks for fewer */
    int code = mode == HAK_PROFILING_READY || mode == HAK_PROFILING_AUTO ? 0 : hak__profile_start(0);
    if (code != 0)
        hak__warn("option profile: the profile could not be started (error %u)", (uint64_t)code);
}

void hak__profile_end(void)
{
    uint64_t mode = hak__option(HAK_OPTION_profile);
    if (!hak__profile_was_asked() || (mode != HAK_PROFILING_ON && mode != HAK_PROFILING_LEAKS))
        return;
    hak__profile_stop();
    if (mode == HAK_PROFILING_LEAKS)
        hak__leaks_search();
    hak__profile_dump(NULL, 'f');
}
