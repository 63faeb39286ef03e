/* Finds an address's kind, and what applies to any kind; addresses where no block begins; the crash report. */
#include "kinds/kind.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "arena/arena.h"
#include "arena/window.h"
#include "base/assert.h"
#include "base/syscall.h"
#include "diag/options.h"
#include "diag/report.h"
#include "heap/heap.h"
#include "stats/stats.h"
#include "trace/trace.h"
#include "trace/unwind.h"
#include "userheap/userheap.h"

#define X(name) &hak__kind_##name,
/* NULL stands for libhakmem-region's. The last one has every address. */
static const struct hak_kind *const kinds_beside[] = { HAK_KINDS_BESIDE(X) NULL, HAK_KINDS_LAST(X) };
#undef X

static const struct hak_kind *kind_with(const void *p, bool described)
{
    const struct hak_regions *regions = hak_load(&hak__regions, HAK_ACQUIRE);
    for (const struct hak_kind *const *row = kinds_beside;; row++) {
        const struct hak_kind *kind = *row != NULL || regions == NULL ? *row : regions->kind;
        if (kind != NULL && (!described || kind->describe != NULL) && kind->has(p))
            return kind;
    }
}

const struct hak_kind *hak__kind_beside(const void *p, uint32_t word)
{
    hak_assert(!hak__names_span(word) && word != hak__owner_huge(), "the word tells no kind");
    return word != 0 ? &hak__kind_none : kind_with(p, false);
}

/* --- any address -------------------------------------------------------------------------------------------------------- */

static const struct hak_kind *kind_in_slabs(size_t slab)
{
    uint32_t id = hak__owner_id(hak__owner_at(slab));
    if (id == 0 || id > hak__heap_last_id())
        return &hak__kind_none;
    const void *start = hak__span_start(hak__span_around(slab));
    return hak__kind_of(start, hak__owner_of(start));
}

/* The kind that the address belongs to, anywhere in a block; for an address right behind a huge block, that block's. */
static const struct hak_kind *kind_around(uintptr_t address)
{
    size_t offset = address - hak__window.base, super = offset >> HAK_SUPER_SHIFT, top = hak__arena_top();
    if (offset <= top << HAK_SUPER_SHIFT && hak__huge_first(super) != HAK_NO_SUPER)
        return hak__kind_of((const void *)address, hak__owner_huge());
    if (offset < top << HAK_SUPER_SHIFT && hak_load(&hak__supers[super].kind, HAK_RELAXED) == HAK_SUPER_IN_SLABS)
        return kind_in_slabs(offset >> HAK_SLAB_SHIFT);
    return kind_with((const void *)address, true);
}

void hak__describe(uintptr_t address, char *text, size_t size) { kind_around(address)->describe(address, text, size); }

const void *hak__block_around(uintptr_t address)
{
    const struct hak_kind *kind = kind_around(address);
    return kind->around == NULL ? NULL : kind->around(address);
}

void hak__check_size_slow(const void *p, size_t align, size_t n, const char *function)
{
    const struct hak_kind *kind = hak__kind_at(p);
    bool judged_later = hak__misuse_is_survived() && kind->live != NULL && !kind->live(p); /* one mistake, one report */
    if (kind->check_size != NULL && !judged_later)
        kind->check_size(p, align, n, function);
}

/* --- no block begins there -------------------------------------------------------------------------------------------- */

const char *hak__why_invalid(const void *p, uint32_t word)
{
    if (hak__slab_of(p) >= hak_read_mostly(&hak__window.slabs))
        return "not from this allocator";
    if (word == 0 && hak__spans[hak__slab_of(p)].account == HAK_SPAN_DESTROYED)
        return "its heap has been destroyed";
    if (word == 0)
        return "no block is here, or it was freed before";
    return "not the start of a block";
}

static bool none_has(const void *p) { return (void)p, true; }

static void none_free(void *p, uint32_t word, const char *function) { hak__misuse_invalid(function, p, hak__why_invalid(p, word)); }

static size_t none_usable(const void *p, const char *function)
{
    hak__misuse_invalid(function, p, hak__why_invalid(p, hak__owner_of(p)));
    return HAK_NO_BLOCK;
}

static const char *describe_in_window(uintptr_t address)
{
    size_t super = (address - hak__window.base) >> HAK_SUPER_SHIFT, offset = address - (uintptr_t)hak__super_start(super);
    if (hak_load(&hak__supers[super].kind, HAK_RELAXED) == HAK_SUPER_IN_SLABS)
        return hak__owner_of((const void *)address) == 0 ? "in a free slab" : "in a slab that is changing hands";
    if (hak__super_is_hole(super))
        return "not from this allocator";
    return offset < hak__supers[super].mapped ? "in a free SuperSlab" : "in an unmapped SuperSlab";
}

static void none_describe(uintptr_t address, char *text, size_t size)
{
    uintptr_t tables = hak__meta_begin(), base = hak__window.base;
    const char *what = "not from this allocator";
    if (address < hak__page_size())
        what = "NULL, or close to it";
    else if (address >= tables && address < base)
        what = "in the allocator's own tables";
    else if (address - base < hak__arena_top() << HAK_SUPER_SHIFT)
        what = describe_in_window(address);
    hak__format(text, size, "%s", what);
}

/* Where a huge block may have begun; NULL outside the window. */
static const void *none_around(uintptr_t address)
{
    bool inside = address - hak__window.base < hak__arena_top() << HAK_SUPER_SHIFT;
    return inside ? (const void *)(address & ~(HAK_SUPER_SIZE - 1)) : NULL;
}

const struct hak_kind hak__kind_none = {
    .has = none_has,
    .free = none_free,
    .usable = none_usable,
    .describe = none_describe,
    .around = none_around,
};

/* --- the crash report ------------------------------------------------------------------------------------------------- */

/* HAKMEM_CRASH_REPORT=1: on SIGSEGV, SIGBUS and SIGABRT one line on stderr says what the faulting address is to the
 * allocator, and the black box is written; then the signal proceeds as without the library. Everything is read without a lock,
 * because the crashed thread may hold one: a report may show a state between two others, but reads only memory that stays mapped
 * (descriptors, bins and bitmaps are never unmapped) and calls only write(2) and what restores the signal. Called by init.c.
 *
 * The handlers run on the alternative stack where the program has one, and need 1 KiB, 4 for a black box. A fault is repeated, not
 * passed on: the handler restores the former disposition and returns, the instruction faults again, and a core dump or the program's
 * own handler sees exactly what it would have seen. A signal that was sent (abort, kill) is sent again to the thread. So each
 * signal is reported once. */
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
