/* Start and end of the library as the loader sees them. The first allocation starts the library (start.c); the constructor does
 * what needs a working C library, and makes all system calls beyond those for memory and waiting, except those for files
 * (upkeep/nearness.h): a program may later forbid itself the others. */
#include "arena/limit.h"
#include "base/lock.h"
#include "diag/options.h"
#include "diag/report.h"
#include "guard/check.h"
#include "harden/harden.h"
#include "kinds/kind.h"
#include "os/os.h"
#include "process/process.h"
#include "profile/profile.h"
#include "sample/sample.h"
#include "stats/stats.h"
#include "trace/trace.h"
#include "trace/unwind.h"
#include "upkeep/nearness.h"
#include "upkeep/upkeep.h"

/* Whether the library prints something at a regular exit. It then keeps a descriptor, which the program can see. */
static bool speaks_at_end(void)
{
    return (hak__option(HAK_OPTION_stats) | hak__option(HAK_OPTION_warm_pool_stats) | hak__option(HAK_OPTION_shared_pool_stats)
            | hak__option(HAK_OPTION_check) | hak__option(HAK_OPTION_profile))
        != 0;
}

__attribute__((constructor(101))) void hak__library_loaded(void)
{
    if (hak__os_aside() != NULL)
        hak__warn("a sanitizer's malloc serves this program");
    if (!hak__start())
        return;
    hak__fork_handle();
    if (hak__start_options())
        hak__thread_reopen_early();
    hak__report_begin(speaks_at_end());
    hak__limit_ask_room();
    hak__thread_init();
    hak__output_signal_init();
    hak__unwind_begin();
    hak__crash_init();
    hak__guarded_begin();
    if (hak__hardened.on || hak__guarded_wanted())
        hak__trace_begin(hak__hardened.on);
    hak__canary_begin();
    hak__os_thread_init(&hak__thread_word);
    hak__profile_begin();
    hak__near_begin(hak__blackbox_begin() ? hak__blackbox_seen : NULL);
    hak__background_ready();
}

__attribute__((destructor)) static void library_ends(void)
{
    if (!hak__has_started())
        return;
    if (hak_unlikely(hak__hardened.on))
        hak__ending_check(hak__fork_alone());
    hak__profile_end();
    hak__thread_settle();
    hak__check_end("HAKMEM_CHECK, at exit");
    hak__output_at_exit();
    hak__blackbox_end();
}
