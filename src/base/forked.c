/* See forked.h. */
#include "base/forked.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lock.h"

struct hak_forked hak__forked;
static bool (*repair_child)(void), (*arrive_late)(void);
static _Atomic uint32_t *(*find_fork_mark)(void);
static _Atomic long process;   /* orders nothing: read again after a call of the system */
static _Atomic bool several;   /* more than one thread has had a heap, or been about to get one */

/* Any thread, any number of times: it is always the same word. */
static bool look_at_mark(void)
{
    _Atomic uint32_t *mark = find_fork_mark();
    if (mark == NULL)
        return false;
    hak_store(mark, HAK_FORK_REPAIRED, HAK_RELAXED);
    hak_owner_store(&hak__forked.mark, mark);
    return true;
}

void hak__fork_begin(bool (*repair)(void), bool (*arrive)(void), _Atomic uint32_t *(*find_mark)(void))
{
    repair_child = repair;
    arrive_late = arrive;
    find_fork_mark = find_mark;
    hak_store(&process, syscall(SYS_getpid), HAK_RELAXED);
    look_at_mark();
}

bool hak__fork_alone(void) { return !hak_load(&several, HAK_RELAXED); }

static void repair_at_once(void)
{
    hak_store(&process, syscall(SYS_getpid), HAK_RELAXED);
    repair_child();
}

/* The caller is about to be the second thread that has a heap. If it is new in a child, the only one before it has forked, with
 * nothing to repair, and must not repair it later, beside others. */
static void watch_begins(void)
{
    if (hak_peek(&hak__forked.mark) == NULL) {
        hak__fork_unwatched();
        hak_store(&process, syscall(SYS_getpid), HAK_RELAXED);
    }
    hak_store(&several, true, HAK_RELAXED);
}

void hak__fork_watch(void)
{
    static _Atomic uint32_t handled;
    if (hak_unlikely(!hak_load(&several, HAK_RELAXED)))
        watch_begins();
    if (hak_likely(hak_peek(&hak__forked.mark) != NULL) || hak_load(&handled, HAK_RELAXED) != 0)
        return;
    if (!look_at_mark() && hak_exchange(&handled, 1, HAK_RELAXED) == 0)
        pthread_atfork(NULL, NULL, repair_at_once);   /* kernels before 4.14 */
}

bool hak__fork_is_home(void) { return syscall(SYS_getpid) == hak_load(&process, HAK_RELAXED); }

/* The thread that has forked is the child's first one. Others come after it, and have nothing to repair. */
void hak__fork_unwatched(void)
{
    if (hak_peek(&hak__forked.mark) != NULL || hak_load(&process, HAK_RELAXED) == 0)
        return;
    long now = syscall(SYS_getpid);
    if (now == hak_load(&process, HAK_RELAXED) || syscall(SYS_gettid) != now)
        return;
    hak_store(&process, now, HAK_RELAXED);
    repair_child();
}

void hak__fork_found(void)
{
    uint32_t wiped = HAK_FORK_WIPED;
    if (hak_cas_strong(hak__forked.mark, &wiped, HAK_FORK_REPAIRING, HAK_ACQUIRE, HAK_ACQUIRE)) {
        hak_store(&process, syscall(SYS_getpid), HAK_RELAXED);
        bool done = repair_child();
        hak_store(hak__forked.mark, done ? HAK_FORK_REPAIRED : HAK_FORK_AWAITED, HAK_RELEASE);
        return;
    }
    for (unsigned tries = 0; hak_load(hak__forked.mark, HAK_ACQUIRE) == HAK_FORK_REPAIRING; tries++)
        hak__nap(tries);
    if (hak_load(hak__forked.mark, HAK_ACQUIRE) == HAK_FORK_AWAITED && arrive_late())
        hak_store(hak__forked.mark, HAK_FORK_REPAIRED, HAK_RELAXED);
}
