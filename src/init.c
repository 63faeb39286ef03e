/* Start and end of the library. The first allocation starts it, wherever that comes from (an IFUNC resolver, a
 * constructor, a thread); the constructor below does what needs a working C library, and all that takes other system
 * calls than those for memory and waiting: a program may forbid itself the others later. */
#include "init.h"

#include "arena/limit.h"
#include "arena/thp.h"
#include "base/forked.h"
#include "base/lock.h"
#include "diag/options.h"
#include "guard/check.h"
#include "guard/crash.h"
#include "guard/ending.h"
#include "guard/nothing.h"
#include "guard/sample.h"
#include "guard/trace.h"
#include "hakmem.h"
#include "os/os.h"
#include "slab/hardened.h"
#include "thread.h"
#include "upkeep/background.h"
#include "upkeep/live.h"
#include "upkeep/output.h"

static struct hak_lock init_lock = HAK_LOCK_INIT(HAK_RANK_INIT);
static _Atomic bool started;
static bool options_read;

uint32_t hak__start_mode(void)
{
    uint32_t exact = hak__option(HAK_OPTION_stats) == HAK_STATS_EXACT ? HAK_MODE_EXACT : 0;
    return exact | (hak__hardened.on ? HAK_MODE_HARDENED : 0);
}

/* When the options are known, which may be before or after the first allocation. */
static void begin_hardened(void)
{
    hak__hardened_begin();
    if (hak__hardened.on && hak__hardened.zero_size)
        hak__nothing_begin();
}

static bool start_slow(void)
{
    hak__lock_acquire(&init_lock);
    bool done = hak_load(&started, HAK_RELAXED);
    if (!done) {
        options_read = hak__options_read();
        done = hak__arena_init() == 0;
        if (done) {
            hak__heap_init();
            if (options_read)
                begin_hardened();
            hak__meta_wiped_init();
            hak__fork_init();
            hak__live_open(hak_version(), &hak__sentinel, (const char *)&hak__thread_word - hak__os_thread_pointer());
            hak_store(&started, true, HAK_RELEASE);
        }
    }
    hak__lock_release(&init_lock);
    return done;
}

bool hak__start(void)
{
    /* acquire: pairs with the release above; the arena's tables exist. */
    if (hak_unlikely(!hak_load(&started, HAK_ACQUIRE)) && !start_slow())
        return false;
    hak__fork_check();
    hak__thread_watch_forks();
    return true;
}

static const struct hak_heap *my_heap_now(void) { return hak__heap_current(); }

__attribute__((constructor(101))) static void library_loaded(void)
{
    if (!hak__start())
        return;
    if (!options_read) {
        options_read = hak__options_read();
        begin_hardened();
        hak__thread_reopen_early();
    }
    hak__limit_ask_system();
    hak__thp_look();
    hak__thread_init();
    hak__output_signal_init();
    hak__crash_init(my_heap_now);
    hak__sample_begin();
    if (hak__hardened.on || hak__sample_on())
        hak__trace_begin(hak__hardened.on);
    hak__os_thread_init(&hak__thread_word);
    hak__background_ready(hak__fork_watch);
}

__attribute__((destructor)) static void library_ends(void)
{
    if (!hak_load(&started, HAK_ACQUIRE))
        return;
    if (hak_unlikely(hak__hardened.on))
        hak__ending_check(hak__fork_alone());
    hak__check_end("HAKMEM_CHECK, at exit");
    hak__output_at_exit();
}

void hak__init_fork_child(void) { hak__lock_reset(&init_lock); }
