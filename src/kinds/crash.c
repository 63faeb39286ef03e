/* Crash report (HAKMEM_CRASH_REPORT=1): on SIGSEGV, SIGBUS and SIGABRT one line on stderr says what the faulting address is to the
 * allocator, and the black box is written; then the signal proceeds as without the library. Everything is read without a lock,
 * because the crashed thread may hold one: a report may show a state between two others, but reads only memory that stays mapped
 * (descriptors, bins and bitmaps are never unmapped) and calls only write(2) and what restores the signal. Called by init.c.
 *
 * The handlers run on the alternative stack where the program has one, and need 1 KiB, 4 for a black box. A fault is repeated, not
 * passed on: the handler restores the former disposition and returns, the instruction faults again, and a core dump or the program's
 * own handler sees exactly what it would have seen. A signal that was sent (abort, kill) is sent again to the thread. So each
 * signal is reported once. */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "base/syscall.h"
#include "diag/options.h"
#include "diag/report.h"
#include "kinds/kind.h"
#include "stats/stats.h"
#include "trace/trace.h"
#include "trace/unwind.h"

enum { SIGNALS = 3, DESCRIPTION = 200 };

static const struct crash_signal {
    const char *name;
    int number;
} crash_signals[SIGNALS] = { { "SIGSEGV", SIGSEGV }, { "SIGBUS", SIGBUS }, { "SIGABRT", SIGABRT } };

static hak_rare_data struct sigaction former_actions[SIGNALS];

/* For modes whose reports have stacks. */
static void tell_stacks(int number, const siginfo_t *info, const void *context)
{
    if (hak__misuse_more == NULL || number == SIGABRT || info->si_code <= 0 || info->si_code == SI_KERNEL)
        return;
    hak__frames_say_signal("accessed", context);
    const void *block = hak__block_around((uintptr_t)info->si_addr);
    if (block != NULL)
        hak__trace_tell(block);
}

/* --- signals ------------------------------------------------------------------------------------------------------ */

/* A fault of this thread, which recurs when the handler returns; its si_code is positive. */
static bool is_fault(int number, const siginfo_t *info) { return number != SIGABRT && info->si_code > 0; }

static void report_crash(const char *name, int number, const siginfo_t *info)
{
    char text[DESCRIPTION];
    if (!is_fault(number, info)) {
        hak__warn("crash: %s, sent by %s", name,
                  info->si_pid == hak__syscall(SYS_getpid) ? "the program itself" : "another process");
    } else if (number == SIGSEGV && info->si_code == SI_KERNEL) {
        hak__warn("crash: %s without an address, perhaps a non-canonical one", name);
    } else {
        hak__describe((uintptr_t)info->si_addr, text, sizeof text);
        hak__warn("crash: %s at %p: %s", name, info->si_addr, text);
    }
}

static void on_crash(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    for (unsigned i = 0; i < SIGNALS; i++) {
        if (crash_signals[i].number != number)
            continue;
        sigaction(number, &former_actions[i], NULL);
        if (hak__option(HAK_OPTION_crash_report) != 0) {
            report_crash(crash_signals[i].name, number, info);
            tell_stacks(number, info, context);
        }
        hak__blackbox_crash(number, is_fault(number, info) ? (uintptr_t)info->si_addr : 0);
    }
    if (!is_fault(number, info))
        hak__syscall(SYS_tgkill, hak__syscall(SYS_getpid), hak__syscall(SYS_gettid), number);
    errno = saved;
}

void hak__crash_init(void)
{
    struct sigaction ours = { .sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    if ((hak__option(HAK_OPTION_crash_report) | hak__option(HAK_OPTION_blackbox)) == 0)
        return;
    for (unsigned i = 0; i < SIGNALS; i++)
        sigaction(crash_signals[i].number, &ours, &former_actions[i]);
}
