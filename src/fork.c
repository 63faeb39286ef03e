/* fork() in a process with threads. Nothing is locked across it: there is no prepare handler at all, so a fork can neither
 * wait for a lock nor deadlock with the C library's. The first slow path of a child finds out that it is one
 * (base/forked.h), resets the locks that threads which do not exist there may have held (their sections keep the data
 * valid at every step) and takes over those threads' heaps. */
#include <pthread.h>

#include "arena/arena.h"
#include "base/forked.h"
#include "init.h"
#include "thread.h"
#include "upkeep/step.h"

static void repair(void)
{
    hak__init_fork_child();
    hak__arena_fork_child();
    hak__upkeep_fork_child();
    hak__thread_fork_child();
}

void hak__fork_watch(void)
{
    static _Atomic uint32_t begun;
    if (hak_likely(hak_load(&begun, HAK_RELAXED) != 0) || hak_exchange(&begun, 1, HAK_RELAXED) != 0)
        return;
    _Atomic uint32_t *mark = hak__meta_wiped_word();
    if (mark != NULL)
        hak__fork_look(mark, repair);
    else
        pthread_atfork(NULL, NULL, repair);   /* kernels before 4.14 */
}
