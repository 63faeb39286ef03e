/* Finds modules as the unwinder does (trace/unwind.h), without a lock. */

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bits.h"
#include "base/syscall.h"
#include "diag/report.h"
#include "os/loaded.h"
#include "trace/unwind.h"

enum { NAME = 256, FRAMES_OWN = 16, FRAMES_MOST = 64 };

/* --- lines -------------------------------------------------------------------------------------------------------------- */

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
    uintptr_t all[FRAMES_MOST + FRAMES_OWN];
    hak_assert(most <= FRAMES_MOST, "the frames and the library's own fit");
    uint32_t count = hak__unwind(all, most + FRAMES_OWN), skip = own_frames(all, count);
    count = (uint32_t)hak_min(count - skip, most);
    memcpy(frames, all + skip, count * sizeof *frames);
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
    uintptr_t frames[HAK_FRAMES_SAID];
    hak__frames_say(what, this_thread(), frames, hak__frames_here(frames, HAK_FRAMES_SAID));
}

void hak__frames_say_signal(const char *what, const void *context)
{
    uintptr_t frames[HAK_FRAMES_SAID];
    hak__frames_say(what, this_thread(), frames, hak__unwind_signal(frames, HAK_FRAMES_SAID, context));
}
