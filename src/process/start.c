/* Runs at the first slow path, wherever that comes from, and from init.c. */
#include "process/start.h"

#include "arena/meta.h"
#include "arena/runs.h"
#include "base/forked.h"
#include "base/limits.h"
#include "base/lock.h"
#include "diag/options.h"
#include "harden/harden.h"
#include "harden/mode.h"
#include "heap/spans.h"
#include "os/os.h"
#include "process/thread.h"
#include "stats/stats.h"
#include "userheap/userheap.h"

static struct hak_lock start_lock = HAK_LOCK_INIT(HAK_RANK_INIT);
static _Atomic bool started;
static bool options_read;

/* Called once the options are known: before or after the first allocation. */
static void begin_hardened(void)
{
    hak__hardened_begin();
    if (hak__hardened.on && hak__hardened.zero_size)
        hak__zero_size_begin();
}

static bool start_slow(void)
{
    hak__lock_acquire(&start_lock);
    bool done = hak_load(&started, HAK_RELAXED);
    if (!done) {
        options_read = hak__options_read();
        done = hak__arena_init() == 0;
        if (done) {
            hak__heap_init();
            if (HAK_DEBUG)
                hak__heaps_are_shared = true;
            if (options_read)
                begin_hardened();
            hak__meta_absent_init();
            hak__fork_init(&start_lock);
            hak__live_open(HAK_VERSION_STRING);
            hak_store(&started, true, HAK_RELEASE);
        }
    }
    hak__lock_release(&start_lock);
    return done;
}

bool hak__start(void)
{
    /* acquire: pairs with the release above; the arena's tables exist. */
    if (hak_unlikely(!hak_load(&started, HAK_ACQUIRE)) && !start_slow())
        return false;
    hak__fork_check();
    return true;
}

const struct hak_regions *hak__regions_join(const struct hak_regions *regions)
{
    const struct hak_regions *first = NULL;
    /* release: pairs with the acquire of each reader; the table's pages are relocated. */
    if (!hak_cas_strong(&hak__regions, &first, regions, HAK_RELEASE, HAK_ACQUIRE))
        regions = first;
    if (!hak__start())
        return NULL;
    hak__fork_check();
    hak__fork_watch();
    return regions;
}

bool hak__has_started(void) { return hak_load(&started, HAK_ACQUIRE); }

bool hak__start_options(void)
{
    if (options_read)
        return false;
    options_read = hak__options_read();
    begin_hardened();
    return true;
}

#if !defined(HAK_UNITY)
/* Makes the linker take init.c with its constructor and destructor from the archive too. */
__attribute__((used)) static void (*const start_draws_init)(void) = hak__library_loaded;
#endif
