/* Guarded samples: taking, freeing, quarantine, and reports (sample.h). */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "arena/arena.h"
#include "arena/window.h"
#include "base/assert.h"
#include "base/bits.h"
#include "base/syscall.h"
#include "diag/report.h"
#include "harden/mode.h"
#include "os/os.h"
#include "sample/sample.h"
#include "span/shield.h"
#include "trace/unwind.h"

/* A reused slot is the oldest of PICKS random ones: old ones come first, and none is predictable. */
enum { PICKS = 4, TRIES = 16, SAMPLE_BURST = 64 };

hak_rare_data struct hak_sample hak__sample;
static _Atomic uint32_t slots_used; /* slots below this have served */
static _Atomic uint64_t frees;
static _Atomic uint64_t allowance_us; /* when the samples so far are paid off */

/* --- reports ---------------------------------------------------------------------------------------------------------- */

/* Reports about guarded samples, and the fault handler of their range. The code runs in signal handlers, on the program's
 * alternative stack if there is one (about 6 KiB): it reads the slots, calls write(2), readlink(2) and the loader's list of
 * modules, and allocates nothing.
 *
 * A reported fault repeats under the former disposition, so a core dump or the program's own handler sees it as without
 * sampling. A fault elsewhere goes to the former handler unchanged, however often it comes. A handler that the program installs
 * later replaces this one, and gets no report. */
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

static void guarded_handle_faults(void)
{
    struct sigaction ours;
    sigaction(SIGSEGV, NULL, &former_fault);
    ours = former_fault; /* keeps its mask, and whether it interrupts itself */
    ours.sa_flags = (former_fault.sa_flags & (SA_NODEFER | SA_RESTART)) | SA_SIGINFO | SA_ONSTACK;
    ours.sa_sigaction = on_fault;
    sigaction(SIGSEGV, &ours, NULL);
}

/* --- how often --------------------------------------------------------------------------------------------------- */

/* Allows as many samples per second as there are slots. Each sample moves the time at which all are paid off by its share of a
 * second, up to SAMPLE_BURST shares ahead. */
static bool rate_allows(void)
{
    uint64_t now = hak__os->now_ms() * 1000, share = 1000000 / hak__option(HAK_OPTION_sample_slots);
    uint64_t before = hak_load(&allowance_us, HAK_RELAXED), after;
    do {
        after = hak_max(before, now) + share;
        if (after > now + SAMPLE_BURST * share)
            return false;
    } while (!hak_cas_weak(&allowance_us, &before, after, HAK_RELAXED, HAK_RELAXED));
    return true;
}

/* --- slots ------------------------------------------------------------------------------------------------------- */

static struct hak_guarded_slot *slot_claim(struct hak_guarded_slot *slot, uint32_t state)
{
    /* acquire: pairs with the release of the thread that freed it; what it wrote about the block is complete. */
    bool done = hak_cas_strong(&slot->record.state, &state, HAK_SAMPLE_TAKEN, HAK_ACQUIRE, HAK_RELAXED);
    return done ? slot : NULL;
}

static struct hak_guarded_slot *next_unused(void)
{
    uint32_t count = (uint32_t)hak__option(HAK_OPTION_sample_slots), used = hak_load(&slots_used, HAK_RELAXED);
    while (used < count)
        if (hak_cas_weak(&slots_used, &used, used + 1, HAK_RELAXED, HAK_RELAXED))
            return slot_claim(&hak__sample.guarded[used], HAK_SAMPLE_UNUSED);
    return NULL;
}

static struct hak_guarded_slot *pick_freed(void)
{
    uint64_t count = hak__option(HAK_OPTION_sample_slots), random = hak__os->random();
    struct hak_guarded_slot *oldest = NULL;
    unsigned found = 0;
    for (unsigned i = 0; i < TRIES && found < PICKS; i++, random = random * 6364136223846793005ull + 1442695040888963407ull) {
        struct hak_guarded_slot *slot = &hak__sample.guarded[(random >> 32) % count];
        if (hak_load(&slot->record.state, HAK_RELAXED) != HAK_SAMPLE_FREE)
            continue;
        found++;
        if (oldest == NULL || hak_load(&slot->freed_at, HAK_RELAXED) < hak_load(&oldest->freed_at, HAK_RELAXED))
            oldest = slot;
    }
    return oldest == NULL ? NULL : slot_claim(oldest, HAK_SAMPLE_FREE);
}

static uintptr_t start_of(const struct hak_guarded_slot *slot)
{
    return hak__sample.start + (size_t)(slot - hak__sample.guarded) * HAK_GUARDED_STRIDE;
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

/* Decides where the block lies. Aligned requests may arrive as class sizes that are multiples of the alignment, so a size counts as
 * one; the pages begin at the end of the slot's first quarter, a multiple of any alignment up to the mid classes. */
static void guarded_lay_out(struct hak_guarded_slot *slot, size_t align, size_t n, bool at_end)
{
    size_t page = hak__page_size(), bytes = hak_align_up(n, page);
    align = hak_max(align, hak_min(n & (0 - n), page));
    slot->pages = start_of(slot) + HAK_GUARDED_STRIDE / 4;
    slot->page_bytes = bytes;
    slot->record.block = slot->pages + (at_end && align <= page ? bytes - hak_align_up(n, align) : 0);
}

/* The checked slack on one side of the block. */
static uint8_t *slack_before(const struct hak_guarded_slot *slot, size_t *bytes)
{
    *bytes = hak_min(slot->record.block - slot->pages, HAK_SAMPLE_SLACK_MOST);
    return (uint8_t *)slot->record.block - *bytes;
}

static uint8_t *slack_behind(const struct hak_guarded_slot *slot, size_t *bytes)
{
    uintptr_t end = slot->record.block + slot->record.counted;
    *bytes = hak_min(slot->pages + slot->page_bytes - end, HAK_SAMPLE_SLACK_MOST);
    return (uint8_t *)end;
}

static void fill_slack(const struct hak_guarded_slot *slot)
{
    size_t bytes;
    uint8_t *at = slack_before(slot, &bytes);
    memset(at, HAK_SAMPLE_SLACK_BYTE, bytes);
    at = slack_behind(slot, &bytes);
    memset(at, HAK_SAMPLE_SLACK_BYTE, bytes);
}

static const uint8_t *sample_changed(const uint8_t *at, size_t bytes)
{
    for (; bytes > 0; bytes--, at++)
        if (*at != HAK_SAMPLE_SLACK_BYTE)
            return at;
    return NULL;
}

static void sample_note(struct hak_sample_event *event)
{
    event->thread = (uint32_t)hak__syscall(SYS_gettid);
    event->frames = hak__unwind(event->trace, HAK_SAMPLE_FRAMES);
}

/* Gives up a claimed slot that got no memory, and forgets its previous block. */
static void give_up(struct hak_guarded_slot *slot, bool foreign)
{
    slot->record.block = 0;
    slot->page_bytes = 0;
    hak_store(&slot->record.state, foreign ? HAK_SAMPLE_HOLE : HAK_SAMPLE_FREE, HAK_RELEASE);
}

static bool guarded_map(struct hak_guarded_slot *slot, size_t align, size_t n)
{
    if (slot->page_bytes != 0 && !hak__guarded_unmap(slot->pages, slot->page_bytes)) {
        hak_store(&slot->record.state, HAK_SAMPLE_FREE, HAK_RELEASE); /* unmapping was refused before, and is again */
        return false;
    }
    guarded_lay_out(slot, align, n, hak__os->random() >> 32 & 1);
    int code = hak__guarded_map(slot->pages, slot->page_bytes);
    if (code != 0)
        give_up(slot, code != ENOMEM);
    return code == 0;
}

/* --- frees --------------------------------------------------------------------------------------------------------- */

/* Only the slot has the pages, so it ends as ever when the report is survived. */
static void check_slack(struct hak_guarded_slot *slot, const char *function, const char *outcome)
{
    size_t bytes;
    const uint8_t *at = slack_before(slot, &bytes), *found = sample_changed(at, bytes);
    const char *what = "underflow";
    if (found == NULL) {
        at = slack_behind(slot, &bytes);
        found = sample_changed(at, bytes);
        what = "overflow";
    }
    if (found == NULL)
        return;
    const void *block = (const void *)slot->record.block;
    hak__misuse(&(struct hak_mistake){ HAK_MISUSE_WRITTEN, function, block, hak__guarded_tell, &slot->record, outcome },
                "%s(): %s of %p (%u-byte block): %p was written before", function, what, block, (uint64_t)slot->record.counted,
                found);
}

static bool guarded_allow(const struct hak_guarded_slot *slot)
{
    return hak__shield_lift_range((const void *)slot->pages, slot->page_bytes)
        && hak__os_commit(slot->pages, slot->page_bytes) == 0;
}

void hak__guarded_lift(struct hak_record *record) { guarded_allow((struct hak_guarded_slot *)record); }

void hak__guarded_shrink(struct hak_record *record, size_t n)
{
    struct hak_guarded_slot *slot = (struct hak_guarded_slot *)record;
    size_t bytes = hak_align_up(record->block + n - slot->pages, hak__page_size());
    if (!guarded_allow(slot))
        return;
    check_slack(slot, "realloc", "the block was made shorter"); /* no later check would see it all */
    if (bytes < slot->page_bytes && hak__guarded_unmap(slot->pages + bytes, slot->page_bytes - bytes))
        slot->page_bytes = bytes;
    hak__record_shrink(record, n);
    fill_slack(slot);
}

void hak__guarded_end(struct hak_record *record, const char *function)
{
    struct hak_guarded_slot *slot = (struct hak_guarded_slot *)record;
    if (guarded_allow(slot))
        check_slack(slot, function, "the block was freed");
    sample_note(&slot->freed);
    hak__record_leave(record);
    if (hak__guarded_unmap(slot->pages, slot->page_bytes))
        slot->page_bytes = 0;
    hak_store(&slot->freed_at, hak_fetch_add(&frees, 1, HAK_RELAXED) + 1, HAK_RELAXED);
    hak_fetch_add(&hak__sample.freed, 1, HAK_RELAXED);
    /* release: pairs with the acquire of the slot's next allocation. */
    hak_store(&record->state, HAK_SAMPLE_FREE, HAK_RELEASE);
}

/* --- requests ------------------------------------------------------------------------------------------------------ */

static struct hak_record *guarded_take(size_t align, size_t n, struct hak_samples *samples)
{
    struct hak_guarded_slot *slot = next_unused();
    if (slot == NULL)
        slot = pick_freed();
    if (slot == NULL || !guarded_map(slot, align, n))
        return NULL;
    if (!hak__record_join(&slot->record, samples, n)) {
        hak_store(&slot->record.state, HAK_SAMPLE_FREE, HAK_RELEASE); /* frees its pages for the next one's */
        return NULL;
    }
    fill_slack(slot);
    slot->freed.thread = 0;
    sample_note(&slot->allocated);
    hak_fetch_add(&hak__sample.allocated, 1, HAK_RELAXED);
    return &slot->record;
}

struct hak_record *hak__guarded_take(size_t align, size_t n, struct hak_samples *samples)
{
    hak_assert(n <= HAK_MID_MAX && align <= HAK_SLAB_SIZE, "a slot has room for the block");
    struct hak_record *record = rate_allows() ? guarded_take(align, hak_max(n, 1), samples) : NULL;
    if (record == NULL)
        hak_fetch_add(&hak__sample.refused, 1, HAK_RELAXED);
    return record;
}

/* --- start --------------------------------------------------------------------------------------------------------- */

_Static_assert(HAK_GUARDED_STRIDE / 4 + HAK_MID_MAX + (64u << 10) <= HAK_GUARDED_STRIDE, "a page of nothing behind blocks");

void hak__guarded_begin(void)
{
    size_t count = hak__option(HAK_OPTION_sample_slots);
    if (!hak__guarded_wanted() || hak__sample.guarded != NULL || count * HAK_GUARDED_STRIDE > hak__guarded_size())
        return;
    hak__sample.guarded = hak__meta_alloc(count * sizeof *hak__sample.guarded);
    if (hak__sample.guarded == NULL)
        return;
    hak__sample.start = hak__guarded_start();
    hak__sample.bytes = count * HAK_GUARDED_STRIDE;
    hak_store(&hak__hardened.open, true, HAK_RELAXED); /* requests check it from now on */
    guarded_handle_faults();
}
