/* The report and the handlers. Everything is read without a lock, because whoever holds one may be the very
 * thread that crashed: a report may be of a state between two others, but it only reads memory that stays mapped
 * (descriptors, bins and bitmaps are never unmapped) and calls nothing but write(2) and what restores the signal.
 *
 * The handlers run on the alternative stack where the program has one, and need about 1 KiB. A fault is not passed on but
 * repeated: with the former disposition in place the handler returns, the instruction faults again, and a core dump or
 * the program's own handler sees exactly what it would have seen. A signal that was sent (abort, kill) is sent again to
 * the thread. Each signal is therefore reported once. */
#include "guard/crash.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "arena/meta.h"
#include "arena/regions.h"
#include "base/syscall.h"
#include "cache/cache.h"
#include "cache/quarantine.h"
#include "diag/options.h"
#include "diag/report.h"
#include "sample/sample.h"
#include "trace/frames.h"
#include "trace/trace.h"

enum { SIGNALS = 3, DESCRIPTION = 200 };

static const struct crash_signal {
    const char *name;
    int number;
} crash_signals[SIGNALS] = { { "SIGSEGV", SIGSEGV }, { "SIGBUS", SIGBUS }, { "SIGABRT", SIGABRT } };

static hak_rare_data struct sigaction former_actions[SIGNALS];

/* --- blocks of size classes --------------------------------------------------------------------------------------- */

static bool crash_among(void *const *from, void *const *to, const void *block)
{
    for (; from < to; from++)
        if (*from == block)
            return true;
    return false;
}

/* Whether a heap has the block in its bin, outbox or quarantine: freed, and not yet given back to its span. */
static bool crash_holds(struct hak_heap *heap, uint32_t class, const void *block)
{
    void **bottom = heap->classes[class].bottom;
    if (bottom != NULL && crash_among(bottom, bottom + hak__cache_count(heap, class), block))
        return true;
    for (unsigned i = 0; i < HAK_OUTBOX_BUCKETS; i++) {
        const struct hak_outbox_bucket *bucket = &heap->outbox_buckets[i];
        size_t taken = hak_load(&bucket->taken, HAK_RELAXED), count = hak_load(&bucket->count, HAK_RELAXED);
        if (bucket->slab != 0 && taken <= count && count <= HAK_OUTBOX_BLOCKS
            && crash_among(bucket->blocks + taken, bucket->blocks + count, block))
            return true;
    }
    return hak__quarantine_has(heap, block);
}

static bool held_by_any(uint32_t class, const void *block)
{
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++) {
        struct hak_heap *heap = hak__heap_by_id(id);
        if (hak_load(&heap->state, HAK_RELAXED) != HAK_HEAP_NEW && crash_holds(heap, class, block))
            return true;
    }
    return false;
}

static const char *state_of(const struct hak_span *span, uint32_t index, const void *block)
{
    if (index >= span->frontier)
        return "never handed out";
    if (span->free[index / 64] >> index % 64 & 1)
        return "free";
    if (hak_load(&span->remote[index / 64], HAK_RELAXED) >> index % 64 & 1)
        return "free";
    return held_by_any(span->class, block) ? "free" : "live";
}

static const char *owner_of_heap(uint32_t id)
{
    uint32_t state = hak_load(&hak__heap_by_id(id)->state, HAK_RELAXED);
    if (hak__heap_current()->id == id)
        return "this thread's";
    return state == HAK_HEAP_PARKED ? "parked" : state == HAK_HEAP_UNUSABLE ? "lost by a fork" : "another thread's";
}

static void describe_in_span(size_t slab, uint32_t owner, uintptr_t address, char *text, size_t size)
{
    const struct hak_span *span = hak__span_around(slab);
    uintptr_t start = (uintptr_t)hak__span_start(span);
    size_t bytes = hak__classes[span->class].size, index = (address - start) / bytes;
    if (index >= span->blocks) {
        hak__format(text, size, "behind the last block of a slab of %u-byte blocks", (uint64_t)bytes);
        return;
    }
    const void *block = (const void *)(start + index * bytes);
    hak__format(text, size, "inside a %s block of %u bytes, offset %u (block %p, heap %u, %s)",
                state_of(span, (uint32_t)index, block), (uint64_t)bytes, (uint64_t)(address - (uintptr_t)block), block,
                (uint64_t)owner, owner_of_heap(owner));
}

/* --- SuperSlabs --------------------------------------------------------------------------------------------------- */

/* The SuperSlab in which the huge run that reaches into `super` begins. */
static size_t huge_start(size_t super)
{
    while (super > 0 && hak_load(&hak__supers[super].kind, HAK_RELAXED) == HAK_SUPER_HUGE_TAIL)
        super--;
    return super;
}

/* Describes an address in a SuperSlab of a huge run, or right behind one. */
static void describe_huge(size_t first, uintptr_t address, char *text, size_t size)
{
    size_t bytes = hak_load(&hak__supers[first].huge_bytes, HAK_RELAXED);
    const char *block = hak__super_start(first);
    size_t offset = address - (uintptr_t)block;
    bool live = hak__owner_id(hak__owner_of(block)) == HAK_HEAP_ID_HUGE;
    if (offset < bytes)
        hak__format(text, size, "inside a %s huge block of %u bytes, offset %u (block %p)", live ? "live" : "free",
                    (uint64_t)bytes, (uint64_t)offset, block);
    else
        hak__format(text, size, "%u bytes beyond the end of a huge block of %u bytes (block %p)",
                    (uint64_t)(offset - bytes), (uint64_t)bytes, block);
}

static bool is_huge(size_t super)
{
    uint32_t kind = hak_load(&hak__supers[super].kind, HAK_RELAXED);
    return kind == HAK_SUPER_HUGE || kind == HAK_SUPER_HUGE_TAIL;
}

/* Whether what lies behind may have been meant for a huge block: not where a freed one waits (arena/waiting.h). */
static bool is_live_huge(size_t super)
{
    return is_huge(super) && hak__owner_at(huge_start(super) * HAK_SUPER_SLABS) == hak__owner_huge();
}

static void describe_in_slabs(uintptr_t address, char *text, size_t size)
{
    size_t slab = hak__slab_of((const void *)address);
    uint32_t word = hak__owner_at(slab), id = hak__owner_id(word);
    if (word == 0)
        hak__format(text, size, "in a free slab");
    else if (id != 0 && id <= hak__heap_last_id())
        describe_in_span(slab, id, address, text, size);
    else
        hak__format(text, size, "in a slab that is changing hands");
}

static void describe_in_window(uintptr_t address, char *text, size_t size)
{
    size_t super = (address - hak__window.base) >> HAK_SUPER_SHIFT;
    size_t offset = address - (uintptr_t)hak__super_start(super);
    uint32_t kind = hak_load(&hak__supers[super].kind, HAK_RELAXED);
    if (is_huge(super))
        describe_huge(huge_start(super), address, text, size);
    else if (kind == HAK_SUPER_IN_SLABS)
        describe_in_slabs(address, text, size);
    else if (hak__super_is_hole(super))
        hak__format(text, size, "not from this allocator");
    else if (super > 0 && is_live_huge(super - 1))
        describe_huge(huge_start(super - 1), address, text, size);
    else if (offset < hak__supers[super].mapped)
        hak__format(text, size, "in a free SuperSlab");
    else
        hak__format(text, size, "in an unmapped SuperSlab");
}

void hak__crash_describe(uintptr_t address, char *text, size_t size)
{
    uintptr_t tables = hak__meta_start(HAK_META_FIRST), base = hak__window.base;
    size_t top = hak__arena_top();
    uintptr_t end = base + (top << HAK_SUPER_SHIFT);
    if (address < hak__page_size())
        hak__format(text, size, "NULL, or close to it");
    else if (hak__sample_has((const void *)address))
        hak__sample_describe(address, text, size);
    else if (address >= tables && address < base)
        hak__format(text, size, "in the allocator's own tables");
    else if (address >= base && address < end)
        describe_in_window(address, text, size);
    else if (address == end && top > 0 && is_live_huge(top - 1))
        describe_huge(huge_start(top - 1), address, text, size);
    else
        hak__format(text, size, "not from this allocator");
}

/* The block around an address in a span or a huge block; NULL: none. */
static const void *block_around(uintptr_t address)
{
    size_t slab = hak__slab_of((const void *)address), super = slab / HAK_SUPER_SLABS;
    if (address - hak__window.base >= hak__arena_top() << HAK_SUPER_SHIFT)
        return NULL;
    if (is_huge(super))
        return hak__super_start(huge_start(super));
    uint32_t id = hak__owner_id(hak__owner_at(slab));
    if (hak_load(&hak__supers[super].kind, HAK_RELAXED) != HAK_SUPER_IN_SLABS || id == 0 || id > hak__heap_last_id())
        return (const void *)(address & ~(HAK_SUPER_SIZE - 1));   /* where a huge block may have begun */
    const struct hak_span *span = hak__span_around(slab);
    size_t bytes = hak__classes[span->class].size;
    return hak__span_start(span) + (address - (uintptr_t)hak__span_start(span)) / bytes * bytes;
}

/* In the modes in which reports have stacks. */
static void tell_stacks(int number, const siginfo_t *info, const void *context)
{
    if (hak__misuse_more == NULL || number == SIGABRT || info->si_code <= 0 || info->si_code == SI_KERNEL)
        return;
    hak__frames_say_signal("accessed", context);
    const void *block = block_around((uintptr_t)info->si_addr);
    if (block != NULL)
        hak__trace_tell(block);
}

/* --- signals ------------------------------------------------------------------------------------------------------ */

/* A fault of the thread's own, which happens again when the handler returns; si_code is positive for those. */
static bool is_fault(int number, const siginfo_t *info) { return number != SIGABRT && info->si_code > 0; }

static void report_crash(const char *name, int number, const siginfo_t *info)
{
    char text[DESCRIPTION];
    if (!is_fault(number, info)) {
        hak__warn("crash: %s, sent by %s", name, info->si_pid == hak__syscall(SYS_getpid) ? "the program itself" : "another process");
    } else if (number == SIGSEGV && info->si_code == SI_KERNEL) {
        hak__warn("crash: %s without an address: one that no memory can have, perhaps", name);
    } else {
        hak__crash_describe((uintptr_t)info->si_addr, text, sizeof text);
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
        report_crash(crash_signals[i].name, number, info);
        tell_stacks(number, info, context);
    }
    if (!is_fault(number, info))
        hak__syscall(SYS_tgkill, hak__syscall(SYS_getpid), hak__syscall(SYS_gettid), number);
    errno = saved;
}

void hak__crash_init(void)
{
    struct sigaction ours = { .sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    if (hak__option(HAK_OPTION_crash_report) == 0)
        return;
    for (unsigned i = 0; i < SIGNALS; i++)
        sigaction(crash_signals[i].number, &ours, &former_actions[i]);
}
