/* Reports about guarded samples, and the fault handler of their range. The code runs in signal handlers, on the program's
 * alternative stack if there is one (about 6 KiB): it reads the slots, calls write(2), readlink(2) and the loader's list of
 * modules, and allocates nothing.
 *
 * A reported fault repeats under the former disposition, so a core dump or the program's own handler sees it as without
 * sampling. A fault elsewhere goes to the former handler unchanged, however often it comes. A handler that the program installs
 * later replaces this one, and gets no report. */
#include <errno.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/syscall.h"
#include "diag/report.h"
#include "sample/sample.h"
#include "trace/unwind.h"

static void say_event(const char *what, const struct hak_sample_event *event)
{
    hak__frames_say(what, event->thread, event->trace, event->frames);
}

void hak__guarded_tell(const struct hak_record *record)
{
    const struct hak_guarded_slot *slot = (const struct hak_guarded_slot *)record;
    uint32_t state = hak_load(&record->state, HAK_ACQUIRE);
    if (record->block == 0 || state < HAK_SAMPLE_LIVE || state == HAK_SAMPLE_HOLE)
        return;
    hak__warn("  sampled block of %u bytes at %p", (uint64_t)record->counted, (void *)record->block);
    say_event("allocated", &slot->allocated);
    if (slot->freed.thread != 0)
        say_event("freed", &slot->freed);
}

/* --- faults ------------------------------------------------------------------------------------------------------------- */

static hak_rare_data struct sigaction former_fault;

#if defined(__x86_64__)
static const char *access_of(const void *context)
{
    const ucontext_t *at = context;
    return (at->uc_mcontext.gregs[REG_ERR] & 2) != 0 ? "write" : "read";
}
#else
static const char *access_of(const void *context) { return (void)context, "access"; }
#endif

static const char *fault_kind(const struct hak_record *record, uintptr_t address)
{
    if (hak_load(&record->state, HAK_ACQUIRE) != HAK_SAMPLE_LIVE)
        return "use after free";
    return address < record->block ? "underflow" : "overflow";
}

static void report_fault(uintptr_t address, const void *context)
{
    const struct hak_record *record = hak__sample_record_of((const void *)address);
    char text[160];
    hak__record_describe(record, address, text, sizeof text);
    if (record->block == 0) {
        hak__warn("%s at %p: %s", access_of(context), (void *)address, text);
        return;
    }
    hak__warn("%s: %s at %p: %s", fault_kind(record, address), access_of(context), (void *)address, text);
    hak__frames_say_signal("accessed", context);
    hak__guarded_tell(record);
}

/* Passes the signal to the former disposition: resends a signal that was sent; a fault recurs by itself. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    bool sent = info->si_code <= 0, handled = (former_fault.sa_flags & SA_SIGINFO) != 0;
    if (handled) {
        former_fault.sa_sigaction(number, info, context);
    } else if (former_fault.sa_handler == SIG_IGN && sent) {
        return;
    } else if (former_fault.sa_handler != SIG_DFL && former_fault.sa_handler != SIG_IGN) {
        former_fault.sa_handler(number);
    } else {
        sigaction(number, &former_fault, NULL);
        if (sent)
            hak__syscall(SYS_tgkill, hak__syscall(SYS_getpid), hak__syscall(SYS_gettid), number);
    }
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    if (info->si_code > 0 && info->si_code != SI_KERNEL && hak__guarded_has(info->si_addr)) {
        report_fault((uintptr_t)info->si_addr, context);
        sigaction(number, &former_fault, NULL);
    } else {
        pass_on(number, info, context);
    }
    errno = saved;
}

void hak__guarded_handle_faults(void)
{
    struct sigaction ours;
    sigaction(SIGSEGV, NULL, &former_fault);
    ours = former_fault; /* keeps its mask, and whether it interrupts itself */
    ours.sa_flags = (former_fault.sa_flags & (SA_NODEFER | SA_RESTART)) | SA_SIGINFO | SA_ONSTACK;
    ours.sa_sigaction = on_fault;
    sigaction(SIGSEGV, &ours, NULL);
}
