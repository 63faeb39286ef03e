/* See trace.h. */
#include "trace/trace.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "arena/window.h"
#include "base/assert.h"
#include "base/bits.h"
#include "base/syscall.h"
#include "diag/report.h"
#include "os/loaded.h"
#include "trace/unwind.h"

struct hak_trace_tables hak__trace_tables;

/* --- stacks ---------------------------------------------------------------------------------------------------------------- */

/* A new stack replaces the slot written least often. 0: another thread is writing there, or stopped for good while it was. */
static uint32_t put_stack(size_t set, const uintptr_t *frames, const uint16_t *places, uint32_t count)
{
    struct hak_trace *to = hak__trace_at(set, 0);
    for (unsigned way = 1; way < TRACE_WAYS; way++)
        if (hak_load(&hak__trace_at(set, way)->edition, HAK_RELAXED) < hak_load(&to->edition, HAK_RELAXED))
            to = hak__trace_at(set, way);
    uint32_t edition = hak_load(&to->edition, HAK_RELAXED);
    /* acquire: no later write is seen before the odd edition; pairs with the release at the end. */
    if ((edition & 1) != 0 || !hak_cas_strong(&to->edition, &edition, edition + 1, HAK_ACQUIRE, HAK_RELAXED))
        return 0;
    hak_owner_store(&to->count, count);
    uint64_t packed[HAK_HERE_FRAMES / 4] = { 0 };
    for (uint32_t i = 0; i < HAK_HERE_FRAMES; i++) {
        uint32_t from = i < count ? i : count > 1;
        hak_owner_store(&to->frames[i], frames[from]);
        packed[i / 4] |= (uint64_t)places[from] << i % 4 * 16;
    }
    for (uint32_t i = 0; i < HAK_HERE_FRAMES / 4; i++)
        hak_owner_store(&to->places[i], packed[i]);
    hak_store(&to->edition, edition + 2, HAK_RELEASE);
    return hak__trace_id(to, edition + 2);
}

/* The caller alone makes one stack, wherever it was called from. */
static uint32_t caller_alone(const struct hak_here *here)
{
    static const uint16_t place = 0;
    struct hak_here caller = { ~here->pc, 0, 0, 0 };
    size_t set = hak__trace_set(&caller);
    for (unsigned way = 0; way < TRACE_WAYS; way++) {
        uint32_t id = hak__trace_match(hak__trace_at(set, way), &caller);
        if (id != 0)
            return id;
    }
    return put_stack(set, &caller.pc, &place, 1);
}

uint32_t hak__trace_slow(struct hak_heap *heap, const struct hak_here *here, size_t set)
{
    struct hak_quarantine *quarantine = (heap->mode & HAK_MODE_SENTINEL) != 0 ? NULL : heap->quarantine;
    uintptr_t frames[HAK_HERE_FRAMES];
    uint16_t places[HAK_HERE_FRAMES];
    if (quarantine != NULL && quarantine->unwinds_left == 0)
        return caller_alone(here);
    if (quarantine != NULL)
        quarantine->unwinds_left--;
    return put_stack(set, frames, places, hak__unwind_here(here, frames, places));
}

/* --- reports --------------------------------------------------------------------------------------------------------------- */

/* The stack of an id; 0: it has been replaced. */
static uint32_t frames_of(uint32_t id, uintptr_t *frames)
{
    const struct hak_trace *trace = &hak__trace_tables.stacks[id & ((1u << TRACE_INDEX_BITS) - 1)];
    uint32_t edition = hak_load(&trace->edition, HAK_ACQUIRE), count = hak_peek(&trace->count);
    if (hak__trace_id(trace, edition) != id || (edition & 1) != 0 || count > HAK_HERE_FRAMES)
        return 0;
    for (uint32_t i = 0; i < count; i++)
        frames[i] = hak_min(hak_peek(&trace->frames[i]), ~hak_peek(&trace->frames[i])); /* of a caller alone, the complement */
    return hak_load(&trace->edition, HAK_ACQUIRE) == edition ? count : 0;
}

static void say_call(const char *what, uint32_t id)
{
    uintptr_t frames[HAK_HERE_FRAMES];
    uint32_t count = id == 0 ? 0 : frames_of(id, frames);
    if (count != 0)
        hak__frames_say(what, 0, frames, count);
}

/* Blocks that are no block of a class have the least shift. */
static unsigned shift_of(const void *p)
{
    uint32_t word = hak__owner_of(p);
    bool classed = word != 0 && hak__owner_has_class(word);
    return classed ? hak__hardened.shift[hak__owner_class(word)] : TRACE_LEAST_SHIFT;
}

void hak__trace_tell(const void *p)
{
    uint64_t rest;
    uint32_t made;
    if (hak__trace_tables.stacks == NULL || (uintptr_t)p % HAK_ALIGN != 0 || !hak__trace_known(p, shift_of(p), &made, &rest))
        return;
    say_call("allocated", made);
    say_call("freed", (uint32_t)(rest >> 32));
}

void hak__trace_tell_mistake(const struct hak_mistake *mistake)
{
    hak__frames_say_here("called");
    if (mistake->tell != NULL)
        mistake->tell(mistake->sample);
    else
        hak__trace_tell(mistake->p);
}

bool hak__trace_asked(const void *p, size_t *n)
{
    uint64_t rest = TRACE_ASKED_UNKNOWN;
    uint32_t made;
    hak_assert((uintptr_t)p % HAK_ALIGN == 0, "a block begins there");
    bool known = hak__trace_tables.stacks != NULL && hak__trace_known(p, shift_of(p), &made, &rest);
    *n = (uint32_t)rest;
    return known && *n != TRACE_ASKED_UNKNOWN;
}

void hak__trace_begin(bool hardened)
{
    hak__misuse_more = hak__trace_tell_mistake;
    if (!hardened || hak__trace_tables.stacks != NULL)
        return;
    struct hak_trace_block *blocks = hak__meta_alloc(sizeof *blocks << TRACE_BLOCKS_SHIFT);
    struct hak_trace *stacks = hak__meta_alloc(sizeof *stacks * TRACE_SETS * TRACE_WAYS);
    if (blocks == NULL || stacks == NULL)
        return;
    hak__trace_tables.blocks = blocks;
    hak__trace_tables.stacks = stacks;
}

/* --- stacks of calls, for a reader ------------------------------------------------------------------------------------ */

/* Finds modules as the unwinder does (unwind.h), without a lock. */

enum { NAME = 256 };

static void say_frame(unsigned number, uintptr_t address)
{
    char program[NAME];
    struct hak_module module = { .name = NULL };
    if (hak__loaded_at(address, &module) && module.name[0] == 0) {
        long length = hak__syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", program, sizeof program - 1);
        program[length < 0 ? 0 : length] = 0;
        module.name = program;
    }
    if (module.name == NULL)
        hak__warn("    #%u %p", (uint64_t)number, (void *)address);
    else
        hak__warn("    #%u %p %s+%p", (uint64_t)number, (void *)address, module.name, (void *)(address - module.base));
}

/* The library's own frames at the top; linked into the program they cannot be recognised. */
static uint32_t own_frames(const uintptr_t *frames, uint32_t count)
{
    struct hak_module own;
    uint32_t skip = 0;
    if (!hak__loaded_at((uintptr_t)hak__frames_say, &own) || own.name[0] == 0)
        return 0;
    while (skip < count && frames[skip] - own.start < own.end - own.start)
        skip++;
    return skip == count ? 0 : skip;
}

uint32_t hak__frames_here(uintptr_t *frames, uint32_t most)
{
    hak_assert(most != 0, "there is room for a frame");
    uint32_t count = hak__unwind(frames, most + HAK_FRAMES_OWN), skip = own_frames(frames, count);
    count = (uint32_t)hak_min(count - skip, most);
    memmove(frames, frames + skip, count * sizeof *frames);
    return count;
}

void hak__frames_say(const char *what, uint32_t thread, const uintptr_t *frames, uint32_t count)
{
    uint32_t skip = own_frames(frames, count);
    const char *none = count == 0 ? " (no stack trace)" : ":";
    if (thread != 0)
        hak__warn("  %s by thread %u%s", what, (uint64_t)thread, none);
    else
        hak__warn("  %s%s", what, none);
    frames += skip;
    count -= skip;
    for (uint32_t i = 0; i < count && i < HAK_FRAMES_SAID; i++)
        say_frame(i, frames[i]);
}

static uint32_t this_thread(void) { return (uint32_t)hak__syscall(SYS_gettid); }

void hak__frames_say_here(const char *what)
{
    uintptr_t frames[HAK_FRAMES_SAID + HAK_FRAMES_OWN];
    hak__frames_say(what, this_thread(), frames, hak__frames_here(frames, HAK_FRAMES_SAID));
}

void hak__frames_say_signal(const char *what, const void *context)
{
    uintptr_t frames[HAK_FRAMES_SAID];
    hak__frames_say(what, this_thread(), frames, hak__unwind_signal(frames, HAK_FRAMES_SAID, context));
}
