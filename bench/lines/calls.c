/* System calls: see calls.h. */
#include "calls.h"

#include "events.h"
#include "turns.h"

#include "pub_tool_guest.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_machine.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#if defined(VGA_amd64)
enum { RESULT_OFFSET = offsetof(VexGuestArchState, guest_RAX) };
#else
enum { RESULT_OFFSET = offsetof(VexGuestArchState, guest_X0) };
#endif
enum { AT_RANDOM_TYPE = 25, AT_RANDOM_BYTES = 16, CLOCK_OF_PROCESS = 2, CLOCK_OF_THREAD = 3 };
#define START_NS (1000000000ULL * 1000000)
enum { PROCESSORS = CACHE_CORES, FILES = 1024 };

static ThreadId own_follows;
static Bool lists_processors[FILES]; /* open files that say which processors there are */

void calls_own_follows(void)
{
    own_follows = VG_(get_running_tid)();
}

void calls_unmapped(Addr address, SizeT bytes)
{
    cache_forget(&events_cache, address, bytes);
}

static UInt kind_of(UInt number)
{
    switch (number) {
    case __NR_mmap:
        return CALL_MMAP;
    case __NR_munmap:
        return CALL_MUNMAP;
    case __NR_madvise:
        return CALL_MADVISE;
    case __NR_mprotect:
        return CALL_MPROTECT;
    case __NR_mremap:
        return CALL_MREMAP;
    case __NR_brk:
        return CALL_BRK;
    case __NR_mincore:
        return CALL_MINCORE;
    case __NR_futex:
        return CALL_FUTEX;
    case __NR_sched_yield:
        return CALL_YIELD;
    default:
        return CALL_OTHER;
    }
}

void calls_before(ThreadId thread, UInt number, UWord *argument, UInt count)
{
    (void)count;
    events_counted.call[kind_of(number)]++;
    turns_before_call(thread, number, argument);
}

static void set_result(ThreadId thread, UWord value)
{
    VG_(set_shadow_regs_area)(thread, 0, RESULT_OFFSET, sizeof value, (const UChar *)&value);
}

/* All processors, however many there are. */
static void all_processors(const UWord *argument, SysRes result)
{
    VG_(memset)((void *)argument[2], 0xff, sr_Res(result) < PROCESSORS / 8 ? sr_Res(result) : PROCESSORS / 8);
    if (sr_Res(result) > PROCESSORS / 8)
        VG_(memset)((char *)argument[2] + PROCESSORS / 8, 0, sr_Res(result) - PROCESSORS / 8);
}

static void note_opened(const HChar *path, UWord file)
{
    if (file < FILES)
        lists_processors[file] = VG_(strcmp)(path, "/sys/devices/system/cpu/online") == 0
                              || VG_(strcmp)(path, "/sys/devices/system/cpu/possible") == 0;
}

static void change_list(ThreadId thread, const UWord *argument, SysRes result)
{
    static const HChar text[] = "0-63\n";
    const UWord length = sizeof text - 1;
    if (argument[0] >= FILES || !lists_processors[argument[0]] || sr_Res(result) == 0 || argument[2] < length)
        return;
    VG_(memcpy)((void *)argument[1], text, length);
    set_result(thread, length);
    lists_processors[argument[0]] = False; /* what follows is the end of the file */
}

static void note_mapped(ThreadId thread, const UWord *argument, SysRes result)
{
    cache_forget(&events_cache, sr_Res(result), argument[1]);
    if (own_follows == thread)
        events_mark_own(sr_Res(result), argument[1]);
    own_follows = own_follows == thread ? 0 : own_follows;
}

/* Nothing random: a fixed sequence, so that a program does the same each time. */
static void fill(UChar *bytes, UWord count)
{
    static UInt state = 1;
    for (UWord i = 0; i < count; i++)
        bytes[i] = (UChar)((state = state * 1103515245 + 12345) >> 16);
}

void calls_fix_random(ThreadId thread)
{
    const UWord *word = (const UWord *)VG_(get_SP)(thread);
    word += 1 + word[0] + 1; /* the count of arguments, the arguments, NULL */
    while (*word++ != 0)
        continue;
    for (; word[0] != 0; word += 2)
        if (word[0] == AT_RANDOM_TYPE)
            fill((UChar *)word[1], AT_RANDOM_BYTES);
}

/* Time goes by as if every thread had a core of its own and carried out an instruction in a third of a nanosecond. */
static ULong now(void)
{
    static ULong thirds = 3 * START_NS, seen;
    thirds += (events_instructions - seen) / turns_partaking();
    seen = events_instructions;
    return thirds / 3;
}

static void set_time(UWord *time, ULong per_second)
{
    const ULong units = now() / (1000000000 / per_second);
    time[0] = units / per_second;
    time[1] = units % per_second;
}

static void follow_clock(UInt number, const UWord *argument)
{
    if (number == __NR_clock_gettime && argument[0] != CLOCK_OF_PROCESS && argument[0] != CLOCK_OF_THREAD)
        set_time((UWord *)argument[1], 1000000000);
    if (number == __NR_gettimeofday && argument[0] != 0)
        set_time((UWord *)argument[0], 1000000);
}

static void follow(ThreadId thread, UInt number, const UWord *argument, SysRes result)
{
    switch (number) {
    case __NR_sched_getaffinity:
        all_processors(argument, result);
        break;
    case __NR_openat:
        note_opened((const HChar *)argument[1], sr_Res(result));
        break;
    case __NR_read:
        change_list(thread, argument, result);
        break;
    case __NR_getcpu:
        if (argument[0] != 0)
            *(UInt *)argument[0] = (thread + PROCESSORS - 2) % PROCESSORS;
        break;
    case __NR_clock_gettime:
    case __NR_gettimeofday:
        follow_clock(number, argument);
        break;
    case __NR_getrandom:
        fill((UChar *)argument[0], sr_Res(result));
        break;
    case __NR_mmap:
        note_mapped(thread, argument, result);
        break;
    case __NR_madvise:
        if (argument[2] == 4) /* MADV_DONTNEED: the pages are gone at once */
            cache_forget(&events_cache, argument[0], argument[1]);
        break;
    default:
        break;
    }
}

void calls_after(ThreadId thread, UInt number, UWord *argument, UInt count, SysRes result)
{
    (void)count;
    if (!sr_isError(result))
        follow(thread, number, argument, result);
    turns_after_call(thread, number, argument, result);
}
