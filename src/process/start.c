/* The start of the library, at the first slow path, wherever that comes from, and from init.c; and the repair of forked children. */
#include "process/process.h"

#include "arena/runs.h"
#include "arena/window.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/syscall.h"
#include "diag/options.h"
#include "diag/report.h"
#include "guard/check.h"
#include "harden/harden.h"
#include "harden/mode.h"
#include "heap/heap.h"
#include "os/os.h"
#include "stats/stats.h"
#include "upkeep/nearness.h"
#include "upkeep/upkeep.h"
#include "userheap/userheap.h"

static struct hak_lock start_lock = HAK_LOCK_INIT(HAK_RANK_INIT);
static _Atomic bool started;
static bool options_read;

/* --- forked children -------------------------------------------------------------------------------------------------- */

/* fork() in a process with threads. No lock is held across it: there is no prepare handler, so a fork neither waits for a lock
 * nor deadlocks with the C library's. A child's first slow path detects the fork (base/lock.h), resets the locks that missing
 * threads may have held (their sections keep the data valid at every step) and takes over those threads' heaps. */

/* From now on the spans that the fork has copied are inherited. Hardened blocks are written to when they are freed; and after many
 * forks in a row a child copies pages as its parents did before there were generations. */
static void begin_generation(struct hak_heap *mine)
{
    uint32_t next = hak_peek(&hak__window.generation) + (1u << HAK_GENERATION_SHIFT);
    if (hak__hardened.on || next >> HAK_GENERATION_SHIFT == HAK_GENERATIONS)
        return;
    hak_owner_store(&hak__window.generation, next);
    if ((mine->mode & HAK_MODE_SENTINEL) == 0)
        hak__heap_renew(mine);
}

/* The child of the only thread that ever had a heap needs no repair, unless another thread forked it. A thread with a heap here
 * is the forking one, as is the child's first. Another may be new, started before the forking thread took a slow path; it cannot tell
 * whose the heaps are, so they stay as they are, and missing threads' free blocks are never reused. The forking thread is in no slow
 * path meanwhile: it would wait for the repair to end, and no thread has the locks. */
static bool fork_repair(void)
{
    bool has = (hak__heap_mine()->mode & HAK_MODE_SENTINEL) == 0;
    bool forker = has || hak__syscall(SYS_gettid) == hak__syscall(SYS_getpid);
    const struct hak_regions *regions = hak_load(&hak__regions, HAK_RELAXED);
    hak__window_show();
    if (regions != NULL)
        regions->fork_child();
    if (forker)
        begin_generation(hak__heap_mine());
    if (hak__fork_alone() && has)
        return true;
    hak__lock_fork_child(&start_lock);
    hak__arena_fork_child();
    hak__report_fork_child();
    hak__upkeep_fork_child();
    if (hak__heap_last_id() != 0)
        hak__check_fork_child();
    return hak__thread_fork_child(forker);
}

/* --- start ------------------------------------------------------------------------------------------------------------ */

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
            hak__fork_begin(fork_repair, hak__thread_fork_arrive, hak__meta_wiped_word, hak__meta_is_copy);
            hak__live_open(HAK_VERSION_STRING);
            hak__near_await();
            hak_store(&started, true, HAK_RELEASE);
        }
    }
    hak__lock_release(&start_lock);
    return done;
}

bool hak__start(void)
{
    /* acquire: pairs with the release above; the arena's tables exist. */
    if (hak_unlikely(!hak_load(&started, HAK_ACQUIRE)) && (hak__os_aside() != NULL || !start_slow()))
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
