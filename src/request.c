/* See request.h. */
#include "request.h"

#include <errno.h>

#include "cache/tune.h"
#include "profile/profile.h"
#include "start.h"
#include "upkeep/background.h"
#include "upkeep/polling.h"
#include "upkeep/step.h"

struct hak_heap *hak__request_heap_slow(void)
{
    return !hak__thread_has_exited() && hak__start() ? hak__thread_attach() : NULL;
}

void hak__request_note(void *block, size_t n)
{
    struct hak_heap *heap = block != NULL && hak__profile_counts() ? hak__request_heap() : NULL;
    if (heap != NULL)
        hak__profile_note(heap, block, n);
}

static void redirect(struct hak_heap *heap, bool away)
{
    hak__cache_redirect(heap, away);
    hak__heap_unlock(heap);
}

struct hak_heap *hak__request_apart(void)
{
    struct hak_heap *heap = hak__heap_current();
    if (hak_likely((heap->mode & HAK_MODE_REDIRECTED) == 0) || !hak__enter_own(heap))
        return NULL;
    redirect(heap, false);
    return heap;
}

void hak__request_apart_end(struct hak_heap *heap)
{
    if (heap != NULL && hak__enter_own(heap))
        redirect(heap, true);
}

void *hak__fail(int code)
{
    errno = code;
    return NULL;
}

void *hak__no_memory(void) { return hak__fail(ENOMEM); }

/* Huge blocks need no heap, but a thread that has one takes part in upkeep for them. */
void hak__poll_huge(size_t given, size_t taken)
{
    struct hak_heap *heap = hak__heap_current();
    hak__background_poll();
    if ((heap->mode & HAK_MODE_SENTINEL) != 0)
        return;
    hak__heap_idle_more(heap, given);
    hak__heap_idle_less(heap, taken);
    hak__upkeep_poll_now(heap);
}
