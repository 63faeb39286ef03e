/* The lock of heaps in shared memory (region/robust.c), every schedule within the bounds: threads take and release it, wait, and are
 * killed at any of their steps. Below it is a kernel of four calls: it wakes who sleeps, and does at a thread's death what Linux does
 * by the thread's list of robust locks. Nobody's time to sleep is ever up, so a wake-up that is lost is a schedule without end.
 *
 * One thread at a time has what the lock guards. If one dies inside, the next one is told so, and nobody else is. */
// test: check
#include "region/robust.h"

#include <errno.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/syscall.h"
#include "support/explore.h"

enum { ACTORS = 3 };

/* What the kernel and the checks do is no access of the program's. */
#define OUTSIDE __attribute__((no_sanitize("thread")))

static struct hak_robust lock;
static struct hak_robust_thread self[ACTORS];
static struct robust_list_head list[ACTORS];
static bool listed, sleeps[ACTORS], killed[ACTORS];
static jmp_buf dead[ACTORS];
static unsigned inside, told, marked;   /* inside: the thread, plus one; marked: deaths that the word has said */
static unsigned guarded;                /* what the lock guards, where nobody is killed */

/* --- the kernel ------------------------------------------------------------------------------------------------------------ */

/* Each thread's own, though they are fibers of one. */
OUTSIDE int *__errno_location(void)
{
    static int each[EXPLORE_THREADS + 1];
    return &each[explore_directly() ? EXPLORE_THREADS : explore_thread()];
}

OUTSIDE static long wake_one(void)
{
    for (unsigned i = 0; i < ACTORS; i++) {
        if (sleeps[i]) {
            sleeps[i] = false;
            return 1;
        }
    }
    return 0;
}

/* The comparison and the falling asleep are one step. */
OUTSIDE static long wait_for_wake(uint32_t value)
{
    unsigned me = explore_thread();
    if (atomic_load_explicit(&lock.word, HAK_RELAXED) != value)
        return -EAGAIN;
    sleeps[me] = true;
    while (sleeps[me]) {
        explore_yield();
        explore_resumed();
    }
    return 0;
}

OUTSIDE static long look_for(unsigned number)
{
    return killed[number - 1] ? -ESRCH : 0;
}

long hak__syscall_made(long number, long first, long second, long third, long d, long e, long f)
{
    (void)d, (void)e, (void)f;
    switch (number) {
    case SYS_gettid:
        return 1 + (long)explore_thread();
    case SYS_get_robust_list:
        *(void **)second = &list[explore_thread()];
        return listed ? 0 : -EPERM;
    case SYS_kill:
        return look_for((unsigned)first);
    default:
        return second == FUTEX_WAIT ? wait_for_wake((uint32_t)third) : wake_one();
    }
}

OUTSIDE static bool die(unsigned who)
{
    void *entry = list[who].list_op_pending;
    killed[who] = true;
    sleeps[who] = false;
    EXPLORE_EXPECT(inside != 1 + who || !listed || entry != NULL, "the kernel does not know of a lock that has been taken");
    inside = inside == 1 + who ? 0 : inside;
    return entry != NULL;
}

OUTSIDE static void mark(void) { marked++; }

/* What Linux does with the pending operation of a thread that ends (handle_futex_death). */
static void kill_thread(unsigned who)
{
    if (!die(who))
        return;
    uint32_t word = hak_fetch_or(&lock.word, 0, HAK_ACQ_REL), next;   /* the last value */
    do {
        if (word != 0 && (word & FUTEX_TID_MASK) != 1 + who)
            return;
        next = word == 0 ? 0 : (word & FUTEX_WAITERS) | FUTEX_OWNER_DIED;
    } while (!hak_cas_weak(&lock.word, &word, next, HAK_ACQ_REL, HAK_RELAXED));
    if (next != 0)
        mark();
    if (next == 0 || (next & FUTEX_WAITERS) != 0)
        wake_one();
}

OUTSIDE void explore_resumed(void)
{
    if (!explore_directly() && killed[explore_thread()])
        longjmp(dead[explore_thread()], 1);
}

void hak__fork_look(void) { hak__fork_check(); }

/* --- what threads do --------------------------------------------------------------------------------------------------------- */

OUTSIDE static void note_entered(bool whole)
{
    told += !whole;
    EXPLORE_EXPECT(told <= marked, "somebody is told of a death that was not");
    EXPLORE_EXPECT(inside == 0, "two threads are inside");
    inside = 1 + explore_thread();
}

OUTSIDE static void note_leaving(void) { inside = 0; }

static void once(void)
{
    struct hak_robust_thread *me = &self[explore_thread()];
    if (setjmp(dead[explore_thread()]) != 0)
        return;
    note_entered(hak__robust_acquire(&lock, me));
    guarded++;
    note_leaving();
    hak__robust_release(&lock, me);
    EXPLORE_EXPECT(list[explore_thread()].list_op_pending == NULL, "the kernel still looks at a lock that has been released");
}

static void twice(void)
{
    once();
    once();
}

OUTSIDE static void victim(void)
{
    if (setjmp(dead[0]) != 0)
        return;
    note_entered(hak__robust_acquire(&lock, &self[0]));
    hak_signal_fence();
    if (hak_load(&lock.unlisted, HAK_RELAXED) == 0)   /* a point at which it can be killed inside */
        note_leaving();
    hak__robust_release(&lock, &self[0]);
}

static void killer(void)
{
    hak_load(&lock.unlisted, HAK_RELAXED);
    kill_thread(0);
}

OUTSIDE static void waiter(void)
{
    note_entered(hak__robust_acquire(&lock, &self[explore_thread()]));
    note_leaving();
    hak__robust_release(&lock, &self[explore_thread()]);
}

/* --- the cases ------------------------------------------------------------------------------------------------------------------ */

static void begin(bool has_list)
{
    memset(self, 0, sizeof self);
    memset(sleeps, 0, sizeof sleeps);
    memset(killed, 0, sizeof killed);
    atomic_store(&lock.word, 0);
    atomic_store(&lock.unlisted, 0);
    listed = has_list;
    inside = told = marked = guarded = 0;
    for (unsigned i = 0; i < ACTORS; i++)
        list[i] = (struct robust_list_head){ .futex_offset = -32 };
}

static void with_list(void) { begin(true); }
static void without_list(void) { begin(false); }

static void check(void)
{
    uint32_t word = atomic_load(&lock.word);
    EXPLORE_EXPECT(told + ((word & FUTEX_OWNER_DIED) != 0) == marked, "of a death inside nobody was told, nor will be");
    EXPLORE_EXPECT((word & FUTEX_TID_MASK) == 0, "a thread that has left has the lock");
}

static const struct explore_case cases[] = {
    { "two threads", 4, 2, with_list, { twice, twice }, check },
    { "three threads", 2, 3, with_list, { once, once, once }, check, 1, 1 },
    { "one is killed", 3, 2, with_list, { victim, killer }, check },
    { "one is killed, another wants the lock", 3, 3, with_list, { victim, killer, waiter }, check, 2, 1 },
    { "nobody tells of deaths", 3, 2, without_list, { twice, twice }, check },
};

int main(int argc, char **argv) { return explore_main(cases, sizeof cases / sizeof cases[0], argc, argv); }
