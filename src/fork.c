/* fork() in a process with threads. Nothing is locked across it: prepare does nothing at all, so a fork can neither
 * wait for a lock nor deadlock with the C library's. The child resets the locks that threads which do not exist there
 * may have held (their sections keep the data valid at every step) and takes over those threads' heaps. */
#include <pthread.h>

#include "init.h"
#include "thread.h"
#include "upkeep/step.h"

void hak__fork_child(void)
{
    hak__init_fork_child();
    hak__arena_fork_child();
    hak__upkeep_fork_child();
    hak__thread_fork_child();
}

void hak__fork_init(void)
{
    static bool done;
    if (!done)
        done = pthread_atfork(NULL, NULL, hak__fork_child) == 0;
}
