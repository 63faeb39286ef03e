/* Turns of threads: see turns.h.  One word per thread is what it sleeps on until its turn comes. */
#include "turns.h"

#include "pub_tool_guest.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"
#include "valgrind_core.h"

enum { TURNS_MOST = 4096, FUTEX_WAIT_ALONE = 0x80, FUTEX_WAKE_ALONE = 0x81, FUTEX_MASK = 0x7f };
enum { F_WAIT = 0, F_WAKE = 1, F_WAIT_BITSET = 9, F_WAKE_BITSET = 10 };
enum { NAP_NS = 20000, NAPS = 500000, PATIENCE_NS = 50000000, PATIENCE = 60, LONG_SLEEP_NS = 100000000 };

struct thread {
    Bool partakes;
    Bool in_call;
    Bool leaves;   /* the call it is in has taken it out of the round */
    UWord waits_at; /* the futex that it waits for, or 0 */
    Int kernel_id;
    UInt asleep;   /* who waited at the futex before this thread's call woke some */
    Int left;    /* blocks of code that its turn still has */
    Int granted; /* of them, what the core lets it run at once */
    ULong random;
    volatile UInt go;
};

static struct thread thread[TURNS_MOST];
static ThreadId turn;     /* 0: nobody takes part */
static ThreadId settling; /* has just begun to wait in the kernel, perhaps */
static ThreadId highest;
static UInt mean_blocks;
static ULong first_seed, waits;

enum { UNLIMITED = 0x7fffffff };

static ULong draw(ULong *state)
{
    ULong z = (*state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

static void begin_turn(ThreadId id)
{
    thread[id].left = mean_blocks == 0 ? UNLIMITED : 1 + (Int)(draw(&thread[id].random) % (2 * mean_blocks - 1));
}

void turns_init(UInt mean, ULong seed)
{
    mean_blocks = mean;
    first_seed = seed;
    turns_created(1);
}

void turns_created(ThreadId id)
{
    tl_assert(id < TURNS_MOST);
    thread[id] = (struct thread){.partakes = True, .random = first_seed + id * 0xd1342543de82ef95ULL, .go = thread[id].go};
    begin_turn(id);
    if (id > highest)
        highest = id;
    if (turn == 0)
        turn = id;
}

ULong turns_waits(void)
{
    return waits;
}

UInt turns_partaking(void)
{
    UInt found = 0;
    for (ThreadId id = 1; id <= highest; id++)
        found += thread[id].partakes;
    return found > 0 ? found : 1;
}

static void raw_futex(volatile UInt *word, Int operation, UInt value, const struct vki_timespec *limit)
{
    VG_(do_syscall)(__NR_futex, (RegWord)word, (RegWord)operation, value, (RegWord)limit, 0, 0, 0, 0);
}

static void pass_turn(void)
{
    const ThreadId from = turn;
    ThreadId next = 0;
    for (UInt step = 1; step <= highest && next == 0; step++) {
        ThreadId candidate = (from + step - 1) % highest + 1;
        if (thread[candidate].partakes)
            next = candidate;
    }
    turn = next;
    if (next != 0) {
        begin_turn(next);
        thread[next].go++;
        raw_futex(&thread[next].go, FUTEX_WAKE_ALONE, 1, NULL);
    }
}

/* Lets others have valgrind's lock for a moment. */
static void nap(ThreadId id)
{
    static const struct vki_timespec moment = {0, NAP_NS};
    VG_(release_BigLock)(id, CORE_YIELDING, "lines: nap");
    VG_(do_syscall)(__NR_nanosleep, (RegWord)&moment, 0, 0, 0, 0, 0, 0, 0);
    VG_(acquire_BigLock)(id, "lines: nap");
}

/* Whether the kernel says that a thread sleeps in the futex that it waits for; True where it says nothing. */
static Bool sleeps(const struct thread *waiter)
{
    HChar path[64], text[64], expected[64];
    VG_(sprintf)(path, "/proc/self/task/%d/syscall", waiter->kernel_id);
    SysRes opened = VG_(open)(path, VKI_O_RDONLY, 0);
    if (sr_isError(opened))
        return True;
    Int length = VG_(read)((Int)sr_Res(opened), text, sizeof text - 1);
    VG_(close)((Int)sr_Res(opened));
    if (length <= 0)
        return True;
    text[length] = 0;
    VG_(sprintf)(expected, "%d 0x%lx ", __NR_futex, waiter->waits_at);
    return VG_(strncmp)(text, expected, VG_(strlen)(expected)) == 0;
}

static void settle(ThreadId id)
{
    const ThreadId waiter = settling;
    for (UInt i = 0; i < NAPS && settling == waiter && thread[waiter].waits_at != 0 && !sleeps(&thread[waiter]); i++)
        nap(id);
    if (settling == waiter)
        settling = 0;
}

/* Gives up on a thread that sits in a call which nobody foresaw. */
static void lose_patience(void)
{
    if (turn != 0 && thread[turn].in_call) {
        thread[turn].partakes = False;
        thread[turn].leaves = True;
        pass_turn();
    }
}

/* The core counts blocks down in the thread's own state, from what is left of its quantum. */
static void grant(ThreadId id)
{
    Int quantum;
    VG_(get_shadow_regs_area)(id, (UChar *)&quantum, 0, offsetof(VexGuestArchState, host_EvC_COUNTER), sizeof quantum);
    Int granted = thread[id].left < quantum ? thread[id].left : quantum;
    VG_(set_shadow_regs_area)(id, 0, offsetof(VexGuestArchState, host_EvC_COUNTER), sizeof granted, (const UChar *)&granted);
    thread[id].granted = granted;
}

void turns_wait(ThreadId id)
{
    static const struct vki_timespec limit = {0, PATIENCE_NS};
    UInt rounds = 0;
    if (thread[id].left <= 0 && turn == id)
        pass_turn(); /* only here: a system call that ends a turn still belongs to it */
    ThreadId seen = turn;
    while (turn != id && thread[id].partakes && !VG_(is_exiting)(id)) {
        const UInt go = thread[id].go;
        VG_(release_BigLock)(id, CORE_YIELDING, "lines: turn");
        raw_futex(&thread[id].go, FUTEX_WAIT_ALONE, go, &limit);
        VG_(acquire_BigLock)(id, "lines: turn");
        rounds = turn == seen && thread[id].go == go ? rounds + 1 : 0;
        seen = turn;
        if (rounds >= PATIENCE)
            lose_patience();
    }
    if (settling != 0 && settling != id)
        settle(id);
    grant(id);
}

void turns_pause(ThreadId id)
{
    Int rest;
    VG_(get_shadow_regs_area)(id, (UChar *)&rest, 0, offsetof(VexGuestArchState, host_EvC_COUNTER), sizeof rest);
    thread[id].left -= mean_blocks == 0 ? 0 : thread[id].granted - (rest > 0 ? rest : 0);
}

void turns_ended(ThreadId id)
{
    thread[id].partakes = False;
    if (settling == id)
        settling = 0;
    if (turn == id)
        pass_turn();
}

static void leave(ThreadId id)
{
    thread[id].partakes = False;
    thread[id].leaves = True;
    if (turn == id)
        pass_turn();
}

static Bool is_wait(UInt number, const UWord *argument)
{
    const UWord operation = argument[1] & FUTEX_MASK;
    return number == __NR_futex && (operation == F_WAIT || operation == F_WAIT_BITSET);
}

static Bool is_long_sleep(UInt number, const UWord *argument)
{
    if (number != __NR_nanosleep && number != __NR_clock_nanosleep)
        return False;
    const struct vki_timespec *asked = (const void *)argument[number == __NR_nanosleep ? 0 : 2];
    return asked->tv_sec > 0 || asked->tv_nsec >= LONG_SLEEP_NS;
}

static UInt waiting_at(UWord word)
{
    UInt found = 0;
    for (ThreadId id = 1; id <= highest; id++)
        found += thread[id].waits_at == word;
    return found;
}

void turns_before_call(ThreadId id, UInt number, const UWord *argument)
{
    thread[id].in_call = True;
    if (is_wait(number, argument) && *(const UInt *)argument[0] == (UInt)argument[2]) {
        waits++;
        thread[id].waits_at = argument[0];
        thread[id].kernel_id = VG_(gettid)();
        settling = id;
        leave(id);
    } else if (is_long_sleep(number, argument)) {
        leave(id);
    } else if (number == __NR_futex) {
        thread[id].asleep = waiting_at(argument[0]);
    }
}

/* Until those that were woken take part again. */
static void await_woken(ThreadId id, UWord word, UWord woken)
{
    const UInt before = thread[id].asleep;
    const UInt rest = before > woken ? before - (UInt)woken : 0;
    for (UInt i = 0; i < NAPS && waiting_at(word) > rest; i++)
        nap(id);
}

static void come_back(ThreadId id)
{
    thread[id].waits_at = 0;
    if (!thread[id].leaves)
        return;
    thread[id].leaves = False;
    thread[id].partakes = True;
    if (turn == 0) {
        turn = id;
        begin_turn(id);
    }
}

void turns_after_call(ThreadId id, UInt number, const UWord *argument, SysRes result)
{
    thread[id].in_call = False;
    come_back(id);
    const UWord operation = argument[1] & FUTEX_MASK;
    if (number == __NR_futex && (operation == F_WAKE || operation == F_WAKE_BITSET) && !sr_isError(result))
        await_woken(id, argument[0], sr_Res(result));
    if (number == __NR_sched_yield && turn == id)
        pass_turn();
}
