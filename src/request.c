/* See request.h. */
#include "request.h"

#include <errno.h>

#include "start.h"
#include "upkeep/background.h"
#include "upkeep/step.h"

struct hak_heap *hak__request_heap_slow(void)
{
    return !hak__thread_has_exited() && hak__start() ? hak__thread_attach() : NULL;
}

void *hak__no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

void hak__request_settle(void)
{
    _Atomic uint32_t *mark = hak_peek(&hak__fork_mark);
    if (hak__fork_alone() || mark == NULL || hak_load(mark, HAK_ACQUIRE) != HAK_FORK_REPAIRED)
        return;
    struct hak_heap *heap = hak__heap_current();
    if ((heap->mode & HAK_MODE_SENTINEL) == 0 && hak__heap_try_lock(heap, HAK_OWNER)) {
        hak__outbox_flush(heap, "free");
        hak__heap_collect(heap);
        hak__heap_unlock(heap);
    }
    hak__heaps_sweep(heap);
}

/* Huge blocks need no heap, but a thread that has one takes its part in upkeep for what it frees. */
void hak__tick_huge(size_t given, size_t taken)
{
    struct hak_heap *heap = hak__heap_current();
    hak__background_poll();
    if ((heap->mode & HAK_MODE_SENTINEL) != 0)
        return;
    hak__heap_idle_more(heap, given);
    hak__heap_idle_less(heap, taken);
    hak__upkeep_poll_now(heap);
}
