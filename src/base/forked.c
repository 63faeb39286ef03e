/* See forked.h. */
#include "base/forked.h"

#include <sched.h>

_Atomic uint32_t *hak__fork_mark;
static void (*repair_child)(void);

void hak__fork_look(_Atomic uint32_t *mark, void (*repair)(void))
{
    repair_child = repair;
    hak_store(mark, HAK_FORK_REPAIRED, HAK_RELAXED);
    hak_owner_store(&hak__fork_mark, mark);
}

void hak__fork_found(void)
{
    uint32_t wiped = HAK_FORK_WIPED;
    if (hak_cas_strong(hak__fork_mark, &wiped, HAK_FORK_REPAIRING, HAK_ACQUIRE, HAK_ACQUIRE)) {
        repair_child();
        hak_store(hak__fork_mark, HAK_FORK_REPAIRED, HAK_RELEASE);
        return;
    }
    while (hak_load(hak__fork_mark, HAK_ACQUIRE) == HAK_FORK_REPAIRING)
        sched_yield();
}
