/* fork() in a process with threads. No lock is held across it: there is no prepare handler, so a fork neither waits for a lock
 * nor deadlocks with the C library's. A child's first slow path detects the fork (base/forked.h), resets the locks that missing
 * threads may have held (their sections keep the data valid at every step) and takes over those threads' heaps. */
#include "process/thread.h"

#include <unistd.h>

#include "arena/runs.h"
#include "base/forked.h"
#include "diag/report.h"
#include "base/syscall.h"
#include "guard/check.h"
#include "harden/mode.h"
#include "process/thread.h"
#include "upkeep/step.h"
#include "userheap/userheap.h"

static struct hak_lock *held_while_starting;

/* From now on the spans that the fork has copied are inherited. Hardened blocks are written to when they are freed; and after many
 * forks in a row a child copies pages as its parents did before there were generations. */
static void begin_generation(struct hak_heap *mine)
{
    uint32_t next = hak_peek(&hak__window.generation) + (1u << HAK_GENERATION_SHIFT);
    if (hak__hardened.on || next >> HAK_GENERATION_SHIFT == HAK_GENERATIONS)
        return;
    hak_owner_store(&hak__window.generation, next);
    if ((mine->mode & HAK_MODE_SENTINEL) == 0)
        hak__heap_renew(mine);
}

/* The child of the only thread that ever had a heap needs no repair, unless another thread forked it. A thread with a heap here
 * is the forking one, as is the child's first. Another may be new, started before the forking thread took a slow path; it cannot tell
 * whose the heaps are, so they stay as they are, and missing threads' free blocks are never reused. The forking thread is in no slow
 * path meanwhile: it would wait for the repair to end, and no thread has the locks. */
static bool fork_repair(void)
{
    bool has = (hak__heap_mine()->mode & HAK_MODE_SENTINEL) == 0;
    bool forker = has || hak__syscall(SYS_gettid) == hak__syscall(SYS_getpid);
    const struct hak_regions *regions = hak_load(&hak__regions, HAK_RELAXED);
    hak__window_show();
    if (regions != NULL)
        regions->fork_child();
    if (forker)
        begin_generation(hak__heap_mine());
    if (hak__fork_alone() && has)
        return true;
    hak__lock_fork_child(held_while_starting);
    hak__arena_fork_child();
    hak__report_fork_child();
    hak__upkeep_fork_child();
    if (hak__heap_last_id() != 0)
        hak__check_fork_child();
    return hak__thread_fork_child(forker);
}

void hak__fork_init(struct hak_lock *starting)
{
    held_while_starting = starting;
    hak__fork_begin(fork_repair, hak__thread_fork_arrive, hak__meta_wiped_word, hak__meta_is_copy);
}
