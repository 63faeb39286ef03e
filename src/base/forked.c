/* See forked.h. */
#include "base/forked.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "base/lock.h"

_Atomic uint32_t *hak__fork_mark;
static bool (*repair_child)(void), (*arrive_late)(void);
static long process;

void hak__fork_begin(bool (*repair)(void), bool (*arrive)(void), _Atomic uint32_t *mark)
{
    repair_child = repair;
    arrive_late = arrive;
    process = syscall(SYS_getpid);
    if (mark != NULL)
        hak__fork_look(mark);
}

bool hak__fork_is_home(void) { return syscall(SYS_getpid) == process; }

void hak__fork_look(_Atomic uint32_t *mark)
{
    hak_store(mark, HAK_FORK_REPAIRED, HAK_RELAXED);
    hak_owner_store(&hak__fork_mark, mark);
}

/* The thread that has forked is the child's first one. Others come after it, and have nothing to repair. */
void hak__fork_unwatched(void)
{
    long now = hak_peek(&hak__fork_mark) != NULL || process == 0 ? process : syscall(SYS_getpid);
    if (now == process || syscall(SYS_gettid) != now)
        return;
    process = now;
    repair_child();
}

void hak__fork_found(void)
{
    uint32_t wiped = HAK_FORK_WIPED;
    if (hak_cas_strong(hak__fork_mark, &wiped, HAK_FORK_REPAIRING, HAK_ACQUIRE, HAK_ACQUIRE)) {
        process = syscall(SYS_getpid);
        bool done = repair_child();
        hak_store(hak__fork_mark, done ? HAK_FORK_REPAIRED : HAK_FORK_AWAITED, HAK_RELEASE);
        return;
    }
    for (unsigned tries = 0; hak_load(hak__fork_mark, HAK_ACQUIRE) == HAK_FORK_REPAIRING; tries++)
        hak__nap(tries);
    if (hak_load(hak__fork_mark, HAK_ACQUIRE) == HAK_FORK_AWAITED && arrive_late())
        hak_store(hak__fork_mark, HAK_FORK_REPAIRED, HAK_RELAXED);
}
