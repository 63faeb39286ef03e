/* fork() in a process with threads. Nothing is locked across it: there is no prepare handler at all, so a fork can neither
 * wait for a lock nor deadlock with the C library's. The first slow path of a child finds out that it is one
 * (base/forked.h), resets the locks that threads which do not exist there may have held (their sections keep the data
 * valid at every step) and takes over those threads' heaps. */
#include "process/fork.h"

#include <unistd.h>

#include "arena/runs.h"
#include "base/forked.h"
#include "base/syscall.h"
#include "guard/check.h"
#include "userheap/region.h"
#include "process/thread.h"
#include "upkeep/step.h"

static struct hak_lock *held_while_starting;

/* The child of the only thread that ever had a heap has nothing to repair, unless another one has forked it. A thread
 * that has a heap here is the one that has forked. One without may be new, made before that thread has come to a slow path;
 * it cannot tell whose the heaps are. They stay as they are, and what is free in those of threads that do not exist is not
 * used again. The forking thread is in no slow path meanwhile, where it would wait for this to end: nobody has the locks. */
static bool fork_repair(void)
{
    bool forker = (hak__heap_current()->mode & HAK_MODE_SENTINEL) == 0;
    hak__region_fork_child();
    if (hak__fork_alone() && forker)
        return true;
    hak__lock_fork_child(held_while_starting);
    hak__arena_fork_child();
    hak__upkeep_fork_child();
    if (hak__heap_last_id() != 0)
        hak__check_fork_child();
    return hak__thread_fork_child(forker || hak__syscall(SYS_gettid) == hak__syscall(SYS_getpid));
}

void hak__fork_init(struct hak_lock *starting)
{
    held_while_starting = starting;
    hak__fork_begin(fork_repair, hak__thread_fork_arrive, hak__meta_wiped_word, hak__meta_is_copy);
}
